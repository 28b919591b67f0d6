"""LangChain's memory, written by Hy-Memory-30B-A3B.

Independent work, not by Tencent or by LangChain's makers. Nothing is imported before it is used.
"""

import sys

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hymem.integration import Handle
    from hymem.writer import Writer

    from .call_sites import CALL_SITES as CALL_SITES
    from .models import ChatHyMemory as ChatHyMemory
else:
    _HOME = {"CALL_SITES": "call_sites", "ChatHyMemory": "models"}

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'hymem_langchain' has no attribute {name!r}")
        module = f"hymem_langchain.{_HOME[name]}"
        try:
            __import__(module)
        except ModuleNotFoundError as error:
            if error.name not in ("langchain_core", "langchain_openai"):
                raise
            raise ImportError(f'{name} needs LangChain: pip install "hymem-langchain[langchain]"') from None
        return getattr(sys.modules[module], name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME})


def register() -> "Handle":
    """Make the writer's name known to LangChain, for configurations that name it.

    Called again it returns the same handle. Raises `UnsupportedVersion` or `SeamMissing`; LangChain is
    as it was then.
    """
    from .seams import INTEGRATION

    return INTEGRATION.register()


def enable(*, replace: bool = False, **settings: "Any") -> "Handle":
    """Have the writes of every object of this process go to the writer.

    `settings` as in `hymem.WriterSettings`. Raises `SettingsError`, `UnsupportedVersion` or
    `SeamMissing`.
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
