"""The SDK's providers, whose writes go to the writer and all else to the model that they have."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Awaitable, Callable, Mapping
from types import FrameType
from typing import Any

from hy_memory.agent.llm_provider import LLMResponse
from packaging.version import Version

from hymem import scope
from hymem.callers import Callers
from hymem.contract import CallFacts, RawReply
from hymem.errors import WriteError
from hymem.events import is_power_of_ten
from hymem.integration import CallSite
from hymem.patching import Switch
from hymem.plan import NO_FACTS, Reply, WriteCall
from hymem.writer import Writer

from . import contracts
from .call_sites import (
    CALL_SITES,
    FACTS_OF,
    LOST,
    RECONCILE,
    SUPPLEMENT_CLAUSES,
    SUPPLEMENT_FORGET,
    stage,
)
from .seams import ATTACHED, FRAMEWORK, INTEGRATION, SECTIONS, sections_count

_ITS = "hy_memory."
_THROUGH = ("chat", "_call")
"""`LLMProvider.chat`, which asks by `complete`, and what the sweeper asks by."""
_FRAMES = 40
_VERSION = FRAMEWORK.version() or Version(str(FRAMEWORK.newest))
_STAGES = (SUPPLEMENT_CLAUSES, SUPPLEMENT_FORGET)
CALLERS = Callers([site for site in CALL_SITES if site.is_in(_VERSION) and site not in _STAGES], _THROUGH)
_KEEPS_WHAT_IS_NEW = Version("2") <= _VERSION
"""Whether the SDK itself adds all that is new where a reconciliation fails."""


def asking(depth: int) -> tuple[CallSite | None, FrameType | None]:
    """The call site of whoever asks, `depth` frames up, and where it stands: the first function of the SDK
    that does not only hand a call on. Somebody else's, a tracer's say, are looked past."""
    for at in range(depth + 1, depth + _FRAMES):
        try:
            frame = sys._getframe(at)
        except ValueError:
            break
        if frame.f_globals.get("__name__", "").startswith(_ITS) and frame.f_code.co_name not in _THROUGH:
            return CALLERS.find(at), frame
    return None, None


def routing(switch: Switch, asked: str) -> Callable[[Any], Any]:
    """What makes a method that is given a prompt, or messages, have writes written by the writer."""

    def wrap(original: Any) -> Any:
        signature = inspect.signature(original)

        @functools.wraps(original)
        async def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
            found = _in_charge(self) if switch.on else None
            if found is None:
                return await original(self, *args, **kwargs)
            site, frame = asking(1)
            if site is None or site.side == "read" or frame is None:
                if site is None and frame is not None and frame.f_globals["__name__"] != original.__module__:
                    _note_unknown(frame)
                return await original(self, *args, **kwargs)
            given = signature.bind(self, *args, **kwargs).arguments
            messages = given[asked]
            if isinstance(messages, str):
                messages = [{"role": "user", "content": messages}]
            local = frame.f_locals
            site = stage(site, local)
            call: WriteCall[Any] = WriteCall(
                messages=messages,
                contract=site.contract,  # type: ignore[arg-type]  # every write has one
                site=site.id,
                facts=_facts(site, local),
                max_tokens=given.get("max_tokens"),
            )

            async def main() -> Any:
                return await original(self, *args, **kwargs)

            return await _write(found, call, site, main, local)

        return ask

    return wrap


def _in_charge(provider: Any) -> Writer | None:
    for target in (provider, provider.config):
        attached = ATTACHED.get(target)
        if attached is not None and attached[1].on:
            return attached[0]
    named = SECTIONS.get(provider.config)
    return named[0] if named is not None and sections_count() else INTEGRATION.writer


def _facts(site: CallSite, local: Mapping[str, Any]) -> CallFacts:
    """What the function that asks has offered. Where it has not what it had, the SDK has the last word."""
    find = FACTS_OF.get(site.id)
    if find is None:
        return NO_FACTS
    try:
        return find(local)
    except (KeyError, AttributeError, TypeError):
        INTEGRATION.log.debug("%s: what is offered is not where it was", site.id)
        return NO_FACTS


async def _write(
    writer: Writer,
    call: WriteCall[Any],
    site: CallSite,
    main: Callable[[], Awaitable[Any]],
    local: Mapping[str, Any],
) -> Any:
    async def as_raw() -> RawReply:
        answer = await main()
        return RawReply(answer.content or "", finish_reason=answer.finish_reason)

    try:
        reply = await writer.awrite(call, main=as_raw)
    except WriteError as error:
        opened = scope.current()
        if opened is not None and site in LOST:
            opened.failures.append(error)
        if site is RECONCILE and not _KEEPS_WHAT_IS_NEW:
            memories = local.get("new_memories_with_meta") or local.get("new_memories") or []
            return _response(writer, Reply(contracts.add_all(memories)))
        # The SDK logs the frames of an error, and of those it came from.
        raise error.with_traceback(None) from None
    return _response(writer, reply)


def _response(writer: Writer, reply: Reply[Any]) -> Any:
    """As the SDK's own provider gives it, in both lines."""
    return LLMResponse(
        content=reply.text,
        tokens_used=reply.prompt_tokens + reply.completion_tokens,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        model=writer.settings.model,
        finish_reason="stop",
    )


def _note_unknown(frame: FrameType) -> None:
    if is_power_of_ten(times := next(_unknown)):
        where = f"{frame.f_globals['__name__']}:{frame.f_code.co_name}"
        INTEGRATION.log.warning(
            "%s is not in the catalogue, and stays with the main model (%d so far)", where, times
        )


_unknown = itertools.count(1)
