"""What people have reported of the SDK, where a writer of its own cures it. What it cannot cure is on the
SDK's page. The reports are of https://github.com/njuboy11/hy-memory-patches and of
https://pypi.org/project/hyatlas-memory."""

from __future__ import annotations

import asyncio
import json

import hy_memory_bank as bank
import pytest

import hymem_hy_memory

OSLO = "The user lives in Oslo."


@pytest.fixture
def client(tmp_path, hymem_writer, hymem_main):
    hymem_hy_memory.enable(base_url=hymem_writer.base_url)
    return bank.client(bank.configuration(hymem_main, tmp_path))


def test_a_bound_of_2000_tokens_does_not_cut_what_is_thought(client, hymem_writer):
    """njuboy11: `agent_max_tokens` cuts System 2's list, and facts are never digested."""
    assert client._config.llm.agent_max_tokens == 2000
    bank.script(hymem_writer, OSLO)
    client.add("I live in Oslo.", user_id="ann")
    assert {sent.json["max_tokens"] for sent in hymem_writer.chats} == {4096}


def test_thinking_is_off_without_an_extra_body(client, hymem_writer):
    """hyatlas gap 1: 1.2.x reads no `MEMORY_LLM_EXTRA_BODY`."""
    bank.script(hymem_writer, OSLO)
    client.add("I live in Oslo.", user_id="ann")
    assert hymem_writer.chats[0].json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}


@pytest.mark.parametrize(
    "before",
    [
        'Thinking: it looks like {"memory": []}. Final:',
        'plan: {"a":',
        "<think:opensource>{x}</think:opensource>",
    ],
)
def test_a_thought_does_not_pollute_what_is_parsed(client, hymem_writer, before):
    """njuboy11 forces thinking off for it."""
    hymem_writer.reply(None, f"{before}\n{bank.extracted(OSLO)}")
    client.add("I live in Oslo.", user_id="ann")
    assert bank.facts(client) == ([] if "Final" in before else [OSLO])


def test_an_extraction_that_failed_does_not_look_like_a_success(client, hymem_writer):
    """hermes-hy-memory and hyatlas: `add` may stay raw text, and a search finds nothing."""
    hymem_writer.reply(None, "")
    assert client.add("I live in Oslo.", user_id="ann")["success"] is False


def test_a_reply_in_the_field_reasoning_is_not_taken_for_an_empty_one(client, hymem_writer):
    """vLLM 27755: the field `reasoning_content` has become `reasoning`. The error says what came."""
    message = {"role": "assistant", "content": None, "reasoning": bank.extracted(OSLO)}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "hy-memory"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    hymem_writer.reply(None, body={**body, "choices": [choice]})
    result = client.add("I live in Oslo.", user_id="ann")
    assert "an empty reply" in result["error_message"]


def test_writes_at_once_each_go_where_they_belong(tmp_path, hymem_writer, hymem_main):
    """hyatlas' "fast model" changes a provider that others are using; here a call is told by who makes it."""
    hymem_hy_memory.enable(base_url=hymem_writer.base_url)
    client = bank.client(bank.configuration(hymem_main, tmp_path))
    bank.script(hymem_writer, OSLO)
    hymem_main.reply(None, "an answer")

    async def at_once():
        writer = await client._registry.get_writer()
        asked = writer.mem_agent.llm_provider.complete
        return await asyncio.gather(
            *(asked("a question") for _ in range(20)),
            *(writer.mem_agent.extractor.extract(f"I live in Oslo {at}.") for at in range(20)),
        )

    found = client._loop_thread.run(at_once())
    assert {each.content for each in found[:20]} == {"an answer"}
    assert all(each.success for each in found[20:])
    assert len(hymem_main.chats) == len(hymem_writer.chats) == 20
    assert not any("a question" in sent.text for sent in hymem_writer.chats)


def test_the_same_provider_serves_the_judge_of_a_search_and_the_writer(client, hymem_writer, hymem_main):
    """Of no number: one object asks for both."""
    from hy_memory.coding import judge

    hymem_main.reply(None, json.dumps({"scene": "coding", "is_coding": True}))
    read = getattr(judge, "classify_queries_scene", None) or judge.classify_queries_is_coding

    async def ask():
        writer = await client._registry.get_writer()
        return await read(["Where is the bug?"], writer.mem_agent.llm_provider)

    assert client._loop_thread.run(ask()) in ("coding", True)
    assert hymem_writer.chats == []
