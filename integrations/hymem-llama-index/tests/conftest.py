"""Real LlamaIndex."""

from __future__ import annotations

import os
import sys
import warnings

sys.path.insert(0, os.path.dirname(__file__))

import adapter
import pytest

import hymem
import hymem_llama_index

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


def pytest_collection_modifyitems(items):
    """LlamaIndex's own warnings, and its clients that it leaves open, are not what is looked at."""
    for item in items:
        for warning in ("DeprecationWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure():
    """What is still open when pytest ends is collected by it, under the filters of no test: LlamaIndex leaves
    its SQLite connections open."""
    warnings.simplefilter("ignore", ResourceWarning)
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)
