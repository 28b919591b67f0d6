"""The real SDK."""

from __future__ import annotations

import os
import sys
from collections import Counter

sys.path.insert(0, os.path.dirname(__file__))

import hy_memory_bank as bank
import pytest

import hymem
import hymem_hy_memory
from hymem_testing.leaks import pytest_collection_modifyitems, pytest_unconfigure

__all__ = ["pytest_collection_modifyitems", "pytest_unconfigure"]


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setattr("hymem.events._times_logged", Counter())
    monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
    yield
    bank.close_all()
    hymem_hy_memory.disable()
    hymem.close()


@pytest.fixture
def events():
    seen = []
    stop = hymem.observe(seen.append)
    yield seen
    stop()
