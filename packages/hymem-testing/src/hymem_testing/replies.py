"""The tables of bad replies: what becomes of each, in a framework alone and with hymem.

An integration has its rows and a function that says in a word how one ended; the ends are kept per version
in `compat_tests/results/FRAMEWORK/replies-VERSION.json`, and the tables on the framework's page are made of
them. `HYMEM_TEST_RECORD=all` keeps what is measured, `new` only where there is nothing yet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .proxy import Proxy

STORED, ERROR, LOST = "stored", "error", "lost without a word"
DESTROYED, ELSE = "destroyed", "stored something else"


@dataclass(frozen=True)
class Row:
    """`said`: the reply's content. `meant`: what is to be kept on account of it; None where there is
    nothing to be had. `proxy`: further arguments of the scripted reply."""

    name: str
    said: str | None = None
    meant: Any = None
    proxy: Mapping[str, Any] = field(default_factory=dict)


def was_said(text: str, writer: Proxy) -> bool:
    """Whether a text that was kept stands in what the writer's server answered. What a small model says is
    another thing on another processor; that it is kept is not."""
    replies = [str(sent.reply["choices"][0]["message"]["content"]) for sent in writer.chats if sent.reply]
    return any(form in reply for reply in replies for form in (text, json.dumps(text)[1:-1]))


Outcomes = Mapping[str, Mapping[str, str]]
"""`TABLE: ROW` → `alone` and `hymem` → how it ended."""


def as_recorded(outcomes: Outcomes, tests: Path, framework: str, version: str) -> None:
    """Assert that these are the ends that the framework's page tells. `tests` is a file of the integration's
    tests. A cell without an optional package has a part of the rows."""
    results = tests.resolve().parents[3] / "compat_tests" / "results"
    file = results / framework / f"replies-{version}.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    record = os.environ.get("HYMEM_TEST_RECORD")
    if record == "all" or (record == "new" and not outcomes.keys() <= known.keys()):
        file.parent.mkdir(parents=True, exist_ok=True)
        known.update(outcomes)
        file.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if not results.is_dir():
        pytest.skip("not in a checkout: there is no table to compare with")
    assert dict(outcomes) == {name: known.get(name) for name in outcomes}, "run ./dev tables"
