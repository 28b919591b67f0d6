"""How MemOS's calls are reached, per version. Nothing upstream is subclassed or replaced.

`LLMConfigFactory.backend_to_class` and `LLMFactory.backend_to_class`: tables of its own, in which a backend
is made known. `generate` of each LLM class: whose call is a write is told by the function that asks.

`ContextThreadPoolExecutor.submit` (1.1 on): work goes into a pool with the write that it belongs to.
`get_memory` and feedback: where a failure that was swallowed in a pool is told, if nothing came of the whole.

`BaseScheduler.initialize_modules`: it is handed the mem reader's LLM to answer with (`mem_reader.llm` up to
2.0.9, `general_llm` after); where that is the writer's, the chat LLM takes its place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from hymem import scope, standin
from hymem.errors import SettingsError
from hymem.frameworks import KNOWN
from hymem.integration import Fault, Integration, Route
from hymem.patching import Attribute, Entry, Leftover, Patch, Switch, rewrap
from hymem.routing import Given, attached_already, routed_attribute, within
from hymem.standin import StandIn
from hymem.writer import Writer

from .call_sites import APPROVED, CALL_SITES, CHAT, DOCUMENT, FEEDBACK, MULTI, OPERATIONS, SIMPLE

FRAMEWORK = dataclasses.replace(
    KNOWN["memos"], floor="0.2.2", tested=("0.2.2", "1.0.1", "1.1.3", "2.0.10", "2.0.33")
)

BACKEND = "hy_memory"

POOLS = "memos.context.context"
SCHEDULER = "memos.mem_scheduler.base_scheduler"
TREE = "memos.memories.textual.tree"
CORE = "memos.mem_os.core"
PARTS = (POOLS, SIMPLE, MULTI, FEEDBACK, SCHEDULER, TREE, CORE)

WATCHED = (
    "memos.mem_reader.utils:parse_json_result",
    "memos.mem_reader.utils:parse_keep_filter_response",
    "memos.mem_reader.utils:parse_rewritten_response",
    "memos.mem_feedback.utils:extract_bracket_content",
    "memos.mem_feedback.utils:extract_square_brackets_content",
    "memos.mem_feedback.feedback:MemFeedback._get_llm_response",
    "memos.mem_feedback.feedback:MemFeedback.standard_operations",
    "memos.mem_reader.multi_modal_struct:MultiModalStructMemReader._process_string_fine",
    "memos.memories.textual.tree_text_memory.organize.reorganizer:GraphStructureReorganizer._parse_json_result",
    "memos.memories.textual.tree_text_memory.organize.relation_reason_detector:RelationAndReasoningDetector"
    "._parse_relation_result",
)
"""What else is relied on: the parsers, and what decides which of them is used."""

_RETRIEVERS = "memos.memories.textual.tree_text_memory.retrieve."


# -- for any kind of routing ---------------------------------------------------------------------


def base(switch: Switch) -> list[Patch]:
    """The backend's name, the ways by which work and failures travel, and who answers for the scheduler."""
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory

    from .models import HyMemoryLLM, HyMemoryLLMConfig

    return [
        Patch(_entry(LLMConfigFactory), lambda _: HyMemoryLLMConfig, needed=False),
        Patch(_entry(LLMFactory), lambda _: HyMemoryLLM, needed=False),
        *_of(POOLS, "ContextThreadPoolExecutor", switch, submit=_carrying),
        *_of(SIMPLE, "SimpleStructMemReader", switch, get_memory=_telling(CHAT.id, _is_nothing)),
        *_of_transfers(switch),
        *_of_old_documents(switch),
        *_of(
            FEEDBACK,
            "MemFeedback",
            switch,
            semantics_feedback=lambda on: within(on, _inside(OPERATIONS.id)),
            filter_fault_update=lambda on: within(on, _inside(APPROVED.id)),
            process_feedback=_telling(OPERATIONS.id, _is_no_change),
        ),
        *_of(SCHEDULER, "BaseScheduler", switch, initialize_modules=_answered_by_chat),
        *_of(CORE, "MOSCore", switch, __init__=_refusing("chat_model", "mem_reader.config.llm")),
        *_of(TREE, "TreeTextMemory", switch, __init__=_refusing("dispatcher_llm", "extractor_llm")),
        *_of(MULTI, "MultiModalStructMemReader", switch, __init__=_looking_at_images),
    ]


def _of_transfers(switch: Switch) -> list[Patch]:
    found = _of(
        MULTI, "MultiModalStructMemReader", switch, _process_transfer_multi_modal_data=_keeping_raw_text
    )
    if POOLS in sys.modules:  # as transfers, from 1.1 on
        found += _of(SIMPLE, "SimpleStructMemReader", switch, _process_transfer_chat_data=_keeping_raw_text)
    return found


def _looking_at_images(switch: Switch) -> Callable[[Any], Any]:
    """A multimodal reader whose LLM for images is the writer's, which it takes where none is configured."""
    from .models import HyMemoryLLM

    refusing = _refusing("image_parser_llm", "llm")(switch)

    def wrap(original: Any) -> Any:
        refused = refusing(original)

        @functools.wraps(original)
        def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
            refused(self, config, *args, **kwargs)
            images = self.image_parser_llm
            if switch.on and isinstance(images, HyMemoryLLM) and images.main is None:
                INTEGRATION.log.warning(
                    "a mem reader has nothing to look at images with: set image_parser_llm to an LLM that can"
                )

        return __init__

    return wrap


def _entry(factory: Any) -> Entry:
    module, name = factory.__module__, factory.__qualname__
    return Entry(factory.backend_to_class, BACKEND, f"{module}:{name}.backend_to_class[{BACKEND!r}]")


def _of(module: str, owner: str, switch: Switch, **methods: Callable[[Switch], Any]) -> list[Patch]:
    """Methods of a class, where its module is imported."""
    home = sys.modules.get(module)
    if home is None:
        return []
    cls = getattr(home, owner, None)
    if cls is None:
        # The hook comes in the midst of MemOS's imports: this one is not done.
        beginning = getattr(home.__spec__, "_initializing", False)
        return [] if beginning else [Patch(Attribute(home, owner), lambda original: original)]
    return [Patch(Attribute(cls, name), make(switch)) for name, make in methods.items()]


def _carrying(switch: Switch) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def submit(self: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self, scope.carried(fn) if switch.on else fn, *args, **kwargs)

        return submit

    return wrap


def _inside(site: str) -> Any:
    """A scope inside another: what fails in it has failed in that, too."""

    @contextlib.contextmanager
    def inside(owner: Any, *args: Any, **kwargs: Any) -> Iterator[Given]:
        outer = scope.current()
        with scope.writing(site, owner) as opened:
            if outer is not None:
                opened.failures = outer.failures
            yield args, kwargs

    return inside


def _telling(site: str, is_nothing: Callable[[Any], bool]) -> Callable[[Switch], Any]:
    """A method that returns whatever came of its parts: where that is nothing and a write has failed, the
    failure is raised."""

    def make(switch: Switch) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            @functools.wraps(original)
            def telling(self: Any, *args: Any, **kwargs: Any) -> Any:
                if not switch.on:
                    return original(self, *args, **kwargs)
                reads = sys._getframe(1).f_globals.get("__name__", "").startswith(_RETRIEVERS)
                outer = scope.current()
                with scope.writing("memos.search" if reads else site, self) as opened:
                    result = original(self, *args, **kwargs)
                if outer is not None:
                    outer.failures += opened.failures
                if opened.failures and is_nothing(result):
                    raise opened.failures[0]
                return result

            return telling

        return wrap

    return make


def _keeping_raw_text(switch: Switch) -> Callable[[Any], Any]:
    """What makes memories of raw text that is stored already, and is deleted then, whatever came of it: where
    nothing did and a write failed, it is the raw text again."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def transferring(self: Any, raw: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return original(self, raw, *args, **kwargs)
            with scope.writing(CHAT.id, self) as opened:
                made = original(self, raw, *args, **kwargs)
            if made or opened.facts is None:
                return made
            kept = [each.model_copy(deep=True) for each in (raw if isinstance(raw, list) else [raw])]
            for each in kept:
                each.id = str(uuid.uuid4())
            INTEGRATION.log.error("raw text stays in the place of memories: %s", type(opened.facts).__name__)
            return kept

        return transferring

    return wrap


def _is_nothing(memories: Any) -> bool:
    return not any(memories or [])


def _is_no_change(made: Any) -> bool:
    record = made.get("record") if isinstance(made, dict) else None
    return not any((record or {}).values())


def _of_old_documents(switch: Switch) -> list[Patch]:
    """Before 1.0 `generate` itself is handed to a pool, where nobody asks: the reader's LLM is, inside that
    method, one that is asked for documents only."""
    module = sys.modules.get(SIMPLE)
    reader = getattr(module, "SimpleStructMemReader", None)
    if reader is None or hasattr(module, "_build_node"):
        return []

    from .models import HyMemoryLLM

    def choose(target: Any, own: Any) -> Any:
        opened = scope.current()
        if opened is None or opened.site != DOCUMENT.id:
            return own
        if isinstance(own, HyMemoryLLM):
            return HyMemoryLLM.around(own.main, own.writer, own._switch or Switch(on=True), DOCUMENT)
        writer = INTEGRATION.writer
        return own if writer is None else HyMemoryLLM.around(own, writer, switch, DOCUMENT)

    return [
        Patch(Attribute(reader, "_process_doc_data"), within(switch, _inside(DOCUMENT.id))),
        routed_attribute(reader, switch, "llm", choose),
    ]


def _answered_by_chat(switch: Switch) -> Callable[[Any], Any]:
    from .models import HyMemoryLLM

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def initialize_modules(
            self: Any, chat_llm: Any, process_llm: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            if switch.on and isinstance(process_llm, HyMemoryLLM) and process_llm.main is None:
                process_llm = chat_llm
            return original(self, chat_llm, process_llm, *args, **kwargs)

        return initialize_modules

    return wrap


def _refusing(slot: str, right: str) -> Callable[[Switch], Any]:
    """A constructor whose configuration has the writer in a slot that answers."""

    def make(switch: Switch) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            @functools.wraps(original)
            def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
                if getattr(getattr(config, slot, None), "backend", None) == BACKEND:
                    raise SettingsError(
                        f"backend {BACKEND!r} is in {slot}, which answers and does not write memory; put "
                        f"your own LLM there, and {BACKEND!r} in {right}"
                    )
                original(self, config, *args, **kwargs)

            return __init__

        return wrap

    return make


# -- for every object ----------------------------------------------------------------------------


def routed(switch: Switch) -> list[Patch]:
    """Each class of LLM that MemOS may make, where its `generate` is defined."""
    from memos.llms.base import BaseLLM
    from memos.llms.factory import LLMFactory

    from .models import HyMemoryLLM

    homes = {
        home
        for cls in LLMFactory.backend_to_class.values()
        for home in getattr(cls, "__mro__", ())
        if "generate" in vars(home) and home not in (BaseLLM, HyMemoryLLM)
    }
    return [
        Patch(Attribute(BaseLLM, "generate"), _routing(switch)),
        Patch(Attribute(LLMFactory, "from_config"), _routing_new_ones(switch)),
    ] + [
        Patch(Attribute(home, "generate"), _routing(switch), needed=False)
        for home in sorted(homes, key=lambda home: f"{home.__module__}:{home.__qualname__}")
    ]


_MARK = "_hymem_routes"
"""On `generate` that is routed; what decorates it since has it, too."""


def _routing_new_ones(switch: Switch) -> Callable[[Any], Any]:
    """An LLM of a backend that was made known after hymem was enabled is routed when one is made."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def from_config(cls: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(cls, *args, **kwargs)
            if switch.on and not hasattr(type(made).generate, _MARK):
                INTEGRATION.refresh()
            return made

        return from_config

    return lambda descriptor: rewrap(descriptor, wrap)


def _routing(switch: Switch) -> Callable[[Any], Any]:
    from .models import asking, write

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
            site = asking(1) if switch.on else None
            writer = INTEGRATION.writer
            if site is None or site.side == "read" or writer is None:
                return original(self, *args, **kwargs)
            messages = args[0] if args else kwargs["messages"]
            return write(writer, site, messages, lambda: original(self, *args, **kwargs))

        setattr(generate, _MARK, True)
        return generate

    return wrap


# -- for one object ------------------------------------------------------------------------------


def attach_to(target: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Put an LLM of ours around those of an object, and of what it holds: a `MOS`, a cube, a mem reader, a
    textual memory, feedback."""
    from .models import HyMemoryLLM

    found = list(_llms_in(target, set()))
    if not found:
        raise TypeError(
            "attach() takes what keeps memory and asks an LLM for it: a MOS, a cube, a mem reader, a textual "
            f"memory or a MemFeedback, not {type(target).__name__}"
        )
    if any(isinstance(own, HyMemoryLLM) for _, _, own in found):
        raise attached_already()
    switch = Switch(on=True)
    placed = []
    for owner, name, own in found:
        ours = HyMemoryLLM.around(own, writer, switch)
        setattr(owner, name, ours)
        placed.append((owner, name, own, ours))

    def undo() -> list[Leftover]:
        switch.on = False
        left = []
        for owner, name, own, ours in placed:
            if vars(owner).get(name) is ours:
                setattr(owner, name, own)
            else:
                left.append(Leftover(f"{type(owner).__name__}.{name}"))
        return left

    return undo


def _llms_in(target: Any, seen: set[int]) -> Iterator[tuple[Any, str, Any]]:
    """Every attribute of MemOS's objects in `target` that holds an LLM."""
    from memos.llms.base import BaseLLM

    if id(target) in seen:
        return
    seen.add(id(target))
    if isinstance(target, (list, tuple, dict)):
        for each in target.values() if isinstance(target, dict) else target:
            yield from _llms_in(each, seen)
        return
    cls = type(target)
    if isinstance(target, BaseLLM) or not any(home.__module__.startswith("memos.") for home in cls.__mro__):
        return
    for name, value in list(getattr(target, "__dict__", {}).items()):
        if isinstance(value, BaseLLM):
            yield target, name, value
        else:
            yield from _llms_in(value, seen)


# -- for the doctor ------------------------------------------------------------------------------


def faults(version: Version) -> Sequence[Fault]:
    found = []
    if _has_new_chonkie():
        found.append(
            Fault(
                "with chonkie 1.3 or newer no document is read: MemOS's chunker looks for what its pieces no "
                "longer have",
                'pip install "chonkie<1.3"',
            )
        )
    if Version("2.0.1") <= version <= Version("2.0.33"):
        found.append(
            Fault(
                "the mem reader of backend 'strategy_struct' stores every conversation as raw text: it calls "
                "a method that its parent has lost",
                "use 'simple_struct' or 'multimodal_struct'",
            )
        )
    if Version("2.0.10") <= version <= Version("2.0.33"):
        found.append(
            Fault(
                "the mem reader of backend 'simple_struct' reads no document: its chunker gives it text, "
                "where it looks for pieces",
                "use 'multimodal_struct' for documents",
            )
        )
    if Version("2.0.3") <= version <= Version("2.0.20"):
        found.append(
            Fault(
                "where an extraction fails, 'simple_struct' means to store the raw text, under a name that "
                "it does not read: nothing is stored",
                "use a newer MemOS; with hymem, get_memory() raises where nothing came of it",
            )
        )
    if Version("2.0.10") <= version <= Version("2.0.33") and importlib.util.find_spec("psycopg2"):
        found.append(
            Fault(
                "the graph backend 'postgres' gives vectors as text: a search with the default dedup is "
                "empty, with HTTP 200, and a tree is not reorganised",
                'search with "dedup": "no"',
            )
        )
    return found


def _has_new_chonkie() -> bool:
    try:
        return Version(importlib.metadata.version("chonkie")) >= Version("1.3")
    except importlib.metadata.PackageNotFoundError:
        return False


def probe(main: StandIn, place: Path) -> Route:
    """The memories of a sentence, by a naive textual memory, which needs nothing else."""
    from memos.configs.llm import LLMConfigFactory
    from memos.configs.memory import NaiveTextMemoryConfig
    from memos.llms.factory import LLMFactory
    from memos.memories.textual.naive import NaiveTextMemory

    given = {"model_name_or_path": standin.MODEL, "api_key": standin.KEY, "api_base": main.base_url}
    llm = {"backend": "openai", "config": given}
    memory = NaiveTextMemory(NaiveTextMemoryConfig(extractor_llm=llm))
    said = [{"role": "user", "content": "In the morning I drink tea."}]
    answering = LLMFactory.from_config(LLMConfigFactory.model_validate(llm))
    return Route(
        writes={"NaiveTextMemory.extract": lambda: memory.extract(said)},
        read=lambda: answering.generate([{"role": "user", "content": "What do I drink in the morning?"}]),
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
    parts=PARTS,
    faults=faults,
)
