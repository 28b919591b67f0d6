"""What holds before there is anything to route. The whole suite is `Conformance`, with an adapter."""

from __future__ import annotations

from hymem_testing.conformance import Structure


class TestStructure(Structure):
    integration = "hymem_NAME"
