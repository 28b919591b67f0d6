"""How LlamaIndex's calls are reached, per version.

A fact block and a summary buffer have an LLM of their own in `llm`. Inside a method that writes, that
attribute of the class is the writer's; outside, and for policy (a buffer's `token_limit`), it is the
object's own. `Settings` is not touched: a block that is made without an LLM takes `Settings.llm`, and the
writer only where that cannot be had.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from llama_index.core.memory import chat_summary_memory_buffer as buffers
from llama_index.core.memory import memory
from llama_index.core.memory.memory_blocks import fact

from hymem import scope, standin
from hymem.contract import CallFacts
from hymem.errors import SettingsError, WriteError, WriterUnavailable
from hymem.frameworks import KNOWN
from hymem.integration import Integration, Route
from hymem.patching import Attribute, Leftover, Patch, Switch
from hymem.routing import Attached, Given, Waiting, routed_attribute, within, writes_by_attribute
from hymem.standin import StandIn
from hymem.writer import Writer

from .call_sites import CALL_SITES, EXTRACT, HISTORY
from .contracts import Known

FRAMEWORK = dataclasses.replace(
    KNOWN["llama-index"], floor="0.12.52", tested=("0.12.52", "0.13.6", "0.14.15", "0.14.25")
)

WATCHED = (
    "llama_index.core.memory.memory_blocks.fact:FactExtractionMemoryBlock._parse_facts_xml",
    "llama_index.core.memory.memory_blocks.fact:get_default_llm",
    "llama_index.core.memory.memory:Memory._manage_queue",
    "llama_index.core.memory.chat_summary_memory_buffer:ChatSummaryMemoryBuffer._split_messages_summary_or_full_text",
)
"""What else is relied on: the parser, what calls a block, what a buffer changes before it asks."""

_attached = Attached()
_batches = Waiting()


class _Locks:
    """One write of a block after the other: a condensation replaces what another has just added."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, asyncio.Lock]]
        self._known = weakref.WeakKeyDictionary()

    def of(self, target: Any) -> asyncio.Lock:
        here = self._known.setdefault(asyncio.get_running_loop(), {})
        if id(target) not in here:
            here[id(target)] = asyncio.Lock()
            weakref.finalize(target, here.pop, id(target), None)
        return here[id(target)]


_locks = _Locks()
_getting: dict[int, threading.RLock] = {}
"""By buffer: one summary after the other, since each begins with taking turns out of the store."""


# -- for any kind of routing ---------------------------------------------------------------------


def base(switch: Switch) -> list[Patch]:
    """The scopes in which a call is a write, and whose model is asked in them."""
    choose = functools.partial(_model_for, switch)
    return [
        Patch(Attribute(fact.FactExtractionMemoryBlock, "_aput"), _extracting(switch)),
        Patch(Attribute(memory.BaseMemoryBlock, "aput"), _extracting_as_it_likes(switch)),
        routed_attribute(fact.FactExtractionMemoryBlock, switch, "llm", choose),
        Patch(
            Attribute(buffers.ChatSummaryMemoryBuffer, "_summarize_oldest_chat_history"),
            within(switch, _history),
        ),
        Patch(Attribute(buffers.ChatSummaryMemoryBuffer, "get"), _keeping_turns(switch)),
        routed_attribute(buffers.ChatSummaryMemoryBuffer, switch, "llm", choose),
    ]


def routed(switch: Switch) -> list[Patch]:
    """A block that is made where `Settings` has no LLM to give."""
    return [Patch(Attribute(fact, "Settings"), lambda original: _SettingsWithAWriter(original, switch))]


class _SettingsWithAWriter:
    """What a fact block looks for `Settings.llm` in. All else is LlamaIndex's own."""

    def __init__(self, original: Any, switch: Switch) -> None:
        self._original, self._switch = original, switch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    @property
    def llm(self) -> Any:
        try:
            return self._original.llm
        except Exception:  # of whatever kind: the default LLM's package or key is not there
            if not self._switch.on or INTEGRATION.writer is None:
                raise
            from .models import HyMemoryLLM

            return HyMemoryLLM.around(None, INTEGRATION.writer, self._switch)


def _model_for(switch: Switch, target: Any, own: Any) -> Any:
    """The LLM that writes where `own` would."""
    from .models import HyMemoryLLM

    writer, on = _attached.get(target) or (INTEGRATION.writer, switch)
    if writer is None or own is None or isinstance(own, HyMemoryLLM):
        return own
    return HyMemoryLLM.around(own, writer, on)


def _writes(target: Any) -> bool:
    """Whether an object's writes go to a writer at all."""
    from .models import HyMemoryLLM

    own = vars(target).get("llm")
    return isinstance(own, HyMemoryLLM) or target in _attached or INTEGRATION.writer is not None


# -- facts ---------------------------------------------------------------------------------------

TRIES = 3
"""How often messages are offered whose reply cannot be used; that a server is away is no try."""


@dataclasses.dataclass
class _Batch:
    """Messages that are archived, and how often they were offered."""

    messages: list[Any]
    tries: int = 0


_Ask = Callable[[list[Any]], Awaitable[None]]


def _extracting(switch: Switch) -> Callable[[Any], Any]:
    """`_aput`, of messages that are archived by then."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def _aput(self: Any, messages: Any) -> None:
            opened = scope.current()
            within_another = opened is not None and opened.owner is self  # a subclass that calls its parent's
            if within_another or not switch.on or not _writes(self):
                await original(self, messages)
                return

            async def ask(given: list[Any]) -> None:
                await original(self, given)

            await _offer(self, list(messages), ask, ask)

        return _aput

    return wrap


def _extracting_as_it_likes(switch: Switch) -> Callable[[Any], Any]:
    """`aput`, of a block of facts whose `_aput` is its own."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def aput(self: Any, messages: Any, *args: Any, **kwargs: Any) -> None:
            mine = isinstance(self, fact.FactExtractionMemoryBlock)
            if not mine or _is_upstreams(self, "_aput") or not switch.on or not _writes(self):
                await original(self, messages, *args, **kwargs)
                return

            async def ask(given: list[Any]) -> None:
                await original(self, given, *args, **kwargs)

            await _offer(self, list(messages), ask, self._aput)

        return aput

    return wrap


def _is_upstreams(target: Any, name: str) -> bool:
    """Whether no subclass has put a method of its own in the place of LlamaIndex's, or of ours around it."""
    home = next(home for home in type(target).__mro__ if name in vars(home))
    return home.__module__.startswith("llama_index.")


async def _offer(block: Any, messages: list[Any], ask: _Ask, again: _Ask) -> None:
    """Have the facts of these messages extracted, and before that those of messages whose extraction has
    failed, each batch by itself, as it would have been. One that fails does not keep the others back."""
    async with _locks.of(block):
        left = [*_batches.take(block), _Batch(messages)]
        failed: list[_Batch] = []
        first: Exception | None = None
        error: Exception | None
        try:
            while left:
                known = Known([_offered(block), lambda: _offered(block)])
                try:
                    await _extract(again if left[1:] else ask, block, left[0].messages, known)
                    error = known.skipped
                except Exception as raised:  # of whatever kind: the messages would be gone
                    first = first or raised
                    error = raised
                except BaseException:  # cancelled: what has been extracted is in the block
                    if known.extracted:
                        left.pop(0)
                    raise
                if isinstance(error, WriterUnavailable):
                    break
                batch = left.pop(0)
                if error is not None and _is_worth_another_try(batch, error):
                    failed.append(batch)
        finally:
            if failed or left:
                _batches.keep(block, [*failed, *left])
    if first is not None:
        raise first


def _is_worth_another_try(batch: _Batch, error: Exception) -> bool:
    batch.tries += 1
    if batch.tries == TRIES:
        said = "%d messages were offered %d times, and their facts could not be had: they are given up (%s)"
        INTEGRATION.log.error(said, len(batch.messages), TRIES, type(error).__name__)
    return batch.tries < TRIES


async def _extract(ask: _Ask, block: Any, messages: list[Any], known: Known) -> None:
    """That facts which are had could not be condensed loses none."""
    with scope.writing(EXTRACT.id, block) as opened:
        opened.facts = known
        try:
            await ask(messages)
        except WriteError as error:
            if not known.extracted:
                raise
            INTEGRATION.log.error("all facts of a memory block are kept, and none condensed: %s", error)


def _offered(block: Any) -> CallFacts:
    return CallFacts({str(at): text for at, text in enumerate(block.facts)})


# -- a buffer's history --------------------------------------------------------------------------


class _LeaveHistory(Exception):
    """A summary that failed and was skipped: nothing may be replaced by it."""


@contextlib.contextmanager
def _history(buffer: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
    with scope.writing(HISTORY.id, buffer) as opened:
        opened.facts = Known()
        yield args, kwargs
    if opened.facts.skipped:
        raise _LeaveHistory


def _keeping_turns(switch: Switch) -> Callable[[Any], Any]:
    """`get`, which takes turns out of the store before it has their summary: put back where there is
    none, and where that was skipped, given as they are."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on or not _writes(self):
                return original(self, *args, **kwargs)
            with _lock_of(self):
                before = list(self.get_all())
                own = not _is_upstreams(self, "_summarize_oldest_chat_history")
                try:
                    with _history(self) if own else contextlib.nullcontext():
                        return original(self, *args, **kwargs)
                except BaseException as error:
                    turns = [*before, *_come_since(before, self.get_all())]
                    self.set(turns)
                    self._token_count = 0
                    if isinstance(error, _LeaveHistory):
                        return turns
                    raise

        return get

    return wrap


def _lock_of(buffer: Any) -> threading.RLock:
    if id(buffer) not in _getting:
        weakref.finalize(buffer, _getting.pop, id(buffer), None)
    return _getting.setdefault(id(buffer), threading.RLock())


def _come_since(before: list[Any], now: list[Any]) -> list[Any]:
    """What another has put into the store while a summary was made."""
    old = list(before)
    new = []
    for each in now:
        if each in old:
            old.remove(each)
        else:
            new.append(each)
    return new


# -- for one object ------------------------------------------------------------------------------

_INSIDE = ("memory", "_memory", "memories", "memory_blocks", "primary_memory", "secondary_memory_sources")


def attach_to(target: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Route what writes in an object: a block, a buffer, the memory or the chat engine that has some."""
    from .models import HyMemoryLLM

    found = list(_writing_in(target))
    if any(isinstance(vars(each).get("llm"), HyMemoryLLM) for each in found):
        raise SettingsError("this object has a HyMemoryLLM of its own, which would go before this one")
    if not found:
        raise TypeError(
            "attach() takes what keeps memory and asks an LLM for it: a FactExtractionMemoryBlock, a Memory "
            f"that has one, a ChatSummaryMemoryBuffer, or what has such a memory, not {type(target).__name__}"
        )
    return _attached.attach(found, writer)


def _writing_in(target: Any) -> Any:
    for name in _INSIDE:
        inner = getattr(target, name, None)
        for each in inner if isinstance(inner, list) else [inner] if inner is not None else []:
            yield from _writing_in(each)
    if writes_by_attribute(target):
        yield target


# -- for the doctor ------------------------------------------------------------------------------


def probe(main: StandIn, place: Path) -> Route:
    """The facts of a sentence."""
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    llm = OpenAILike(model=standin.MODEL, api_base=main.base_url, api_key=standin.KEY, is_chat_model=True)
    block = fact.FactExtractionMemoryBlock(llm=llm)
    said = ChatMessage(role="user", content="In the morning I drink tea.")
    return Route(
        writes={"FactExtractionMemoryBlock": lambda: block.aput([said])},
        read=lambda: llm.complete("What do I drink in the morning?"),
    )


# -- the switches --------------------------------------------------------------------------------

INTEGRATION = Integration(
    FRAMEWORK,
    core="0.1",
    call_sites=CALL_SITES,
    base=base,
    routed=routed,
    attach_to=attach_to,
    probe=probe,
)
