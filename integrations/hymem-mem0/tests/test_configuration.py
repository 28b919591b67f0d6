"""What may stand in `llm.config`, and whose key goes where."""

from __future__ import annotations

import mem0
import pytest
from mem0_bank import WRITES, check_wire, script

import hymem_mem0
from hymem import SettingsError


@pytest.fixture(autouse=True)
def _registered():
    hymem_mem0.register()


def make(config, llm_config):
    """A memory whose store is its own: local Qdrant lets one client in at a time."""
    config["vector_store"]["config"]["path"] += "x"
    return mem0.Memory.from_config({**config, "llm": {"provider": "hy_memory", "config": llm_config}})


@pytest.mark.hymem_short
def test_flat_keys(config, hymem_writer, main_llm):
    memory = make(
        config, {"base_url": hymem_writer.base_url, "model": "m", "timeout": 7, "main_llm": main_llm}
    )
    settings = memory.llm.writer.settings
    assert (settings.base_url, settings.model, settings.timeout) == (hymem_writer.base_url, "m", 7)


def test_what_servers_fill_in_by_themselves_does_not_count(config, caplog):
    merged = {
        "temperature": 0.2,
        "max_tokens": 2000,
        "openai_base_url": "http://127.0.0.1:1",
        "enable_vision": False,
    }
    settings = make(config, {"base_url": "http://127.0.0.1:1/v1", **merged}).llm.writer.settings
    assert settings.temperature == 0.0
    assert settings.max_tokens == 4096
    assert "openai_base_url" in caplog.text


def test_beside_writer_flat_keys_do_not_count_and_that_is_said_once(config, caplog):
    flat = {"api_key": "sk-users-key", "model": "users-own-model", "temperature": 0.2}
    settings = make(config, {**flat, "writer": {"temperature": 0.1}}).llm.writer.settings
    assert settings.model == "hy-memory"
    assert settings.temperature == 0.1
    assert settings.api_key.get_secret_value() == "EMPTY"
    said = [record for record in caplog.records if record.name == "hymem.mem0"]
    assert len(said) == 1
    assert "sk-users-key" not in caplog.text


def test_the_users_key_merged_in_flat_is_refused(config, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-users-key")
    flat = {"api_key": "sk-users-key", "model": "users-own-model", "temperature": 0.2}
    with pytest.raises(SettingsError, match=r"llm\.config\.writer") as raised:
        make(config, flat)
    assert "sk-users-key" not in str(raised.value)
    with pytest.raises(SettingsError):
        make(config, {**flat, "base_url": "https://notopenai.com/v1"})
    make(config, {**flat, "base_url": "https://api.openai.com/v1"})
    monkeypatch.delenv("OPENAI_API_KEY")
    main_llm = {"provider": "openai", "config": {"api_key": "sk-users-key"}}
    with pytest.raises(SettingsError):
        make(config, {**flat, "main_llm": main_llm})


@pytest.mark.parametrize(
    ("llm_config", "said"),
    [
        ({"writer": {"base_ulr": "x"}}, "base_url"),
        ({"base_ulr": "x"}, "base_url"),
        ({"writer": {"timeout": "soon"}}, r"llm\.config\.writer"),
        ({"main_llm": {"provider": "hy_memory"}}, "not a main model"),
        ({"main_llm": {"config": {}}}, "provider"),
        ({"main_llm": {"provider": "openai", "conifg": {}}}, "conifg"),
        ({"writer": {"on_failure": "fallback"}}, "main_llm"),
    ],
)
def test_mistakes_are_named(config, llm_config, said):
    with pytest.raises(SettingsError, match=said):
        make(config, llm_config)


def test_settings_from_the_environment(config, hymem_writer, monkeypatch):
    monkeypatch.setenv("HYMEM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("HYMEM_MEM0_BASE_URL", hymem_writer.base_url)
    assert make(config, {}).llm.writer.settings.base_url == hymem_writer.base_url
    assert make(config, {"writer": {"model": "m"}}).llm.writer.settings.base_url == hymem_writer.base_url
    script(hymem_writer, "Lives in Oslo")
    assert make(config, {}).add("I live in Oslo.", user_id="ann")["results"]


@pytest.mark.parametrize("merged", [False, True])
def test_no_key_goes_astray(bank, swapped, hymem_writer, hymem_main, monkeypatch, merged):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "sk-users-key")
    swapped["llm"]["config"]["writer"]["api_key"] = "writers-key"
    if merged:  # as Mem0's REST server merges its default configuration in
        swapped["llm"]["config"] |= {
            "api_key": "sk-users-key",
            "model": "users-own-model",
            "temperature": 0.2,
        }
    script(hymem_writer, "Lives in Oslo")
    hymem_main.reply(None, "an answer")  # a real model goes on for minutes
    made = bank(swapped)
    made.add("I live in Oslo.")
    made.search("Oslo")
    made.memory.llm.generate_response([{"role": "user", "content": "a question"}])
    assert len(hymem_writer.chats) == WRITES
    assert len(hymem_main.chats) == 1
    assert all(sent.headers["authorization"] == "Bearer writers-key" for sent in hymem_writer.requests)
    check_wire(hymem_writer, hymem_main)


def test_a_writers_key_is_in_no_text(swapped):
    swapped["llm"]["config"]["writer"]["api_key"] = "sk-planted"
    memory = mem0.Memory.from_config(swapped)
    assert "sk-planted" not in repr(memory.llm) + repr(vars(memory.llm)) + repr(vars(memory.llm.config))
