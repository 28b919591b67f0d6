"""What an integration is: a framework's call sites, contracts and seams, and the switches for them.

The bookkeeping that every integration needs is here once: versions, what is enabled, and the
order in which things are undone. What is peculiar to a framework is data and a few functions
that its package hands in.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from packaging.version import Version

from . import scope
from .contract import Contract
from .errors import SeamMissing, SettingsError, UnsupportedVersion
from .events import Stats
from .frameworks import Framework, is_importable
from .patching import Leftover, Patch, PatchSet, Switch, rewrap
from .settings import Table, WriterSettings, load_settings
from .writer import Writer

if TYPE_CHECKING:
    from .standin import StandIn

Undo = Callable[[], list[Leftover]]


@dataclass(frozen=True)
class CallSite:
    """One place in a framework where an LLM is asked for something.

    `where`: the functions that ask, as `module:qualname`. `versions`: of the framework, as a
    version specifier. `contract`: for a write, what its parser takes. `after_failure`: the state
    the framework is left in when the write fails. `detached`: its work goes on after the method
    that began it has returned. `opt_in`: the integration's option without which this call stays
    with the main model.
    """

    id: str
    side: Literal["write", "read"]
    where: tuple[str, ...]
    versions: str = ""
    contract: Contract[Any] | None = None
    after_failure: Literal["unchanged", "turn lost", "raw text stored", ""] = ""
    detached: bool = False
    opt_in: str = ""
    prompt_tokens: int = 0
    """Of the framework's own text in the request, without any conversation, in SmolLM2's tokens."""

    def is_in(self, version: Version | None) -> bool:
        """Whether this version of the framework has it; for an unknown version, whether any has."""
        from packaging.specifiers import SpecifierSet

        return version is None or SpecifierSet(self.versions).contains(version, prereleases=True)


def _import(module: str) -> None:
    """Import the parents first, one by one. Python takes the lock of a module before that of its
    parents; where another thread is importing a parent, the two wait for each other, and one of them
    then finds a module that is half made."""
    names = module.split(".")
    for at in range(len(names)):
        importlib.import_module(".".join(names[: at + 1]))


class Handle:
    """Something of an integration that is in force, and the way to undo it. A context manager."""

    def __init__(self, integration: Integration, what: str, writer: Writer | None, undo: Undo) -> None:
        self.what = what
        self.writer = writer
        self._integration = integration
        self._undo: Undo | None = undo

    def __repr__(self) -> str:
        state = "on" if self.active else "off"
        return f"<hymem {self._integration.framework.id} {self.what}: {state}>"

    @property
    def active(self) -> bool:
        return self._undo is not None

    def disable(self) -> list[Leftover]:
        """Undo it. Writes in flight finish. Returns what had to be left, inert, because somebody
        else has put something over it since. Disabling twice does nothing."""
        with self._integration.lock:
            undo, self._undo = self._undo, None
            return undo() if undo is not None else []

    def hand_over(self) -> None:
        """Let another handle have what is in force."""
        self._undo = None

    def status(self) -> dict[str, bool]:
        """Place in the framework → whether our code is there, compared at this moment."""
        return self._integration.status()

    def stats(self) -> Stats:
        """Sums over the writes of this handle's writer; of all of the process for `register()`,
        which has no writer of its own."""
        if self.writer is not None:
            return self.writer.stats()
        from .events import stats

        return stats()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.disable()


def scoped(switch: Switch, site: str) -> Callable[[Any], Any]:
    """What makes a framework's method, sync or async, open a scope for the call site `site`.

    A failure inside that the framework swallowed is raised when the method returns: nothing was
    stored for it, and the caller would never know.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def awriting(self: Any, *args: Any, **kwargs: Any) -> Any:
                if not switch.on:
                    return await original(self, *args, **kwargs)
                with scope.writing(site, self) as opened:
                    result = await original(self, *args, **kwargs)
                _raise_swallowed(opened)
                return result

            return awriting

        @functools.wraps(original)
        def writing(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return original(self, *args, **kwargs)
            with scope.writing(site, self) as opened:
                result = original(self, *args, **kwargs)
            _raise_swallowed(opened)
            return result

        return writing

    return lambda descriptor: rewrap(descriptor, wrap)


def _raise_swallowed(opened: scope.Scope) -> None:
    if opened.failures:
        raise opened.failures[0]


Resolve = Callable[[Switch], Sequence[Patch]]


@dataclass(frozen=True)
class Fault:
    """Something that is wrong in a version of the framework itself, and that a writer cannot mend."""

    found: str
    todo: str


@dataclass(frozen=True)
class Route:
    """How `doctor --probe` sends something each way through a framework; all may return awaitables.

    `writes`: what has it remember a sentence, by the name of the way (`Memory.add`, say); `read` asks
    something that is no write.
    """

    writes: Mapping[str, Callable[[], Any]]
    read: Callable[[], Any]


class Kept(Protocol):
    """What an integration has kept of writes that failed, where the framework keeps nothing of them."""

    def count(self) -> int:
        """How many writes wait. Imports no framework."""

    def replay(self, progress: Callable[[str], None]) -> int:
        """Write them, in a process that does nothing else, enabled; how many are left. Raises `HymemError`
        where it cannot be tried."""


class Integration:
    """The switches of one framework's integration.

    `base` resolves the patches that any kind of routing needs, `routed` those that route every
    object of the process; `attach_to` routes one object and returns its undo. `probe` makes an
    object of the framework with this main model, and with all that it stores in this directory.
    `parts`: further modules, of packages that need not be installed, in which there is something to
    route; `base` looks at those that are imported. `faults`: what is known to be wrong in a version.
    `table`: settings in the framework's own file, where that has room for some. `kept`: for a framework
    that loses its input when a write of it fails.
    """

    def __init__(
        self,
        framework: Framework,
        *,
        core: str,
        call_sites: Sequence[CallSite],
        base: Resolve,
        routed: Resolve,
        attach_to: Callable[[Any, Writer], Undo],
        verify: Callable[[], None] | None = None,
        probe: Callable[[StandIn, Path], Route] | None = None,
        parts: Sequence[str] = (),
        faults: Callable[[Version], Sequence[Fault]] = lambda version: (),
        table: Callable[[], Table | None] = lambda: None,
        kept: Kept | None = None,
    ) -> None:
        self.framework = framework
        self.call_sites = tuple(call_sites)
        self.lock = threading.RLock()
        self.writer: Writer | None = None
        """The writer that `enable()` put in charge of the process."""
        self.probe = probe
        self.faults = faults
        self.kept = kept
        self._table = table
        self._parts = parts
        self._core = core
        self._base = PatchSet(base, verify)
        self._routed = PatchSet(routed)
        self._attach_to = attach_to
        self._users = 0
        self._registered: Handle | None = None
        self._enabled: Handle | None = None

    def register(self, *, parts: bool = True) -> Handle:
        """Make the provider's name known to the framework. Called again, the same handle; what a
        reload of the framework's modules has undone since is done again. Without `parts`, only in what
        is imported already."""
        version = self._ready(parts)
        with self.lock:
            if self._registered is not None and self._registered.active:
                self.refresh()
            else:
                self._hold(version)
                self._registered = Handle(self, "register", None, self._let_go)
            return self._registered

    def enable(self, settings: Mapping[str, Any], *, replace: bool = False) -> Handle:
        """Route the writes of every object of the process. With equal settings the same handle, and
        what a reload has undone is done again; with others an error, unless `replace`."""
        wanted = self.settings(settings)
        version = self._ready()
        with self.lock:
            running = self._enabled
            if running is not None and running.writer is not None and running.active:
                self.refresh()
                if running.writer.settings == wanted:
                    return running
                if not replace:
                    raise SettingsError(
                        f"{self.framework.id} is enabled with other settings already; disable() that "
                        "handle, or pass replace=True"
                    )
            writer = Writer(wanted, framework=self.framework.id)
            if running is not None and running.active:
                running.hand_over()  # the routing stays, so that no write slips by in between
            else:
                self._route(version)
            self.writer = writer
            self.say_what_skip_cannot(wanted)
            self._enabled = Handle(self, "enable", writer, self._disable)
            return self._enabled

    def _route(self, version: Version | None) -> None:
        self._hold(version)
        try:
            self._routed.apply()
        except BaseException:
            self._let_go()
            raise

    def attach(self, target: Any, writer: Writer | None, settings: Mapping[str, Any]) -> Handle:
        """Route the writes of one object to `writer`, or to one made from `settings`."""
        if writer is None:
            writer = Writer(self.settings(settings), framework=self.framework.id)
        elif settings:
            raise TypeError("pass a writer or settings, not both")
        version = self._ready()
        with self.lock:
            self._hold(version)
            try:
                undo = self._attach_to(target, writer)
            except BaseException:
                self._let_go()
                raise
            self.say_what_skip_cannot(writer.settings)

            def detach() -> list[Leftover]:
                return undo() + self._let_go()

            return Handle(self, "attach", writer, detach)

    def disable(self) -> None:
        """Undo `enable` and `register`; what is attached stays."""
        with self.lock:
            for handle in (self._enabled, self._registered):
                if handle is not None:
                    handle.disable()

    def status(self) -> dict[str, bool]:
        return {**self._base.status(), **self._routed.status()}

    def settings(
        self, arguments: Mapping[str, Any] | None = None, *, where: str = "argument"
    ) -> WriterSettings:
        """The writer's, as `load_settings` finds them, and in the framework's own file."""
        return load_settings(arguments, framework=self.framework.id, where=where, table=self._table())

    def patches(self) -> list[Patch]:
        """What registering and enabling would change, as it is laid out now. Changes nothing."""
        self._ready()
        return self._base.patches() + self._routed.patches()

    def say_what_skip_cannot(self, settings: WriterSettings) -> None:
        """Log the writes that raise even under `on_failure="skip"`, having no reply that leaves
        the framework unchanged."""
        if settings.on_failure != "skip":
            return
        names = [
            site.id
            for site in self.call_sites
            if site.side == "write" and (site.contract is None or site.contract.unchanged is None)
        ]
        if names:
            self.log.warning("on_failure='skip' cannot skip these, they raise: %s", ", ".join(names))

    @property
    def log(self) -> logging.Logger:
        return logging.getLogger(f"hymem.{self.framework.id}")

    def _disable(self) -> list[Leftover]:
        left = self._routed.undo()
        self.writer = None
        return left + self._let_go()

    def _ready(self, parts: bool = True) -> Version | None:
        """Import what is going to be changed; the version that is there.

        Before the lock is taken: the start-up hook may switch things on in the course of an import,
        in this thread or in one that is importing the framework already, and must find it free.
        """
        self.check_core()
        version = self.framework.version()
        anchor = self.framework.anchor or self.framework.module
        try:
            _import(anchor)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{anchor}.".startswith(f"{error.name}."):
                raise  # something that the framework itself needs
            raise SeamMissing(
                f"{self.framework.distribution} {version or ''} has no module {error.name}; its layout is "
                "not the one that is supported. Nothing was changed",
                missing=(anchor,),
            ) from None
        hook = sys.modules.get("_hymem_autoload")
        if parts and (hook is None or not hook.is_watching()):  # else it comes again when they are imported
            self._import_parts()
        return version

    def _import_parts(self) -> None:
        for part in self._parts:
            if is_importable(part):
                try:
                    _import(part)
                except ModuleNotFoundError as error:  # what it needs is not here: nobody can use it
                    self.log.debug("%s cannot be imported without %s", part, error.name)
                except Exception as error:  # what is broken in one must not keep the others from being routed
                    self.log.warning(
                        "%s is installed, and its import raises %s: its writes stay with the main model",
                        part,
                        type(error).__name__,
                    )

    def _hold(self, version: Version | None) -> None:
        newest = self.framework.newest
        if self._users == 0 and version is not None and newest is not None and version > Version(newest):
            name = self.framework.distribution
            self.log.info("%s %s is newer than %s, the newest tested", name, version, newest)
        self.refresh()
        self._users += 1

    def refresh(self) -> None:
        """Have in force what should be: after a reload, or where there is more to be patched by now."""
        with self.lock:
            self._base.apply()
            if self._routed.active:
                self._routed.apply()

    def _let_go(self) -> list[Leftover]:
        self._users -= 1
        return self._base.undo() if self._users == 0 else []

    def check_core(self) -> None:
        """Raises `UnsupportedVersion` where the core is not of the integration's minor version."""
        from . import __version__

        if Version(__version__).release[:2] != Version(self._core).release[:2]:
            raise UnsupportedVersion(
                f"hymem {__version__} is installed, and {self.framework.integration} is made for "
                f'{self._core}: pip install "hymem=={self._core}.*"'
            )
