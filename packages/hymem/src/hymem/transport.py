"""Requests to a writer's server: one kept client per endpoint (and per event loop).

The HTTP client inside the openai client is our own, since the SDK's reads a body of any size,
follows redirects with the conversation in hand, and sends the user's `OPENAI_ORG_ID`,
`OPENAI_PROJECT_ID` and `OPENAI_CUSTOM_HEADERS` (the last even over `Authorization`) to whatever
its `base_url` is. httpx is never imported by name: openai 3 uses httpx2.
"""

from __future__ import annotations

import asyncio
import atexit
import ipaddress
import logging
import re
import socket
import ssl
import sys
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from .contract import RawReply
from .plan import Received, Request, TransportError
from .process import on_fork
from .settings import WriterSettings

if TYPE_CHECKING:
    import openai

T = TypeVar("T")

log = logging.getLogger("hymem")

MAX_BODY = 1 << 20
CONNECT_SECONDS = 10.0
STALL_SECONDS = 10.0
"""How long a reply that has begun may stand still; the SDK's own timeout starts anew at each read."""
KEEPALIVE_SECONDS = 4.0  # vLLM closes an idle connection after 5
FAILURES_UNTIL_REST = 5
REST_SECONDS = 30.0

_ALLOWED_HEADERS = frozenset(
    {b"host", b"content-type", b"content-length", b"transfer-encoding", b"accept", b"user-agent"}
    | {b"connection"}
)

_deadline: ContextVar[float] = ContextVar("hymem_deadline")


@dataclass(frozen=True)
class Endpoint:
    """A server and what is shown to it. Clients are shared only where all of it is equal."""

    base_url: str
    key: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    max_connections: int

    @classmethod
    def of(cls, settings: WriterSettings) -> Endpoint:
        headers = tuple((name.lower(), value.get_secret_value()) for name, value in settings.headers.items())
        return cls(settings.base_url, settings.api_key.get_secret_value(), headers, settings.max_connections)

    @property
    def root(self) -> str:
        """Beside `/v1`, where vLLM has what is not OpenAI's."""
        return self.base_url.removesuffix("/v1")

    @property
    def loopback(self) -> bool:
        host = urlsplit(self.base_url).hostname or ""
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


def client_is_loaded() -> bool:
    return "openai" in sys.modules


def load_client() -> None:
    """Import the openai client, which takes a second: `enable()` must not, nor an event loop."""
    import openai  # noqa: F401


# -- sync ----------------------------------------------------------------------------------------


def send(endpoint: Endpoint, request: Request, deadline: float) -> Received | TransportError:
    """One chat request. What went wrong is returned, not raised, so that no exception of the
    SDK, with the prompt inside, becomes part of ours."""
    shared = _shared(endpoint)
    if shared.resting():
        return TransportError("resting")
    # Waiting for a connection inside the client would not shorten the read that comes after.
    if not shared.free.acquire(timeout=_remaining(deadline)):
        return TransportError("busy")
    token = _deadline.set(deadline)
    try:
        outcome = _received(shared.client.chat.completions.create(**_arguments(request, deadline)))
    except Exception as error:
        outcome = _failure(error)
    finally:
        _deadline.reset(token)
        shared.free.release()
    shared.note(outcome)
    return outcome


def count_tokens(endpoint: Endpoint, request: Request, deadline: float) -> tuple[int, int] | TransportError:
    """(prompt tokens, max_model_len) as the server's own `/tokenize` counts them."""
    return ask(endpoint, deadline, "post", _tokenize_url(endpoint), _count, body=_tokenize(request))


def list_models(endpoint: Endpoint, deadline: float) -> tuple[str, ...] | TransportError:
    """The names that the server's `/v1/models` has."""
    return ask(endpoint, deadline, "get", "/models", _names)


def ask(
    endpoint: Endpoint,
    deadline: float,
    method: str,
    url: str,
    made: Callable[[Any], T | TransportError],
    **arguments: Any,
) -> T | TransportError:
    """Any other request, by the same client: what `made` makes of the JSON that is answered."""
    token = _deadline.set(deadline)
    try:
        client = _shared(endpoint).client
        options = {"timeout": _timeout(deadline)}
        return made(getattr(client, method)(url, cast_to=object, options=options, **arguments))
    except Exception as error:
        return _failure(error)
    finally:
        _deadline.reset(token)


# -- async ---------------------------------------------------------------------------------------


async def asend(endpoint: Endpoint, request: Request, deadline: float) -> Received | TransportError:
    """`send`, on the running loop's own client."""
    shared = _shared(endpoint)
    if shared.resting():
        return TransportError("resting")
    token = _deadline.set(deadline)
    try:
        client = await _loop_client(endpoint)
        asking = client.chat.completions.create(**_arguments(request, deadline))
        outcome = _received(await asyncio.wait_for(asking, _remaining(deadline)))
    except (asyncio.TimeoutError, TimeoutError):
        outcome = TransportError("timeout")
    except Exception as error:
        outcome = _failure(error)
    finally:
        _deadline.reset(token)
    shared.note(outcome)
    return outcome


async def acount_tokens(
    endpoint: Endpoint, request: Request, deadline: float
) -> tuple[int, int] | TransportError:
    """`count_tokens`, on the running loop's own client."""
    url = _tokenize_url(endpoint)
    return await _aask(endpoint, deadline, "post", url, _count, body=_tokenize(request))


async def alist_models(endpoint: Endpoint, deadline: float) -> tuple[str, ...] | TransportError:
    """`list_models`, on the running loop's own client."""
    return await _aask(endpoint, deadline, "get", "/models", _names)


async def _aask(
    endpoint: Endpoint,
    deadline: float,
    method: str,
    url: str,
    made: Callable[[Any], T | TransportError],
    **arguments: Any,
) -> T | TransportError:
    token = _deadline.set(deadline)
    try:
        client = await _loop_client(endpoint)
        options = {"timeout": _timeout(deadline)}
        asking = getattr(client, method)(url, cast_to=object, options=options, **arguments)
        return made(await asyncio.wait_for(asking, _remaining(deadline)))
    except (asyncio.TimeoutError, TimeoutError):
        return TransportError("timeout")
    except Exception as error:
        return _failure(error)
    finally:
        _deadline.reset(token)


# -- requests and replies ------------------------------------------------------------------------

_PLAIN = frozenset(
    {"model", "messages", "temperature", "max_tokens", "response_format", "tools", "tool_choice"}
)


def _arguments(request: Request, deadline: float) -> dict[str, Any]:
    arguments: dict[str, Any] = {"timeout": _timeout(deadline)}
    extra: dict[str, Any] = {}
    for name, value in request.body.items():
        (arguments if name in _PLAIN else extra)[name] = value
    if extra:
        arguments["extra_body"] = extra
    return arguments


def _remaining(deadline: float) -> float:
    """Seconds to the deadline; never none at all, which some would take for no limit."""
    return max(deadline - time.monotonic(), 0.001)


def _timeout(deadline: float) -> Any:
    import openai

    remaining = _remaining(deadline)
    return openai.Timeout(remaining, connect=min(remaining, CONNECT_SECONDS))


def _tokenize_url(endpoint: Endpoint) -> str:
    return endpoint.root + "/tokenize"


def _tokenize(request: Request) -> dict[str, Any]:
    names = ("model", "messages", "tools", "chat_template_kwargs")
    return {name: request.body[name] for name in names if name in request.body}


def _received(completion: Any) -> Received | TransportError:
    """What there is of a completion. The SDK builds its objects without a check, so anything may
    be missing or of another type."""
    try:
        choice = completion.choices[0]
        text, usage = choice.message.content, completion.usage
        if text is not None and not isinstance(text, str):
            raise TypeError
        calls = tuple(each.model_dump() for each in choice.message.tool_calls or ())
        reply = RawReply(text or "", calls, choice.finish_reason)
        counts = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
        return Received(reply, *(count if isinstance(count, int) else None for count in counts))
    except (TypeError, IndexError, KeyError, AttributeError):
        return TransportError("not_a_reply")


def _count(answer: Any) -> tuple[int, int] | TransportError:
    try:
        return int(answer["count"]), int(answer["max_model_len"])
    except (ValueError, TypeError, KeyError):
        return TransportError("not_a_reply")


MAX_NAMES = 8


def _names(answer: Any) -> tuple[str, ...] | TransportError:
    """Names only: what else a server sends back must not get into an error message."""
    try:
        names = [str(each["id"]) for each in answer["data"]]
    except (TypeError, KeyError):
        return TransportError("not_a_reply")
    return tuple(name for name in names if re.fullmatch(r"[\w./:@-]{1,120}", name))[:MAX_NAMES]


class _NoClient(Exception):
    """The HTTP client cannot be made: a proxy variable that is no address, say, whose text is not
    told, since there may be a password in it."""


class _Stopped(Exception):
    """Raised while a body is read; what the SDK makes of it is looked through by `_failure`."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


_CONNECTING = ("ConnectError", "ConnectTimeout")


def _failure(error: Exception) -> TransportError:
    """What an error of the SDK comes to. One that is nobody's to expect is raised as it is."""
    import openai

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _Stopped):
            return TransportError(cause.kind)
        if isinstance(cause, _NoClient):
            return TransportError("no_client")
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, UnicodeEncodeError):  # its text and attributes hold the whole request
        return TransportError("unencodable")
    if isinstance(error, (ValueError, RecursionError)):
        return TransportError("not_a_reply")  # a body that is no JSON
    if isinstance(error, openai.APIStatusError):
        return _status_failure(error)
    if isinstance(error, openai.APIConnectionError):  # a timeout is one, too
        names = {type(each).__name__ for each in (error.__cause__, error.__context__)}
        if names & set(_CONNECTING):
            return TransportError("connect", detail=_why_no_connection(error))
        return TransportError("timeout" if isinstance(error, openai.APITimeoutError) else "broken")
    raise error


def _why_no_connection(error: BaseException) -> str:
    """`tls`, `name`, or nothing that is known."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return "tls"
        if isinstance(cause, socket.gaierror):
            return "name"
        cause = cause.__cause__ or cause.__context__
    return ""


_LIMIT = re.compile(r"(?:max_model_len=|maximum context length is )(\d+)")
_AT_LEAST = re.compile(r"at least (\d+) input tokens")


def _status_failure(error: openai.APIStatusError) -> TransportError:
    body: Any = error.body
    inner = body.get("error", body) if isinstance(body, Mapping) else {}
    if not isinstance(inner, Mapping):  # a wrong key: {"error": "Unauthorized"}
        inner = {}
    message = str(inner.get("message", ""))
    return TransportError(
        "status",
        status=error.status_code,
        param=_word(inner.get("param")),
        type=_word(inner.get("type")),
        retry_after=_seconds(error.response.headers.get("retry-after")),
        max_model_len=_number(_LIMIT, message),
        prompt_tokens=_number(_AT_LEAST, message),
    )


def _word(value: object) -> str | None:
    """A server's `param` or `type`, if it is a name and not a sentence of ours sent back."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,40}( \w{1,20})?", value) else None


def _seconds(value: str | None) -> float | None:
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:  # an HTTP date
        return None


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    return int(match[1][:18]) if match else None


# -- clients -------------------------------------------------------------------------------------


class _Shared:
    """What all writers of this process have in common for one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.free = threading.BoundedSemaphore(endpoint.max_connections)
        self._client: openai.OpenAI | None = None
        self._lock = threading.Lock()
        self._failures = 0
        self._rest_until = 0.0

    @property
    def client(self) -> openai.OpenAI:
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._client = _open(self.endpoint, asynchronous=False)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def resting(self) -> bool:
        return time.monotonic() < self._rest_until

    def note(self, outcome: Received | TransportError) -> None:
        if isinstance(outcome, Received) or outcome.kind not in ("connect", "broken"):
            self._failures = 0
            return
        with self._lock:
            self._failures += 1
            rests = self._failures >= FAILURES_UNTIL_REST and not self.resting()
            if rests:
                self._rest_until = time.monotonic() + REST_SECONDS
                self._failures = 0
        if rests:
            log.error(
                "%s: %d connection failures in a row; leaving it alone for %g s",
                self.endpoint.base_url,
                FAILURES_UNTIL_REST,
                REST_SECONDS,
            )


_SDK_LOG = "openai._base_client"


def _not_ours(record: logging.LogRecord) -> bool:
    """At DEBUG, openai 1 and 2 log each request with its messages. Ours are private."""
    return _deadline.get(None) is None


@dataclass(slots=True)
class _OnLoop:
    loop: weakref.ref[asyncio.AbstractEventLoop]
    client: openai.AsyncOpenAI
    guard: AsyncGenerator[None, None]
    guarded: bool = False


_lock = threading.Lock()
_by_endpoint: dict[Endpoint, _Shared] = {}
_by_loop: dict[tuple[Endpoint, int], _OnLoop] = {}
_left_behind: list[object] = []  # a forked parent's clients: kept, since closing could wait on a dead lock


def _shared(endpoint: Endpoint) -> _Shared:
    found = _by_endpoint.get(endpoint)
    if found is None:
        with _lock:
            found = _by_endpoint.get(endpoint)
            if found is None:
                if not _by_endpoint:
                    on_fork(_forget)
                    atexit.register(close)
                    logging.getLogger(_SDK_LOG).addFilter(_not_ours)
                found = _by_endpoint[endpoint] = _Shared(endpoint)
    return found


async def _loop_client(endpoint: Endpoint) -> openai.AsyncOpenAI:
    """The running loop's client. A client outlives its loop badly, so each loop has its own, and
    an async generator that the loop closes at its end (`shutdown_asyncgens`) closes it."""
    loop = asyncio.get_running_loop()
    key = (endpoint, id(loop))
    entry = _by_loop.get(key)
    if entry is not None and entry.loop() is loop:
        return entry.client
    with _lock:
        entry = _by_loop.get(key)
        if entry is None or entry.loop() is not loop:
            _sweep()
            client = _open(endpoint, asynchronous=True)
            entry = _OnLoop(weakref.ref(loop), client, _until_loop_ends(key, client))
            _by_loop[key] = entry  # before the first await, so that tasks at once share one client
    if not entry.guarded:
        entry.guarded = True
        await entry.guard.__anext__()
    return entry.client


async def _until_loop_ends(
    key: tuple[Endpoint, int], client: openai.AsyncOpenAI
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        with _lock:
            if (entry := _by_loop.get(key)) is not None and entry.client is client:
                del _by_loop[key]
        await client.close()


def _sweep() -> None:
    """Let go of clients whose loop was closed without `shutdown_asyncgens`. Called under the lock."""
    for key, entry in list(_by_loop.items()):
        loop = entry.loop()
        if loop is None or loop.is_closed():
            del _by_loop[key]


def close() -> None:
    """Close every sync client of this process; async ones close with their loop. Writers open
    new ones when next used."""
    with _lock:
        shared = list(_by_endpoint.values())
        _by_endpoint.clear()
    for each in shared:
        each.close()
    atexit.unregister(close)
    logging.getLogger(_SDK_LOG).removeFilter(_not_ours)


def _forget() -> None:
    global _lock, _by_endpoint, _by_loop
    _left_behind.extend((_by_endpoint, _by_loop))
    _lock = threading.Lock()
    _by_endpoint, _by_loop = {}, {}


def _open(endpoint: Endpoint, *, asynchronous: bool) -> Any:
    try:
        return _made(endpoint, asynchronous=asynchronous)
    except Exception:  # its text may have the password of a proxy in it
        pass
    raise _NoClient


def _made(endpoint: Endpoint, *, asynchronous: bool) -> Any:
    import openai

    base: Any = openai.DefaultAsyncHttpxClient if asynchronous else openai.DefaultHttpxClient
    http: Any = sys.modules[_http_module(base)]
    hooks = _async_hooks(endpoint, http) if asynchronous else _sync_hooks(endpoint, http)
    client = base(
        base_url=endpoint.base_url,
        follow_redirects=False,
        # A proxy of the environment is for the outside; for a server on this machine it would be
        # a detour through another one, with private text.
        trust_env=not endpoint.loopback,
        limits=http.Limits(
            max_connections=endpoint.max_connections,
            max_keepalive_connections=endpoint.max_connections,
            keepalive_expiry=KEEPALIVE_SECONDS,
        ),
        event_hooks=hooks,
    )
    made = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    return made(api_key="set-by-hook", base_url=endpoint.base_url, http_client=client, max_retries=0)


def _http_module(client: type) -> str:
    names = {each.__module__.partition(".")[0] for each in client.__mro__}
    return next(name for name in ("httpx2", "httpx") if name in names)


def _show(endpoint: Endpoint, request: Any) -> None:
    """Leave only what belongs on this wire."""
    own = {name.encode(): value.encode() for name, value in endpoint.headers}
    own[b"accept-encoding"] = b"identity"  # a small body may unpack to a huge one
    own.setdefault(b"authorization", f"Bearer {endpoint.key}".encode())
    kept = [(name, value) for name, value in request.headers.raw if name.lower() in _ALLOWED_HEADERS]
    # A new one at once: headers are a list, and taking one out looks at them all.
    request.headers = type(request.headers)(
        [each for each in kept if each[0].lower() not in own] + list(own.items())
    )


def _before_body(response: Any) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise _Stopped("not_a_reply")
    timeouts = response.request.extensions.get("timeout")
    if isinstance(timeouts, dict):  # read by the connection when the body begins
        timeouts["read"] = min(STALL_SECONDS, _remaining(_deadline.get()))


class _Bound:
    """Checks time and size at each piece of a body."""

    def __init__(self) -> None:
        self.deadline = _deadline.get()
        self.size = 0

    def check(self, piece: bytes) -> bytes:
        self.size += len(piece)
        if self.size > MAX_BODY:
            raise _Stopped("too_large")
        if time.monotonic() > self.deadline:
            raise _Stopped("timeout")
        return piece


def _sync_hooks(endpoint: Endpoint, http: Any) -> dict[str, list[Any]]:
    class Bounded(http.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self.stream = stream
            self.bound = _Bound()

        def __iter__(self) -> Iterator[bytes]:
            for piece in self.stream:
                yield self.bound.check(piece)

        def close(self) -> None:
            self.stream.close()

    def on_request(request: Any) -> None:
        _show(endpoint, request)

    def on_response(response: Any) -> None:
        _before_body(response)
        response.stream = Bounded(response.stream)

    return {"request": [on_request], "response": [on_response]}


def _async_hooks(endpoint: Endpoint, http: Any) -> dict[str, list[Any]]:
    class Bounded(http.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self.stream = stream
            self.bound = _Bound()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self.stream:
                yield self.bound.check(piece)

        async def aclose(self) -> None:
            await self.stream.aclose()

    async def on_request(request: Any) -> None:
        _show(endpoint, request)

    async def on_response(response: Any) -> None:
        _before_body(response)
        response.stream = Bounded(response.stream)

    return {"request": [on_request], "response": [on_response]}
