"""Where settings come from, and what is said of bad ones."""

from __future__ import annotations

import pytest

from hymem.errors import SettingsError
from hymem.settings import WriterSettings, load_settings


def test_nearest_wins(tmp_path):
    file = tmp_path / "hymem.toml"
    file.write_text(
        'model = "of-file"\nmax_tokens = 1\ntimeout = 1\ntemperature = 0.1\n[mem0]\nmax_tokens = 2\n'
    )
    environ = {
        "HYMEM_CONFIG": str(file),
        "HYMEM_TIMEOUT": "3",
        "HYMEM_MEM0_TEMPERATURE": "0.4",
        "HYMEM_TEMPERATURE": "0.3",
        "HYMEM_MEMOS_TEMPERATURE": "0.9",
    }
    settings = load_settings({"max_connections": 5}, framework="mem0", environ=environ)
    assert settings.model == "of-file"
    assert settings.max_tokens == 2
    assert settings.timeout == 3
    assert settings.temperature == 0.4
    assert settings.max_connections == 5
    assert settings.source("model") == str(file)
    assert settings.source("max_tokens") == f"{file} [mem0]"
    assert settings.source("temperature") == "HYMEM_MEM0_TEMPERATURE"
    assert settings.source("max_connections") == "argument"
    assert settings.source("api_key") == "default"


def test_the_frameworks_own_file_is_between_environment_and_file(tmp_path):
    file = tmp_path / "hymem.toml"
    file.write_text('model = "of-file"\ntimeout = 7\n[evermemos]\nmax_tokens = 5\n')
    table = ({"model": "of-table", "max_tokens": 6, "timeout": 8}, "everos.toml [hy_memory]")
    environ = {"HYMEM_CONFIG": str(file), "HYMEM_TIMEOUT": "9"}
    found = load_settings(framework="evermemos", environ=environ, table=table)
    assert (found.model, found.max_tokens, found.timeout) == ("of-table", 6, 9)
    assert found.source("model") == "everos.toml [hy_memory]"
    with pytest.raises(SettingsError, match=r"modell.*everos\.toml \[hy_memory\].*'model'"):
        load_settings(framework="evermemos", environ={}, table=({"modell": "x"}, table[1]))


@pytest.mark.parametrize("framework", ["hy-memory", "hy_memory"])
def test_both_spellings_of_a_framework(framework, tmp_path):
    file = tmp_path / "hymem.toml"
    file.write_text('[hy_memory]\nmodel = "a"\n')
    assert load_settings(framework=framework, environ={"HYMEM_CONFIG": str(file)}).model == "a"
    assert load_settings(framework=framework, environ={"HYMEM_HY_MEMORY_MODEL": "b"}).model == "b"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"HYMEM_MAX_TOKNES": "1"}, "HYMEM_MAX_TOKENS"),
        ({"HYMEM_MEM0_MAX_TOKNES": "1"}, "HYMEM_MEM0_MAX_TOKENS"),
        ({"HYMEM_MEMO_MODEL": "x"}, "HYMEM_"),
        ({"HYMEM_BASEURL": "x"}, "HYMEM_BASE_URL"),
        ({"HYMEM_CONFIG": "hymem.toml"}, "absolute"),
        ({"HYMEM_CONFIG": "/nowhere/hymem.toml"}, "/nowhere/hymem.toml"),
        ({"HYMEM_MAX_TOKENS": "many"}, "HYMEM_MAX_TOKENS"),
        ({"HYMEM_ON_FAILURE": "ignore"}, "raise"),
        ({"HYMEM_EXTRA_BODY": "{"}, "JSON"),
    ],
)
def test_bad_variables_are_named(environ, said):
    with pytest.raises(SettingsError, match=said):
        load_settings(framework="mem0", environ=environ)


def test_variables_of_others_are_left_alone():
    environ = {
        "HYMEM_TEST_BASE_URL": "x",
        "HYMEM_ENABLE": "mem0",
        "HYMEM_AUTOLOAD": "0",
        "HYMEM_LANGCHAIN_MODEL": "x",
        "HYMEM_SOMEBODYS_BASE_URL": "x",
    }
    assert load_settings(environ=environ) == WriterSettings()


@pytest.mark.parametrize("text", ["nope = 1", "[nope]\nmodel = 'x'", "model = ", "mem0 = 1"])
def test_a_bad_file_is_named(tmp_path, text):
    file = tmp_path / "hymem.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"hymem\.toml"):
        load_settings(framework="mem0", environ={"HYMEM_CONFIG": str(file)})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"base_ulr": "x"}, "did you mean 'base_url'"),
        ({"base_url": "127.0.0.1:8000"}, "http"),
        ({"base_url": "http://me:secret@host/v1"}, "api_key"),
        ({"base_url": "http://host/v1/chat/completions"}, "/v1"),
        ({"base_url": "http://host/v1?api_key=secret"}, "query"),
        ({"base_url": "http://me:hunter2@h\u2100/v1"}, "http"),
        ({"api_key": "sk-\u00e9"}, "header"),
        ({"headers": {"x": "a\nb"}}, "header"),
        ({"timeout": float("inf")}, "timeout"),
        ({"extra_body": {"temperature": 1}}, "temperature"),
        ({"extra_body": {"chat_template_kwargs": {"reasoning_effort": "low"}}}, "reasoning_effort"),
        ({"timeout": 0}, "timeout"),
        ({"record": "relative"}, "absolute"),
    ],
)
def test_bad_arguments_are_named(arguments, said):
    with pytest.raises(SettingsError, match=said):
        load_settings(arguments, environ={})


def test_no_think_may_be_said_as_the_model_card_says_it():
    body = {"chat_template_kwargs": {"reasoning_effort": "no_think", "x": 1}}
    settings = load_settings({"extra_body": body}, environ={})
    assert settings.extra_body == {"chat_template_kwargs": {"x": 1}}
    assert settings.reasoning_effort == "no_think"


def test_a_key_is_in_no_text():
    settings = load_settings({"api_key": "sk-planted", "headers": {"x-gateway": "sk-planted"}}, environ={})
    assert "sk-planted" not in repr(settings) + str(settings) + str(settings.model_dump())
    with pytest.raises(SettingsError) as raised:
        load_settings({"api_key": ["sk-planted"], "timeout": "sk-planted"}, environ={})
    assert "sk-planted" not in str(raised.value)
    assert raised.value.__context__ is None


def test_a_key_read_from_a_file_loses_its_newline():
    assert load_settings({"api_key": "sk-key\n"}, environ={}).api_key.get_secret_value() == "sk-key"


def test_bad_values_are_not_quoted(tmp_path):
    for arguments in ({"base_url": "http://me:hunter2@h\u2100/v1"}, {"base_url": "http://h/v1?hunter2"}):
        with pytest.raises(SettingsError) as raised:
            load_settings(arguments, environ={})
        assert "hunter2" not in str(raised.value)
    file = tmp_path / "hymem.toml"
    file.write_bytes(b'api_key = "hunter2\xff"')
    with pytest.raises(SettingsError, match="UTF-8") as raised:
        load_settings(environ={"HYMEM_CONFIG": str(file)})
    assert raised.value.__context__ is None


def test_a_max_tokens_that_somebody_set_is_another_setting():
    assert load_settings({"max_tokens": 4096}, environ={}) != load_settings(environ={})


def test_the_model_itself_does_not_quote_a_mistyped_key():
    with pytest.raises(ValueError) as raised:
        WriterSettings(api_key=["sk-planted"])
    assert "sk-planted" not in str(raised.value)


def test_settings_from_different_places_are_equal_if_their_values_are():
    assert load_settings({"model": "m"}, environ={}) == load_settings(environ={"HYMEM_MODEL": "m"})
