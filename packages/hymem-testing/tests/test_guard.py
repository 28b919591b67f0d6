"""The guard of the processes that tests start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hymem_testing.double import Double
from hymem_testing.guard import guarded, refused

ASK = """
import sys, urllib.request
try:
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=10).read()
except OSError as error:
    print(error)
"""


def ask(url, log):
    done = subprocess.run(
        [sys.executable, "-c", ASK, url], env=guarded(log), capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("url", ["http://192.0.2.1/", "http://example.invalid/"])
def test_other_machines_are_refused_and_kept(tmp_path, url):
    log = tmp_path / "log"
    assert "tests speak to this machine alone" in ask(url, log)
    assert len(refused(log)) == 1


def test_this_machine_is_not(tmp_path):
    with Double() as double:
        assert ask(f"{double.url}/health", tmp_path / "log") == ""
    assert refused(tmp_path / "log") == []
