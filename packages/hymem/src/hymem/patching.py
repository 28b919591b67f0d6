"""Changing other people's code, all or nothing, and putting it back by identity. Knows no framework.

A patch is resolved before any is applied. Wrappers ask `Switch.on` and pass through when it is
off: so undoing takes effect at once even where somebody wrapped on top of ours since, and for
bound methods taken earlier.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

from .errors import SeamMissing


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


class Switch:
    """Whether the wrappers of one `PatchSet` are in force."""

    __slots__ = ("on",)

    def __init__(self, *, on: bool = False) -> None:
        self.on = on


class Place(Protocol):
    """Where something is looked up: can be read, set and cleared."""

    @property
    def name(self) -> str: ...
    def get(self) -> Any: ...
    def set(self, value: Any) -> None: ...
    def is_current(self) -> bool: ...


def _stands_at(path: str, thing: Any) -> bool:
    """Whether `module:a.b` is `thing` still: after a reload a name stands for another object. What
    has no such path (a class inside a function) can only be itself."""
    module, colon, names = path.partition(":")
    if not colon or "<locals>" in names:
        return True
    found = sys.modules.get(module)
    for name in names.split("."):
        found = getattr(found, name, None)
    return getattr(found, "__func__", found) is thing


@dataclass(frozen=True)
class Attribute:
    """An attribute in the `__dict__` of a class or module itself, inherited ones not counted."""

    owner: Any
    attribute: str

    @property
    def name(self) -> str:
        module = getattr(self.owner, "__module__", None)
        owner = self.owner.__name__ if module is None else f"{module}:{self.owner.__qualname__}"
        return f"{owner}.{self.attribute}" if module else f"{owner}:{self.attribute}"

    def get(self) -> Any:
        return vars(self.owner).get(self.attribute, MISSING)

    def set(self, value: Any) -> None:
        if value is MISSING:
            delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, value)

    def is_current(self) -> bool:
        if isinstance(self.owner, ModuleType):
            return sys.modules.get(self.owner.__name__) is self.owner
        return _stands_at(self.name.rpartition(".")[0], self.owner)


@dataclass(frozen=True)
class Entry:
    """An entry of a table."""

    table: MutableMapping[str, Any]
    key: str
    name: str

    def get(self) -> Any:
        return self.table.get(self.key, MISSING)

    def set(self, value: Any) -> None:
        if value is MISSING:
            del self.table[self.key]
        else:
            self.table[self.key] = value

    def is_current(self) -> bool:
        return _stands_at(self.name.partition("[")[0], self.table)


@dataclass(frozen=True)
class Code:
    """The code object of a function that others hold by value (a compiled pydantic schema)."""

    function: FunctionType
    name: str

    def get(self) -> CodeType:
        return self.function.__code__

    def set(self, value: CodeType) -> None:
        self.function.__code__ = value

    def is_current(self) -> bool:
        return _stands_at(self.name, self.function)


@dataclass(frozen=True)
class Patch:
    """Put `make(original)` into `place`. `needed`: the place must hold something already."""

    place: Place
    make: Callable[[Any], Any]
    needed: bool = True


@dataclass(frozen=True)
class Leftover:
    """A place that holds something other than what we put there, so it was left alone. Our
    wrapper below it, if it is there, is inert."""

    name: str


class PatchSet:
    """Patches that are applied and undone together.

    `resolve` returns the patches, or raises `SeamMissing`; it is given the `Switch` that their
    wrappers ask. It is called at each `apply`. `verify` looks at the outcome, and what it raises
    takes everything back.
    """

    def __init__(
        self, resolve: Callable[[Switch], Sequence[Patch]], verify: Callable[[], None] | None = None
    ) -> None:
        self._resolve = resolve
        self._verify = verify
        self._lock = threading.RLock()
        self._switch = Switch()
        self._applied: list[tuple[Place, Any, Any]] = []

    @property
    def active(self) -> bool:
        return self._switch.on

    def patches(self) -> list[Patch]:
        """What `apply` would do, resolved now. Changes nothing; of use while nothing is applied."""
        return list(self._resolve(Switch()))

    def apply(self) -> None:
        """Resolve all, check all, then set all; on any failure put back what was set.

        Applied already it patches what there is more of by now: what a reload has put in the place
        of what was patched (the old stays patched, since objects made before still have it for their
        class), and what `resolve` finds in modules that have been imported since.

        Raises `SeamMissing` with every place that is not there; nothing has been changed then.
        """
        with self._lock:
            was_on = self._switch.on
            switch = self._switch if was_on else Switch()
            patches = self._not_applied(self._resolve(switch))
            if missing := tuple(
                each.place.name for each in patches if each.needed and each.place.get() is MISSING
            ):
                raise SeamMissing(
                    f"not there: {', '.join(missing)}; this version of the framework is laid out "
                    "differently from those that are supported. Nothing was changed",
                    missing=missing,
                )
            before = len(self._applied)
            try:
                for patch in patches:
                    original = patch.place.get()
                    ours = patch.make(original)
                    patch.place.set(ours)
                    self._applied.append((patch.place, original, ours))
                switch.on = True
                if self._verify is not None:
                    self._verify()
            except BaseException:
                switch.on = was_on
                self._put_back(before)
                raise
            self._switch = switch

    def _not_applied(self, patches: Sequence[Patch]) -> list[Patch]:
        ours = [(place, made) for place, _, made in self._applied if place.get() is made]
        return [each for each in patches if not any(place == each.place for place, _ in ours)]

    def undo(self) -> list[Leftover]:
        """Make every wrapper inert, then restore by identity. What somebody has put something
        else into since is left alone and returned."""
        with self._lock:
            self._switch.on = False
            return self._put_back()

    def _put_back(self, all_but: int = 0) -> list[Leftover]:
        left: list[Leftover] = []
        for place, original, ours in reversed(self._applied[all_but:]):
            if place.get() is ours:
                place.set(original)
            else:
                left.append(Leftover(place.name))
        del self._applied[all_but:]
        return left

    def status(self) -> dict[str, bool]:
        """Place → whether ours is there at this moment. Compared, never remembered: a reload of
        the module loses a patch without a word. Of two things that have had a name, the later counts."""
        with self._lock:
            return {
                place.name: place.get() is ours and place.is_current() for place, _, ours in self._applied
            }


def rewrap(descriptor: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """`wrap` applied to the function inside a plain function, classmethod or staticmethod."""
    if isinstance(descriptor, (classmethod, staticmethod)):
        return type(descriptor)(wrap(descriptor.__func__))
    return wrap(descriptor)
