"""The suite passes on an integration that is right, and each rule fails on one that breaks it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hymem_testing.conformance import Conformance

TOY = Path(__file__).parent / "toy"

spec = importlib.util.spec_from_file_location("wrong", TOY / "wrong.py")
wrong = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wrong)
RULES = wrong.RULES


def run_suite(*arguments, wrong=""):
    path = os.pathsep.join(filter(None, (str(TOY), os.environ.get("PYTHONPATH"))))
    plugin = [] if "hymem_testing.plugin" in os.environ.get("PYTEST_PLUGINS", "") else _plugin()
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=line", "-p", "no:cacheprovider", *plugin]
    return subprocess.run(
        [*command, *arguments, str(TOY / "suite.py")],
        env={**os.environ, "PYTHONPATH": path, "TOYNOTES_WRONG": wrong},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _plugin():
    from importlib.metadata import entry_points

    installed = any(each.value == "hymem_testing.plugin" for each in entry_points(group="pytest11"))
    return [] if installed else ["-p", "hymem_testing.plugin"]


def test_it_passes_on_an_integration_that_is_right():
    done = run_suite()
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("name", RULES)
def test_it_fails_on_one_that_is_wrong(name):
    rule, _ = RULES[name]
    done = run_suite("-x", "-k", rule, wrong=name)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-1000:]
    assert re.search(rf"^FAILED .*::{rule}\b", done.stdout, re.MULTILINE), done.stdout[-3000:]


def test_every_rule_has_a_wrong_one():
    rules = {name for name in dir(Conformance) if name.startswith("test_")}
    assert {rule for rule, _ in RULES.values()} == rules
