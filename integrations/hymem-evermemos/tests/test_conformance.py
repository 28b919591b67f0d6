"""The rules that every integration is held to."""

from __future__ import annotations

from adapter import Facts

from hymem_testing.conformance import Conformance


class TestFacts(Conformance):
    adapter = Facts
    more_files = frozenset({"kept.py"})
