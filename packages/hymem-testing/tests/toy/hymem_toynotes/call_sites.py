"""The toy's one write, and its one read."""

from __future__ import annotations

from hymem.integration import CallSite

from .contracts import NOTES

REMEMBER = CallSite(
    id="toynotes.remember",
    side="write",
    where=("toynotes:Notebook._remember", "toynotes:AsyncNotebook._remember"),
    contract=NOTES,
    after_failure="unchanged",
)
CALL_SITES = (REMEMBER,)
