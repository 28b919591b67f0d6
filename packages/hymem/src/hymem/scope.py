"""Whether the code that runs now is inside a framework's write, and which one.

A scope is an object with an `open` flag in a ContextVar. A pool thread or task that inherited
the context of a write and outlives it reads a closed scope, and is not taken for a write (on
free-threaded builds every thread inherits its starter's context).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .errors import WriteError

T = TypeVar("T")

_current: ContextVar[Scope | None] = ContextVar("hymem_scope", default=None)


class Scope:
    """One call of a framework's method that writes.

    `owner` is the object the method was called on. `site` is the id of the call site that the
    next LLM call inside is, `facts` what the integration knows about that call. `failures` are
    the writes inside that failed and whose error may not have reached the method's caller.
    """

    __slots__ = ("facts", "failures", "open", "owner", "site")

    def __init__(self, site: str, owner: Any = None) -> None:
        self.open = True
        self.owner = owner
        self.site = site
        self.facts: Any = None
        self.failures: list[WriteError] = []


def current() -> Scope | None:
    """The scope that is open here, if one is."""
    scope = _current.get()
    return scope if scope is not None and scope.open else None


def carried(function: Callable[..., T]) -> Callable[..., T]:
    """`function` as a pool's thread is to run it: inside the scope that is open here, as long as it is."""
    opened = current()
    if opened is None:
        return function

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> T:
        token = _current.set(opened)
        try:
            return function(*args, **kwargs)
        finally:
            _current.reset(token)

    return inside


@contextmanager
def writing(site: str, owner: Any = None) -> Iterator[Scope]:
    """Open a scope around a framework's method. Closing it closes it for every inheritor."""
    scope = Scope(site, owner)
    token = _current.set(scope)
    try:
        yield scope
    finally:
        scope.open = False
        _current.reset(token)
