"""Real LlamaIndex."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import adapter
import pytest

import hymem
import hymem_llama_index
from hymem_testing.leaks import pytest_collection_modifyitems, pytest_unconfigure

__all__ = ["pytest_collection_modifyitems", "pytest_unconfigure"]

assert adapter


@pytest.fixture(autouse=True)
def _clean():
    yield
    hymem_llama_index.disable()
    hymem.close()


@pytest.fixture
def events():
    seen = []
    stop = hymem.observe(seen.append)
    yield seen
    stop()


@pytest.fixture
def main(hymem_main):
    from llama_index_memory import main_llm

    hymem_main.reply(None, "an answer")
    return main_llm(hymem_main)
