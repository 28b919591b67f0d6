"""What the doctor says of EverMemOS."""

from __future__ import annotations

import json

import pytest
from evermemos_bank import client, facts_reply
from packaging.version import Version

import hymem_evermemos
from hymem_evermemos.seams import faults
from hymem_testing.environment import Environment


@pytest.mark.hymem_short
def test_the_route_is_shown_and_the_download_is_named(hymem_writer, tmp_path):
    hymem_writer.reply(None, facts_reply("Ann drinks tea."))
    environment = Environment(tmp_path / "environment")
    asked = ("-m", "hymem", "doctor", "evermemos", "--json", "--probe")
    environ = {"HYMEM_BASE_URL": hymem_writer.base_url, "TIKTOKEN_CACHE_DIR": str(tmp_path)}
    report = json.loads(environment.run(*asked, **environ).stdout)
    facts = [fact for fact in report["facts"]["evermemos"] if fact.startswith("route: ")]
    assert facts == [
        "route: AtomicFactExtractor reaches the writer (evermemos.facts: ok)",
        "route: what is no write reaches the main model",
    ]
    found = [each["found"] for each in report["findings"] if each["code"] == "framework-fault"]
    assert any("HTTP 500" in each for each in found)


def test_a_version_that_is_not_known_to_be_wrong(monkeypatch, tmp_path):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    (tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790").touch()
    assert faults(Version("1.6")) == []
    assert len(faults(Version("1.0.2"))) == 2
    assert len(faults(Version("1.2.0"))) == 2


def test_the_download_is_named_when_the_client_is_made(
    hymem_writer, hymem_main, monkeypatch, tmp_path, caplog
):
    """Before the first add: that one is lost where there is no network (277)."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with hymem_evermemos.enable(base_url=hymem_writer.base_url):
        client(hymem_main.model, hymem_main.base_url)
    assert "o200k_base" in caplog.text
    assert "TIKTOKEN_CACHE_DIR" in caplog.text
