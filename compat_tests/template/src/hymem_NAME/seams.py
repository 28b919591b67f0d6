"""How TITLE's calls are reached, per version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hymem.frameworks import Framework
from hymem.integration import Integration
from hymem.patching import Leftover, Patch, Switch
from hymem.writer import Writer

from .call_sites import CALL_SITES

FRAMEWORK = Framework(
    id="DASHED",
    title="TITLE",
    distribution="UPSTREAM",
    module="MODULE",
    integration="hymem-DASHED",
    floor="FLOOR",
    tested=("FLOOR",),
)

WATCHED: tuple[str, ...] = ()
"""What else is relied on: parsers, say."""


def base(switch: Switch) -> list[Patch]:
    """The name, and the scopes in which a call is a write."""
    return []


def routed(switch: Switch) -> list[Patch]:
    """Every object's LLM, inside a write only."""
    return []


def attach_to(target: Any, writer: Writer) -> Callable[[], list[Leftover]]:
    """Put an LLM of ours around the object's own."""
    raise TypeError(f"attach() cannot take a {type(target).__name__} yet")


INTEGRATION = Integration(
    FRAMEWORK,
    core="0.1",
    call_sites=CALL_SITES,
    base=base,
    routed=routed,
    attach_to=attach_to,
)
