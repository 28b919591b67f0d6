"""Every LLM call that TITLE makes, writes and reads, in every pinned version."""

from __future__ import annotations

from hymem.integration import CallSite

CALL_SITES: tuple[CallSite, ...] = ()
