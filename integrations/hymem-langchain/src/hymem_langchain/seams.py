"""How LangChain's calls are reached, per version. Nothing upstream is subclassed or replaced.

`langchain.chat_models.base._BUILTIN_PROVIDERS` (from 1.2.12 on): a private table, the only place where a
provider's name can be made known to `init_chat_model`.

The methods of classic memory that ask, and the two of `SummarizationMiddleware`: scopes. Their `llm`,
`model` and `_summary_model` are looked up through a descriptor on the class, which gives the writer
inside such a scope and the object's own everywhere else: counting tokens, deciding when to summarise.

`asave_context` of the memory classes that have none of their own and so write nothing when a chain is
run asynchronously.

Each is patched in the modules that are imported; a package that is not installed has none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from packaging.version import Version

from hymem import scope, standin
from hymem.contract import CallFacts
from hymem.errors import SettingsError
from hymem.frameworks import KNOWN
from hymem.integration import CallSite, Integration, Route
from hymem.patching import MISSING, Attribute, Entry, Leftover, Patch, Switch
from hymem.standin import StandIn
from hymem.writer import Writer

from .call_sites import (
    CALL_SITES,
    COMMUNITY,
    ENTITIES,
    ENTITY_SUMMARY,
    HISTORY,
    HOMES,
    MIDDLEWARE,
    SUMMARY,
    TRIPLES,
)
from .contracts import SUMMARY_NOW, Known

FRAMEWORK = dataclasses.replace(KNOWN["langchain"], tested=("0.3.86", "1.7.7", "1.8.3"))
PROVIDER = "hy_memory"
REGISTRY = "langchain.chat_models.base"

PARTS = (
    *(f"{home}.{module}" for home in HOMES for module in ("summary", "summary_buffer", "entity")),
    f"{COMMUNITY}.kg",
    MIDDLEWARE,
    REGISTRY,
)

WATCHED = (
    "langchain_community.graphs.networkx_graph:parse_triples",
    "langchain_community.graphs.networkx_graph:KnowledgeTriple.from_string",
)
"""What else is relied on: the parsers that are not in the functions that ask."""


# -- for any kind of routing ---------------------------------------------------------------------


def base(switch: Switch) -> list[Patch]:
    """The name, the scopes in which a call is a write, and whose model is asked in them."""
    patches = [*_registry()]
    for home in HOMES:
        patches += _of_summaries(switch, home) + _of_entities(switch, home)
    return patches + _of_triples(switch) + _of_middleware(switch)


def _imported(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _registry() -> list[Patch]:
    table = _imported(REGISTRY, "_BUILTIN_PROVIDERS")
    if table is None:
        return []
    known = ("hymem_langchain", "ChatHyMemory", lambda cls, **given: cls(**given))
    return [
        Patch(Entry(table, PROVIDER, f"{REGISTRY}:_BUILTIN_PROVIDERS[{PROVIDER!r}]"), lambda _: known, False)
    ]


def _of_summaries(switch: Switch, home: str) -> list[Patch]:
    mixin = _imported(f"{home}.summary", "SummarizerMixin")
    if mixin is None:
        return []
    patches = [
        Patch(Attribute(mixin, name), _within(switch, _summary))
        for name in ("predict_new_summary", "apredict_new_summary")
    ]
    patches.append(_routed_attribute(switch, mixin, "llm"))
    memory = _imported(f"{home}.summary", "ConversationSummaryMemory")
    patches.append(_async_saving(switch, memory, _asummarise))
    buffered = _imported(f"{home}.summary_buffer", "ConversationSummaryBufferMemory")
    if buffered is not None:
        patches += [
            Patch(Attribute(buffered, name), _within(switch, _pruned)) for name in ("prune", "aprune")
        ]
    return patches


def _of_entities(switch: Switch, home: str) -> list[Patch]:
    memory = _imported(f"{home}.entity", "ConversationEntityMemory")
    if memory is None:
        return []
    return [
        Patch(Attribute(memory, "load_memory_variables"), _within(switch, _asking(ENTITIES))),
        Patch(Attribute(memory, "save_context"), _within(switch, _entity_summaries)),
        _routed_attribute(switch, memory, "llm"),
        _async_saving(switch, memory),
    ]


def _of_triples(switch: Switch) -> list[Patch]:
    memory = _imported(f"{COMMUNITY}.kg", "ConversationKGMemory")
    if memory is None or not hasattr(memory, "save_context"):  # a placeholder, without LangChain's own
        return []
    return [
        Patch(Attribute(memory, "get_knowledge_triplets"), _within(switch, _asking(TRIPLES))),
        _routed_attribute(switch, memory, "llm"),
        _async_saving(switch, memory),
    ]


def _of_middleware(switch: Switch) -> list[Patch]:
    middleware = _imported(MIDDLEWARE, "SummarizationMiddleware")
    if middleware is None:
        return []
    methods: dict[str, Around] = {"_create_summary": _history, "before_model": _leaving_history}
    if Version(importlib.metadata.version("langchain")) >= Version("1.1"):
        methods |= {"_acreate_summary": _history, "abefore_model": _leaving_history}
    patches = [
        Patch(Attribute(middleware, name), _within(switch, around)) for name, around in methods.items()
    ]
    return [*patches, *(_routed_attribute(switch, middleware, name) for name in ("model", "_summary_model"))]


# -- scopes --------------------------------------------------------------------------------------

Given = tuple[tuple[Any, ...], dict[str, Any]]
Around = Callable[..., contextlib.AbstractContextManager[Given]]


def _within(switch: Switch, around: Around) -> Callable[[Any], Any]:
    """What makes a method, sync or async, run within `around` of its arguments, which gives those to
    call it with."""

    def wrap(original: Any) -> Any:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def asynchronous(self: Any, *args: Any, **kwargs: Any) -> Any:
                if not switch.on:
                    return await original(self, *args, **kwargs)
                with around(self, *args, **kwargs) as (given, named):
                    return await original(self, *given, **named)

            return asynchronous

        @functools.wraps(original)
        def sync(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return original(self, *args, **kwargs)
            with around(self, *args, **kwargs) as (given, named):
                return original(self, *given, **named)

        return sync

    return wrap


def _asking(site: CallSite) -> Around:
    @contextlib.contextmanager
    def asking(memory: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
        with scope.writing(site.id, memory) as opened:
            opened.facts = Known()
            yield args, kwargs

    return asking


@contextlib.contextmanager
def _entity_summaries(memory: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
    """It asks for one entity after the other: what is known of each now."""
    with scope.writing(ENTITY_SUMMARY.id, memory) as opened:
        before = [memory.entity_store.get(name, "") or "" for name in memory.entity_cache]
        opened.facts = Known([CallFacts({SUMMARY_NOW: each}) for each in before])
        yield args, kwargs


class _LeaveHistory(Exception):
    """A summary that failed and was skipped: nothing may be replaced by it."""


@contextlib.contextmanager
def _history(middleware: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
    """`_create_summary`: up to 1.3.14 it makes of an error the text of a summary."""
    with scope.writing(HISTORY.id, middleware) as opened:
        opened.facts = Known()
        yield args, kwargs
    if opened.failures:
        raise opened.failures[0]
    if opened.facts.skipped:
        raise _LeaveHistory


@contextlib.contextmanager
def _leaving_history(middleware: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
    """`before_model`, which deletes the history that a summary stands for; it then returns None."""
    with contextlib.suppress(_LeaveHistory):
        yield args, kwargs


# -- turns whose summary failed ------------------------------------------------------------------

_waiting: dict[int, list[Any]] = {}
_lock = threading.Lock()


def _take_waiting(memory: Any) -> list[Any]:
    with _lock:
        return _waiting.pop(id(memory), [])


def _keep_waiting(memory: Any, messages: list[Any]) -> None:
    with _lock:
        if id(memory) not in _waiting:
            weakref.finalize(memory, _waiting.pop, id(memory), None)
        _waiting[id(memory)] = messages


@contextlib.contextmanager
def _summary(memory: Any, messages: Any, existing_summary: str) -> Iterator[Given]:
    """`predict_new_summary`. Messages whose summary failed are offered again with the next:
    `save_context` gives it the last two only."""
    offered = [*_take_waiting(memory), *messages]
    with scope.writing(SUMMARY.id, memory) as opened:
        opened.facts = Known([CallFacts({SUMMARY_NOW: existing_summary})])
        try:
            yield (offered, existing_summary), {}
        except BaseException:  # cancelled ones, too
            _keep_waiting(memory, offered)
            raise
    if opened.facts.skipped:
        _keep_waiting(memory, offered)


@contextlib.contextmanager
def _pruned(memory: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
    """`prune`, which takes messages out before it has their summary: put back where there is none."""
    before = list(memory.chat_memory.messages)
    try:
        yield args, kwargs
    except BaseException:  # cancelled ones, too
        _take_waiting(memory)
        memory.chat_memory.messages[:] = before
        raise
    if _take_waiting(memory):
        memory.chat_memory.messages[:] = before


def _async_saving(switch: Switch, memory: Any, save: Callable[..., Any] | None = None) -> Patch:
    """`asave_context` of a class that has none: upstream's keeps the messages and writes nothing."""

    def make(original: Any) -> Any:
        if original is not MISSING:
            return original
        inherited = memory.asave_context

        async def asave_context(self: Any, inputs: Any, outputs: Any) -> None:
            if not switch.on or _writer_of(self) is None:
                await inherited(self, inputs, outputs)
            elif save is not None:
                await inherited(self, inputs, outputs)
                await save(self)
            else:
                from langchain_core.runnables.config import run_in_executor

                await run_in_executor(None, self.save_context, inputs, outputs)

        return asave_context

    return Patch(Attribute(memory, "asave_context"), make, needed=False)


async def _asummarise(memory: Any) -> None:
    """What `save_context` does after the messages are kept."""
    memory.buffer = await memory.apredict_new_summary(memory.chat_memory.messages[-2:], memory.buffer)


# -- whose model is asked ------------------------------------------------------------------------

_attached: dict[int, tuple[Writer, Switch]] = {}


def _writer_of(target: Any) -> Any:
    """The writer that an object's writes go to: its own model, one that is attached, the process's."""
    from .models import ChatHyMemory

    own = vars(target).get("llm")
    if isinstance(own, ChatHyMemory):
        return own.writer
    attached = _attached.get(id(target))
    return attached[0] if attached else INTEGRATION.writer


class _RoutedModel:
    """`llm` or `model` of a class that writes. Outside a write it is the object's own."""

    def __init__(self, switch: Switch, name: str) -> None:
        self._switch = switch
        self._name = name

    def __get__(self, target: Any, owner: type | None = None) -> Any:
        if target is None:
            raise AttributeError(self._name)
        try:
            own = vars(target)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        opened = scope.current()
        if opened is None or opened.owner is not target or not self._switch.on:
            return own
        from .models import ChatHyMemory

        attached = _attached.get(id(target))
        writer, switch = attached or (INTEGRATION.writer, self._switch)
        if writer is None or isinstance(own, ChatHyMemory):
            return own
        main = vars(target).get("model", own) if self._name == "_summary_model" else own
        if isinstance(main, ChatHyMemory):
            return own
        return ChatHyMemory.around(main, writer, switch)

    def __set__(self, target: Any, model: Any) -> None:
        vars(target)[self._name] = model

    def __delete__(self, target: Any) -> None:
        del vars(target)[self._name]


def _routed_attribute(switch: Switch, owner: Any, name: str) -> Patch:
    return Patch(Attribute(owner, name), lambda _: _RoutedModel(switch, name), needed=False)


def routed(switch: Switch) -> list[Patch]:
    """Nothing more: the descriptors look for the process's writer."""
    return []


# -- for one object ------------------------------------------------------------------------------


def attach_to(target: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Route what writes in an object: a memory, those inside a memory or a chain, a middleware."""
    found = list(_writing_in(target))
    if not found:
        raise TypeError(
            f"attach() takes a memory class of LangChain that asks a model, a chain that has one, or a "
            f"SummarizationMiddleware, not {type(target).__name__}"
        )
    if any(id(each) in _attached for each in found):
        raise SettingsError("this object's writes go to a writer already; disable() that first")
    switch = Switch()
    switch.on = True
    for each in found:
        _attached[id(each)] = (writer, switch)
        weakref.finalize(each, _attached.pop, id(each), None)

    def undo() -> list[Leftover]:
        switch.on = False
        for each in found:
            _attached.pop(id(each), None)
        return []

    return undo


def _writing_in(target: Any) -> Any:
    for name in ("memory", "memories"):
        inner = getattr(target, name, None)
        for each in inner if isinstance(inner, list) else [inner] if inner is not None else []:
            yield from _writing_in(each)
    if any(
        isinstance(vars(base).get(name), _RoutedModel)
        for base in type(target).__mro__
        for name in ("llm", "model")
    ):
        yield target


# -- for the doctor ------------------------------------------------------------------------------


def probe(main: StandIn, place: Path) -> Route:
    """A conversation's summary, by classic memory and by the middleware, whichever is installed."""
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=main.base_url, api_key=standin.KEY, model=standin.MODEL)
    said = [HumanMessage(f"In the morning I drink tea number {at}.") for at in range(4)]
    writes: dict[str, Callable[[], Any]] = {}
    memory_class = next(
        (cls for home in HOMES if (cls := _imported(f"{home}.summary", "ConversationSummaryMemory"))), None
    )
    if memory_class is not None:
        memory = memory_class(llm=model)
        writes["ConversationSummaryMemory"] = lambda: memory.save_context(
            {"in": said[0].content}, {"out": "Ah."}
        )
    middleware = _imported(MIDDLEWARE, "SummarizationMiddleware")
    if middleware is not None:
        made = middleware(model)
        writes["SummarizationMiddleware"] = lambda: made._create_summary(said)
    return Route(writes=writes, read=lambda: model.invoke("What do I drink in the morning?"))


# -- the switches --------------------------------------------------------------------------------

INTEGRATION = Integration(
    FRAMEWORK,
    core="0.1",
    call_sites=CALL_SITES,
    base=base,
    routed=routed,
    attach_to=attach_to,
    probe=probe,
    parts=PARTS,
)
