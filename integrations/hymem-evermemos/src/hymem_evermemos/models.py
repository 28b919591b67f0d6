"""`HyMemoryLLM`: the writer as a client of `everalgo`. Writes go to the writer, all else to a main model."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import sys
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from hymem import errors, scope
from hymem.callers import Callers
from hymem.contract import Contract, Parsed, RawReply, Violation
from hymem.events import is_power_of_ten
from hymem.integration import CallSite
from hymem.patching import Switch
from hymem.plan import NO_FACTS, Reply, WriteCall
from hymem.writer import Writer

from .call_sites import CALL_SITES, REFINEMENTS, UNKNOWN
from .kept import JOURNAL
from .seams import INTEGRATION

try:
    from everalgo.llm.errors import LLMError
except ImportError:  # everalgo-core 0.6 has it elsewhere
    LLMError = RuntimeError

_THROUGH = ("chat", "achat", "_llm_text")
"""What stands between the function that asks and the client: EverMemOS's own wrappers."""
_ITS = ("everalgo.", "everos.")
_FRAMES = 40
_SITES = [site for site in CALL_SITES if site is not UNKNOWN]
CALLERS = Callers(_SITES, _THROUGH)

Ask = Callable[[], Awaitable[Any]]


# -- errors, of the types that EverMemOS goes by -----------------------------------------------------


class WriterUnavailable(errors.WriterUnavailable, LLMError):  # type: ignore[misc]  # everalgo is not looked into
    """An `LLMError`, as `everalgo` has its clients raise: no bad reply, so that no buffer is set aside."""


class ReplyRejected(errors.ReplyRejected, ValueError):
    """A `ValueError`, on which EverMemOS tries again, and after three flushes sets a buffer aside."""


class PromptTooLong(errors.PromptTooLong, ValueError):
    """A `ValueError` too: a buffer that is too long for the server stays so, and would stop its session."""


_OURS = {each.__bases__[0]: each for each in (WriterUnavailable, ReplyRejected, PromptTooLong)}


def _as_expected(error: errors.WriteError) -> errors.WriteError:
    kind = _OURS.get(type(error))
    if kind is None:
        return error
    made = kind(*error.args)
    made.__dict__.update(error.__dict__)
    return made


_refused: weakref.WeakKeyDictionary[asyncio.Task[Any], dict[bytes, tuple[float, errors.WriteError]]] = (
    weakref.WeakKeyDictionary()
)
"""By task: requests whose replies could not be used, and when. EverMemOS sends the same up to three times,
and at temperature 0 would be told the same: here it is told at once what the first has come to."""
REMEMBERED = 60.0
"""Seconds. EverMemOS tries again within ten; a program of one task may ask a server that was mended since."""


# -- a write -----------------------------------------------------------------------------------------


def asking(depth: int) -> CallSite | None:
    """The call site of whoever asks, `depth` frames up: the first function of EverMemOS that is no wrapper of
    its own. Somebody else's, a tracer's or one that tries again, are looked past."""
    for at in range(depth + 1, depth + _FRAMES):
        try:
            frame = sys._getframe(at)
        except ValueError:
            return None
        if frame.f_globals.get("__name__", "").startswith(_ITS) and frame.f_code.co_name not in _THROUGH:
            return CALLERS.find(at)
    return None


def note_unknown() -> None:
    """That code which is in no catalogue asks a client is no error, and may be one of a wrapper's."""
    if is_power_of_ten(times := next(_unknown)):
        said = "code that is not in the catalogue asks a client, and stays with the main model (%d so far)"
        INTEGRATION.log.info(said, times)


_unknown = itertools.count(1)


async def write(
    writer: Writer,
    site: CallSite,
    messages: Sequence[Any],
    main: Ask | None,
    *,
    response_format: Any = None,
    max_tokens: int | None = None,
) -> tuple[Reply[Any], BaseModel | None]:
    """Have it written: the reply, and what a class that was asked for makes of it. What else the framework
    asks for (foresight's temperature 0.3) is meant for another model.

    Raises `WriterUnavailable`, `PromptTooLong` or `ReplyRejected`, of the types above.
    """
    assert site.contract is not None  # every write has one
    contract, schema = site.contract, None
    if isinstance(response_format, type) and issubclass(response_format, BaseModel):
        schema = response_format
        contract = contract if site is not UNKNOWN else _contract_of(schema)
    opened = scope.current()
    facts = opened.facts if opened is not None and opened.site == site.id else None
    call: WriteCall[Any] = WriteCall(
        messages=[_plain(each) for each in messages],
        contract=contract,
        site=site.id,
        facts=facts or NO_FACTS,
        max_tokens=max_tokens,
        response_format=None if schema is None else _format_of(schema),
    )
    task = asyncio.current_task()
    known = _refused.setdefault(task, {}) if task is not None else {}
    key = hashlib.sha256(repr((site.id, call.messages)).encode("utf-8", "replace")).digest()
    at, before = known.get(key, (0.0, None))
    if before is not None and time.monotonic() - at < REMEMBERED:
        raise _as_expected(before)
    try:
        reply = await writer.awrite(call, main=None if main is None else _as_raw(main))
        JOURNAL.works = True
        return reply, None if schema is None else _parsed(schema, reply, site)
    except errors.WriteError as error:
        JOURNAL.works = not isinstance(error, errors.WriterUnavailable)
        if JOURNAL.works and site in REFINEMENTS and contract.unchanged is not None:
            # As EverMemOS does; it is an error of ours in log and counters by now.
            return Reply(contract.unchanged(call.facts), skipped=True, error=error), None
        if (
            JOURNAL.works and writer.settings.on_failure != "fallback"
        ):  # the main model may do better next time
            known[key] = time.monotonic(), error.with_traceback(None)
        # EverMemOS logs the variables of every frame of an error, and of those it came from.
        raise _as_expected(error) from None


def _as_raw(main: Ask) -> Callable[[], Awaitable[RawReply]]:
    async def ask() -> RawReply:
        answer = await main()
        if isinstance(answer, str):  # of `achat`
            return RawReply(answer)
        return RawReply(answer.content or "", finish_reason=answer.finish_reason)

    return ask


def _plain(message: Any) -> Mapping[str, Any]:
    return message if isinstance(message, Mapping) else message.model_dump()


def _format_of(schema: type[BaseModel]) -> Mapping[str, Any]:
    """As the openai SDK sends a class."""
    described = {"name": schema.__name__.lstrip("_"), "schema": schema.model_json_schema(), "strict": True}
    return {"type": "json_schema", "json_schema": described}


def _contract_of(schema: type[BaseModel]) -> Contract[Any]:
    """Of a class that code asks for which is not in the catalogue."""
    from .contracts import _dumps

    def check(value: Any, facts: Any) -> Parsed[Any] | Violation:
        try:
            schema.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            path = ".".join(str(each) for each in first["loc"]) or "$"
            return Violation(path, f"what {schema.__name__} has there", str(first["type"]))
        return Parsed(value, 1)

    keys = tuple(schema.model_fields)
    return Contract(f"evermemos_{schema.__name__}", schema.model_json_schema(), keys, check, _dumps)


def _parsed(schema: type[BaseModel], reply: Reply[Any], site: CallSite) -> BaseModel:
    try:
        return schema.model_validate(json.loads(reply.text) if reply.skipped else reply.value)
    except ValidationError as error:
        wanted = f"what {schema.__name__} has"
        path = str(error.errors(include_input=False)[0]["loc"])
    raise ReplyRejected(f"the reply for {site.id} does not fit {schema.__name__}", path=path, expected=wanted)


def response(writer: Writer, reply: Reply[Any], parsed: BaseModel | None) -> Any:
    """As `everalgo`'s own client gives it, with the tokens that EverMemOS's traces tell."""
    from everalgo.llm.types import ChatResponse, Usage

    return ChatResponse(
        content=reply.text,
        model=writer.settings.model,
        usage=Usage(prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens),
        finish_reason="stop",
        parsed=parsed,
    )


# -- the client --------------------------------------------------------------------------------------


class HyMemoryLLM:
    """A client for `everalgo`'s extractors, `EpisodeExtractor(llm=HyMemoryLLM(...))`, and around the client
    of an object that is attached. It has both of `everalgo`'s protocols, `chat` and (from core 0.6) `achat`.

    `settings` as in `hymem.WriterSettings`. `main_llm`: the client for what is no write. Which of the two
    serves a call depends on the function that asks, never on the words it asks with.
    """

    def __init__(self, writer: Writer | None = None, *, main_llm: Any = None, **settings: Any) -> None:
        if writer is None:
            writer = Writer(INTEGRATION.settings(settings), framework="evermemos")
        elif settings:
            raise TypeError("pass a writer or settings, not both")
        if writer.settings.on_failure == "fallback" and main_llm is None:
            raise errors.SettingsError('on_failure="fallback" needs a main model: pass main_llm')
        self._set(writer, main_llm, named=True)
        INTEGRATION.say_what_skip_cannot(writer.settings)

    @classmethod
    def around(cls, main: Any, writer: Writer, switch: Switch) -> HyMemoryLLM:
        """The client that leaves `main` in charge of everything but writes, and of those too when `switch`
        is off."""
        made = cls.__new__(cls)
        made._set(writer, main, switch)
        return made

    def _set(self, writer: Writer, main: Any, switch: Switch | None = None, *, named: bool = False) -> None:
        self.writer, self.main, self.named = writer, main, named
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        """What else is asked of a client."""
        main = vars(self).get("main")
        if main is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(main, name)

    def __repr__(self) -> str:
        main = "none" if self.main is None else type(self.main).__name__
        return f"HyMemoryLLM(writer={self.writer!r}, main={main})"

    async def chat(
        self,
        messages: list[Any],
        *,
        model: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        response_format: Any = None,
        **extra: Any,
    ) -> Any:
        """An `everalgo.llm.ChatResponse`. For a write it is the writer's, checked; else the main model's.

        Raises `WriterUnavailable` (an `LLMError`), `PromptTooLong` or `ReplyRejected` (both a `ValueError`),
        or `NoMainModel`.
        """
        given = {
            "model": model,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "response_format": response_format,
            **extra,
        }
        site, main = self._site(asking(1)), self.main
        if site is None or site.side == "read":
            return await self._main_for(site).chat(messages, **given)
        ask = None if main is None else (lambda: main.chat(messages, **given))
        asked = {"response_format": response_format, "max_tokens": max_tokens}
        return response(self.writer, *await write(self.writer, site, messages, ask, **asked))

    async def achat(
        self,
        messages: list[Any],
        *,
        response_format: Any,
        temperature: float | None = None,
        max_tokens: int | None = None,
        **extra: Any,
    ) -> str:
        """The reply's text, which passes `response_format.model_validate_json`."""
        given = {
            "response_format": response_format,
            "temperature": temperature,
            "max_tokens": max_tokens,
            **extra,
        }
        site, main = self._site(asking(1)), self.main
        if site is None or site.side == "read":
            return await self._main_for(site).achat(messages, **given)  # type: ignore[no-any-return]
        ask = None if main is None else (lambda: main.achat(messages, **given))
        asked = {"response_format": response_format, "max_tokens": max_tokens}
        reply, parsed = await write(self.writer, site, messages, ask, **asked)
        return reply.text if parsed is None else parsed.model_dump_json()

    def _site(self, site: CallSite | None) -> CallSite | None:
        if self._switch is not None and not self._switch.on:
            return None
        if site is None and self.named:
            if is_power_of_ten(times := self.writer.note_unknown_site()):
                said = "a HyMemoryLLM is asked by code that is not in the catalogue (%d so far)"
                INTEGRATION.log.warning(said, times)
            return UNKNOWN
        return site

    def _main_for(self, site: CallSite | None) -> Any:
        if self.main is None:
            if is_power_of_ten(times := next(_astray)):
                said = "%s came to a HyMemoryLLM, which has no main model to ask (%d so far)"
                INTEGRATION.log.error(said, "a call that is no write" if site is None else site.id, times)
            what = "a call that is no write" if site is None else f"{site.id}, which is no write,"
            raise errors.NoMainModel(
                f"{what} came to a HyMemoryLLM; give searches your own client, or pass it here as main_llm"
            )
        return self.main


_astray = itertools.count(1)
