"""How Mem0's calls are reached, per version. Nothing upstream is subclassed or replaced.

`LlmFactory.provider_to_class`: a public registry; makes the provider's name known.

`LlmConfig.validate_config`: the code object of a validator, since the provider names it accepts
are written into it in all versions.

`Memory._add_to_vector_store`, `Memory._create_procedural_memory`: private methods, and the write
itself. `add()` is too far out: up to 1.0 it hands over to a pool that does not copy context. What
Mem0 swallows of a failure inside is raised when they return: 0.1 and 1.0 go on with an empty
decision, 2.0.0 to 2.0.10 with no extraction.

`mem0.memory.main.get_update_memory_messages` (before 2): a module global. It tells the decision
from the extraction before it, and which ids were offered to the model.

`Memory._add_to_graph`, `Memory.delete` (before 2): the graph's writes, as scopes of their own. The
graph's modules are not always importable, and its search asks the very same questions.

`GraphStoreFactory.create`, `RerankerFactory.create`: what is made there asks questions that are no
writes, so an LLM of ours that has no main model is refused when it is made and not when it is asked.

`Memory.llm`: a class attribute that is there with `enable()` only; each object's own LLM is
looked up through it at each call.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from packaging.version import Version

from hymem import scope, standin
from hymem.contract import CallFacts
from hymem.errors import SeamMissing, SettingsError
from hymem.frameworks import KNOWN
from hymem.integration import Integration, Route, scoped
from hymem.patching import Attribute, Code, Entry, Leftover, Patch, Switch, rewrap
from hymem.standin import StandIn
from hymem.writer import Writer

from .call_sites import (
    CALL_SITES,
    DECIDE,
    EXTRACT_ADDITIVE,
    EXTRACT_FACTS,
    GRAPH_ENTITIES,
    GRAPH_FORGET,
    PROCEDURAL_MEMORY,
)

FRAMEWORK = dataclasses.replace(KNOWN["mem0"], tested=("0.1.118", "1.0.11", "2.0.1", "2.0.20", "2.2.1"))

PROVIDERS = ("hy_memory", "hy-memory")
"""The names in Mem0's configuration. What is here is needed to make them known, and so must not need
`models`: with the start-up hook that happens in the middle of whatever import brings Mem0 first."""

WATCHED = (
    "mem0.memory.utils:remove_code_blocks",
    "mem0.memory.utils:extract_json",
    "mem0.memory.utils:normalize_facts",
    "mem0.utils.factory:LlmFactory.create",
    "mem0.graphs.tools:EXTRACT_ENTITIES_TOOL",
    "mem0.graphs.tools:RELATIONS_TOOL",
    "mem0.graphs.tools:DELETE_MEMORY_TOOL_GRAPH",
)
"""What else is relied on: the parsers that the contracts are written for, and the graph's functions."""


# -- for any kind of routing ---------------------------------------------------------------------


def base(switch: Switch) -> list[Patch]:
    """The name, and the scopes in which a call is a write."""
    from mem0.memory import main

    version = FRAMEWORK.version()
    decides = version < Version("2") if version else hasattr(main, "get_update_memory_messages")
    extraction = EXTRACT_FACTS if decides else EXTRACT_ADDITIVE
    patches = [*_registry(), *_validator(switch)]
    for owner in (main.Memory, main.AsyncMemory):
        for method, site in (
            ("_add_to_vector_store", extraction),
            ("_create_procedural_memory", PROCEDURAL_MEMORY),
        ):
            patches.append(Patch(Attribute(owner, method), scoped(switch, site.id)))
        if decides:
            for method, site in (("_add_to_graph", GRAPH_ENTITIES), ("delete", GRAPH_FORGET)):
                patches.append(Patch(Attribute(owner, method), scoped(switch, site.id)))
    if decides:
        patches.append(Patch(Attribute(main, "get_update_memory_messages"), _told_of_decision(switch)))
    return patches + _readers(switch)


def _readers(switch: Switch) -> list[Patch]:
    from mem0.utils import factory

    return [
        Patch(Attribute(owner, "create"), _needs_main_model(switch, chosen, what), needed=False)
        for name, chosen, what in (
            ("GraphStoreFactory", _llm_of_graph, "the graph store asks questions when it searches"),
            ("RerankerFactory", _llm_of_reranker, "the reranker asks questions"),
        )
        if (owner := getattr(factory, name, None)) is not None
    ]


def _needs_main_model(
    switch: Switch, chosen: Callable[[Any], tuple[Any, Any]], what: str
) -> Callable[[Any], Any]:
    """What makes a factory's `create(cls, provider, config)` refuse our provider with no main model."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create(cls: Any, provider_name: Any, config: Any = None, **kwargs: Any) -> Any:
            provider, llm_config = chosen(config) if switch.on else (None, None)
            if provider in PROVIDERS and not (llm_config or {}).get("main_llm"):
                raise SettingsError(
                    f"{what}, and its LLM, of provider {provider!r}, has no main model for them: set "
                    "`main_llm` in that LLM's config, or give it the LLM you had before"
                )
            return original(cls, provider_name, config, **kwargs)

        return create

    return lambda descriptor: rewrap(descriptor, wrap)


def _llm_of_graph(config: Any) -> tuple[Any, Any]:
    """Provider and config of the LLM that a graph store makes for itself, as Mem0 chooses them."""
    llm = config.graph_store.llm or config.llm
    return llm.provider, llm.config


def _llm_of_reranker(config: Any) -> tuple[Any, Any]:
    read = config if isinstance(config, dict) else vars(config or object)
    nested = read.get("llm")
    if isinstance(nested, dict):
        return nested.get("provider"), nested.get("config")
    return read.get("provider"), None


def _registry() -> list[Patch]:
    from mem0.utils.factory import LlmFactory

    known = ("hymem_mem0.models.HyMemoryLLM", _config)
    table = LlmFactory.provider_to_class
    return [
        Patch(
            Entry(table, name, f"mem0.utils.factory:LlmFactory.provider_to_class[{name!r}]"),
            lambda _: known,
            False,
        )
        for name in PROVIDERS
    ]


def _config(**given: Any) -> Any:
    """What Mem0 calls for the `config` of our provider."""
    from .models import HyMemoryConfig

    return HyMemoryConfig(**given)


def _told_of_decision(switch: Switch) -> Callable[[Any], Any]:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def deciding(retrieved_old_memory_dict: Any, *args: Any, **kwargs: Any) -> Any:
            opened = scope.current() if switch.on else None
            if opened is not None:
                offered = {str(each["id"]): str(each["text"]) for each in retrieved_old_memory_dict or ()}
                opened.site, opened.facts = DECIDE.id, CallFacts(offered)
            return original(retrieved_old_memory_dict, *args, **kwargs)

        return deciding

    return wrap


# -- the validator that knows providers by name --------------------------------------------------


_original_validator: FunctionType | None = None


def _validator(switch: Switch) -> list[Patch]:
    """Have `hy_memory` accepted as a provider that may have a `config`.

    Compiled pydantic schemas, those of other people's models too, hold the validator's function
    itself, so its code object is what is changed: no schema has to be rebuilt. Nothing is changed
    where upstream accepts the name already.
    """
    if _accepted():
        return []
    from mem0.llms.configs import LlmConfig

    function = getattr(getattr(LlmConfig, "validate_config", None), "__func__", None)
    name = "mem0.llms.configs:LlmConfig.validate_config"
    if (
        not isinstance(function, FunctionType)
        or function.__code__.co_freevars
        or function.__code__.co_argcount != 3  # cls, v, values
    ):
        raise SeamMissing(
            f"{name} is not the plain function of three arguments it is in the versions that are "
            "supported. Nothing was changed; attach() works without it",
            missing=(name,),
        )

    def make(code: Any) -> Any:
        global _original_validator
        _original_validator = FunctionType(
            code, function.__globals__, function.__name__, function.__defaults__
        )
        return _validate.__code__

    return [Patch(Code(function, name), make)]


def _validate(cls: Any, v: Any, values: Any) -> Any:
    """Only its code is used, inside Mem0's function: so it brings nothing but what it imports."""
    from hymem_mem0.seams import accepts

    return accepts(cls, v, values)


def accepts(cls: Any, config: Any, values: Any) -> Any:
    """Our names pass; of every other one Mem0's own validator decides."""
    if values.data.get("provider") in PROVIDERS:
        return config
    assert _original_validator is not None  # set before the code object was
    return _original_validator(cls, config, values)


def _accepted() -> bool:
    from mem0.llms.configs import LlmConfig

    try:
        LlmConfig(provider="hy_memory", config={})
    except ValueError:
        return False
    return True


def verify() -> None:
    """After patching, Mem0 has to take the name for what it is."""
    if not _accepted():
        raise SeamMissing(
            "mem0.llms.configs:LlmConfig still refuses the provider 'hy_memory'; nothing was changed",
            missing=("mem0.llms.configs:LlmConfig.validate_config",),
        )


# -- for every object of the process -------------------------------------------------------------


class _RoutedLLM:
    """`Memory.llm` while the process is routed. Outside a write it is the object's own LLM."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def __get__(self, memory: Any, owner: type | None = None) -> Any:
        if memory is None:
            raise AttributeError("llm")
        try:
            llm = vars(memory)["llm"]
        except KeyError:
            raise AttributeError("llm") from None
        opened = scope.current()
        writer = INTEGRATION.writer
        if opened is None or opened.owner is not memory or not self._switch.on or writer is None:
            return llm
        from .models import HyMemoryLLM

        # What the object's own configuration says is nearer than what the process was told.
        return llm if isinstance(llm, HyMemoryLLM) else HyMemoryLLM.around(llm, writer, self._switch)

    def __set__(self, memory: Any, llm: Any) -> None:
        vars(memory)["llm"] = llm

    def __delete__(self, memory: Any) -> None:
        del vars(memory)["llm"]


def routed(switch: Switch) -> list[Patch]:
    """Every object's LLM, inside a write only."""
    from mem0.memory import main

    return [
        Patch(Attribute(owner, "llm"), lambda _: _RoutedLLM(switch), needed=False)
        for owner in (main.Memory, main.AsyncMemory)
    ]


# -- for one object ------------------------------------------------------------------------------


def attach_to(memory: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Put an LLM of ours around the object's own."""
    from mem0.memory import main

    from .models import HyMemoryLLM

    if not isinstance(memory, (main.Memory, main.AsyncMemory)):
        raise TypeError(f"attach() takes a mem0.Memory or mem0.AsyncMemory, not {type(memory).__name__}")
    own = vars(memory)["llm"]
    if isinstance(own, HyMemoryLLM):
        raise SettingsError("this object's writes go to a writer already; disable() that first")
    switch = Switch(on=True)
    ours = memory.llm = HyMemoryLLM.around(own, writer, switch)

    def undo() -> list[Leftover]:
        switch.on = False
        if vars(memory).get("llm") is not ours:
            return [Leftover("memory.llm")]
        memory.llm = own
        return []

    return undo


# -- for the doctor ------------------------------------------------------------------------------


def probe(main: StandIn, place: Path) -> Route:
    """Memories of both classes on Mem0's embedded store, with the stand-in for everything else."""
    from mem0 import AsyncMemory, Memory

    key = {"openai_base_url": main.base_url, "api_key": standin.KEY}
    size = standin.DIMENSIONS

    def opened(cls: Any) -> Any:
        store = {"path": str(place / cls.__name__), "embedding_model_dims": size}
        return cls.from_config(
            {
                "llm": {"provider": "openai", "config": {"model": standin.MODEL, **key}},
                "embedder": {"provider": "openai", "config": {**key, "embedding_dims": size}},
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(place / f"{cls.__name__}.db"),
            }
        )

    memory = opened(Memory)
    said = [{"role": "user", "content": "In the morning I drink green tea."}]
    asked = [{"role": "user", "content": "What do I drink in the morning?"}]

    async def added() -> None:
        made = opened(AsyncMemory)  # a coroutine before 1.0.10
        await (await made if inspect.isawaitable(made) else made).add(said, user_id="hymem")

    return Route(
        writes={
            "Memory.add": lambda: memory.add(said, user_id="hymem"),
            "AsyncMemory.add": added,
            "procedural memory": lambda: memory.add(said, agent_id="hymem", memory_type="procedural_memory"),
        },
        read=lambda: memory.llm.generate_response(asked),
    )


# -- the switches --------------------------------------------------------------------------------

INTEGRATION = Integration(
    FRAMEWORK,
    core="0.1",
    call_sites=CALL_SITES,
    base=base,
    routed=routed,
    attach_to=attach_to,
    verify=verify,
    probe=probe,
)
