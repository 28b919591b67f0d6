"""Real LangChain."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import adapter  # first: it switches tracing off
import pytest

import hymem
import hymem_langchain
from hymem_testing.leaks import pytest_collection_modifyitems, pytest_unconfigure

__all__ = ["pytest_collection_modifyitems", "pytest_unconfigure"]

assert adapter


@pytest.fixture(autouse=True)
def _clean():
    yield
    hymem_langchain.disable()
    hymem.close()


@pytest.fixture
def events():
    seen = []
    stop = hymem.observe(seen.append)
    yield seen
    stop()
