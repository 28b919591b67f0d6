"""What `./dev new-integration` makes passes the structural rules as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "new_integration.py"


def made(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path):
    done = made("new-framework", "--upstream", "NewFramework", "--title", "New Framework", "--into", tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "hymem-new-framework"


def test_it_passes_the_structural_rules(folder):
    path = os.pathsep.join(filter(None, (str(folder / "src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "tests")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_it_is_a_package_like_the_others(folder):
    files = {path.name for path in folder.iterdir()}
    assert files == {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "src", "tests"}
    for path in folder.rglob("*.*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not {"TITLE", "UPSTREAM", "FLOOR", "DASHED"} & set(text.replace("-", " ").split())


def test_mistakes_are_named(folder):
    assert "no name of this kind" in made("New_Framework", "--upstream", "x", "--into", folder).stderr
    again = made("new-framework", "--upstream", "x", "--into", folder.parent)
    assert "there already" in again.stderr
