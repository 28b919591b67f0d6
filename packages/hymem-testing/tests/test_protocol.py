"""The protocol of vLLM 0.31.0, held to by the double and by the real server alike.

Compared are statuses, error types, `param`s and key sets, not messages: those change between
releases. One row each of what was recorded from the live server.
"""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest

from hymem_testing.metrics import answered

pytestmark = pytest.mark.hymem_real

NO_THINK = {"chat_template_kwargs": {"reasoning_effort": "no_think"}}
HELLO = [{"role": "user", "content": "Say hello."}]
FACTS = {
    "type": "object",
    "properties": {
        "facts": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 1, "maxItems": 2}
    },
    "required": ["facts"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "save", "strict": True, "parameters": FACTS}}


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.type = response.headers.get("content-type", "")
        self.text = response.read().decode()

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        return self.json["error"]

    @property
    def message(self):
        return self.json["choices"][0]["message"]


@pytest.fixture
def ask(hymem_server):
    parts = urlsplit(hymem_server.url)

    def ask(method, path, body=None, content_type="application/json"):
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=300)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        try:
            connection.request(method, path, raw, {"content-type": content_type} if raw is not None else {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    return ask


@pytest.fixture
def chat(ask):
    def chat(**fields):
        body = {
            "model": "hy-memory",
            "messages": HELLO,
            "max_tokens": 8,
            "temperature": 0.0,
            **NO_THINK,
            **fields,
        }
        return ask(
            "POST", "/v1/chat/completions", {name: each for name, each in body.items() if each is not ...}
        )

    return chat


BAD, INVALID = "BadRequestError", "Bad Request"
IMAGE = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
]


@pytest.mark.parametrize(
    ("fields", "status", "type_", "param"),
    [
        ({"model": "x"}, 404, "NotFoundError", "model"),
        ({"model": "x", "stream": True}, 404, "NotFoundError", "model"),
        ({"max_tokens": 100_000}, 400, BAD, "max_tokens"),
        ({"max_tokens": 0}, 400, BAD, "max_tokens"),
        ({"max_tokens": -1}, 400, BAD, "max_tokens"),
        ({"messages": [{"role": "user", "content": "word " * 13_000}]}, 400, BAD, "input_tokens"),
        ({"messages": ...}, 400, INVALID, "body.messages"),
        ({"messages": []}, 400, BAD, None),
        ({"messages": [{"role": "user", "content": None}]}, 400, INVALID, ...),
        ({"messages": IMAGE}, 400, BAD, ...),
        ({"temperature": -1}, 400, BAD, "temperature"),
        ({"top_p": 0}, 400, BAD, "top_p"),
        ({"n": 2}, 400, BAD, ...),
        ({"reasoning_effort": "no_think"}, 400, INVALID, "body.reasoning_effort"),
        ({"chat_template_kwargs": "x"}, 400, INVALID, "body.chat_template_kwargs"),
        ({"chat_template": "{{ messages }}"}, 400, BAD, ...),
        ({"chat_template_kwargs": ...}, 400, BAD, None),
        ({"chat_template_kwargs": {"reasoning_effort": "high"}}, 400, BAD, None),
        ({"reasoning_effort": "low"}, 400, BAD, None),
        ({"response_format": {"type": "nope"}}, 400, INVALID, "body.response_format.type"),
        ({"response_format": {"type": "json_schema"}}, 400, BAD, "response_format"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "nope"}},
                }
            },
            400,
            BAD,
            ...,
        ),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"json": FACTS}}, 400, BAD, ...),
        ({"tools": [TOOL]}, 400, BAD, ...),
        ({"tool_choice": "auto"}, 400, BAD, "tool_choice"),
    ],
    ids=lambda value: str(value)[:50] if isinstance(value, dict) else None,
)
def test_what_is_refused(chat, fields, status, type_, param):
    answer = chat(**fields)
    assert answer.status == status, answer.text
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.error["type"] == type_
    assert answer.error["code"] == status
    if param is not ...:
        assert answer.error["param"] == param


@pytest.mark.parametrize(
    ("fields"),
    [
        {"model": ...},
        {"max_completion_tokens": 4, "max_tokens": 8},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
        {"unknown_field": 1, "guided_json": FACTS},
        {"chat_template_kwargs": {"reasoning_effort": "no_think", "unknown": 1, "tokenize": True}},
        {"store": False, "metadata": {"a": "b"}, "user": "u"},
        {"reasoning_effort": None},
    ],
    ids=str,
)
def test_what_is_taken(chat, fields):
    answer = chat(**fields)
    assert answer.status == 200, answer.text
    assert answer.message["content"]


def test_the_message_of_the_strict_template_is_the_same(chat):
    from hymem_testing.double import STRICT_MESSAGE

    assert STRICT_MESSAGE in chat(chat_template_kwargs=...).error["message"]


def test_numbers_in_messages_that_the_writer_reads(chat):
    message = chat(max_tokens=100_000).error["message"]
    assert "max_model_len=12288" in message
    message = chat(messages=[{"role": "user", "content": "word " * 13_000}]).error["message"]
    assert "maximum context length is 12288" in message
    assert "at least" in message
    assert "input tokens" in message


def test_a_completion_and_its_keys(chat):
    answer = chat()
    body = answer.json
    assert set(body) == {
        *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
        *("prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params"),
        "metrics",
    }
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    assert body["model"] == "hy-memory"
    (choice,) = body["choices"]
    assert set(choice) == {
        *("index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts")
    }
    assert set(answer.message) == {
        *("role", "content", "refusal", "annotations", "audio", "function_call", "reasoning")
    }
    assert {"prompt_tokens", "total_tokens", "completion_tokens"} <= set(body["usage"])
    assert (
        body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]
    )


def test_a_cut_reply_says_so(chat):
    answer = chat(max_tokens=2, messages=[{"role": "user", "content": "Tell me a long story about a ship."}])
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert answer.json["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("strict", [True, False])
def test_guided_output(chat, strict):
    wanted = {"type": "json_schema", "json_schema": {"name": "facts", "schema": FACTS, "strict": strict}}
    answer = chat(response_format=wanted, max_tokens=120)
    assert answer.status == 200, answer.text
    facts = json.loads(answer.message["content"])["facts"]
    assert 1 <= len(facts) <= 2
    assert all(isinstance(each, str) and len(each) <= 20 for each in facts)
    assert answer.json["choices"][0]["finish_reason"] == "stop"


def test_structured_outputs_is_the_other_way(chat):
    answer = chat(structured_outputs={"json": FACTS}, max_tokens=120)
    assert set(json.loads(answer.message["content"])) == {"facts"}


def test_streaming(ask):
    body = {"model": "hy-memory", "messages": HELLO, "max_tokens": 8, "temperature": 0.0, **NO_THINK}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    answer = ask("POST", "/v1/chat/completions", body)
    assert answer.type == "text/event-stream; charset=utf-8"
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert chunks[-2]["choices"][0]["finish_reason"] in ("stop", "length")
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)


def test_other_bodies(ask):
    answer = ask("POST", "/v1/chat/completions", b'{"model": "hy-memory", "messages": oops}')
    assert (answer.status, answer.error["type"]) == (400, INVALID)
    assert answer.error["param"].startswith("body.")
    answer = ask("POST", "/v1/chat/completions", b"{}", content_type="text/plain")
    assert (answer.status, answer.error["type"], answer.error["param"]) == (400, INVALID, None)


def test_other_routes(ask):
    assert ask("GET", "/health").status == 200
    assert ask("GET", "/health").text == ""
    assert ask("GET", "/ping").status == 200
    assert ask("GET", "/version").json == {"version": "0.31.0"}
    answer = ask("GET", "/v1/chat/completions")
    assert (answer.status, answer.json) == (405, {"detail": "Method Not Allowed"})
    for method, path in (("GET", "/v1/nowhere"), ("POST", "/v1/embeddings"), ("GET", "/v1/models/hy-memory")):
        answer = ask(method, path, {} if method == "POST" else None)
        assert (answer.status, answer.json) == (404, {"detail": "Not Found"})
    (model,) = ask("GET", "/v1/models").json["data"]
    assert model["id"] == "hy-memory"
    assert model["max_model_len"] == 12288
    assert {"id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission"} <= set(
        model
    )


def test_tokenize_counts_the_rendered_prompt(ask, chat):
    answer = ask("POST", "/tokenize", {"model": "hy-memory", "messages": HELLO, **NO_THINK}).json
    assert {"count", "max_model_len", "tokens"} <= set(answer)
    assert answer["max_model_len"] == 12288
    assert answer["count"] == len(answer["tokens"])
    assert answer["count"] == chat().json["usage"]["prompt_tokens"]
    assert ask("POST", "/tokenize", {"model": "hy-memory", "messages": HELLO}).status == 400
    assert ask("POST", "/tokenize", {"model": "hy-memory", "prompt": "hello"}).json["count"] > 0


def test_metrics_count_what_was_served(ask, chat, hymem_server):
    before = answered(hymem_server.url)
    chat()
    chat(model="x")
    assert answered(hymem_server.url) == before + 1
    text = ask("GET", "/metrics").text
    for name in ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"):
        assert f"{name}{{" in text


def test_greedy_replies_repeat(chat):
    assert chat().message["content"] == chat().message["content"]


# -- the real parsers ----------------------------------------------------------------------------

hyv3 = pytest.mark.hymem_model("hyv3-dummy")


@hyv3
def test_no_think_leaves_the_text_in_content(chat):
    message = chat().message
    assert message["content"]
    assert message["reasoning"] is None


@hyv3
@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template_kwargs": {"reasoning_effort": "high"}},
        {"chat_template_kwargs": ..., "reasoning_effort": "high"},
        # The trap: what is at the top level wins over the template's own.
        {"reasoning_effort": "low"},
    ],
    ids=str,
)
def test_thinking_takes_the_text_out_of_content(chat, fields):
    message = chat(**fields).message
    assert message["content"] is None
    assert message["reasoning"]


@hyv3
def test_reasoning_can_be_left_out_altogether(chat):
    message = chat(chat_template_kwargs={"reasoning_effort": "high"}, include_reasoning=False).message
    assert message["content"] is None
    assert message["reasoning"] is None


@hyv3
def test_guided_output_under_no_think(chat):
    wanted = {"type": "json_schema", "json_schema": {"name": "facts", "schema": FACTS}}
    assert set(json.loads(chat(response_format=wanted, max_tokens=200).message["content"])) == {"facts"}


@hyv3
def test_a_named_tool_is_called(chat):
    choice = {"type": "function", "function": {"name": "save"}}
    answer = chat(tools=[TOOL], tool_choice=choice, max_tokens=300)
    assert answer.status == 200, answer.text
    (call,) = answer.message["tool_calls"]
    assert call["id"].startswith("chatcmpl-tool-")
    assert call["function"]["name"] == "save"
    assert set(json.loads(call["function"]["arguments"])) == {"facts"}
    assert answer.json["choices"][0]["finish_reason"] == "stop"
    answer = chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "nope"}})
    assert (answer.status, answer.error["param"]) == (400, "tool_choice")
