"""hymem: Hy-Memory-30B-A3B as the writer of long-term memory in the framework you already run.

Independent work, not by Tencent or by the makers of the frameworks. Nothing is imported before it
is used: `import hymem` loads this file only.
"""

import sys

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .contract import FREE_TEXT as FREE_TEXT
    from .contract import MEMORIES as MEMORIES
    from .contract import Contract as Contract
    from .errors import HymemError as HymemError
    from .errors import NoMainModel as NoMainModel
    from .errors import PromptTooLong as PromptTooLong
    from .errors import ReplyRejected as ReplyRejected
    from .errors import SeamMissing as SeamMissing
    from .errors import SettingsError as SettingsError
    from .errors import UnsupportedVersion as UnsupportedVersion
    from .errors import WriteError as WriteError
    from .errors import WriterUnavailable as WriterUnavailable
    from .events import Stats as Stats
    from .events import WriteEvent as WriteEvent
    from .events import observe as observe
    from .events import stats as stats
    from .plan import Reply as Reply
    from .plan import WriteCall as WriteCall
    from .settings import WriterSettings as WriterSettings
    from .settings import load_settings as load_settings
    from .transport import close as close
    from .writer import Writer as Writer
else:
    # Hidden from type checkers, for whom a module `__getattr__` makes every misspelt name right.
    _HOME = {
        "contract": ("FREE_TEXT", "MEMORIES", "Contract"),
        "errors": (
            "HymemError", "NoMainModel", "PromptTooLong", "ReplyRejected", "SeamMissing",
            "SettingsError", "UnsupportedVersion", "WriteError", "WriterUnavailable",
        ),
        "events": ("Stats", "WriteEvent", "observe", "stats"),
        "plan": ("Reply", "WriteCall"),
        "settings": ("WriterSettings", "load_settings"),
        "transport": ("close",),
        "writer": ("Writer",),
    }  # fmt: skip
    _MODULE = {name: module for module, names in _HOME.items() for name in names}
    __all__ = list(_MODULE)

    def __getattr__(name: str) -> object:
        if name not in _MODULE:
            raise AttributeError(f"module 'hymem' has no attribute {name!r}")
        module = f"hymem.{_MODULE[name]}"
        __import__(module)
        value = globals()[name] = getattr(sys.modules[module], name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULE})
