"""Which call site a call comes from, by the function that makes it.

For frameworks where one object is asked by many, for writes and for reads, and nothing but the asking
function tells which it is. Never by the words of the prompt: a conversation is inside it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .integration import CallSite


_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Functions of their own, most of them before Python 3.12 only."""


class Callers:
    """The functions of a catalogue. `through`: names of functions that only hand a call on, a subclass's
    method or a decorator's wrapper, past which the asking one is looked for, as it is past comprehensions."""

    def __init__(self, sites: Sequence[CallSite], through: Sequence[str] = ()) -> None:
        self._sites: dict[tuple[str, str], CallSite] = {}
        self._through = frozenset((*through, *_COMPREHENSIONS))
        for site in sites:
            for where in site.where:
                module, _, name = where.partition(":")
                # Python 3.10 keeps no qualified name in code.
                key = (module, name.rpartition(".")[2])
                if self._sites.setdefault(key, site) is not site:
                    raise ValueError(f"{site.id} and {self._sites[key].id} are both asked in {where}")

    def find(self, depth: int = 1) -> CallSite | None:
        """The call site of whoever called the function that asks, `depth` frames up; None: no known one."""
        frame: FrameType | None = sys._getframe(depth + 1)
        while frame is not None:
            name = frame.f_code.co_name
            site = self._sites.get((frame.f_globals.get("__name__", ""), name))
            if site is not None or name not in self._through:
                return site
            frame = frame.f_back
        return None
