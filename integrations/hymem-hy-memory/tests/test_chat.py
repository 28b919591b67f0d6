"""What is said in a chat, end to end: the real client, Chroma and SQLite, over real sockets."""

from __future__ import annotations

import json

import hy_memory_bank as bank
import pytest
from hy_memory_bank import IS_2, VERSION, extracted, operations
from packaging.version import Version

import hymem_hy_memory
from hymem import SettingsError, UnsupportedVersion

WRITERS_KEY = "sk-writers-key"
OSLO, CAT, BERGEN = "The user lives in Oslo.", "The user has a cat.", "The user lives in Bergen."


@pytest.fixture
def client(tmp_path, hymem_writer, hymem_main):
    hymem_hy_memory.enable(base_url=hymem_writer.base_url, api_key=WRITERS_KEY)
    return bank.client(bank.configuration(hymem_main, tmp_path))


def say(client, text, **more):
    return client.add([{"role": "user", "content": text}], user_id="ann", **more)


def check_wire(writer, main):
    for sent in writer.requests:
        assert sent.path == "/v1/chat/completions"
        assert sent.json["model"] == "hy-memory"
        assert sent.json["temperature"] == 0.0
        assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
        assert sent.headers["authorization"] == f"Bearer {WRITERS_KEY}"
        assert bank.USERS_KEY not in str(sent.headers) + sent.raw.decode()
    for sent in main.requests:
        assert sent.headers["authorization"] == f"Bearer {bank.USERS_KEY}"
        assert WRITERS_KEY not in str(sent.headers) + sent.raw.decode()


def test_what_is_said_is_found_again(client, hymem_writer, hymem_main, events):
    bank.script(hymem_writer, OSLO, CAT)
    result = say(client, "I live in Oslo, and I have a cat.")
    assert result["success"] is True
    assert len(result["memory_ids"]) == 2
    found = client.search("Where does the user live? In Oslo?", user_ids=["ann"], min_score=0.0)
    assert OSLO in str(found["memories"]["normal"])
    assert [event.site for event in events] == ["hy-memory.extract"]
    assert hymem_main.chats == []
    assert {sent.path for sent in hymem_main.requests} == {"/v1/embeddings"}
    # 2000 is what the SDK asks for, and cuts replies at.
    assert hymem_writer.chats[0].json["max_tokens"] == 4096
    check_wire(hymem_writer, hymem_main)


def test_what_is_new_is_reconciled_with_what_there_is(client, hymem_writer, hymem_main, events):
    bank.script(hymem_writer, OSLO)
    say(client, "I live in Oslo.")

    def moved(body):
        existing, _ = bank.shown(body)
        return operations(
            {"op": "SUPERSEDE", "memory_id": existing[0]["memory_id"], "content": BERGEN, "tags": ["home"]}
        )

    bank.script(hymem_writer, BERGEN, decision=moved)
    assert say(client, "I have moved, and live in Bergen.")["ops_summary"]["supersede"] == 1
    assert bank.facts(client) == [BERGEN]
    sites = [event.site for event in events]
    assert sites == ["hy-memory.extract"] * 2 + ["hy-memory.reconcile"]
    check_wire(hymem_writer, hymem_main)


@pytest.mark.parametrize("word", ["UPDATE", "SUPERSEDE"])
def test_an_operation_on_what_is_not_there_keeps_the_fact(client, hymem_writer, word):
    bank.script(hymem_writer, OSLO)
    say(client, "I live in Oslo.")
    bank.script(hymem_writer, BERGEN, decision=operations({"op": word, "memory_id": "0", "content": BERGEN}))
    say(client, "I live in Bergen.")
    assert sorted(bank.facts(client)) == [BERGEN, OSLO]


@pytest.mark.parametrize(
    "decision", ["", "Sure.", "[", '{"ops": "none"}', '[{"op": "UPDATE", "memory_id": "0"}]'], ids=str
)
def test_a_reconciliation_that_fails_drops_nothing(client, hymem_writer, hymem_main, events, decision):
    """1.2.21 drops all that is new; from 2.0 on the SDK adds it, but not for an empty reply."""
    bank.script(hymem_writer, OSLO)
    say(client, "I live in Oslo.")
    bank.script(hymem_writer, BERGEN, CAT, decision=decision)
    assert say(client, "I live in Bergen, and have a cat.")["success"] is True
    assert sorted(bank.facts(client)) == sorted([BERGEN, CAT, OSLO])
    assert events[-1].outcome == "failed"
    assert len(hymem_writer.chats) == 4  # the last one asked twice, and not once more by the SDK
    assert hymem_main.chats == []


@pytest.mark.parametrize("said", ["", "Sure.", "{}", '["'], ids=str)
def test_an_extraction_that_fails_is_an_error(client, hymem_writer, hymem_main, events, said):
    """1.2.21 says `success: True` with error 502. It keeps the raw text; from 2.0 on nothing is kept."""
    hymem_writer.reply(None, said)
    result = say(client, "I live in Oslo.")
    assert (result["success"], result["error_code"]) == (False, 502)
    assert "hy-memory.extract" in result["error_message"]
    assert bank.facts(client) == []
    assert (client.get(result["memory_id"]) is None) == IS_2
    assert [event.outcome for event in events] == ["failed"]
    assert len(hymem_writer.chats) == 2
    bank.script(hymem_writer, OSLO)
    assert say(client, "I live in Oslo.")["success"] is True
    assert bank.facts(client) == [OSLO]


@pytest.mark.parametrize("on_failure", ["skip", "fallback"])
def test_what_else_can_become_of_a_failure(tmp_path, hymem_writer, hymem_main, on_failure):
    hymem_hy_memory.enable(base_url=hymem_writer.base_url, on_failure=on_failure)
    client = bank.client(bank.configuration(hymem_main, tmp_path))
    hymem_writer.reply(None, "Sure.")
    hymem_main.reply(None, extracted(OSLO))
    assert say(client, "I live in Oslo.")["success"] is True
    assert bank.facts(client) == ([OSLO] if on_failure == "fallback" else [])
    assert len(hymem_main.chats) == (on_failure == "fallback")


def test_a_failure_of_another_kind_is_an_error_too(client, hymem_writer, hymem_main, monkeypatch):
    """1.2.21 says `success: True` with error 502 of a fact that could not be embedded, say."""
    embed = hymem_main._embed

    def broken(texts):
        assert OSLO not in texts
        return embed(texts)

    monkeypatch.setattr(hymem_main, "_embed", broken)
    bank.script(hymem_writer, OSLO)
    result = say(client, "I live in Oslo.")
    assert result["success"] is (result["error_code"] is None)
    assert IS_2 or result["error_code"] == 502


def test_a_server_that_is_away_is_asked_once(client, hymem_writer, hymem_main):
    """hymem tries again by itself; the SDK's own five attempts do not come on top."""
    hymem_writer.reply(None, status=500, body={"error": {"message": "no"}})
    result = say(client, "I live in Oslo.")
    assert "answered HTTP 500" in result["error_message"]
    assert len(hymem_writer.chats) == 1
    assert hymem_main.chats == []


def test_a_reply_in_chinese(client, hymem_writer, events):
    hymem_writer.reply(None, f"```json\n{extracted('用户住在奥斯陆。')}\n```")
    assert client.add("我住在奥斯陆。", user_id="ann")["success"] is True
    assert bank.facts(client) == ["用户住在奥斯陆。"]
    assert "记忆" in hymem_writer.chats[0].text


def test_what_is_extracted_already(client, hymem_writer, events):
    bank.script(hymem_writer, OSLO)
    assert client.add_extracted([OSLO], user_id="ann")["success"] is True
    assert client.add_extracted([OSLO, BERGEN], user_id="ann")["success"] is True
    assert sorted(bank.facts(client)) == [BERGEN, OSLO]
    assert {event.site for event in events} == {"hy-memory.reconcile"}


def test_queries_to_look_for_what_there_is(hymem_writer, hymem_main, events, monkeypatch, tmp_path):
    monkeypatch.setenv("MEMORY_ENABLE_SEARCH_QUERY", "true")
    hymem_hy_memory.enable(base_url=hymem_writer.base_url)
    client = bank.client(bank.configuration(hymem_main, tmp_path))
    bank.script(hymem_writer, OSLO)
    hymem_writer.reply("search query generator", '["Oslo", 1]')
    say(client, "I live in Oslo.")
    assert [event.site for event in events] == ["hy-memory.extract", "hy-memory.search-queries"]


@pytest.mark.skipif(not IS_2, reason="came with 2.0")
def test_searches_stay_with_the_main_model(client, hymem_writer, hymem_main):
    bank.script(hymem_writer, OSLO)
    say(client, "I live in Oslo.")
    before = len(hymem_writer.chats)
    hymem_main.reply(None, "chat\nWhere does the user live?\nSINCE: NONE")
    found = client.search("Where do I live?", user_ids=["ann"], search_mode="agentic", min_score=0.0)
    assert OSLO in str(found)
    client.search(queries=["Where do I live?", "And before?"], user_ids=["ann"], min_score=0.0)
    assert len(hymem_main.chats) == 2
    assert len(hymem_writer.chats) == before
    check_wire(hymem_writer, hymem_main)


def test_a_section_that_is_wrong(tmp_path, hymem_main):
    hymem_hy_memory.register()
    configuration = bank.configuration(hymem_main, tmp_path)
    with pytest.raises(SettingsError, match=r"base_urll.*hy_memory.*did you mean 'base_url'"):
        bank.client({**configuration, "hy_memory": {"base_urll": "x"}})
    with pytest.raises(SettingsError, match="has to be a table"):
        bank.client({**configuration, "hy_memory": "http://127.0.0.1:8100/v1"})


def test_a_section_counts_while_it_is_registered(tmp_path, hymem_writer, hymem_main, request):
    """Whatever else is attached, and again when it is registered anew."""
    attached = bank.client(bank.configuration(hymem_main, tmp_path / "attached"))
    request.addfinalizer(hymem_hy_memory.attach(attached, base_url=hymem_writer.base_url).disable)
    handle = hymem_hy_memory.register()
    client = bank.client(
        {**bank.configuration(hymem_main, tmp_path), "hy_memory": {"base_url": hymem_writer.base_url}}
    )
    for proxy in (hymem_writer, hymem_main):
        bank.script(proxy, OSLO)
    say(client, "I live in Oslo.")
    assert (len(hymem_writer.chats), len(hymem_main.chats)) == (1, 0)
    handle.disable()
    client.add("I live in Oslo.", user_id="ben")
    assert (len(hymem_writer.chats), len(hymem_main.chats)) == (1, 1)
    hymem_hy_memory.register()
    client.add("I live in Oslo.", user_id="cal")
    assert (len(hymem_writer.chats), len(hymem_main.chats)) == (2, 1)
    attached.add("I live in Oslo.", user_id="dan")
    assert (len(hymem_writer.chats), len(hymem_main.chats)) == (3, 1)


@pytest.mark.parametrize("version", ["2.0.1", "2.0.2", "2.0.3"])
def test_versions_between_the_lines_are_refused(monkeypatch, version):
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    with pytest.raises(UnsupportedVersion, match=r'2\.0\.4 or newer, or 1\.2\.21: pip install "hy-memory>='):
        hymem_hy_memory.register()


def test_a_provider_of_its_own(hymem_writer, hymem_main, events):
    """For programs that use the SDK's parts."""
    import asyncio

    from hy_memory.agent.extractor import Extractor
    from hy_memory.agent.llm_provider import LLMProvider
    from hy_memory.config import MemoryConfig

    llm = {"model": hymem_main.model, "base_url": hymem_main.base_url, "api_key": bank.USERS_KEY}
    config = MemoryConfig.from_dict({"llm": llm})
    provider, other = LLMProvider(config), LLMProvider(config)
    hymem_writer.reply(None, json.dumps({"memories": [OSLO]}))
    hymem_main.reply(None, extracted(CAT))
    with hymem_hy_memory.attach(provider, base_url=hymem_writer.base_url):
        found = asyncio.run(Extractor(provider, config.llm).extract("I live in Oslo."))
        assert [each["content"] for each in found.info["memory"]] == [OSLO]
        found = asyncio.run(Extractor(other, config.llm).extract("I have a cat."))
        assert [each["content"] for each in found.info["memory"]] == [CAT]
        assert asyncio.run(provider.chat([{"role": "user", "content": "Hello"}])).content == extracted(CAT)
    assert len(hymem_writer.chats) == 1


@pytest.mark.skipif(Version("2.0.5") > VERSION, reason="came with 2.0.5")
def test_an_embedder_of_the_callers_own(tmp_path, hymem_writer, hymem_main):
    from hymem_testing.embeddings import DIMENSIONS, embed_words

    class Embedder:
        async def embed(self, text, *args, **kwargs):
            return embed_words([text])[0]

        embed_queued = embed

        async def embed_with_meta(self, text, *args, **kwargs):
            return embed_words([text])[0], {}

        embed_queued_with_meta = embed_with_meta

        async def embed_batch(self, texts, *args, **kwargs):
            return embed_words(texts)

        def get_embedding_dims(self):
            return DIMENSIONS

    hymem_hy_memory.enable(base_url=hymem_writer.base_url, api_key=WRITERS_KEY)
    client = bank.client(bank.configuration(hymem_main, tmp_path), embedding_service=Embedder())
    bank.script(hymem_writer, OSLO)
    assert say(client, "I live in Oslo.")["success"] is True
    assert hymem_main.requests == []
