"""The rules that every integration is held to, on classic memory, the middleware of agents,
and langmem."""

from __future__ import annotations

import pytest
from adapter import Classic, Managers, Middleware
from langchain_memory import HAS_LANGMEM, HAS_MIDDLEWARE

from hymem_testing.conformance import Conformance


class TestClassic(Conformance):
    adapter = Classic


@pytest.mark.skipif(not HAS_MIDDLEWARE, reason="there is no middleware before 1.0")
class TestMiddleware(Conformance):
    adapter = Middleware


@pytest.mark.skipif(not HAS_LANGMEM, reason="langmem is not in this cell")
class TestManagers(Conformance):
    adapter = Managers
