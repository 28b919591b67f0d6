"""The frameworks there are integrations for, and how each is told from what has its name."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.version import InvalidVersion, Version

from .errors import SettingsError, UnsupportedVersion


@dataclass(frozen=True)
class Framework:
    """A framework, and which of it is supported.

    `anchor`: the last of the modules that the integration reaches into to be imported. What is
    importable under the framework's name and has no such module is something else, and `otherwise`
    says what. `floor`: the oldest version that is supported. `tested`: those that are in the
    matrix, oldest first; a newer one than the last works if its seams are there. `quiet`:
    environment variables that keep it from reporting to its makers and from the user's own files;
    `{place}` stands for a directory that goes away.
    """

    id: str
    title: str
    distribution: str
    module: str
    integration: str
    """The distribution of the integration, for messages that say what to install."""
    anchor: str = ""
    otherwise: str = ""
    floor: str = "0"
    tested: tuple[str, ...] = ()
    quiet: Mapping[str, str] = field(default_factory=dict)

    @property
    def newest(self) -> str | None:
        return self.tested[-1] if self.tested else None

    def version(self) -> Version | None:
        """The installed version; None where it is importable but has no metadata (frozen apps).

        Raises `UnsupportedVersion` where it is missing, older than the floor, or something else.
        """
        try:
            found = importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            self._look_at_what_is_there()
            return None
        try:
            version = Version(found)
        except InvalidVersion:
            return None
        if version < Version(self.floor):
            raise UnsupportedVersion(
                f"{self.distribution} {found} is installed; {self.integration} needs {self.floor} or "
                f'newer: pip install "{self.distribution}>={self.floor}"{self._hint()}'
            )
        return version

    def _look_at_what_is_there(self) -> None:
        if not is_importable(self.module):
            raise UnsupportedVersion(
                f'{self.distribution} is not installed; pip install "{self.integration}[{self.id}]" brings it'
            )
        if self.anchor and not is_importable(self.anchor):
            raise UnsupportedVersion(
                f"the {self.module!r} that is installed is not {self.title}: it has no {self.anchor}; "
                f"pip install {self.distribution}{self._hint()}"
            )

    def _hint(self) -> str:
        return f" ({self.otherwise})" if self.otherwise else ""


def is_importable(module: str) -> bool:
    """Whether a module can be found; its parents are imported for that."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # a parent of it is not there, or is no package
        return False


KNOWN = {
    each.id: each
    for each in (
        Framework(
            id="mem0",
            title="Mem0",
            distribution="mem0ai",
            module="mem0",
            integration="hymem-mem0",
            anchor="mem0.memory.main",
            floor="0.1.118",
            # With OpenRouter's key in the environment, Mem0's own LLM goes there, whatever its base_url is.
            quiet={"MEM0_TELEMETRY": "False", "MEM0_DIR": "{place}", "OPENROUTER_API_KEY": ""},
        ),
        Framework(
            id="memos",
            title="MemOS",
            distribution="MemoryOS",
            module="memos",
            integration="hymem-memos",
            anchor="memos.llms.factory",
            otherwise="`memos` on the index is another project of that name",
            quiet={"MEMOS_BASE_PATH": "{place}"},
        ),
        Framework(
            id="evermemos",
            title="EverMemOS",
            distribution="everos",
            module="everos",
            integration="hymem-evermemos",
            anchor="everos.component.llm.client",
            otherwise="before 1.0 `everos` was a client of the makers' cloud, which writes there and not "
            "here; from 1.0 on it needs Python 3.12",
            floor="1.0",
            # The first since 1.1.
            quiet={"EVEROS_ROOT": "{place}", "EVEROS_MEMORY__ROOT": "{place}"},
        ),
        Framework(
            id="hy-memory",
            title="the Hy-Memory SDK",
            distribution="hy-memory",
            module="hy_memory",
            integration="hymem-hy-memory",
            anchor="hy_memory.client",
        ),
        Framework(
            id="langchain",
            title="LangChain",
            distribution="langchain-core",
            module="langchain_core",
            integration="hymem-langchain",
            anchor="langchain_core.language_models.chat_models",
            floor="0.3.86",
            quiet={"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"},
        ),
        Framework(
            id="llama-index",
            title="LlamaIndex",
            distribution="llama-index-core",
            module="llama_index.core",
            integration="hymem-llama-index",
            anchor="llama_index.core.memory",
        ),
    )
}
"""All six, by id, whether their integration is installed or not; the integration knows the versions."""


def discover() -> dict[str, str]:
    """Framework id → module of each integration that is installed (entry points
    `hymem.integrations`). Nothing is imported."""
    found = importlib.metadata.entry_points(group="hymem.integrations")
    return {each.name: each.value for each in found}


def enabled_by(environ: Mapping[str, str]) -> set[str]:
    """What `HYMEM_ENABLE` names: ids of frameworks in either spelling, and `all`.

    Raises `SettingsError` for a name that is none.
    """
    given = environ.get("HYMEM_ENABLE", "").replace(",", " ").split()
    names = {name.lower().replace("_", "-") for name in given}
    known = ["all", *KNOWN, *discover()]
    for name in sorted(names - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        raise SettingsError(f"HYMEM_ENABLE names {name!r}; {hint}")
    return names
