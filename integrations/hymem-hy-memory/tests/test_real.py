"""End to end: what is said in a chat is written by the model behind the name hy-memory, and found again by
the SDK's own search. On the double the words of the prompt stand in for a model's."""

from __future__ import annotations

import asyncio
import json
import re

import hy_memory_bank as bank
import pytest
from hy_memory_bank import IS_2
from test_system2 import KNOWN, THINKING
from test_work import EXPERIENCE, LIST, TASK, TRACE

import hymem_hy_memory
from hymem_testing.replies import was_said

pytestmark = pytest.mark.hymem_real

SMALL = {
    "structured_output": "always",
    "max_tokens": 200,
    "max_tokens_if_cut": 200,
    "timeout": 900,
    "extra_body": {"repetition_penalty": 1.05},
}
"""What helps a model of 135 million parameters to hold a shape and to stop."""


def test_a_chat_is_remembered_and_found_again(tmp_path, hymem_writer, hymem_main):
    """The memory is the model's own where it comes to an end of a shape; where it is cut in the first one,
    the request is what is seen of it, and a scripted reply is found again."""
    hymem_hy_memory.enable(base_url=hymem_writer.base_url, **SMALL)
    client = bank.client(bank.configuration(hymem_main, tmp_path))
    said = [{"role": "user", "content": "My dog is called Pepper."}]
    result = client.add(said, user_id="ann")
    sent = hymem_writer.chats[0]
    assert sent.status == 200
    assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
    if not result["success"]:
        assert "hy-memory.extract" in result["error_message"]
        hymem_writer.reply(None, bank.extracted("The user's dog is called Pepper."))
        assert client.add(said, user_id="ann")["success"] is True
    stored = bank.facts(client)
    found = client.search("What is the dog called?", user_ids=["ann"], min_score=0.0)["memories"]["normal"]
    assert all(was_said(text, hymem_writer) or "Pepper" in text for text in stored)
    # A search tells the time of a memory beside it.
    assert all(any(text in each["content"] for text in stored) for each in found), (stored, found)
    assert bool(found) == bool(stored)
    assert hymem_main.chats == []


@pytest.mark.skipif(not IS_2, reason="other scenes, and other ways of System 2, before 2.0")
def test_work_sessions_and_system_2_on_the_way_of_a_real_server(
    tmp_path, hymem_writer, hymem_main, monkeypatch
):
    """A small model on the CPU takes minutes for their prompts, of up to 5,000 tokens, and has no such thing
    to say: replies are scripted, the way there is the real one."""
    monkeypatch.setenv("MEMORY_DYNAMIC_EPISODE_ENABLED", "true")
    hymem_hy_memory.enable(base_url=hymem_writer.base_url, **SMALL)
    client = bank.client(bank.configuration(hymem_main, tmp_path), mode="ultra")
    bank.script(hymem_writer, *KNOWN)
    hymem_writer.reply("You extract durable", json.dumps({LIST: [EXPERIENCE], "fact": None}))
    hymem_writer.reply("You decide how to merge", '{"ops": [{"draft_idx": 0, "action": "ADD"}]}')
    hymem_writer.reply("boundary detector", '{"event_count": 1, "boundaries": []}')
    hymem_writer.reply("compact retrieval capsule", '{"title": "Cooking", "summary": "The user cooks."}')
    hymem_writer.reply("behavioral psychologist", '{"abstraction_for_embedding": "Seeks structure."}')

    def thought(body):
        ids = re.findall(r"\(id=([0-9a-f-]{8,})", body["messages"][-1]["content"])[:4]
        made = {
            "op": "create_schema",
            "content": "The user cooks by rules.",
            "evidence_list": ids,
            "tags": [],
        }
        return json.dumps([made])

    hymem_writer.reply(THINKING, thought)
    assert client.add("I cook by the recipe.", user_id="ann", session_id="s")["success"] is True
    assert client.add(TRACE, user_id="ann", session_id="w", scene="coding")["success"] is True
    assert client.evolve("ann")["success"] is True
    assert client.finalize_session(user_id="ann", session_id="s")["success"] is True
    listed = client.search("fix npm run build in CI", user_ids=["ann"], scene="coding")["experiences"]
    assert [each["task"] for each in listed] == [TASK]
    assert hymem_main.chats == []


@pytest.mark.hymem_model("hyv3-dummy")
def test_the_request_reaches_the_real_architecture(hymem_writer, hymem_main):
    """Its text is noise; what is checked is that a write's request is answered in `content`."""
    from hy_memory.agent.reconciler import MemoryReconciler
    from hy_memory.config import MemoryConfig

    hymem_hy_memory.enable(base_url=hymem_writer.base_url, max_tokens=32, max_tokens_if_cut=32)
    llm = {"model": hymem_main.model, "base_url": hymem_main.base_url, "api_key": bank.USERS_KEY}
    config = MemoryConfig.from_dict({"llm": llm})
    asyncio.run(MemoryReconciler(config)._generate_search_queries(["The user drinks tea."]))
    sent = hymem_writer.chats[0]
    assert sent.status == 200
    message = sent.reply["choices"][0]["message"]
    assert message["content"]
    assert not message["reasoning"]
    assert hymem_main.chats == []
