"""A double of vLLM 0.31.0's OpenAI server, over real sockets, that starts in a millisecond.

It speaks the protocol: status codes, error envelopes, validation, guided output, the template's
strictness about `no_think`. It does not think: what it writes is made from the schema it was
given and the words it was sent. One contract-test file runs over it and over the real server, so
that it cannot drift.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Literal

from .http import Answer, Body, Handler, LocalServer

JSON = Any
Kind = Literal["smollm2", "hyv3-dummy"]

VERSION = "0.31.0"
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
STRICT_MESSAGE = "hymem fixture: chat_template_kwargs.reasoning_effort has to be 'no_think'"


class Refusal(Exception):
    """A request that vLLM answers with an error envelope."""

    def __init__(self, message: str, param: str | None = None, *, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.param = param
        self.kind = kind
        self.status = 404 if kind == "NotFoundError" else 400


def _invalid(place: str, message: str) -> Refusal:
    """What request validation answers: the type has a space, and the message lists the errors."""
    details = {"type": "value_error", "loc": place, "msg": message}
    return Refusal(f"1 validation error(s):\n  {details}", place, kind="Bad Request")


class Double(LocalServer):
    """vLLM's protocol. `kind` is the model it stands in for: `smollm2` has a template that
    refuses everything but `no_think`, `hyv3-dummy` has the reasoning and tool parsers."""

    def __init__(
        self,
        kind: Kind = "smollm2",
        *,
        model: str = "hy-memory",
        max_model_len: int = 12288,
        api_key: str | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.model = model
        self.max_model_len = max_model_len
        self.api_key = api_key
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    # -- routes ----------------------------------------------------------------------------------

    def answer(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Answer:
        path = path.partition("?")[0]
        if (
            self.api_key
            and path.startswith("/v1/")
            and headers.get("authorization") != f"Bearer {self.api_key}"
        ):
            return Body({"error": "Unauthorized"}, 401)
        wanted, route = self._routes.get(path, ("", None))
        if route is None:
            return Body({"detail": "Not Found"}, 404)
        if method != wanted:
            return Body({"detail": "Method Not Allowed"}, 405)
        try:
            return route(self, _parsed(headers, raw) if method == "POST" else {})
        except Refusal as refusal:
            inner = {
                "message": str(refusal),
                "type": refusal.kind,
                "param": refusal.param,
                "code": refusal.status,
            }
            return Body({"error": inner}, refusal.status)

    def _healthy(self, _: JSON) -> Answer:
        return Body(b"")

    def _version(self, _: JSON) -> Answer:
        return Body({"version": VERSION})

    def _models(self, _: JSON) -> Answer:
        model = {
            "id": self.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "vllm",
            "root": f"double-of-{self.kind}",
            "parent": None,
            "max_model_len": self.max_model_len,
            "permission": [{"id": "modelperm-" + secrets.token_hex(8), "object": "model_permission"}],
        }
        return Body({"object": "list", "data": [model]})

    def _metrics(self, _: JSON) -> Answer:
        with self._lock:
            counts = dict(self._counts)
        lines = [
            f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="{self.model}"}} '
            f"{float(counts.get(reason, 0))}"
            for reason in ("stop", "length", "abort")
        ]
        for name in ("prompt_tokens", "generation_tokens"):
            lines.append(
                f'vllm:{name}_total{{engine="0",model_name="{self.model}"}} {float(counts.get(name, 0))}'
            )
        return Body("\n".join(lines) + "\n", content_type="text/plain; version=1.0.0; charset=utf-8")

    def _tokenize(self, body: JSON) -> Answer:
        if "messages" in body:
            text = self._rendered(body["messages"], body.get("chat_template_kwargs") or {}, None)
        else:
            text = body.get("prompt", "")
        pieces = _tokens(text)
        return Body(
            {
                "count": len(pieces),
                "max_model_len": self.max_model_len,
                "tokens": [_token_id(each) for each in pieces],
                "token_strs": None,
            }
        )

    def _chat(self, body: JSON) -> Answer:
        self._check(body)
        effort = body.get("reasoning_effort") or (body.get("chat_template_kwargs") or {}).get(
            "reasoning_effort"
        )
        prompt = self._rendered(
            body["messages"], body.get("chat_template_kwargs") or {}, body.get("reasoning_effort")
        )
        prompt_tokens = len(_tokens(prompt))
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        self._check_room(prompt_tokens, limit)
        message: dict[str, JSON] = {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        text = _written(body)
        finish = "stop"
        pieces = _tokens(text)
        if limit is not None and len(pieces) > limit:
            text, finish = "".join(pieces[:limit]), "length"
        if self.kind == "hyv3-dummy" and effort not in (None, "no_think"):
            message["reasoning"] = text if body.get("include_reasoning", True) else None
        elif _forced_tool(body):
            message["content"] = ""
            message["tool_calls"] = [_tool_call(body)]
            finish = "tool_calls" if body.get("tool_choice") == "required" else "stop"
        else:
            message["content"] = text
        completion_tokens = min(len(pieces), limit or len(pieces)) + (finish == "stop")
        with self._lock:
            self._counts["length" if finish == "length" else "stop"] += 1
            self._counts["prompt_tokens"] += prompt_tokens
            self._counts["generation_tokens"] += completion_tokens
        usage = {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
            "prompt_tokens_details": None,
            "completion_tokens_details": {"reasoning_tokens": 0} if self.kind == "hyv3-dummy" else None,
        }
        if body.get("stream"):
            return _Stream(self.model, text, finish, usage if _wants_usage(body) else None)
        return Body(completion(message, finish, usage, model=self.model))

    _routes: dict[str, tuple[str, Callable[[Double, JSON], Answer] | None]] = {  # noqa: RUF012 - filled once
        "/health": ("GET", _healthy),
        "/ping": ("GET", _healthy),
        "/version": ("GET", _version),
        "/metrics": ("GET", _metrics),
        "/v1/models": ("GET", _models),
        "/tokenize": ("POST", _tokenize),
        "/v1/chat/completions": ("POST", _chat),
    }

    # -- validation ------------------------------------------------------------------------------

    def _check(self, body: JSON) -> None:
        for check in _CHECKS:
            check(body)
        if body.get("model") not in (None, self.model):
            raise Refusal(f"The model `{body['model']}` does not exist.", "model", kind="NotFoundError")
        if body.get("tools") and self.kind == "smollm2" and body.get("tool_choice") != "none":
            raise Refusal(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            )
        for name in ("max_completion_tokens", "max_tokens"):
            limit = body.get(name)
            if limit is None:
                continue
            if limit < 1:
                raise Refusal(f"max_tokens must be at least 1, got {limit}.", "max_tokens")
            if limit > self.max_model_len:
                raise Refusal(
                    f"max_tokens={limit} cannot be greater than max_model_len={self.max_model_len}. "
                    "Please request fewer output tokens.",
                    "max_tokens",
                )
            break

    def _check_room(self, prompt_tokens: int, limit: int | None) -> None:
        wanted = limit or 1
        if prompt_tokens + wanted > self.max_model_len:
            least = min(prompt_tokens, self.max_model_len - wanted + 1)  # vLLM stops counting there
            raise Refusal(
                f"This model's maximum context length is {self.max_model_len} tokens. However, you "
                f"requested {wanted} output tokens and your prompt contains at least {least} input "
                "tokens. Please reduce the length of the input prompt or the number of requested "
                "output tokens.",
                "input_tokens",
            )

    def _rendered(self, messages: JSON, kwargs: JSON, top_level: str | None) -> str:
        """The prompt. A top-level `reasoning_effort` wins over the template's own, as in vLLM."""
        effort = top_level or kwargs.get("reasoning_effort")
        if self.kind == "smollm2" and effort != "no_think":
            raise Refusal(STRICT_MESSAGE)
        lines = [f"reasoning_effort:{effort}"] if self.kind == "hyv3-dummy" else []
        lines += [f"{each['role']}\n{_text_of(each.get('content'))}" for each in messages]
        return "\n".join(lines)


def completion(message: JSON, finish: str, usage: JSON, *, model: str) -> JSON:
    """The envelope of a chat completion as vLLM 0.31.0 sends it."""
    return {
        "id": "chatcmpl-" + secrets.token_hex(8),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": finish,
                "stop_reason": None,
                "token_ids": None,
                "routed_experts": None,
            }
        ],
        "service_tier": None,
        "system_fingerprint": f"vllm-{VERSION}-{secrets.token_hex(4)}",
        "usage": usage,
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _parsed(headers: dict[str, str], raw: bytes) -> JSON:
    if not headers.get("content-type", "").startswith("application/json"):
        details = {"type": "value_error", "msg": "Unsupported Media Type"}
        raise Refusal(f"1 validation error(s):\n  {details}", None, kind="Bad Request")
    try:
        return json.loads(raw)
    except ValueError as error:
        raise _invalid(f"body.{getattr(error, 'pos', 0)}", "JSON decode error") from None


def _check_messages(body: JSON) -> None:
    if "messages" not in body:
        raise _invalid("body.messages", "Field required")
    if not body["messages"]:
        raise Refusal("Cannot apply chat template to an empty conversation.")
    for at, message in enumerate(body["messages"]):
        if message.get("role") in ("user", "system") and message.get("content") is None:
            raise _invalid(f"body.messages.{at}.content", "Input should be a valid string")
        content = message.get("content")
        if isinstance(content, list) and any(part.get("type") == "image_url" for part in content):
            raise Refusal("hy-memory is not a multimodal model")


def _check_sampling(body: JSON) -> None:
    if body.get("temperature", 0) < 0:
        raise Refusal(f"temperature must be non-negative, got {body['temperature']}.", "temperature")
    if not 0 < body.get("top_p", 1) <= 1:
        raise Refusal(f"top_p must be in (0, 1], got {body['top_p']}.", "top_p")
    if body.get("n", 1) > 1 and body.get("temperature") == 0:
        raise Refusal(f"n must be 1 when using greedy sampling, got {body['n']}.")


def _check_template(body: JSON) -> None:
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in EFFORTS:
        raise _invalid("body.reasoning_effort", f"Input should be one of {', '.join(EFFORTS)}")
    kwargs = body.get("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise _invalid("body.chat_template_kwargs", "Input should be a valid dictionary")
    if body.get("chat_template"):
        raise Refusal("Chat template is passed with request, but --trust-request-chat-template is not set.")


def _check_format(body: JSON) -> None:
    wanted = body.get("response_format")
    if wanted is None:
        return
    kind = wanted.get("type")
    if kind not in ("text", "json_object", "json_schema", "structural_tag"):
        raise _invalid("body.response_format.type", "Input should be a known type")
    if kind == "json_schema":
        if "json_schema" not in wanted:
            raise Refusal("response_format of type json_schema needs json_schema", "response_format")
        if wanted["json_schema"].get("schema", {}).get("type") not in _TYPES:
            raise Refusal("Grammar error: the schema cannot be compiled")
    if kind != "text" and body.get("structured_outputs"):
        raise Refusal("You can only use one kind of structured outputs constraint but multiple are specified")


def _check_tools(body: JSON) -> None:
    choice, tools = body.get("tool_choice"), body.get("tools")
    if choice not in (None, "none") and not tools:
        raise Refusal("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        names = {tool["function"]["name"] for tool in tools}
        if choice.get("function", {}).get("name") not in names:
            raise Refusal("The tool specified in `tool_choice` does not match any of `tools`", "tool_choice")


_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_CHECKS = (_check_messages, _check_sampling, _check_template, _check_format, _check_tools)


# -- what it writes ------------------------------------------------------------------------------


def _text_of(content: JSON) -> str:
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content)
    return content or ""


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s*\w+|\s*[^\w\s]|\s+", text)


def _token_id(piece: str) -> int:
    return sum(piece.encode()) % 49152


def _sentences(body: JSON) -> Iterator[str]:
    """The sentences of the last user message, over and over."""
    users = [each for each in body["messages"] if each["role"] == "user"]
    text = _text_of((users or body["messages"])[-1].get("content"))
    sentences = [each.strip() for each in re.split(r"[.!?\n]+", text) if each.strip()]
    return itertools.cycle(sentences or ["nothing"])


def _schema_of(body: JSON) -> JSON:
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        return wanted["json_schema"]["schema"]
    return (body.get("structured_outputs") or {}).get("json")


def _written(body: JSON) -> str:
    words = _sentences(body)
    schema = _schema_of(body)
    if schema is not None:
        return json.dumps(_instance(schema, words), ensure_ascii=False, separators=(",", ":"))
    if (body.get("response_format") or {}).get("type") == "json_object":
        return json.dumps({"answer": next(words)}, ensure_ascii=False)
    return f"You said: {next(words)}."


def _instance(schema: JSON, words: Iterator[str]) -> JSON:
    """Something that fits a schema, with the words for its strings."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    if "anyOf" in schema:
        return _instance(schema["anyOf"][0], words)
    match schema.get("type"):
        case "object":
            return {name: _instance(each, words) for name, each in schema.get("properties", {}).items()}
        case "array":
            count = min(max(schema.get("minItems", 2), 1), schema.get("maxItems", 2))
            return [_instance(schema.get("items", {"type": "string"}), words) for _ in range(count)]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case "null":
            return None
    return next(words)[: schema.get("maxLength", 200)]


def _forced_tool(body: JSON) -> bool:
    return bool(body.get("tools")) and body.get("tool_choice") not in (None, "auto", "none")


def _tool_call(body: JSON) -> JSON:
    choice = body["tool_choice"]
    tools = {each["function"]["name"]: each["function"] for each in body["tools"]}
    tool = tools[choice["function"]["name"]] if isinstance(choice, dict) else next(iter(tools.values()))
    arguments = _instance(tool.get("parameters") or {"type": "object"}, _sentences(body))
    return {
        "id": "chatcmpl-tool-" + secrets.token_hex(8),
        "type": "function",
        "function": {"name": tool["name"], "arguments": json.dumps(arguments)},
    }


def _wants_usage(body: JSON) -> bool:
    return bool((body.get("stream_options") or {}).get("include_usage"))


class _Stream:
    """A completion as server-sent events, a few tokens each."""

    def __init__(self, model: str, text: str, finish: str, usage: JSON | None) -> None:
        self.model = model
        self.text = text
        self.finish = finish
        self.usage = usage

    def send(self, handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("connection", "close")
        handler.end_headers()
        for chunk in self._chunks():
            handler.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            handler.wfile.flush()
        handler.wfile.write(b"data: [DONE]\n\n")
        handler.close_connection = True

    def _chunks(self) -> Iterator[JSON]:
        base = {
            "id": "chatcmpl-" + secrets.token_hex(8),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": self.model,
        }
        yield {**base, "choices": [_delta({"role": "assistant", "content": ""})]}
        pieces = _tokens(self.text)
        for at in range(0, len(pieces), 3):
            last = at + 3 >= len(pieces)
            yield {
                **base,
                "choices": [_delta({"content": "".join(pieces[at : at + 3])}, self.finish if last else None)],
            }
        if self.usage is not None:
            yield {**base, "choices": [], "usage": self.usage}


def _delta(delta: JSON, finish: str | None = None) -> JSON:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
