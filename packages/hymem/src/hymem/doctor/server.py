"""The writer's server, seen through the client that writes go through."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hymem import transport
from hymem.plan import LEAST_ROOM, TransportError, WriteCall, first_request
from hymem.settings import NO_KEY, WriterSettings

from .report import Report

TESTED = "0.31.0"
"""The version of vLLM that hymem is tested with."""
SECONDS = 60.0
"""For each of the few small requests that are made of the server."""


@dataclass(frozen=True)
class Prompt:
    """The longest prompt that a framework has for the writer, in tokens."""

    framework: str
    site: str
    tokens: int


class Server:
    """A writer's server, seen through the client that writes go through."""

    def __init__(self, report: Report, settings: WriterSettings) -> None:
        self.report = report
        self.settings = settings
        self.endpoint = transport.Endpoint.of(settings)
        self.at = f"{settings.base_url} ({settings.source('base_url')})"
        self.has_key = self.endpoint.key not in ("", NO_KEY) or bool(settings.headers)

    def look(self, prompts: Sequence[Prompt]) -> None:
        """From the way there, by what it serves, to what it makes of a request."""
        settings = self.settings
        model = f"model {settings.model!r} ({settings.source('model')})"
        self.report.fact("writer", f"{self.at}, {model}, {'a key' if self.has_key else 'no key'}")
        self._look_at_the_way()
        served = self._ask("get", "/models", _served)
        if isinstance(served, TransportError):
            if served.status not in (404, 405, 501) or not self._has_chat():
                self._say_why_not(served)
                return
            served = {settings.model: None}  # a gateway without that route
        self._look_at_version()
        if settings.model not in served:
            names = ", ".join(map(repr, served)) or "nothing"
            found = f"the server has no model {settings.model!r}; it serves {names}"
            self._find("wrong-model", found, "set `model` to one of them, or --served-model-name there")
            return
        self._look_at_window(served[settings.model], prompts)
        self._look_at_chat()

    def _find(self, code: str, found: str, todo: str) -> None:
        self.report.find(code, "writer", found, todo)

    def _ask(self, method: str, url: str, made: Any, **more: Any) -> Any:
        def tolerant(found: Any) -> Any:
            try:
                return made(found)
            except (KeyError, TypeError, AttributeError, ValueError):
                return TransportError("not_a_reply")

        deadline = time.monotonic() + min(SECONDS, self.settings.timeout)
        return transport.ask(self.endpoint, deadline, method, url, tolerant, **more)

    def _look_at_the_way(self) -> None:
        parts = urlsplit(self.settings.base_url)
        if parts.scheme == "http" and self.has_key and not self.endpoint.loopback:
            found = f"the key goes to {self.settings.base_url} unencrypted"
            self._find("key-unencrypted", found, "serve it over https, or on this machine")
        proxies = {} if self.endpoint.loopback else urllib.request.getproxies()
        named = proxies.get(parts.scheme) or proxies.get("all")
        if named and not urllib.request.proxy_bypass(parts.netloc):
            found = f"what is written goes through a proxy of the environment{_named(named)}"
            self._find("proxy", found, f"add {parts.hostname} to NO_PROXY unless that is meant")

    def _say_why_not(self, error: TransportError) -> None:
        model = self.settings.model
        if error.kind == "connect" and error.detail == "tls":
            todo = "compare https:// with what it speaks, and its certificate with SSL_CERT_FILE"
            self._find("server-down", f"{self.at} and this machine cannot agree on TLS", todo)
        elif error.kind == "connect" and error.detail == "name":
            self._find("server-down", f"the name in {self.at} cannot be looked up", "correct base_url")
        elif error.kind == "connect":
            todo = f"start it: vllm serve MODEL --served-model-name {model}; or set base_url"
            self._find("server-down", f"nothing answers at {self.at}", todo)
        elif error.kind == "no_client":
            found = "no client can be made with the proxy and certificate variables of the environment"
            todo = "look at HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
            self._find("bad-environment", found, todo)
        elif error.status in (401, 403):
            self._find("key-refused", f"the server refuses the key (HTTP {error.status})", "set api_key")
        elif error.status == 429 or (error.status or 0) >= 500:
            found = f"{self.at} answers HTTP {error.status}"
            self._find("server-not-ready", found, "wait until it has started; look at its log")
        elif error.status is None and error.kind != "not_a_reply":
            found = f"no answer from {self.at}: {error.kind}"
            self._find("server-not-ready", found, "look at the server's log, and at what is in between")
        elif self._is_everos():
            todo = "both take port 8000 by default: move one (EVEROS_API__PORT, or vllm serve --port)"
            self._find("everos-there", f"EverOS listens at {self.at}, not vLLM", todo)
        else:
            what = f"HTTP {error.status}" if error.status else "something else"
            found = f"what listens at {self.at} has no OpenAI API: {what}"
            self._find("not-an-api", found, "base_url has to end where that API begins, in /v1 usually")

    def _has_chat(self) -> bool:
        return not isinstance(self._post(self._hello()), TransportError)

    def _is_everos(self) -> bool:
        """Its route for memories, in every version from 1.0 on, takes POST alone."""
        answer = self._ask("get", f"{self.endpoint.root}/api/v1/memory/add", str)
        return isinstance(answer, TransportError) and answer.status == 405

    def _look_at_version(self) -> None:
        version = self._ask("get", f"{self.endpoint.root}/version", lambda found: str(found["version"])[:40])
        if isinstance(version, TransportError):
            self.report.fact("writer", "not vLLM, or behind a gateway: it tells no version")
            return
        self.report.fact("writer", f"vLLM {version}")
        if not version.startswith(TESTED):
            todo = "nothing, if all else is well"
            self._find("untested-server", f"vLLM {version} is not the tested {TESTED}", todo)

    def _look_at_window(self, window: int | None, prompts: Sequence[Prompt]) -> None:
        if window is None:
            todo = "see that it fits your framework's prompts; docs/ has their sizes"
            self._find("window-unknown", "the server does not tell its max_model_len", todo)
            return
        self.report.fact("writer", f"max_model_len {window}")
        reply = self.settings.max_tokens
        for prompt in prompts:
            found = f"{prompt.site} has {prompt.tokens} tokens of prompt by itself; max_model_len is {window}"
            todo = f"start the server with --max-model-len {_rounded(prompt.tokens + 2 * reply)}"
            if window < prompt.tokens + LEAST_ROOM:
                self.report.find("window-small", prompt.framework, found, todo)
            elif window < prompt.tokens + reply:
                self.report.find("window-tight", prompt.framework, found, todo)

    # -- what it makes of a request --------------------------------------------------------------

    def _hello(self) -> dict[str, Any]:
        asked: WriteCall[str] = WriteCall([{"role": "user", "content": "Say hello."}], site="doctor")
        return {**first_request(asked, self.settings).body, "max_tokens": 48}

    def _post(self, body: Mapping[str, Any]) -> Any:
        """The message that is answered, or a `TransportError`."""

        def message(found: Any) -> Any:
            made = found["choices"][0]["message"]
            return made if isinstance(made, dict) else TransportError("not_a_reply")

        return self._ask("post", "/chat/completions", message, body=body)

    def _look_at_chat(self) -> None:
        body = self._hello()
        answer = self._post(body)
        if isinstance(answer, TransportError):
            self._say_why_refused(body, answer)
            return
        if _thinks(answer):
            self._say_it_thinks()
        elif self.settings.reasoning_effort is not None and self._heeds_kwargs(body):
            self.report.fact("writer", f"{self.settings.reasoning_effort} is heeded")
        if self.settings.structured_output != "never":
            self._look_at_structure(body)

    def _say_why_refused(self, body: Mapping[str, Any], error: TransportError) -> None:
        """With `chat_template_kwargs`, that is; it may be them."""
        bare = {name: value for name, value in body.items() if name != "chat_template_kwargs"}
        found = f"the server refuses a chat request: {_failure(error)}"
        if bare == body:
            self._find("chat-refused", found, "look at the server's log")
        elif not isinstance(without := self._post(bare), TransportError):
            todo = "if it is no vLLM, set reasoning_effort to none: nothing of that kind is sent then"
            self._find("kwargs-refused", f"{found}; without chat_template_kwargs it does not", todo)
        elif _failure(without) == _failure(error):
            todo = "look at the server's log; if its template asks for them, have them passed on to it"
            found += ", the same with chat_template_kwargs and without, so they may be dropped on the way"
            self._find("chat-refused", found, todo)
        else:
            self._find("chat-refused", found, "look at the server's log")

    def _heeds_kwargs(self, body: Mapping[str, Any]) -> bool:
        """Whether `chat_template_kwargs` reaches the server: one that is no table has to be refused."""
        refusal = self._post({**body, "chat_template_kwargs": "hymem"})
        if isinstance(refusal, TransportError):
            return refusal.status in (400, 422)  # else it cannot be told now
        self._find(
            "kwargs-dropped",
            "chat_template_kwargs makes no difference there, so the model is not told not to think",
            "have what is in between (a gateway, LiteLLM's drop_params) pass it on, or start vLLM with "
            """--default-chat-template-kwargs '{"reasoning_effort":"no_think"}'""",
        )
        return False

    def _say_it_thinks(self) -> None:
        effort = self.settings.reasoning_effort
        if effort == "no_think":
            todo = "see that the model's own chat template is in use"
        else:
            source = self.settings.source("reasoning_effort")
            todo = f"reasoning_effort is {effort!r} ({source}); set it to 'no_think'"
        self._find("thinking-on", "the model thinks before it writes, so replies are slow or cut", todo)

    def _look_at_structure(self, body: Mapping[str, Any]) -> None:
        schema = {
            "type": "object",
            "properties": {"hymem": {"type": "string", "enum": ["heeded"]}},
            "required": ["hymem"],
            "additionalProperties": False,
        }
        wanted = {"type": "json_schema", "json_schema": {"name": "doctor", "schema": schema, "strict": True}}
        answer = self._post({**body, "response_format": wanted})
        if isinstance(answer, TransportError) and answer.status not in (400, 422):
            return  # it cannot be told now
        try:
            heeded = json.loads(answer["content"]) == {"hymem": "heeded"}
        except (TypeError, ValueError, KeyError):
            heeded = False
        if heeded:
            self.report.fact("writer", "structured output is heeded")
            return
        found = "the server does not hold replies to a json_schema"
        todo = "have it pass response_format on; or set structured_output to 'never'"
        self._find("no-structured-output", found, f"{todo}: bad replies are then not asked for anew")


def _served(found: Any) -> dict[str, int | None]:
    """Name → max_model_len of each model, as far as they look like that."""
    models: dict[str, int | None] = {}
    for each in found["data"]:
        if re.fullmatch(r"[\w./:@-]{1,120}", str(each["id"])):
            window = each.get("max_model_len")
            models[each["id"]] = window if isinstance(window, int) else None
    return models


def _named(proxy: str) -> str:
    """Its address, without a user name or password; nothing where it is no address."""
    try:
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        return f", {parts.hostname}:{parts.port}"
    except ValueError:
        return ""


def _thinks(message: Any) -> bool:
    text = message.get("content") or ""
    return bool(message.get("reasoning") or message.get("reasoning_content")) or "<think>" in text


def _failure(error: TransportError) -> str:
    told = [f"HTTP {error.status}" if error.status else error.kind]
    return ", ".join(
        told + [f"{name} {each!r}" for name in ("type", "param") if (each := getattr(error, name))]
    )


def _rounded(tokens: int) -> int:
    return -(-tokens // 4096) * 4096
