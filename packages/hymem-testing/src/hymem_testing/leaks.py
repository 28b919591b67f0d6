"""For the conftest of tests against other people's code: what that leaves open is not what is looked at.

>>> from hymem_testing.leaks import pytest_collection_modifyitems, pytest_unconfigure
"""

from __future__ import annotations

import warnings

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A framework's own warnings, and its clients and databases that it leaves open."""
    for item in items:
        for warning in ("DeprecationWarning", "ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """What is still open when pytest ends is collected by it, under the filters of no test."""
    warnings.simplefilter("ignore", ResourceWarning)
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)


__all__ = ["pytest_collection_modifyitems", "pytest_unconfigure"]
