"""How LlamaIndex's calls are reached, per version.

A fact block and a summary buffer have an LLM of their own in `llm`. Inside a method that writes, that
attribute of the class is the writer's; outside, and for policy (a buffer's `token_limit`), it is the
object's own. `Settings` is not touched: a block that is made without an LLM takes `Settings.llm`, and the
writer only where that cannot be had.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from llama_index.core.memory import chat_summary_memory_buffer as buffers
from llama_index.core.memory.memory_blocks import fact

from hymem import scope, standin
from hymem.contract import CallFacts
from hymem.errors import WriteError
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


# -- for any kind of routing ---------------------------------------------------------------------


def base(switch: Switch) -> list[Patch]:
    """The scopes in which a call is a write, and whose model is asked in them."""
    choose = functools.partial(_model_for, switch)
    return [
        Patch(Attribute(fact.FactExtractionMemoryBlock, "_aput"), _extracting(switch)),
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

            return HyMemoryLLM.around(None, INTEGRATION.writer, Switch(on=True))


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


def _extracting(switch: Switch) -> Callable[[Any], Any]:
    """`_aput`, of messages that are archived by then: where the extraction fails, they are offered again
    with the next, each batch by itself, as it would have been."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def _aput(self: Any, messages: Any) -> None:
            if not switch.on or not _writes(self):
                await original(self, messages)
                return
            batches = [*_batches.take(self), list(messages)]
            while batches:
                try:
                    had = await _extracted(original, self, batches[0])
                except BaseException:  # cancelled ones, too
                    _batches.keep(self, batches)
                    raise
                if not had:
                    _batches.keep(self, batches)
                    return
                batches.pop(0)

        return _aput

    return wrap


async def _extracted(original: Any, block: Any, messages: list[Any]) -> bool:
    """Whether the facts of these messages are had. That they could not be condensed loses none."""
    with scope.writing(EXTRACT.id, block) as opened:
        known = opened.facts = Known([_offered(block), lambda: _offered(block)])
        try:
            await original(block, messages)
        except WriteError as error:
            if not known.extracted:
                raise
            INTEGRATION.log.error("all facts of a memory block are kept, and none condensed: %s", error)
            return True
    return known.extracted or not messages


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
            before = list(self.get_all())
            try:
                return original(self, *args, **kwargs)
            except BaseException as error:
                self.set(before)
                self._token_count = 0
                if isinstance(error, _LeaveHistory):
                    return list(before)
                raise

        return get

    return wrap


# -- for one object ------------------------------------------------------------------------------

_INSIDE = ("memory", "_memory", "memories", "memory_blocks", "primary_memory", "secondary_memory_sources")


def attach_to(target: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Route what writes in an object: a block, a buffer, the memory or the chat engine that has some."""
    found = list(_writing_in(target))
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
