"""What hymem does at the start of every interpreter of this environment, and all of it.

`hymem_autoload.pth` beside this package calls `watch()`, which puts a `Finder` on `sys.meta_path`.
The finder finds nothing: when a framework of `WATCHED` has been imported, it has hymem's integration
for it, if that is installed, `register()` its name, and where `HYMEM_ENABLE` names the framework, or
`all`, `enable()` it. `HYMEM_ENABLE` is read at that moment, so that one from a `.env` file counts.

It runs in processes that have nothing to do with hymem, so nothing here may stop an interpreter, or
the import of a framework that `HYMEM_ENABLE` does not name: a failure is one line in the log
`hymem`. Not a warning: under `-W error` that would be an exception in the framework's import.
Standard library only, and of that what Python has loaded already.
"""

import sys
from _thread import get_ident

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

WATCHED = {
    "mem0.memory.main": "mem0",
    "memos.llms.factory": "memos",
    "memos.mem_reader.simple_struct": "memos",
    "memos.mem_reader.multi_modal_struct": "memos",
    "memos.mem_feedback.feedback": "memos",
    "memos.mem_scheduler.base_scheduler": "memos",
    "memos.memories.textual.tree": "memos",
    "memos.mem_os.core": "memos",
    "everos.component.llm.client": "evermemos",
    "everos.service.memorize": "evermemos",
    "hy_memory.client": "hy-memory",
    "langchain.chat_models.base": "langchain",
    "langchain.memory": "langchain",
    "langchain.agents.middleware.summarization": "langchain",
    "langchain_classic.chat_models.base": "langchain",
    "langchain_classic.memory": "langchain",
    "langchain_community.memory.kg": "langchain",
    "langmem.knowledge.extraction": "langchain",
    "langmem.short_term": "langchain",
    "deepagents.middleware.summarization": "langchain",
    "llama_index.core.memory": "llama-index",
}
"""Module of a framework, loaded last of those that its integration reaches into → the framework."""

_said: "set[str]" = set()


def watch() -> None:
    """Begin to watch imports. Called again it does nothing. Raises nothing, whatever goes wrong."""
    try:
        import os

        if os.environ.get("HYMEM_AUTOLOAD") == "0" or is_watching():
            return
        sys.meta_path.insert(0, Finder())
        for name, framework in WATCHED.items():
            if name in sys.modules:
                _switch_on(framework, loud=False)
    except BaseException:  # SystemExit, too, would end the interpreter, and pip could not remove us
        pass


def unwatch() -> None:
    """Stop watching. What has been switched on stays on."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]


def is_watching() -> bool:
    return any(isinstance(finder, Finder) for finder in sys.meta_path)


class Finder:
    """Lets the other finders find a watched module, and its own loader tell when it has run."""

    def __init__(self) -> None:
        self._looking: set[tuple[str, int]] = set()

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        framework = WATCHED.get(name)
        asked = (name, get_ident())
        if framework is None or asked in self._looking:  # another hook asks the finders, us included
            return None
        self._looking.add(asked)
        try:
            spec = self._found(name, path, target)
        finally:
            self._looking.discard(asked)
        if spec is not None:
            _tell_after(spec.loader, name, framework)
        return spec

    def _found(self, name: str, path: "Any", target: "Any") -> "ModuleSpec | None":
        for finder in sys.meta_path[:]:
            if isinstance(finder, Finder) or not hasattr(finder, "find_spec"):
                continue
            spec: ModuleSpec | None = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


def _tell_after(loader: "Any", name: str, framework: str) -> None:
    """Have a module's own loader, which stays the one that everybody sees, tell when it has run it."""
    run = getattr(loader, "exec_module", None)
    if run is None or getattr(run, "is_hymems", False):
        return
    # A class that is its own loader has all its methods there: putting one over them would lose it.
    if isinstance(loader, type) or not hasattr(loader, "__dict__"):
        _say(f"{name} is loaded by {loader!r}, which cannot be watched; call register() in the program")
        return
    own = vars(loader).get("exec_module")

    def exec_module(module: "ModuleType") -> None:
        if module.__name__ != name:  # of a loader that has more than one module
            run(module)
            return
        if vars(loader).get("exec_module") is exec_module:
            if own is None:
                del loader.exec_module
            else:
                loader.exec_module = own
        run(module)
        _switch_on(framework)

    exec_module.is_hymems = True  # type: ignore[attr-defined]  # functions have attributes
    loader.exec_module = exec_module


def _switch_on(framework: str, *, loud: bool = True) -> None:
    """Register the integration of a framework that is imported now, and enable it if asked to.

    Raises what stands in the way only where `HYMEM_ENABLE` names the framework, and `loud`.
    """
    named = asked = False
    try:
        names = _enabled()
        named, asked = framework in names, "all" in names
        integration = "hymem_" + framework.replace("-", "_")
        try:
            __import__(integration)
        except ModuleNotFoundError as error:
            if error.name != integration:
                raise
            if named:
                raise ImportError(
                    f"HYMEM_ENABLE names {framework}, and its integration is not installed: "
                    f'pip install "hymem-{framework}[autoload]", or take the name away'
                ) from None
            return
        module: Any = sys.modules[integration]
        module.register()
        if named or asked:
            module.enable()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if named and loud:
            raise
        _say(f"{framework} is left as it is: {_told(error)}")


def _enabled() -> "set[str]":
    """The frameworks that `HYMEM_ENABLE` names, `all` among them; what is none of them is told."""
    import os

    given = os.environ.get("HYMEM_ENABLE", "").replace(",", " ").split()
    names = {name.lower().replace("_", "-") for name in given}
    known = {"all", *WATCHED.values()}
    if unknown := sorted(names - known):
        _say(f"HYMEM_ENABLE names {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    return names & known


def _told(error: BaseException) -> str:
    """An error in a line. Only of hymem's own, and of Python's about imports, is it known that there
    is no key in the text."""
    ours = any(base.__name__ == "HymemError" for base in type(error).__mro__)
    text = str(error) if ours or isinstance(error, (ImportError, SyntaxError)) else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _say(line: str) -> None:
    """Once a process each, and never as an exception."""
    if line in _said:
        return
    _said.add(line)
    try:
        import logging

        logging.getLogger("hymem").warning("%s", line)
    except Exception:  # of somebody's filter, say: this may be in the middle of another's import
        pass
