"""What the doctor says of MemOS."""

from __future__ import annotations

import importlib.util
import json

import pytest
from memos_bank import installed
from packaging.version import Version

from hymem_memos.seams import faults
from hymem_testing.environment import Environment


@pytest.mark.hymem_short
def test_the_route_is_shown_and_faults_are_named(hymem_writer, tmp_path):
    hymem_writer.reply(None, json.dumps([{"memory": "Drinks tea", "metadata": {}}]))
    environment = Environment(tmp_path / "environment")
    asked = ("-m", "hymem", "doctor", "memos", "--json", "--probe")
    done = environment.run(*asked, HYMEM_BASE_URL=hymem_writer.base_url)
    report = json.loads(done.stdout)
    facts = [fact for fact in report["facts"]["memos"] if fact.startswith("route: ")]
    assert facts == [
        "route: NaiveTextMemory.extract reaches the writer (memos.naive-extract: ok)",
        "route: what is no write reaches the main model",
    ]
    found = [each["found"] for each in report["findings"] if each["code"] == "framework-fault"]
    assert any("strategy_struct" in each for each in found) == (installed >= Version("2.0.1"))
    assert any("under a name" in each for each in found) == (installed == Version("2.0.10"))
    postgres = installed >= Version("2.0.10") and importlib.util.find_spec("psycopg2") is not None
    assert any("dedup" in each for each in found) == postgres


def test_a_version_that_is_not_known_to_be_wrong():
    assert [fault for fault in faults(Version("2.1")) if "chonkie" not in fault.found] == []
