"""Pieces of which integrations build their seams: methods that run within a scope, attributes that hold
another model inside one, objects that are attached, and input that waits for the next try."""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from . import scope
from .errors import SettingsError
from .patching import Attribute, Leftover, Patch, Switch

if TYPE_CHECKING:
    from .writer import Writer

Given = tuple[tuple[Any, ...], dict[str, Any]]
Around = Callable[..., AbstractContextManager[Given]]


def within(switch: Switch, around: Around) -> Callable[[Any], Any]:
    """What makes a method, sync or async, run within `around` of its arguments, which gives those to
    call it with."""

    def wrap(original: Any) -> Any:
        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def asynchronous(self: Any, *args: Any, **kwargs: Any) -> Any:
                if not switch.on:
                    return await original(self, *args, **kwargs)
                with around(self, *args, **kwargs) as (given, named):
                    return await original(self, *given, **named)

            return asynchronous

        @functools.wraps(original)
        def sync(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.on:
                return original(self, *args, **kwargs)
            with around(self, *args, **kwargs) as (given, named):
                return original(self, *given, **named)

        return sync

    return wrap


def attached_already() -> SettingsError:
    return SettingsError("this object's writes go to a writer already; disable() that first")


class Attached:
    """Objects whose writes go to a writer of their own, until they are gone."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Writer, Switch]] = {}

    def __contains__(self, target: Any) -> bool:
        return id(target) in self._known

    def get(self, target: Any) -> tuple[Writer, Switch] | None:
        return self._known.get(id(target))

    def add(self, target: Any, writer: Writer, switch: Switch) -> None:
        self._known[id(target)] = (writer, switch)
        weakref.finalize(target, self._known.pop, id(target), None)

    def attach(self, targets: Sequence[Any], writer: Writer) -> Callable[[], list[Leftover]]:
        """Have the writes of these go to a writer; gives the undo. `SettingsError` if one's do already."""
        if any(each in self for each in targets):
            raise attached_already()
        switch = Switch(on=True)
        for each in targets:
            self.add(each, writer, switch)

        def undo() -> list[Leftover]:
            switch.on = False
            for each in targets:
                self._known.pop(id(each), None)
            return []

        return undo


class Waiting:
    """Input of an object whose write failed, kept to be offered again, as long as the object lives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, list[Any]] = {}

    def take(self, target: Any) -> list[Any]:
        with self._lock:
            return self._kept.pop(id(target), [])

    def keep(self, target: Any, items: Sequence[Any]) -> None:
        """Beside what another write of the same object has kept meanwhile."""
        with self._lock:
            if id(target) not in self._kept:
                weakref.finalize(target, self._kept.pop, id(target), None)
            self._kept.setdefault(id(target), []).extend(items)


class RoutedAttribute:
    """A class's attribute for its model: inside a write of the object it is what `choose(object, own)`
    says, else the object's own. `always` says of an object whether it is there for nothing but writing."""

    def __init__(
        self,
        switch: Switch,
        name: str,
        choose: Callable[[Any, Any], Any],
        always: Callable[[Any], bool] = lambda target: False,
    ) -> None:
        self._switch, self._name, self._choose, self._always = switch, name, choose, always

    def __get__(self, target: Any, owner: type | None = None) -> Any:
        if target is None:
            raise AttributeError(self._name)
        try:
            own = vars(target)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        opened = scope.current()
        writes = opened is not None and opened.owner is target
        if self._switch.on and (writes or self._always(target)):
            return self._choose(target, own)
        return own

    def __set__(self, target: Any, model: Any) -> None:
        vars(target)[self._name] = model

    def __delete__(self, target: Any) -> None:
        del vars(target)[self._name]


def routed_attribute(
    owner: Any,
    switch: Switch,
    name: str,
    choose: Callable[[Any, Any], Any],
    always: Callable[[Any], bool] = lambda target: False,
) -> Patch:
    """The patch that puts one in."""
    return Patch(
        Attribute(owner, name), lambda _: RoutedAttribute(switch, name, choose, always), needed=False
    )


def writes_by_attribute(target: Any) -> bool:
    """Whether an object's class has such an attribute."""
    return any(
        isinstance(each, RoutedAttribute) for base in type(target).__mro__ for each in vars(base).values()
    )
