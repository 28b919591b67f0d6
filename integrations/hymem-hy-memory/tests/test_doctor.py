"""What the doctor says of the SDK."""

from __future__ import annotations

import json

import pytest
from hy_memory_bank import extracted
from packaging.version import Version

from hymem_hy_memory.seams import faults
from hymem_testing.environment import Environment


@pytest.mark.hymem_short
def test_the_route_is_shown(hymem_writer, tmp_path):
    hymem_writer.reply(None, extracted("The user drinks tea."))
    environment = Environment(tmp_path / "environment")
    asked = ("-m", "hymem", "doctor", "hy-memory", "--json", "--probe")
    report = json.loads(environment.run(*asked, HYMEM_BASE_URL=hymem_writer.base_url).stdout)
    facts = [fact for fact in report["facts"]["hy-memory"] if fact.startswith("route: ")]
    assert facts == [
        "route: Extractor.extract reaches the writer (hy-memory.extract: ok)",
        "route: what is no write reaches the main model",
    ]


def test_a_download_and_what_is_known_to_be_wrong(monkeypatch, tmp_path):
    monkeypatch.delitem(__import__("sys").modules, "tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert "cl100k_base" in faults(Version("2.0.6"))[0].found
    (tmp_path / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").touch()
    assert faults(Version("2.0.6")) == []
    (fault,) = faults(Version("1.2.21"))
    assert "MEMORY_LLM_EXTRA_BODY" in fault.found
