"""Two recording reverse proxies: what a framework under test is given as its two servers.

Each request is recorded first, as it was sent, and only then changed, forwarded or answered. So
what a test asserts is what the framework really put on the wire.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .double import completion
from .embeddings import Embed, embeddings_answer
from .http import Answer, Body, Handler, LocalServer

JSON = Any
Match = str | Callable[[JSON], bool] | None


@dataclass
class Exchange:
    """A request as it was sent, and what it was answered with. `seconds` is wall time."""

    method: str
    path: str
    headers: Mapping[str, str]
    json: JSON
    raw: bytes
    status: int | None = None
    reply: JSON = None
    seconds: float = 0.0

    @property
    def is_chat(self) -> bool:
        return self.path.endswith("/chat/completions")

    @property
    def text(self) -> str:
        """All the text of the messages."""
        parts = [str(each.get("content") or "") for each in (self.json or {}).get("messages", [])]
        return "\n".join(parts)

    @property
    def content(self) -> str:
        """The text of the reply."""
        return str(self.reply["choices"][0]["message"]["content"] or "")


@dataclass
class _Rule:
    match: Match
    answer: Callable[[JSON], Answer] | None = None
    schema: JSON = None
    times: int | None = None
    delay: float = 0.0

    def fits(self, exchange: Exchange) -> bool:
        if self.times == 0 or not exchange.is_chat:
            return False
        if self.match is None:
            return True
        if isinstance(self.match, str):
            return self.match in exchange.text
        return self.match(exchange.json)


class Proxy(LocalServer):
    """A reverse proxy in front of `backend` (its URL without `/v1`), which serves `served_model`.

    `model` is the name the framework under test is to use. With `embed` it stands for the user's
    own provider: it answers `/v1/embeddings` itself, and speaks to the backend in the framework's
    stead, setting the served name and the `no_think` that the backend's strict template needs.
    """

    def __init__(
        self,
        backend: str,
        *,
        model: str = "hy-memory",
        served_model: str = "hy-memory",
        embed: Embed | None = None,
    ) -> None:
        super().__init__()
        self.backend = backend
        self.model = model
        self.served_model = served_model
        self.requests: list[Exchange] = []
        self.pause = 0.0
        """Seconds before each chat request is answered, so that requests meet."""
        self._embed = embed
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()

    @property
    def chats(self) -> list[Exchange]:
        """The chat requests so far, in the order they came."""
        return [each for each in self.requests if each.is_chat]

    def clear(self) -> None:
        """Forget requests and rules."""
        with self._lock:
            self.requests.clear()
            self._rules.clear()

    def reply(
        self,
        match: Match,
        content: str | Callable[[JSON], str] | None = None,
        *,
        status: int = 200,
        body: JSON = None,
        answer: Answer | Callable[[], Answer] | None = None,
        finish_reason: str = "stop",
        tool_calls: JSON = None,
        headers: dict[str, str] | None = None,
        delay: float = 0.0,
        times: int | None = None,
    ) -> None:
        """Answer chat requests that fit `match` (text in a message, a predicate of the body, or
        None for all) without the backend: `content`, or what it makes of the request's body, in
        vLLM's envelope, or `body` as it is, or an `answer` of another kind, or what makes one for
        each request. The rule added last is asked first; `times` bounds its use."""

        def made(request: JSON) -> Answer:
            if answer is not None:
                return answer() if callable(answer) else answer
            if body is not None:
                return Body(body, status, headers=headers)
            text = content(request) if callable(content) else content
            message = {"role": "assistant", "content": text, "reasoning": None}
            if tool_calls is not None:
                message["tool_calls"] = tool_calls
            usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
            whole = completion(message, finish_reason, usage, model=self.served_model)
            return Body(whole, status, headers=headers)

        with self._lock:
            self._rules.insert(0, _Rule(match, answer=made, times=times, delay=delay))

    def shape(self, match: Match, schema: JSON) -> None:
        """Have the backend's model write text of this shape for requests that fit, whatever the
        framework asked for. The recorded request stays as it was sent."""
        with self._lock:
            self._rules.insert(0, _Rule(match, schema=schema))

    # -- serving ---------------------------------------------------------------------------------

    def answer(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Answer:
        exchange = Exchange(method, path, headers, _json_or_none(raw), raw)
        started = time.monotonic()
        with self._lock:
            self.requests.append(exchange)
            rule = next((each for each in self._rules if each.fits(exchange)), None)
            if rule is not None and rule.times is not None:
                rule.times -= 1
        pause = (rule.delay if rule is not None else 0.0) + self.pause * exchange.is_chat
        if pause:
            time.sleep(pause)
        answer = self._answered(exchange, rule)
        if isinstance(answer, Body):
            exchange.status = answer.status
            exchange.reply = _json_or_none(answer.data)
        exchange.seconds = time.monotonic() - started
        return answer

    def _answered(self, exchange: Exchange, rule: _Rule | None) -> Answer:
        if rule is not None and rule.answer is not None:
            return rule.answer(exchange.json)
        if self._embed is not None and exchange.path == "/v1/embeddings":
            return embeddings_answer(self._embed, exchange.json)
        return self._forward(exchange, rule.schema if rule is not None else None)

    def _forward(self, exchange: Exchange, schema: JSON) -> Answer:
        body = exchange.json
        if exchange.is_chat and isinstance(body, dict):
            body = dict(body)
            if self._embed is not None:
                body["model"] = self.served_model
                body.pop("reasoning_effort", None)
                body["chat_template_kwargs"] = {"reasoning_effort": "no_think"}
            if schema is not None:
                body.pop("structured_outputs", None)
                body["response_format"] = {
                    "type": "json_schema",
                    "json_schema": {"name": "shape", "schema": schema},
                }
        raw = exchange.raw if body is exchange.json else json.dumps(body).encode()
        return _ask(self.backend, exchange.method, exchange.path, exchange.headers, raw)


_HOP_BY_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "accept-encoding"}


def _ask(backend: str, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> Body:
    parts = urlsplit(backend)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
    kept = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}
    try:
        connection.request(method, path, raw, kept)
        response = connection.getresponse()
        return Body(response.read(), response.status, response.headers.get("content-type", ""))
    finally:
        connection.close()


def _json_or_none(raw: bytes) -> JSON:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):  # a test may send and answer what it likes
        return None


# -- answers of a broken server ------------------------------------------------------------------


@dataclass
class Cut:
    """Headers that promise a body, part of it, and then a closed connection."""

    data: bytes = b'{"choices": [{"mess'
    promised: int = 1000

    def send(self, handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(self.promised))
        handler.end_headers()
        handler.wfile.write(self.data)
        handler.wfile.flush()
        handler.close_connection = True


@dataclass
class Endless:
    """A body that goes on for `size` bytes, `piece` at a time, `pause` seconds apart, or until
    the other side hangs up. `sent` is how many bytes went out."""

    size: int
    piece: bytes = b" " * 65536
    pause: float = 0.0
    status: int = 200
    sent: int = 0
    hung_up: threading.Event = field(default_factory=threading.Event)

    def send(self, handler: Handler) -> None:
        handler.send_response(self.status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(self.size))
        handler.end_headers()
        try:
            while self.sent < self.size:
                handler.wfile.write(self.piece)
                handler.wfile.flush()
                self.sent += len(self.piece)
                if self.pause:
                    time.sleep(self.pause)
        except OSError:
            self.hung_up.set()
        handler.close_connection = True


class Dropped:
    """No answer at all: the connection is closed after the request."""

    def send(self, handler: Handler) -> None:
        handler.close_connection = True
