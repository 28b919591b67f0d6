"""Real LangChain."""

from __future__ import annotations

import os
import sys
import warnings

sys.path.insert(0, os.path.dirname(__file__))

import adapter  # first: it switches tracing off
import pytest

import hymem
import hymem_langchain

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


def pytest_collection_modifyitems(items):
    """LangChain's own warnings, and its own clients that it leaves open, are not what is looked at."""
    for item in items:
        for warning in ("DeprecationWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure():
    """What is still open when pytest ends is collected by it, under the filters of no test."""
    warnings.simplefilter("ignore", ResourceWarning)
