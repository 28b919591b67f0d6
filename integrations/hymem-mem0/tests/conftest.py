"""Real Mem0 on its embedded store."""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import mem0
import pytest
from adapter import Mem0  # first: it says where Mem0 may write
from mem0_bank import Bank, keep_stores_apart

import hymem
import hymem_mem0
from hymem_testing.leaks import pytest_collection_modifyitems, pytest_unconfigure

__all__ = ["pytest_collection_modifyitems", "pytest_unconfigure"]


@pytest.fixture(autouse=True)
def _clean():
    keep_stores_apart()
    yield
    hymem_mem0.disable()
    hymem.close()


@pytest.fixture
def events():
    seen = []
    stop = hymem.observe(seen.append)
    yield seen
    stop()


@pytest.fixture
def mem0_here(tmp_path):
    return Mem0(tmp_path)


@pytest.fixture
def config(mem0_here, hymem_main):
    """A configuration before the swap: everything from the user's own provider."""
    return mem0_here.before(hymem_main)


@pytest.fixture
def main_llm(config):
    """Its `llm`."""
    return config["llm"]


@pytest.fixture
def swapped(mem0_here, hymem_writer, hymem_main):
    """The same after the swap, as it would stand in a JSON file."""
    return json.loads(json.dumps(mem0_here.after(hymem_main, {"base_url": hymem_writer.base_url})))


@pytest.fixture(params=["sync", "async"])
def bank(request):
    """Makes a bank of a configuration, of `Memory` and of `AsyncMemory`."""
    cls = mem0.Memory if request.param == "sync" else mem0.AsyncMemory
    return lambda config: Bank(cls, config)
