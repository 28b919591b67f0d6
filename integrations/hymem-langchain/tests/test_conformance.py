"""The rules that every integration is held to, on classic memory and on the middleware of agents."""

from __future__ import annotations

import pytest
from adapter import Classic, Middleware
from langchain_memory import HAS_MIDDLEWARE

from hymem_testing.conformance import Conformance


class TestClassic(Conformance):
    adapter = Classic


@pytest.mark.skipif(not HAS_MIDDLEWARE, reason="there is no middleware before 1.0")
class TestMiddleware(Conformance):
    adapter = Middleware
