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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from packaging.version import Version

from hymem import scope, standin
from hymem.contract import CallFacts
from hymem.errors import WriteError, WriterUnavailable
from hymem.frameworks import KNOWN
from hymem.integration import CallSite, Integration, Route
from hymem.patching import MISSING, Attribute, Entry, Leftover, Patch, Switch
from hymem.routing import Around, Attached, Given, Waiting, routed_attribute, within, writes_by_attribute
from hymem.standin import StandIn
from hymem.writer import Writer

from .call_sites import (
    CALL_SITES,
    COMMUNITY,
    ENTITIES,
    ENTITY_SUMMARY,
    HISTORY,
    HOMES,
    MANAGERS,
    MEMORIES,
    MIDDLEWARE,
    RUNNING,
    RUNNING_SUMMARY,
    SUMMARY,
    TRIPLES,
)
from .contracts import SUMMARY_NOW, Known

FRAMEWORK = dataclasses.replace(KNOWN["langchain"], tested=("0.3.86", "1.7.7", "1.8.3"))
PROVIDER = "hy_memory"
REGISTRIES = ("langchain_classic.chat_models.base", "langchain.chat_models.base")
DEEP = "deepagents.middleware.summarization"

PARTS = (
    *(f"{home}.{module}" for home in HOMES for module in ("summary", "summary_buffer", "entity")),
    f"{COMMUNITY}.kg",
    MIDDLEWARE,
    *(MANAGERS, RUNNING, DEEP),
    *REGISTRIES,
)

WATCHED = (
    "langchain_community.graphs.networkx_graph:parse_triples",
    "langchain_community.graphs.networkx_graph:KnowledgeTriple.from_string",
    "trustcall._base:create_extractor",
    "trustcall._base:_ExtractUpdates",
    "trustcall._base:_Patch",
    "trustcall._base:_ensure_patches",
    "trustcall._base:_apply_patch",
)
"""What else is relied on: the parsers that are not in the functions that ask."""


# -- for any kind of routing ---------------------------------------------------------------------


def base(switch: Switch) -> list[Patch]:
    """The name, the scopes in which a call is a write, and whose model is asked in them."""
    patches = [*_registry()]
    for home in HOMES:
        patches += _of_summaries(switch, home) + _of_entities(switch, home)
    patches += _of_triples(switch) + _of_middleware(switch) + _of_deepagents(switch)
    return patches + _of_managers(switch) + _of_running_summaries(switch)


def _imported(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _registry() -> list[Patch]:
    """Before 1.2.12, and in `langchain_classic`, the providers stand in a chain of `if`. Routing does not
    need the name: what has neither does without."""
    patches = []
    for home in REGISTRIES:
        table = _imported(home, "_BUILTIN_PROVIDERS")
        if table is not None:
            place = Entry(table, PROVIDER, f"{home}:_BUILTIN_PROVIDERS[{PROVIDER!r}]")
            patches.append(Patch(place, lambda _: _KNOWN, needed=False))
        elif hasattr(sys.modules.get(home), "_init_chat_model_helper"):
            patches.append(
                Patch(Attribute(sys.modules[home], "_init_chat_model_helper"), _by_name, needed=False)
            )
    return patches


_KNOWN = ("hymem_langchain", "ChatHyMemory", lambda cls, **given: cls(**given))


def _by_name(original: Any) -> Any:
    @functools.wraps(original)
    def init_chat_model(model: str, *, model_provider: str | None = None, **kwargs: Any) -> Any:
        provider, _, name = (model_provider, "", model) if model_provider else model.partition(":")
        if not name or provider.replace("-", "_").lower() != PROVIDER:
            return original(model, model_provider=model_provider, **kwargs)
        from .models import ChatHyMemory

        return ChatHyMemory(model=name, **kwargs)

    return init_chat_model


def _of_summaries(switch: Switch, home: str) -> list[Patch]:
    mixin = _imported(f"{home}.summary", "SummarizerMixin")
    if mixin is None:
        return []
    patches = [
        Patch(Attribute(mixin, name), within(switch, _summary))
        for name in ("predict_new_summary", "apredict_new_summary")
    ]
    patches.append(_routed_attribute(switch, mixin, "llm"))
    memory = _imported(f"{home}.summary", "ConversationSummaryMemory")
    patches.append(_async_saving(switch, memory, _asummarise))
    buffered = _imported(f"{home}.summary_buffer", "ConversationSummaryBufferMemory")
    if buffered is not None:
        patches += [Patch(Attribute(buffered, name), within(switch, _pruned)) for name in ("prune", "aprune")]
    return patches


def _of_entities(switch: Switch, home: str) -> list[Patch]:
    memory = _imported(f"{home}.entity", "ConversationEntityMemory")
    if memory is None:
        return []
    return [
        Patch(Attribute(memory, "load_memory_variables"), within(switch, _asking(ENTITIES))),
        Patch(Attribute(memory, "save_context"), within(switch, _entity_summaries)),
        _routed_attribute(switch, memory, "llm"),
        _async_saving(switch, memory),
    ]


def _of_triples(switch: Switch) -> list[Patch]:
    memory = _imported(f"{COMMUNITY}.kg", "ConversationKGMemory")
    if memory is None or not hasattr(memory, "save_context"):  # a placeholder, without LangChain's own
        return []
    return [
        Patch(Attribute(memory, "get_knowledge_triplets"), within(switch, _asking(TRIPLES))),
        _routed_attribute(switch, memory, "llm"),
        _async_saving(switch, memory),
    ]


def _of_middleware(switch: Switch) -> list[Patch]:
    middleware = _imported(MIDDLEWARE, "SummarizationMiddleware")
    if middleware is None:
        return []
    methods = {"_create_summary": _histories(switch), "before_model": within(switch, _leaving_history)}
    if Version(importlib.metadata.version("langchain")) >= Version("1.1"):
        methods |= {"_acreate_summary": methods["_create_summary"], "abefore_model": methods["before_model"]}
    patches = [Patch(Attribute(middleware, name), make) for name, make in methods.items()]
    return [*patches, *(_routed_attribute(switch, middleware, name) for name in ("model", "_summary_model"))]


def _of_deepagents(switch: Switch) -> list[Patch]:
    """Its middleware has LangChain's own make its summaries, and deletes for itself."""
    middleware = _imported(DEEP, "_DeepAgentsSummarizationMiddleware")
    if middleware is None:
        return []
    return [
        Patch(Attribute(middleware, name), _as_it_was) for name in ("wrap_model_call", "awrap_model_call")
    ]


def _of_managers(switch: Switch) -> list[Patch]:
    module = sys.modules.get(MANAGERS)
    manager, of_store = _imported(MANAGERS, "MemoryManager"), _imported(MANAGERS, "MemoryStoreManager")
    if module is None or manager is None:
        return []
    return [
        Patch(Attribute(of_store, "_build_phase_manager"), _attached_alike),
        Patch(Attribute(module, "create_extractor"), _extractors(switch)),
        *(Patch(Attribute(manager, name), within(switch, _managing)) for name in ("invoke", "ainvoke")),
        _routed_attribute(switch, manager, "model"),
    ]


def _of_running_summaries(switch: Switch) -> list[Patch]:
    """The functions, where they are defined and where people import them from."""
    node = _imported(RUNNING, "SummarizationNode")
    if node is None:
        return []
    defined, offered = sys.modules[RUNNING], sys.modules[RUNNING.rpartition(".")[0]]
    patches = [
        Patch(Attribute(home, name), _summarising(switch), needed=home is defined)
        for home in (defined, offered)
        for name in ("summarize_messages", "asummarize_messages")
        if home is defined or hasattr(home, name)
    ]
    return [*patches, _routed_attribute(switch, node, "model", only=True)]


# -- scopes --------------------------------------------------------------------------------------


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


class _LeaveHistory(WriteError):
    """A summary that failed and was skipped: nothing may be replaced by it. Whoever replaces is ours, too,
    and catches it; unless his agent was made before."""

    def __init__(self) -> None:
        super().__init__(
            "a summary failed and was to be skipped, but is asked for by code that cannot do without: an "
            "agent that was made before hymem was enabled, say. Make the agent after that"
        )
        self.site = HISTORY.id


def _histories(switch: Switch) -> Callable[[Any], Any]:
    """`_create_summary`: up to 1.3.14 it makes of an error the text of a summary."""

    def checked(opened: scope.Scope, summary: Any) -> Any:
        if opened.facts.skipped:
            raise _LeaveHistory
        if opened.failures and str(summary).startswith("Error generating summary"):
            raise opened.failures[0]
        return summary

    def wrap(original: Any) -> Any:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def _acreate_summary(self: Any, *args: Any, **kwargs: Any) -> Any:
                if not switch.on:
                    return await original(self, *args, **kwargs)
                with scope.writing(HISTORY.id, self) as opened:
                    opened.facts = Known()
                    return checked(opened, await original(self, *args, **kwargs))

            return _acreate_summary

        @functools.wraps(original)
        def _create_summary(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return original(self, *args, **kwargs)
            with scope.writing(HISTORY.id, self) as opened:
                opened.facts = Known()
                return checked(opened, original(self, *args, **kwargs))

        return _create_summary

    return wrap


@contextlib.contextmanager
def _leaving_history(middleware: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
    """`before_model`, which deletes the history that a summary stands for; it then returns None."""
    with contextlib.suppress(_LeaveHistory):
        yield args, kwargs


def _as_it_was(original: Any) -> Any:
    """`wrap_model_call` of deepagents: where a summary was skipped, the model is asked without one."""

    def unsummarised(middleware: Any, request: Any) -> Any:
        return request.override(messages=middleware._get_effective_messages(request))

    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def awrap_model_call(self: Any, request: Any, handler: Any) -> Any:
            with contextlib.suppress(_LeaveHistory):
                return await original(self, request, handler)
            return await handler(unsummarised(self, request))

        return awrap_model_call

    @functools.wraps(original)
    def wrap_model_call(self: Any, request: Any, handler: Any) -> Any:
        with contextlib.suppress(_LeaveHistory):
            return original(self, request, handler)
        return handler(unsummarised(self, request))

    return wrap_model_call


# -- langmem -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _managing(manager: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
    """`MemoryManager.invoke`: whose model its extractors are made with."""
    with scope.writing(MEMORIES.id, manager) as opened:
        opened.facts = Known()
        yield args, kwargs


def _extractors(switch: Switch) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def create_extractor(llm: Any, **given: Any) -> Any:
            if not switch.on:
                return original(llm, **given)
            from .models import Extractor

            return Extractor(original, llm, given, lambda made, own: _model_for(made, own, _ON))

        return create_extractor

    return wrap


def _attached_alike(original: Any) -> Any:
    """`MemoryStoreManager._build_phase_manager`, which makes a manager for each phase of each write."""

    @functools.wraps(original)
    def _build_phase_manager(self: Any, phase: Any) -> Any:
        made = original(self, phase)
        known = _attached.get(self.memory_manager)
        if known is not None:
            _attached.add(made, *known)
        return made

    return _build_phase_manager


def _summarising(switch: Switch) -> Callable[[Any], Any]:
    """`summarize_messages`, which replaces what it has a summary of. Where that was skipped, there is
    nothing to be summarised."""

    from .models import ChatHyMemory, bound_of

    @contextlib.contextmanager
    def writing(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        model = _model_for(None, given.get("model"), switch)
        if not switch.on or not isinstance(bound_of(model), ChatHyMemory):
            yield given
            return
        with scope.writing(RUNNING_SUMMARY.id) as opened:
            opened.facts = Known()
            yield {**given, "model": model}
        if opened.facts.skipped:
            raise _LeaveHistory

    def never(given: dict[str, Any]) -> dict[str, Any]:
        return {**given, "max_tokens": sys.maxsize, "max_tokens_before_summary": sys.maxsize}

    def wrap(original: Any) -> Any:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def asummarize_messages(messages: Any, **given: Any) -> Any:
                with contextlib.suppress(_LeaveHistory), writing(given) as changed:
                    return await original(messages, **changed)
                return await original(messages, **never(given))

            return asummarize_messages

        @functools.wraps(original)
        def summarize_messages(messages: Any, **given: Any) -> Any:
            with contextlib.suppress(_LeaveHistory), writing(given) as changed:
                return original(messages, **changed)
            return original(messages, **never(given))

        return summarize_messages

    return wrap


# -- turns whose summary failed ------------------------------------------------------------------

TRIES = 3
"""How often turns are offered whose reply cannot be used; that a server is away is no try."""


@dataclasses.dataclass
class _Turn:
    """A message that no summary has, and how often one was tried."""

    message: Any
    tries: int = 0

    def is_offered_again(self, error: BaseException) -> bool:
        """A prompt that is too long with it would be so with all that comes after."""
        self.tries += isinstance(error, WriteError) and not isinstance(error, WriterUnavailable)
        if self.tries == TRIES:
            INTEGRATION.log.error(
                "a message was offered %d times, and is in no summary: it is given up", TRIES
            )
        return self.tries < TRIES


_turns = Waiting()
"""Of a memory that keeps its messages: those whose summary failed, offered again with the next."""
_skipped = Waiting()
"""Of a buffer: those whose summary was skipped, until `prune` has put them back."""


def _still_there(memory: Any, messages: list[Any]) -> list[Any]:
    """Those that are in the memory: not another conversation's, nor what was cleared since."""
    kept = memory.chat_memory.messages if hasattr(memory, "chat_memory") else []
    return [message for message in messages if message in kept]


@contextlib.contextmanager
def _summary(memory: Any, messages: Any, existing_summary: str) -> Iterator[Given]:
    """`predict_new_summary`. Messages whose summary failed are offered again with the next: `save_context`
    gives it the last two only. Others use it for conversations that are not the memory's own."""
    own = _writer_of(memory) is not None
    given = list(messages)
    mine = own and bool(_still_there(memory, given))
    waiting = [turn for turn in (_turns.take(memory) if mine else ()) if _still_there(memory, [turn.message])]
    again = [turn for turn in waiting if not any(turn.message is one for one in given)]
    offered = [*(turn.message for turn in again), *given]

    def keep(error: BaseException) -> None:
        turns = [*again, *map(_Turn, _still_there(memory, given))]
        _turns.keep(memory, [turn for turn in turns if turn.is_offered_again(error)])

    with scope.writing(SUMMARY.id, memory) as opened:
        opened.facts = Known([CallFacts({SUMMARY_NOW: existing_summary})])
        try:
            yield (offered, existing_summary), {}
        except BaseException as error:  # cancelled ones, too
            if mine:
                keep(error)
            raise
    if opened.facts.skipped:
        if mine:
            keep(opened.facts.skipped)
        else:
            _skipped.keep(memory, offered)


@contextlib.contextmanager
def _pruned(memory: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
    """`prune`, which takes messages out before it has their summary: put back where there is none, before
    those that have come since."""
    if _writer_of(memory) is None:
        yield args, kwargs
        return
    before = list(memory.chat_memory.messages)

    def put_back() -> None:
        left = memory.chat_memory.messages
        left[:0] = [each for each in before if not any(each is one for one in left)]

    _skipped.take(memory)
    try:
        yield args, kwargs
    except BaseException:  # cancelled ones, too
        put_back()
        raise
    if _skipped.take(memory):
        put_back()


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

_attached = Attached()


def _writer_of(target: Any) -> Any:
    """The writer that an object's writes go to: its own model, one that is attached, the process's."""
    from .models import ChatHyMemory

    own = vars(target).get("llm")
    if isinstance(own, ChatHyMemory):
        return own.writer
    attached = _attached.get(target)
    return attached[0] if attached else INTEGRATION.writer


_ON = Switch(on=True)
"""Of what decides anew whenever it is asked."""


def _model_for(target: Any, own: Any, switch: Switch, main: Any = None) -> Any:
    """The model that writes where `own` would; `own` itself if it is the writer's already or nothing is
    routed. `main` is asked where it falls back."""
    from .models import ChatHyMemory, bound_of

    attached = _attached.get(target)
    writer = attached[0] if attached else INTEGRATION.writer
    if writer is None or isinstance(bound_of(own), ChatHyMemory):
        return own
    on = attached[1] if attached is not None and switch is not _ON else switch
    made = ChatHyMemory.around(own if main is None else main, writer, on)
    kept = {name: value for name, value in getattr(own, "kwargs", {}).items() if name in _LIMITS}
    return made.bind(**kept) if kept else made


_LIMITS = ("max_tokens", "max_completion_tokens", "stop")
"""What is bound to a model and holds for any that takes its place."""


def _routed_attribute(switch: Switch, owner: Any, name: str, *, only: bool = False) -> Patch:
    """`only`: the model is there for nothing but writing."""

    def choose(target: Any, own: Any) -> Any:
        main = vars(target).get("model") if name == "_summary_model" else None
        return _model_for(target, own, switch, main)

    return routed_attribute(owner, switch, name, choose, lambda target: only and target in _attached)


def routed(switch: Switch) -> list[Patch]:
    """Nothing more: the descriptors look for the process's writer."""
    return []


# -- for one object ------------------------------------------------------------------------------


def attach_to(target: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Route what writes in an object: a memory, those inside a memory or a chain, a middleware."""
    found = list(_writing_in(target))
    if not found:
        raise TypeError(
            "attach() takes what keeps memory and asks a model for it: a memory class of LangChain or a "
            "chain that has one, a SummarizationMiddleware, or langmem's managers, thread extractor or "
            f"SummarizationNode, not {type(target).__name__}"
        )
    return _attached.attach(found, writer)


_INSIDE = ("memory", "memories", "memory_manager", "_lc_helper", "bound", "steps")
"""Attributes under which there may be something that writes: of chains, memories, langmem's manager of a
store, deepagents' middleware, and runnables."""


def _writing_in(target: Any) -> Any:
    from .models import Extractor

    for name in _INSIDE:
        inner = getattr(target, name, None)
        for each in inner if isinstance(inner, list) else [inner] if inner is not None else []:
            yield from _writing_in(each)
    if isinstance(target, Extractor) or writes_by_attribute(target):
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
