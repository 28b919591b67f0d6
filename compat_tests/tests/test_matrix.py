"""The list of cells, and what is on record of them."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parents[1]))
import matrix
import tables

RAN = Counter(passed=7, skipped=1)


@pytest.fixture
def cell(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "RESULTS", tmp_path)
    return next(each for each in matrix.cells() if each.name == "mem0-2.2.1-py313")


def test_a_cell_is_a_row_of_pins_on_one_python(cell):
    assert cell.pins[0] == "mem0ai==2.2.1"
    assert cell.locked()["mem0ai"] == "2.2.1"
    assert "hymem-mem0" in cell.distributions
    names = [each.name for each in matrix.cells()]
    assert len(names) == len(set(names))


def test_every_test_has_the_ends_of_each_group():
    chosen = {cell.name: short for cell, short in matrix.for_every_test().items()}
    assert chosen["mem0-0.1.118-py310"] is True
    assert chosen["mem0-2.2.1-py313"] is False
    assert {name for name, short in chosen.items() if name.startswith("core") and not short} == {
        "core-openai1-floor-py310",
        "core-openai3-py313",
    }


def test_a_run_is_on_record_until_something_changes(cell, monkeypatch):
    assert cell.recorded() is None
    cell.write_record(RAN, passed=True)
    found = cell.recorded()
    assert (found["outcome"], found["passed"], found["versions"]["mem0ai"]) == ("passed", 7, "2.2.1")
    assert "passed" in tables._run(cell)
    monkeypatch.setattr(matrix.Cell, "sources", lambda self: "changed")
    assert cell.recorded() is None
    assert tables._run(cell) == "not run"


def test_a_changed_lock_makes_a_cell_not_run(cell, tmp_path, monkeypatch):
    cell.write_record(RAN, passed=True)
    monkeypatch.setattr(matrix, "LOCKS", tmp_path)
    cell.lock.write_text("mem0ai==2.2.1\n")
    assert cell.recorded() is None


def test_a_record_is_rewritten_only_where_something_is_new(cell):
    cell.write_record(RAN, passed=True)
    old = {**json.loads(cell.record.read_text()), "date": "2026-01-01"}
    cell.record.write_text(json.dumps(old))
    cell.write_record(RAN, passed=True)
    assert json.loads(cell.record.read_text())["date"] == "2026-01-01"
    cell.write_record(RAN, passed=False)
    assert json.loads(cell.record.read_text())["date"] != "2026-01-01"
    assert cell.recorded()["outcome"] == "failed"


def test_what_pytest_reported(tmp_path):
    report = tmp_path / "cell.xml"
    report.write_text('<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>')
    assert matrix.counts([report, tmp_path / "none.xml"]) == Counter(passed=5, failed=2, skipped=2)


def test_a_stale_page_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("# Page\n\n<!-- table: mem0-versions -->\nold\n<!-- end -->\n")
    assert tables.main(["--check"]) == 1
    assert "old" in page.read_text()
    assert tables.main([]) == 0
    assert "old" not in page.read_text()
    assert tables.main(["--check"]) == 0
    assert "mem0ai" in page.read_text()


def test_what_an_integration_calls_tested_is_what_is_in_the_matrix():
    from hymem.frameworks import discover

    for framework, module in discover().items():
        known = importlib.import_module(f"{module}.seams").INTEGRATION.framework
        name = canonicalize_name(known.distribution)
        locked = [cell.locked()[name] for cell in matrix.cells() if cell.group == framework]
        assert list(known.tested) == sorted(set(locked), key=Version)


def test_a_record_has_the_version_of_every_pin(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "RESULTS", tmp_path)
    for cell in matrix.cells():
        cell.write_record({"passed": 1, "skipped": 0}, passed=True)
        known = json.loads(cell.record.read_text())["versions"]
        pinned = {canonicalize_name(Requirement(pin).name) for pin in cell.pins}
        assert pinned & cell.locked().keys() <= known.keys()
