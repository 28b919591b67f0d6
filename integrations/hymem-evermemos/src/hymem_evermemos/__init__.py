"""EverMemOS's memory, written by Hy-Memory-30B-A3B.

Independent work, not by Tencent or by EverMemOS's makers. Nothing is imported before it is used.
"""

import sys

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hymem.integration import Handle
    from hymem.writer import Writer

    from .call_sites import CALL_SITES as CALL_SITES
    from .models import HyMemoryLLM as HyMemoryLLM
else:
    _HOME = {"CALL_SITES": "call_sites", "HyMemoryLLM": "models"}

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'hymem_evermemos' has no attribute {name!r}")
        module = f"hymem_evermemos.{_HOME[name]}"
        __import__(module)
        return getattr(sys.modules[module], name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME})


def register() -> "Handle":
    """Have a table `[hy_memory]` in EverMemOS's own `everos.toml` count: with one, its writes are routed as
    soon as it makes its client.

    Called again it returns the same handle. Raises `UnsupportedVersion` or `SeamMissing`; EverMemOS is
    as it was then.
    """
    from .seams import INTEGRATION

    return INTEGRATION.register()


def enable(*, replace: bool = False, **settings: "Any") -> "Handle":
    """Have the writes of every client of this process, made before or after, go to the writer. The model of
    `[llm]` stays in charge of all else.

    `settings` as in `hymem.WriterSettings`; what is not given comes from `HYMEM_EVERMEMOS_*`, `HYMEM_*`,
    `[hy_memory]` in `everos.toml`, and the file named by `HYMEM_CONFIG`. Raises `SettingsError`,
    `UnsupportedVersion` or `SeamMissing`.
    """
    from .seams import INTEGRATION

    return INTEGRATION.enable(settings, replace=replace)


def attach(target: "Any", writer: "Writer | None" = None, **settings: "Any") -> "Handle":
    """Have the writes of one object go to `writer`, or to one made from `settings`."""
    from .seams import INTEGRATION

    return INTEGRATION.attach(target, writer, settings)


def disable() -> None:
    """Undo `enable()` and `register()`. Memories that were written stay."""
    from .seams import INTEGRATION

    INTEGRATION.disable()
