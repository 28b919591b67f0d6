"""How EverMemOS's calls are reached, per version.

`OpenAICompatClient.chat`: what all models are asked with, one client for writes and, from 1.2.2 on, for
searches. Which of the two a call is, is told by the function that asks. EverMemOS's wrappers for logs and
traces stand around it and stay.

`build_client` in `everos.component.llm.client`: where the client is made, by when the memory root is known;
a table `[hy_memory]` in the root's `everos.toml` enables the routing there.

`UserMemoryPipeline.run`, `OfflineEngine.emit` and `prepare_cells` in `everos.service.memorize`: see `kept`.

`ProfileExtractor._update_extract`, `AgentSkillExtractor`'s methods, `_compress_tool_chunk`: what operations
of the reply may name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from hymem import scope, standin
from hymem.contract import CallFacts
from hymem.errors import SettingsError
from hymem.frameworks import KNOWN
from hymem.integration import Fault, Integration, Route
from hymem.patching import Attribute, Leftover, Patch, Switch
from hymem.routing import Given, attached_already, within
from hymem.settings import Table
from hymem.standin import StandIn
from hymem.writer import Writer

from . import contracts
from .call_sites import CALL_SITES, PROFILE_UPDATE, SKILLS, TOOLS
from .kept import JOURNAL, KEPT, file, read_toml

FRAMEWORK = dataclasses.replace(
    KNOWN["evermemos"], floor="1.0.2", tested=("1.0.2", "1.2.3", "1.3.1", "1.4.2", "1.5.1")
)

CLIENT = "everalgo.llm.providers.openai_compat"
MADE = "everos.component.llm.client"
SERVICE = "everos.service.memorize"
ENGINE = "everos.infra.ome.engine"
PIPELINE = "everos.memory.extract.pipeline.user_memory"
PROFILES = "everalgo.user_memory.profile"
SKILL = "everalgo.agent_memory.skill"
CASES = "everalgo.agent_memory.case"
PARTS = (SERVICE,)

WATCHED = (
    "everalgo.user_memory.episode:_extract_json_object",
    "everalgo.user_memory.profile:_apply_ops",
    "everalgo.agent_memory.case:_openai_dict_to_agent_item",
    "everalgo.clustering.algorithm:cluster_by_llm",
    "everalgo.boundary.chat:detect_boundaries",
    "everos.service._boundary:prepare_cells",
    "everos.service._boundary:_detect",
    "everos.infra.ome._dispatch.runner:Runner.run",
)
"""What else is relied on: parsers, who tries again on what, and what is kept."""


# -- for any kind of routing ---------------------------------------------------------------------


def base(switch: Switch) -> list[Patch]:
    """What a reply may name, and what is kept of one that failed."""
    made = [
        Patch(Attribute(importlib.import_module(MADE), "build_client"), _enabling_by_table(switch)),
        Patch(
            Attribute(importlib.import_module(PROFILES).ProfileExtractor, "_update_extract"),
            within(switch, _updating_profile),
        ),
        Patch(Attribute(importlib.import_module(CASES), "_compress_tool_chunk"), _compressing(switch)),
        *(
            Patch(
                Attribute(importlib.import_module(SKILL).AgentSkillExtractor, name),
                within(switch, _learning),
                needed=name == "aextract",
            )
            for name in ("aextract", "aextract_with_reason")
        ),
    ]
    service = sys.modules.get(SERVICE)
    if service is not None and hasattr(service, "memorize"):
        made += [
            Patch(
                Attribute(importlib.import_module(PIPELINE).UserMemoryPipeline, "run"),
                JOURNAL.keeping(switch),
            ),
            Patch(Attribute(importlib.import_module(ENGINE).OfflineEngine, "emit"), JOURNAL.noting(switch)),
            Patch(Attribute(service, "prepare_cells"), JOURNAL.trying_again(switch)),
        ]
    return made


@contextlib.contextmanager
def _offering(site: str, facts: CallFacts, args: Any, kwargs: Any) -> Iterator[Given]:
    with scope.writing(site) as opened:
        opened.facts = facts
        yield args, kwargs


def _updating_profile(extractor: Any, *args: Any, **kwargs: Any) -> contextlib.AbstractContextManager[Given]:
    old = kwargs.get("old_profile")
    lists = {name: list(getattr(old, name, None) or []) for name in (contracts.EXPLICIT, contracts.IMPLICIT)}
    return _offering(PROFILE_UPDATE.id, contracts.offered(**lists), args, kwargs)


def _learning(extractor: Any, *args: Any, **kwargs: Any) -> contextlib.AbstractContextManager[Given]:
    skills = list(kwargs.get("existing_relevant_skills") or [])
    return _offering(SKILLS.id, contracts.offered(**{contracts.SKILL_LIST: skills}), args, kwargs)


def _compressing(switch: Switch) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def compress(messages: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return await original(messages, *args, **kwargs)
            with _offering(
                TOOLS.id,
                contracts.offered(messages=[contracts.signature(each) for each in messages]),
                args,
                kwargs,
            ):
                return await original(messages, *args, **kwargs)

        return compress

    return wrap


# -- its own file --------------------------------------------------------------------------------


def table() -> Table | None:
    """`[hy_memory]`, which EverMemOS passes over."""
    found, where = read_toml(file()).get("hy_memory"), f"[hy_memory] in {file()}"
    if found is None:
        return None
    if not isinstance(found, dict):
        raise SettingsError(f"{where} has to be a table")
    return found, where


def _enabling_by_table(switch: Switch) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def build_client(*args: Any, **kwargs: Any) -> Any:
            if switch.on and INTEGRATION.writer is None and table() is not None:
                INTEGRATION.enable({})
            if INTEGRATION.writer is not None and not _has_encoding():
                INTEGRATION.log.warning("%s: %s", _DOWNLOAD.found, _DOWNLOAD.todo)
            return original(*args, **kwargs)

        return build_client

    return wrap


# -- for the process -----------------------------------------------------------------------------


def routed(switch: Switch) -> list[Patch]:
    """The class of all clients."""
    client = importlib.import_module(CLIENT).OpenAICompatClient
    return [Patch(Attribute(client, "chat"), _routing(switch))]


def _routing(switch: Switch) -> Callable[[Any], Any]:
    from .models import asking, note_unknown, response, write

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        async def chat(self: Any, *args: Any, **kwargs: Any) -> Any:
            site = asking(1) if switch.on else None
            writer = INTEGRATION.writer
            if site is None or site.side == "read" or writer is None:
                if site is None and switch.on:
                    note_unknown()
                return await original(self, *args, **kwargs)
            messages = args[0] if args else kwargs["messages"]

            async def main() -> Any:
                return await original(self, *args, **kwargs)

            asked = {name: kwargs.get(name) for name in ("response_format", "max_tokens")}
            return response(writer, *await write(writer, site, messages, main, **asked))

        return chat

    return wrap


# -- for one object ------------------------------------------------------------------------------


def attach_to(target: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Put a client of ours around that of an extractor, or of the pipeline that has one."""
    from .models import HyMemoryLLM

    owner = getattr(target, "_ep_ext", target)
    own = vars(owner).get("_llm") if hasattr(owner, "__dict__") else None
    if own is None or not any(home.__module__.startswith("everalgo.") for home in type(owner).__mro__):
        raise TypeError(
            "attach() takes what extracts memory with a client of its own: an extractor of everalgo "
            f"(EpisodeExtractor(llm=...), say) or a UserMemoryPipeline, not {type(target).__name__}"
        )
    if isinstance(own, HyMemoryLLM):
        raise attached_already()
    switch = Switch(on=True)
    ours = owner._llm = HyMemoryLLM.around(own, writer, switch)

    def undo() -> list[Leftover]:
        switch.on = False
        if vars(owner).get("_llm") is not ours:
            return [Leftover(f"{type(owner).__name__}._llm")]
        owner._llm = own
        return []

    return undo


# -- for the doctor ------------------------------------------------------------------------------


_DOWNLOAD = Fault(
    "EverMemOS's tokenizer (tiktoken's o200k_base) is not on this machine: the first add of more than one"
    " message downloads it, and without a network it is refused with HTTP 500, every time",
    "let it be downloaded once, or set TIKTOKEN_CACHE_DIR to a copy of another machine's",
)


def faults(version: Version) -> Sequence[Fault]:
    found = []
    if not _has_encoding():
        found.append(_DOWNLOAD)
    if version < Version("1.1"):
        found.append(
            Fault(
                "in agent mode, facts and foresight of a conversation with tool calls are given up",
                'use a newer EverMemOS, or [memorize] mode = "chat"',
            )
        )
    elif version < Version("1.2.3"):
        found.append(
            Fault(
                "in agent mode, foresight of a conversation with tool calls is given up",
                'use a newer EverMemOS, or [memorize] mode = "chat"',
            )
        )
    if version < Version("1.5"):
        found.append(
            Fault(
                "a buffer that no model can find an end of an episode in is never set aside: each add of its "
                "session is refused",
                "use 1.5 or newer",
            )
        )
    return found


def _has_encoding() -> bool:
    """As tiktoken looks for it: under the SHA-1 of its address."""
    place = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    folder = Path(place) if place is not None else Path(tempfile.gettempdir()) / "data-gym-cache"
    return (folder / "fb374d419588a4632f3f557e76b4b70aebbca790").is_file()


def probe(main: StandIn, place: Path) -> Route:
    """The facts of a sentence."""
    from everalgo.llm import LLMConfig, build_client
    from everalgo.rank import agentic
    from everalgo.user_memory import AtomicFactExtractor

    llm = build_client(LLMConfig(model=standin.MODEL, api_key=standin.KEY, base_url=main.base_url))
    extractor = AtomicFactExtractor(llm=llm)
    said = "Ann drinks tea in the morning."
    return Route(
        writes={"AtomicFactExtractor": lambda: extractor.aextract_from_text(said, timestamp=0)},
        read=lambda: agentic._call_llm_for_refined_query(llm, "What does Ann drink?", "What does Ann drink?"),
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
    table=table,
    kept=KEPT,
)
