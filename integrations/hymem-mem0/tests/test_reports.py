"""One test for each public report on Mem0 that a change of the writer can cure.

The numbers are of issues at github.com/mem0ai/mem0. Those it cannot cure are on Mem0's page, under
*Known upstream faults*.
"""

from __future__ import annotations

import json
from collections import Counter

import mem0
import pytest
from mem0_bank import ADDITIVE, WRITES, facts_reply, is_decision, script

import hymem_mem0
from hymem_testing.conformance import cause_of

OSLO, CAT = "Lives in Oslo", "Has a cat"
SAID = "I live in Oslo and have a cat."


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr("hymem.events._times_logged", Counter())  # the first of its kind is logged
    hymem_mem0.register()


def extraction(body):
    return not is_decision(body)


def test_4607_every_json_call_asks_for_json(bank, swapped, hymem_writer):
    """Mem0's own provider `vllm` drops `response_format` up to 1.0.9."""
    script(hymem_writer, OSLO)
    bank(swapped).add(SAID)
    formats = [sent.json.get("response_format") for sent in hymem_writer.chats]
    assert formats == [{"type": "json_object"}] * WRITES


@pytest.mark.parametrize("number", ["3564", "3391", "3051"])
def test_3564_3391_3051_models_that_think_or_chat_first(bank, swapped, hymem_writer, number):
    first = {"3564": "<think>user moved</think>", "3391": "<think>\n</think>\n\n", "3051": "Sure!\n"}[number]
    script(hymem_writer, OSLO)
    hymem_writer.reply(extraction, first + facts_reply(OSLO))
    made = bank(swapped)
    made.add(SAID)
    assert made.all() == {OSLO}


def test_5998_braces_in_the_prose_before_the_json(bank, swapped, hymem_writer):
    script(hymem_writer, OSLO)
    hymem_writer.reply(extraction, f"Topic {{travel}}: {facts_reply(OSLO)}")
    made = bank(swapped)
    made.add(SAID)
    assert made.all() == {OSLO}


def test_5428_a_truncated_reply_is_asked_for_with_more_room(bank, swapped, hymem_writer, events):
    script(hymem_writer, OSLO, CAT)
    cut = facts_reply(OSLO, CAT)
    hymem_writer.reply(extraction, cut[: cut.index("cat")], finish_reason="length", times=1)
    made = bank(swapped)
    made.add(SAID)
    assert made.all() == {OSLO, CAT}
    first, second = hymem_writer.chats[:2]
    assert second.json["max_tokens"] > first.json["max_tokens"]
    assert events[0].steps == ("recovered",)


def test_5428_what_was_whole_of_a_truncated_reply_is_kept(bank, swapped, hymem_writer, events, caplog):
    script(hymem_writer, OSLO)
    cut = facts_reply(OSLO, CAT)
    hymem_writer.reply(extraction, cut[: cut.index("cat")], finish_reason="length")
    made = bank(swapped)
    made.add(SAID)
    assert made.all() == {OSLO}
    assert (events[0].outcome, events[0].dropped) == ("partial", 1)
    assert "lost" in caplog.text


@pytest.mark.skipif(ADDITIVE, reason="2.x makes no decision")
@pytest.mark.parametrize("id_", ["7", 0])
def test_3931_an_update_of_an_id_that_is_not_there(bank, swapped, hymem_writer, id_):
    script(hymem_writer, "Prefers tea", decision=[{"id": id_, "text": "Prefers tea", "event": "UPDATE"}])
    made = bank(swapped)
    made.add("I prefer tea.")
    assert made.all() == {"Prefers tea"}


@pytest.mark.parametrize("status", [400, 429, 500])
def test_5903_5878_a_failed_call_is_not_no_facts(bank, swapped, hymem_writer, monkeypatch, status):
    monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
    hymem_writer.reply(None, body={}, status=status)
    with pytest.raises(Exception) as raised:
        bank(swapped).add(SAID)
    assert cause_of(raised.value).status == status


def test_4709_no_field_that_only_openai_knows(bank, swapped, hymem_writer):
    script(hymem_writer, OSLO)
    bank(swapped).add(SAID)
    for sent in hymem_writer.chats:
        assert {"store", "top_p", "n", "user"} & set(sent.json) == set()


@pytest.mark.skipif(ADDITIVE, reason="2.x has no custom_fact_extraction_prompt")
def test_3559_3008_2989_a_custom_prompt_without_the_word_json(bank, swapped, hymem_writer):
    """vLLM does not ask for the word, and the prompt is the user's: it is sent as it is."""
    swapped["custom_fact_extraction_prompt"] = "List facts."
    script(hymem_writer, OSLO)
    made = bank(swapped)
    made.add(SAID)
    assert made.all() == {OSLO}
    assert hymem_writer.chats[0].json["messages"][0]["content"].startswith("List facts.")


@pytest.mark.parametrize("provider", ["hy_memory", "hy-memory"])
def test_2560_1950_2998_a_provider_of_another_name(bank, swapped, hymem_writer, provider):
    swapped["llm"]["provider"] = provider
    script(hymem_writer, OSLO)
    made = bank(swapped)
    made.add(SAID)
    assert made.all() == {OSLO}


def test_3174_another_llm_for_writing_than_for_the_rest(bank, swapped, hymem_writer, hymem_main):
    script(hymem_writer, OSLO)
    made = bank(swapped)
    made.add(SAID)
    made.memory.llm.generate_response([{"role": "user", "content": "a question"}])
    assert {sent.json["model"] for sent in hymem_writer.chats} == {"hy-memory"}
    assert [sent.json["model"] for sent in hymem_main.chats] == ["users-own-model"]


def test_4707_a_timeout_of_the_configuration_counts(bank, swapped, hymem_writer):
    swapped["llm"]["config"]["writer"]["timeout"] = 0.3
    hymem_writer.reply(None, facts_reply(OSLO), delay=2.0)
    with pytest.raises(Exception) as raised:
        bank(swapped).add(SAID)
    assert cause_of(raised.value).kind == "timeout"


@pytest.mark.skipif(not ADDITIVE, reason="0.1 and 1.0 ask for the language of the input by themselves")
def test_6312_the_language_can_be_asked_for(bank, swapped, hymem_writer):
    swapped["custom_instructions"] = "Write each memory in the language of the message."
    script(hymem_writer, "住在成都")
    made = bank(swapped)
    made.add("我住在成都")
    assert made.all() == {"住在成都"}
    assert "in the language of the message" in hymem_writer.chats[0].text
    assert "我住在成都" in hymem_writer.chats[0].text


def test_openrouters_key_in_the_environment_takes_nothing_over(bank, swapped, hymem_writer, monkeypatch):
    """Mem0's own provider `openai` then talks to OpenRouter, whatever the configuration says."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-other")
    script(hymem_writer, OSLO)
    made = mem0.Memory.from_config({**swapped, "llm": {**swapped["llm"], "config": {
        "writer": swapped["llm"]["config"]["writer"]}}})  # fmt: skip
    made.add(SAID, user_id="ann")
    assert len(hymem_writer.chats) == WRITES
    assert "sk-other" not in json.dumps([dict(sent.headers) for sent in hymem_writer.requests])
