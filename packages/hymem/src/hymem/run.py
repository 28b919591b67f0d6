"""`python -m hymem run`: a program as it is, in this process, with its memory writes routed.

What it does is `enable()` of each integration before the program's first line. Forked children (a
gunicorn worker, say) have it with the rest of the process. A child that begins as a fresh Python
(uvicorn's `--reload` and `--workers`) does not: there `hymem-autoload` is what is needed, and where
it is missing that is said when the first such child is started.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import types
import zipfile
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
    asked = enabled_by(os.environ)
    named, installed = asked - {"all"}, discover()
    every = not asked or "all" in asked
    handles = {}
    for framework in sorted(named | set(installed) if every else named):
        try:
            if framework not in installed:
                raise SettingsError(
                    f"HYMEM_ENABLE names {framework}, and its integration is not installed: "
                    f"pip install hymem-{framework}"
                )
            handles[framework] = importlib.import_module(installed[framework]).enable()
        except Exception as error:
            if framework in named:
                raise
            ours = isinstance(error, (HymemError, ImportError))  # of others the text may be private
            _say(f"{framework} is left as it is: {error if ours else type(error).__name__}")
    if not handles:
        raise SettingsError(
            "there is nothing to enable: install the integration of your framework, "
            "pip install hymem-mem0, say"
        )
    return handles


# -- the program ---------------------------------------------------------------------------------


def _found(target: str, *, as_module: bool) -> Callable[[], object]:
    """What runs the target; the import path is made what Python would have begun it with."""
    path = Path(target)
    if as_module:
        return _of_module(target)
    if path.is_file() and not zipfile.is_zipfile(path):
        _path_begins_with(path.resolve().parent)
        return lambda: _execute(compile(path.read_bytes(), target, "exec", dont_inherit=True), target)
    if path.exists():
        return _of_folder(path)
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


def _of_module(name: str) -> Callable[[], object]:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise SettingsError(f"there is no module {name!r}, or it is a package that cannot be run")
    return lambda: _execute_spec(spec)


def _of_folder(path: Path) -> Callable[[], object]:
    """A folder or zip file with a `__main__.py`, which has to be the first on the path."""
    sys.path[0] = str(path.resolve())
    spec = importlib.machinery.PathFinder.find_spec("__main__", [sys.path[0]])
    if spec is None:
        raise SettingsError(f"there is no __main__.py in {str(path)!r}")
    return lambda: _execute_spec(spec)


def _execute_spec(spec: importlib.machinery.ModuleSpec) -> None:
    loader: Any = spec.loader
    if spec.name != "__main__":  # a folder is called what it was called on the command line
        sys.argv[0] = str(spec.origin)
    _execute(loader.get_code(spec.name), spec.origin, spec)


def _execute(code: Any, file: str | None, spec: importlib.machinery.ModuleSpec | None = None) -> None:
    """Run code as the program. `runpy` would take its `__main__` away again at the end of the code,
    while threads of it, and what runs at exit, may still need it."""
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=file,
        __builtins__=builtins,
        __spec__=spec,
        __loader__=None if spec is None else spec.loader,
        __package__=None if spec is None else spec.parent,
    )
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


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
        os.environ["HYMEM_ENABLE"] = os.environ.get("HYMEM_ENABLE") or names
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
        return isinstance(path, (str, bytes, os.PathLike)) and _is_python(os.fsdecode(path))
    return False


def _is_python(path: str) -> bool:
    return os.path.basename(path).startswith("python")


def _say(line: str) -> None:
    print(f"hymem: {line}", file=sys.stderr, flush=True)
