"""The rules that every integration is held to."""

from __future__ import annotations

from adapter import MemOS

from hymem_testing.conformance import Conformance


class TestTextualMemory(Conformance):
    adapter = MemOS
