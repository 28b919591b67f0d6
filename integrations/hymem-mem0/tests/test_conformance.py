"""The rules that hold for every integration."""

from __future__ import annotations

from adapter import Mem0

from hymem_testing.conformance import Conformance


class TestMem0(Conformance):
    adapter = Mem0
