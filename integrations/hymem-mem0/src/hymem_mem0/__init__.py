"""Mem0's memory, written by Hy-Memory-30B-A3B.

    import hymem_mem0

    hymem_mem0.register()     # then `"provider": "hy_memory"` works in Mem0's configuration

Independent work, not by Tencent or by Mem0's makers. Nothing is imported before it is used.
"""

import sys

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hymem.integration import Handle
    from hymem.writer import Writer

    from .call_sites import CALL_SITES as CALL_SITES
    from .models import HyMemoryConfig as HyMemoryConfig
    from .models import HyMemoryLLM as HyMemoryLLM
else:
    _HOME = {"CALL_SITES": "call_sites", "HyMemoryConfig": "models", "HyMemoryLLM": "models"}

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'hymem_mem0' has no attribute {name!r}")
        module = f"hymem_mem0.{_HOME[name]}"
        try:
            __import__(module)
        except ModuleNotFoundError as error:
            if error.name != "mem0":
                raise
            raise ImportError(f'{name} needs Mem0: pip install "hymem-mem0[mem0]"') from None
        return getattr(sys.modules[module], name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME})


def register() -> "Handle":
    """Make the provider `hy_memory` known to Mem0, for configurations that name it.

    Called again it returns the same handle, whose `status()` lists what in Mem0 it touches.
    Raises `UnsupportedVersion` or `SeamMissing`; Mem0 is as it was then.
    """
    from .seams import INTEGRATION

    return INTEGRATION.register()


def enable(*, replace: bool = False, **settings: "Any") -> "Handle":
    """Have the writes of every Mem0 object of this process, made before or after, go to the writer.

    `settings` as in `hymem.WriterSettings`; what is not given comes from `HYMEM_MEM0_*`,
    `HYMEM_*` and the file named by `HYMEM_CONFIG`. An object whose configuration names a writer of
    its own keeps it. Enabled already with equal settings, the handle is the same; with others it
    is an error unless `replace`. Raises `SettingsError`, `UnsupportedVersion` or `SeamMissing`.
    """
    from .seams import INTEGRATION

    return INTEGRATION.enable(settings, replace=replace)


def attach(memory: "Any", writer: "Writer | None" = None, **settings: "Any") -> "Handle":
    """Have the writes of one `mem0.Memory` or `mem0.AsyncMemory` go to `writer`, or to one made
    from `settings`. The object's own LLM stays in charge of everything else."""
    from .seams import INTEGRATION

    return INTEGRATION.attach(memory, writer, settings)


def disable() -> None:
    """Undo `enable()` and `register()`. Objects that were attached stay so until their handle is
    disabled. Memories that were written stay."""
    from .seams import INTEGRATION

    INTEGRATION.disable()
