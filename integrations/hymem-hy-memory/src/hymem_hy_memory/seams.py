"""How the SDK's calls are reached, per version.

`LLMProvider.complete`, `complete_messages` and `_call_llm`: what every model is asked with, in both lines.
The SDK makes a provider wherever it needs one, System 2 anew for each run; which client one belongs to is
told by its configuration object, and which call site a call is by the function that asks.

`MemoryConfig.from_dict`: a section `hy_memory`, which the SDK passes over, has the writes of every client of
that configuration routed.

`HyMemoryClient._async_add_impl` (1.x: `async_add` and `async_digest`): where a write that failed is told, if
the SDK takes it for one that had nothing to say. `CodingMemoryStore.append_trace`: the messages of one that
failed are not noted as having been read, so that they can be given again.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from hymem import scope, standin
from hymem.errors import SettingsError, UnsupportedVersion
from hymem.frameworks import KNOWN
from hymem.integration import Fault, Integration, Route
from hymem.patching import Attribute, Leftover, Patch, Switch, rewrap
from hymem.routing import Attached
from hymem.standin import StandIn
from hymem.writer import Writer

from .call_sites import CALL_SITES, EXTRACT, WORK

FRAMEWORK = dataclasses.replace(
    KNOWN["hy-memory"], floor="1.2.21", tested=("1.2.21", "2.0.4", "2.0.5", "2.0.6")
)

PROVIDER = "hy_memory.agent.llm_provider"
CONFIG = "hy_memory.config"
CLIENT = "hy_memory.client"
STORE = "hy_memory.coding.store"
SECTION = "hy_memory"

WATCHED = (
    "hy_memory.agent.extractor:Extractor._parse_json",
    "hy_memory.agent.reconciler:MemoryReconciler._parse_ops",
    "hy_memory.agent.reconciler:MemoryReconciler._strip_code_fence",
    "hy_memory.pipelines.writer:MemoryWriter._collect_new_memories",
    "hy_memory.coding.extractor:CodingMemoryExtractor._parse_output",
    "hy_memory.coding.reconciler:CodingMemoryReconciler._execute",
)
"""What else is relied on: parsers, and what is done with what they found."""

ATTACHED = Attached()
"""Configurations whose clients' writes go to a writer of their own, and providers whose do."""
SECTIONS = Attached()
"""Configurations that name a writer themselves. They count while `register()` or `enable()` is in force."""


# -- for any kind of routing ---------------------------------------------------------------------


def base(switch: Switch) -> list[Patch]:
    """Where an LLM is asked, where a configuration is made, and where a failure is told."""
    _refuse_what_cannot_be()
    from .models import routing

    client = importlib.import_module(CLIENT).HyMemoryClient
    is_2 = hasattr(client, "async_evolve")
    made = [
        *(
            Patch(Attribute(provider, name), routing(switch, asked))
            for provider in _providers()
            for name, asked in (
                ("complete", "prompt"),
                ("complete_messages", "messages"),
                ("_call_llm", "prompt"),
            )
        ),
        Patch(Attribute(importlib.import_module(CONFIG).MemoryConfig, "from_dict"), _with_a_section(switch)),
        *(
            Patch(Attribute(client, name), _telling(switch))
            for name in (("_async_add_impl",) if is_2 else ("async_add", "async_digest"))
        ),
    ]
    if is_2:
        store = importlib.import_module(STORE).CodingMemoryStore
        made.append(Patch(Attribute(store, "append_trace"), _forgetting(switch)))
    return made


def _providers() -> list[Any]:
    """The class, and after a reload of its module the one that other modules have still; that one first."""
    now = importlib.import_module(PROVIDER).LLMProvider
    held = [
        getattr(module, "LLMProvider", None)
        for name, module in list(sys.modules.items())
        if name.startswith("hy_memory.")
    ]
    older = [each for each in held if getattr(each, "__module__", None) == PROVIDER and each is not now]
    return [*dict.fromkeys(older), now]


def _refuse_what_cannot_be() -> None:
    version = FRAMEWORK.version()
    if version is not None and Version("2") <= version < Version("2.0.4"):
        raise UnsupportedVersion(
            f"hy-memory {version} is installed; hymem-hy-memory needs 2.0.4 or newer, or 1.2.21: "
            'pip install "hy-memory>=2.0.4". Nothing was changed'
        )


def sections_count() -> bool:
    handles = (INTEGRATION._registered, INTEGRATION._enabled)
    return any(handle is not None and handle.active for handle in handles)


def _with_a_section(switch: Switch) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def from_dict(cls: Any, config_dict: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(cls, config_dict, *args, **kwargs)
            given = config_dict.get(SECTION) if isinstance(config_dict, Mapping) else None
            if switch.on and sections_count() and given is not None:
                where = f"section {SECTION!r} of the configuration"
                if not isinstance(given, Mapping):
                    raise SettingsError(f"the {where} has to be a table")
                writer = Writer(INTEGRATION.settings(given, where=where), framework=FRAMEWORK.id)
                SECTIONS.add(made, writer, Switch(on=True))
                INTEGRATION.say_what_skip_cannot(writer.settings)
            return made

        return from_dict

    return lambda descriptor: rewrap(descriptor, wrap)


def _telling(switch: Switch) -> Callable[[Any], Any]:
    """An add of which nothing came since a write failed has not succeeded, whatever the SDK made of it."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def adding(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return await original(self, *args, **kwargs)
            with scope.writing(EXTRACT.id, self) as opened:
                result = await original(self, *args, **kwargs)
            if isinstance(result, dict) and result.get("success"):
                if opened.failures:
                    error = opened.failures[0]
                    result |= {
                        "success": False,
                        "error_code": 502,
                        "error_message": f"[LLM_ERROR] {type(error).__name__}: {error}",
                    }
                elif result.get("error_code"):  # 1.x
                    result["success"] = False
            return result

        return adding

    return wrap


def _forgetting(switch: Switch) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def append_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
            opened = scope.current()
            failed = opened is not None and any(each.site == WORK.id for each in opened.failures)
            if switch.on and failed:
                return None
            return await original(self, *args, **kwargs)

        return append_trace

    return wrap


def routed(switch: Switch) -> list[Patch]:
    """Nothing more: the patches of `base` ask who is in charge."""
    return []


# -- for one object ------------------------------------------------------------------------------


def attach_to(target: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Of a client, and whatever else has its configuration object; or of one provider."""
    client = importlib.import_module(CLIENT).HyMemoryClient
    if isinstance(target, client):
        return ATTACHED.attach([target._config], writer)
    if isinstance(target, tuple(_providers())):
        return ATTACHED.attach([target], writer)
    raise TypeError(f"attach() takes a HyMemoryClient or an LLMProvider, not {type(target).__name__}")


# -- for the doctor ------------------------------------------------------------------------------


def faults(version: Version) -> Sequence[Fault]:
    found = []
    if not _has_encoding():
        found.append(
            Fault(
                "the SDK's tokenizer (tiktoken's cl100k_base) is not on this machine: from 2.0 on it is "
                "looked for at every embedding, over the network",
                "let it be downloaded once, or set TIKTOKEN_CACHE_DIR to a copy of another machine's",
            )
        )
    if version < Version("2.0"):
        found.append(
            Fault(
                "MEMORY_LLM_EXTRA_BODY is not read, so that the main model can be told not to think by "
                "MemoryConfig.from_dict() alone",
                "use 2.0.4 or newer; hymem sends no_think to the writer in any case",
            )
        )
    return found


def _has_encoding() -> bool:
    """As tiktoken looks for it: under the SHA-1 of its address. Without tiktoken, letters are counted."""
    if sys.modules.get("tiktoken", tempfile) is None:
        return True
    place = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    folder = Path(place) if place is not None else Path(tempfile.gettempdir()) / "data-gym-cache"
    return (folder / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").is_file()


def probe(main: StandIn, place: Path) -> Route:
    """The memories of a sentence, by the SDK's extractor, which needs no store."""
    from hy_memory.agent.extractor import Extractor
    from hy_memory.agent.llm_provider import LLMProvider
    from hy_memory.config import MemoryConfig

    llm = {"model": standin.MODEL, "api_key": standin.KEY, "base_url": main.base_url, "max_retries": 1}
    config = MemoryConfig.from_dict({"llm": llm})
    provider = LLMProvider(config)
    extractor = Extractor(provider, config.llm)

    async def extract() -> None:
        found = await extractor.extract("In the morning I drink tea.")
        if not found.success:
            raise RuntimeError(found.error)

    return Route(
        writes={"Extractor.extract": extract},
        read=lambda: provider.complete("What do I drink in the morning?"),
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
    faults=faults,
)
