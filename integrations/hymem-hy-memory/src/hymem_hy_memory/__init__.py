"""The memory of the Hy-Memory SDK, written by Hy-Memory-30B-A3B alone.

Independent work, not by Tencent. Nothing is imported before it is used.
"""

import sys

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hymem.integration import Handle
    from hymem.writer import Writer

    from .call_sites import CALL_SITES as CALL_SITES
else:
    _HOME = {"CALL_SITES": "call_sites"}

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'hymem_hy_memory' has no attribute {name!r}")
        module = f"hymem_hy_memory.{_HOME[name]}"
        __import__(module)
        return getattr(sys.modules[module], name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME})


def register() -> "Handle":
    """Have a section `hy_memory` of a configuration count: of clients made from it, the writes are routed.

    Called again it returns the same handle. Raises `UnsupportedVersion` or `SeamMissing`; the SDK is as it
    was then.
    """
    from .seams import INTEGRATION

    return INTEGRATION.register()


def enable(*, replace: bool = False, **settings: "Any") -> "Handle":
    """Have the writes of every client of this process, made before or after, go to the writer. The model of
    the section `llm` stays in charge of all else.

    `settings` as in `hymem.WriterSettings`. Raises `SettingsError`, `UnsupportedVersion` or `SeamMissing`.
    """
    from .seams import INTEGRATION

    return INTEGRATION.enable(settings, replace=replace)


def attach(target: "Any", writer: "Writer | None" = None, **settings: "Any") -> "Handle":
    """Have the writes of one client, and of whatever else has its `MemoryConfig`, go to `writer`, or to one
    made from `settings`. Takes an `LLMProvider`, too, for programs that use the SDK's parts."""
    from .seams import INTEGRATION

    return INTEGRATION.attach(target, writer, settings)


def disable() -> None:
    """Undo `enable()` and `register()`. Memories that were written stay."""
    from .seams import INTEGRATION

    INTEGRATION.disable()
