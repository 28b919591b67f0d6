"""The order of one write, as a generator that does no I/O.

`write_plan` yields what it wants done (`Send`, `CountTokens`, `ListModels`, `Sleep`, `AskMain`) and is sent
what came of it; transport errors are thrown into it. It knows no HTTP, thread, loop or framework,
and takes its clock as an argument, so all of it is tested without a server.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .contract import FREE_TEXT, CallFacts, Contract, RawReply, Reading, Violation
from .decode import cleaned
from .errors import PromptTooLong, ReplyRejected, WriteError, WriterUnavailable
from .messages import plain
from .settings import RESERVED_BODY, WriterSettings

T = TypeVar("T")

ATTEMPTS = 4
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0  # seconds between attempts: 0.5, 1, 2, plus up to a quarter
SECONDS_FOR_MODELS = 5.0  # for the sake of an error message
LEAST_ROOM = 256  # tokens a reply must have room for
MANY_TOKENS = 1 << 20
NOTHING_SENT = frozenset({"resting", "busy", "unencodable", "no_client"})
WORTH_ANOTHER_TRY = frozenset({408, 429, 502, 503, 504})


# As in `contract`, what is made anew for every write is not frozen.
NO_FACTS = CallFacts()


@dataclass(slots=True)
class WriteCall(Generic[T]):
    """One request of a framework for memory to be written.

    `site` is the id of the call site. `max_tokens`, `response_format` and `tools` are what the
    framework asked for; its temperature is not here, since it never counts.
    """

    messages: Sequence[Mapping[str, Any]]
    contract: Contract[T] = FREE_TEXT  # type: ignore[assignment]  # T is then str
    site: str = "hymem.write"
    facts: CallFacts = NO_FACTS
    max_tokens: int | None = None
    response_format: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: Any = None
    steps: frozenset[str] = frozenset()
    """Steps that were taken before: `reshaped`, where an integration adapted the messages."""
    fields: Mapping[str, Any] | None = None
    """Further fields of the body that this call asks for, `stop` say. Those that settings are for do
    not count."""
    max_tokens_asked: bool = False
    """Whether `max_tokens` is what the user asks of this very call: then it holds, whatever is set."""


@dataclass(slots=True)
class Reply(Generic[T]):
    """What the framework is given: `text` for its parser, and the same as a `value`."""

    text: str
    value: T | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Of all the write's requests together, as the server reported them."""
    skipped: bool = False
    """The write failed, and this is the framework's own "nothing has changed"."""
    error: WriteError | None = None
    """Why it was skipped."""


@dataclass(slots=True)
class Tally:
    """What has become of a write so far. Kept by the driver, so that a write that is cancelled
    in the middle is counted with what it had done by then."""

    outcome: str = "cancelled"
    steps: set[str] = field(default_factory=set)
    kept: int = 0
    dropped: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: BaseException | None = None
    replies: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Received:
    """A chat completion, as far as a write needs it. Tokens are None where not reported."""

    reply: RawReply
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class TransportError(Exception):
    """A request that brought no reply. Carries numbers and names only, never a server's text,
    which may quote the prompt."""

    def __init__(
        self,
        kind: str,
        *,
        status: int | None = None,
        param: str | None = None,
        type: str | None = None,
        retry_after: float | None = None,
        max_model_len: int | None = None,
        prompt_tokens: int | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(kind)
        self.detail = detail
        self.kind = kind
        self.status = status
        self.param = param
        self.type = type
        self.retry_after = retry_after
        self.max_model_len = max_model_len
        self.prompt_tokens = prompt_tokens


class MainModelFailed(Exception):
    """The main model raised when it was asked to write. Carries the name of what it raised: the
    error itself may quote the prompt."""


@dataclass(slots=True)
class Request:
    """The body of one chat request."""

    body: Mapping[str, Any]

    def with_(self, **fields: Any) -> Request:
        return Request({**self.body, **fields})


@dataclass(slots=True)
class Send:
    request: Request
    deadline: float


@dataclass(frozen=True, slots=True)
class CountTokens:
    """Ask the server how long the prompt is; answered with (prompt tokens, max_model_len)."""

    request: Request
    deadline: float


@dataclass(frozen=True, slots=True)
class ListModels:
    """Ask the server what it serves; answered with the names."""

    deadline: float


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class AskMain:
    """Have the main model write this one; answered with a `RawReply`, or `MainModelFailed`."""


Step = Send | CountTokens | ListModels | Sleep | AskMain
Clock = Callable[[], float]


def write_plan(
    call: WriteCall[T],
    settings: WriterSettings,
    tally: Tally,
    *,
    clock: Clock = time.monotonic,
    jitter: Callable[[], float] = random.random,
) -> Generator[Step, Any, Reply[T]]:
    """One write, from request to what the framework is given.

    Raises `WriterUnavailable`, `PromptTooLong` or `ReplyRejected` where `on_failure` says so, and
    leaves in `tally` what the event will tell.
    """
    asking = _Asking(call, settings, tally, clock(), clock, jitter)
    tally.steps |= call.steps
    try:
        reading, reply = yield from _write(asking)
    except WriteError as error:
        failure = tally.error = error
    else:
        return _conclude(tally, reading, reply)
    return (yield from _after_failure(asking, failure))


@dataclass(slots=True)
class _Asking(Generic[T]):
    call: WriteCall[T]
    settings: WriterSettings
    tally: Tally
    started: float
    clock: Clock
    jitter: Callable[[], float]

    @property
    def deadline(self) -> float:
        return self.started + self.settings.timeout


Asked = Generator[Step, Any, Received]


def _write(asking: _Asking[T]) -> Generator[Step, Any, tuple[Reading[T], RawReply]]:
    contract, facts = asking.call.contract, asking.call.facts
    first = first_request(asking.call, asking.settings)
    if first.body["messages"] is not asking.call.messages:
        asking.tally.steps.add("reshaped")
    reply = (yield from _ask_with_room(asking, first)).reply
    read = contract.read(reply, facts)
    if isinstance(read, Reading):
        return read, reply
    replies = [reply]
    second = second_request(first, reply, asking.call, asking.settings)
    if second != first:
        try:
            again = (yield from _ask_with_room(asking, second)).reply
        except WriteError:
            pass  # a recovery that fails must not lose what the first reply gave
        else:
            recovered = contract.read(again, facts)
            if isinstance(recovered, Reading) and not _says_less(asking, recovered, reply):
                asking.tally.steps.add("recovered")
                return recovered, again
            replies.insert(0, again)
    return _salvage(asking, replies, read)


def _says_less(asking: _Asking[T], recovered: Reading[T], first: RawReply) -> bool:
    """Whether a recovery has fewer items than were whole in the cut reply it was to replace."""
    if not first.cut:
        return False
    saved = asking.call.contract.salvage(first, asking.call.facts)
    return isinstance(saved, Reading) and saved.kept > recovered.kept


def _salvage(
    asking: _Asking[T], replies: list[RawReply], violation: Violation
) -> tuple[Reading[T], RawReply]:
    """The reply with most in it, the newer of two that have as much."""
    best: tuple[Reading[T], RawReply] | None = None
    for reply in replies:
        reading = asking.call.contract.salvage(reply, asking.call.facts)
        if isinstance(reading, Reading) and (best is None or reading.kept > best[0].kept):
            best = reading, reply
    if best is None:
        raise ReplyRejected(
            f"the reply for {asking.call.site} cannot be used after {asking.tally.requests} "
            f"request(s): {violation}",
            path=violation.path,
            expected=violation.expected,
        )
    if best[1] is not replies[-1]:
        asking.tally.steps.add("recovered")
    return best


def _conclude(tally: Tally, reading: Reading[T], reply: RawReply) -> Reply[T]:
    tally.steps |= reading.steps
    tally.kept, tally.dropped = reading.kept, reading.dropped
    tally.outcome = "partial" if reading.dropped else "ok" if reading.kept else "empty"
    return Reply(
        reading.text,
        reading.value,
        reply.tool_calls,
        reply.finish_reason,
        tally.prompt_tokens,
        tally.completion_tokens,
    )


def _after_failure(asking: _Asking[T], error: WriteError) -> Generator[Step, Any, Reply[T]]:
    call, tally = asking.call, asking.tally
    if asking.settings.on_failure == "fallback":
        try:
            reply: RawReply = yield AskMain()
        except MainModelFailed as failure:
            error.args = (f"{error}; and the main model, asked instead, raised {failure}",)
        else:
            read = call.contract.read(reply, call.facts)
            if isinstance(read, Violation):
                read = call.contract.salvage(reply, call.facts)
            if isinstance(read, Reading):
                tally.steps.add("fell_back")
                return _conclude(tally, read, reply)
    tally.outcome = "failed"
    if asking.settings.on_failure == "skip" and call.contract.unchanged is not None:
        return Reply(call.contract.unchanged(call.facts), skipped=True, error=error)
    raise error


# -- requests ------------------------------------------------------------------------------------


def first_request(call: WriteCall[Any], settings: WriterSettings) -> Request:
    """What the framework asked for, under the writer's settings."""
    own = call.fields or {}
    body: dict[str, Any] = {
        **settings.extra_body,
        **{name: value for name, value in own.items() if name not in RESERVED_BODY},
        "model": settings.model,
        "messages": call.messages if call.tools else plain(call.messages),
        "temperature": settings.temperature,
        "max_tokens": _max_tokens(call, settings),
    }
    if settings.reasoning_effort is not None:
        kwargs = {
            **settings.extra_body.get("chat_template_kwargs", {}),
            **own.get("chat_template_kwargs", {}),
        }
        body["chat_template_kwargs"] = {**kwargs, "reasoning_effort": settings.reasoning_effort}
    if call.tools:
        body["tools"] = call.tools
        if call.tool_choice is not None:
            body["tool_choice"] = call.tool_choice
    if call.response_format is not None:
        body["response_format"] = call.response_format
    request = Request(body)
    return _shaped(request, call) if settings.structured_output == "always" else request


def second_request(
    first: Request, reply: RawReply, call: WriteCall[Any], settings: WriterSettings
) -> Request:
    """The one recovery request: with the schema, and with more room if the reply was cut. The
    same as `first` where nothing can be done differently."""
    second = first
    if reply.cut:
        room = max(settings.max_tokens_if_cut, first.body["max_tokens"])
        second = second.with_(max_tokens=room)
    return second if settings.structured_output == "never" else _shaped(second, call)


def _shaped(request: Request, call: WriteCall[Any]) -> Request:
    """The request, such that the server holds the reply to the contract's shape: by its schema,
    or by naming the one function there is to call."""
    contract = call.contract
    if contract.schema is not None:
        return request.with_(response_format=schema_format(contract))
    if call.tools and len(contract.tools) == 1 and not contract.may_call_nothing:
        named = {"type": "function", "function": {"name": contract.tools[0]}}
        return request.with_(tool_choice=named, tools=[_strict(tool) for tool in call.tools])
    return request


def _max_tokens(call: WriteCall[Any], settings: WriterSettings) -> int:
    asked = call.max_tokens_asked or (call.contract.is_text and not settings.sets_max_tokens)
    if asked and call.max_tokens is not None:
        return call.max_tokens  # free text keeps the length the framework asked for
    return settings.max_tokens


def _strict(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Without this, vLLM 0.31 does not hold the arguments of a named call to their schema."""
    return {**tool, "function": {**tool["function"], "strict": True}}


def schema_format(contract: Contract[Any]) -> dict[str, Any]:
    """The `response_format` that has a server hold the reply to the contract's schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": contract.name, "schema": contract.schema, "strict": True},
    }


# -- asking --------------------------------------------------------------------------------------


def _ask_with_room(asking: _Asking[Any], request: Request) -> Asked:
    """Ask, and if the server has no room for reply or prompt, once more with what there is."""
    corrected: set[str] = set()
    while True:
        try:
            return (yield from _ask(asking, request))
        except _Refused as refusal:
            error = refusal.error
        if error.param in corrected or error.param not in ("max_tokens", "input_tokens", "input_text"):
            raise _unavailable(asking, error)
        corrected.add(error.param)
        request = yield from _with_what_is_left(asking, request, error)


def _with_what_is_left(
    asking: _Asking[Any], request: Request, error: TransportError
) -> Generator[Step, Any, Request]:
    # vLLM's own number of prompt tokens is a lower bound: it stops counting when it is too many.
    if error.param == "input_text":
        raise _too_long(asking, None, error.max_model_len)
    try:
        count, limit = yield CountTokens(request, asking.deadline)
    except TransportError:  # a server without that route
        room = min(request.body["max_tokens"], error.max_model_len or MANY_TOKENS) // 4
        if room < LEAST_ROOM:
            raise _too_long(asking, error.prompt_tokens, error.max_model_len) from None
        return request.with_(max_tokens=room)
    if limit - count < LEAST_ROOM:
        raise _too_long(asking, count, limit)
    return request.with_(max_tokens=min(limit - count, request.body["max_tokens"]))


def _ask(asking: _Asking[Any], request: Request) -> Asked:
    """Send until there is an answer, an error that another try cannot cure, or no time left."""
    attempt = 0
    while True:
        if asking.clock() >= asking.deadline:
            raise _unavailable(asking, TransportError("timeout"))
        asking.tally.requests += 1
        try:
            received: Received = yield Send(request, asking.deadline)
        except TransportError as error:
            failure = error
        else:
            asking.tally.prompt_tokens += received.prompt_tokens or 0
            asking.tally.completion_tokens += received.completion_tokens or 0
            asking.tally.replies.append(received.reply.text)
            return received
        asking.tally.requests -= failure.kind in NOTHING_SENT
        if failure.status == 400:
            raise _Refused(failure)
        messages = list(request.body["messages"])
        if failure.kind == "unencodable" and (encodable := cleaned(messages)) != messages:
            asking.tally.steps.add("reshaped")
            request = request.with_(messages=encodable)
            continue
        attempt += 1
        pause = _pause(failure, attempt, asking.jitter())
        if pause is None or attempt == ATTEMPTS or asking.clock() + pause >= asking.deadline:
            offered = (yield from _models_there(asking)) if failure.status == 404 else ()
            raise _unavailable(asking, failure, offered)
        yield Sleep(pause)


def _models_there(asking: _Asking[Any]) -> Generator[Step, Any, tuple[str, ...]]:
    try:
        until = min(asking.deadline, asking.clock() + SECONDS_FOR_MODELS)
        offered: tuple[str, ...] = yield ListModels(until)
    except TransportError:
        return ()
    return offered


class _Refused(Exception):
    def __init__(self, error: TransportError) -> None:
        self.error = error


def _pause(error: TransportError, attempt: int, jitter: float) -> float | None:
    """Seconds until another try; None where another try is pointless or unsafe: after a read
    timeout the server may still be at work on the first."""
    if error.kind not in ("connect", "broken") and error.status not in WORTH_ANOTHER_TRY:
        return None
    pause: float = min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE) * (1 + jitter / 4)
    return max(pause, error.retry_after or 0.0)


_KINDS = {
    "connect": "no connection to the writer's server",
    "broken": "the connection to the writer's server broke",
    "timeout": "the writer's server did not answer in time",
    "too_large": "the writer's server sent more than is read",
    "busy": "all connections to the writer's server were in use until the time was up",
    "resting": "the writer's server failed too often and is left alone for a while",
    "not_a_reply": "the writer's server answered with something that is not a chat completion",
    "unencodable": "the request cannot be encoded as JSON in UTF-8",
    "no_client": "no HTTP client can be made for the writer's server; look at the proxy variables "
    "(HTTP_PROXY, HTTPS_PROXY, ALL_PROXY) and the certificate files (SSL_CERT_FILE) of the environment",
}
_DETAILS = {
    "tls": ": TLS could not be agreed on; compare https:// in base_url with what the server speaks, and "
    "its certificate with SSL_CERT_FILE",
    "name": ": its name cannot be looked up",
}
_HINTS = {
    400: "it refuses the request",
    401: "it refuses the key; set api_key",
    403: "it refuses the key; set api_key",
    404: "no such model or route there; compare `model` and `base_url` with its /v1/models",
    429: "it has too much to do",
}


def _hint(call: WriteCall[Any], status: int, offered: Sequence[str]) -> str | None:
    if status == 404 and offered:
        return f"it serves {', '.join(map(repr, offered))}; set `model` to one of them"
    if status == 400 and call.tools:
        return "tool calls need a server with --enable-auto-tool-choice and --tool-call-parser hy_v3"
    return _HINTS.get(status)


def _unavailable(
    asking: _Asking[Any], error: TransportError, offered: Sequence[str] = ()
) -> WriterUnavailable:
    settings, tally = asking.settings, asking.tally
    if error.status is None:
        what = _KINDS.get(error.kind, error.kind) + _DETAILS.get(error.detail, "")
    else:
        what = f"the writer's server answered HTTP {error.status}"
        if hint := _hint(asking.call, error.status, offered):
            what += f" ({hint})"
        if error.type or error.param:
            what += f", type {error.type!r}, param {error.param!r}"
    return WriterUnavailable(
        f"{asking.call.site}: {what}; {tally.requests} request(s) in "
        f"{asking.clock() - asking.started:.1f} s of {settings.timeout:g} s "
        f"to {settings.base_url}, model {settings.model!r}",
        kind=error.kind,
        status=error.status,
    )


def _too_long(asking: _Asking[Any], count: int | None, limit: int | None) -> PromptTooLong:
    return PromptTooLong(
        f"{asking.call.site}: the prompt of {count if count is not None else 'unknown'} tokens leaves "
        f"no room for a reply of {LEAST_ROOM} in max_model_len "
        f"{limit if limit is not None else '(not told)'}; start the server with a larger "
        "--max-model-len or write less at a time",
        prompt_tokens=count,
        max_model_len=limit,
    )


__all__ = [
    "AskMain", "CountTokens", "ListModels", "Received", "Reply", "Request", "Send", "Sleep", "Step", "Tally",
    "TransportError", "WriteCall", "first_request", "second_request", "write_plan",
]  # fmt: skip
