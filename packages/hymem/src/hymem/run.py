"""`python -m hymem run`: a program as it is, in this process, with its memory writes routed.

What it does is `enable()` of each integration before the program's first line. Forked children (a
gunicorn worker, say) have it with the rest of the process. A child that begins as a fresh Python
(uvicorn's `--reload` and `--workers`) does not: there `hymem-autoload` is what is needed, and where
it is missing that is said when the first such child is started.
"""

from __future__ import annotations

import importlib
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .errors import HymemError, SettingsError
from .frameworks import discover, enabled_by
from .integration import Handle


def prepare(target: str, arguments: Sequence[str] = (), *, as_module: bool = False) -> Callable[[], object]:
    """Make this the process of a script, a module (`as_module`) or a command of this environment;
    what is returned begins it.

    Enables what `HYMEM_ENABLE` names, or every integration that is installed. Raises
    `SettingsError` where there is nothing to enable or no such target, and what stands in the way
    of a framework that is named.
    """
    start = _found(target, as_module=as_module)
    sys.argv[:] = [target, *arguments]
    handles = enable_all()
    for framework, handle in handles.items():
        assert handle.writer is not None  # `enable()` always has one
        settings = handle.writer.settings
        _say(f"{framework} writes with {settings.model!r} at {settings.base_url}")
    _mind_children(list(handles))
    return start


def enable_all() -> dict[str, Handle]:
    """Framework → handle of what `HYMEM_ENABLE` names, or else of all that can be enabled."""
    named = enabled_by(os.environ)
    installed = discover()
    handles = {}
    for framework in sorted(installed) if not named - {"all"} else sorted(named):
        try:
            if framework not in installed:
                raise SettingsError(
                    f"HYMEM_ENABLE names {framework}, and its integration is not installed: "
                    f"pip install hymem-{framework}"
                )
            handles[framework] = importlib.import_module(installed[framework]).enable()
        except (HymemError, ImportError) as error:
            if framework in named:
                raise
            _say(f"{framework} is left as it is: {error}")
    if not handles:
        raise SettingsError(
            "there is nothing to enable: install the integration of your framework, "
            "pip install hymem-mem0, say"
        )
    return handles


# -- the program ---------------------------------------------------------------------------------


def _found(target: str, *, as_module: bool) -> Callable[[], object]:
    """What runs the target; the import path is made what Python would have begun it with."""
    if as_module:
        return lambda: runpy.run_module(target, run_name="__main__", alter_sys=True)
    if Path(target).exists():
        if Path(target).is_file():
            _path_begins_with(Path(target).resolve().parent)
        return lambda: runpy.run_path(target, run_name="__main__")
    from importlib.metadata import entry_points

    for command in entry_points(group="console_scripts", name=target):
        file = shutil.which(target)
        if file is not None:
            _path_begins_with(Path(file).parent)
        return lambda: sys.exit(command.load()())
    raise SettingsError(
        f"{target!r} is neither a file here nor a command that a package of this environment has; a "
        "module is run with -m"
    )


def _path_begins_with(folder: Path) -> None:
    """In the place where `python -m` has put the working directory; with `-P` it has put nothing."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(folder)


# -- its children --------------------------------------------------------------------------------

_FRESH = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")
"""Modules that are imported when a child is started that way, and not before."""


def _mind_children(frameworks: list[str]) -> None:
    """Have the start-up hook enable them in fresh interpreters; where it is not, say so."""
    names = ",".join(frameworks)
    hook = sys.modules.get("_hymem_autoload")
    if hook is not None and hook.is_watching():
        os.environ.setdefault("HYMEM_ENABLE", names)
        return
    told = False

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal told
        if not told and _starts_a_python(event, arguments):
            told = True
            _say(
                "a Python is started afresh, which `run` does not reach: what it writes goes where it "
                f"went before. Set HYMEM_ENABLE={names} and pip install hymem-autoload; then `run` "
                "is not needed"
            )

    sys.addaudithook(on_event)


def _starts_a_python(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "import":
        return arguments[0] in _FRESH
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
        path = arguments[0] or (arguments[1] or [""])[0]
        return Path(os.fsdecode(path)).name.startswith("python")
    return False


def _say(line: str) -> None:
    print(f"hymem: {line}", file=sys.stderr, flush=True)
