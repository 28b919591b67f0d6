"""End to end: what is said in a conversation is written by the model behind the name hy-memory, and is in
what an agent is given. On the double the words of the prompt stand in for a model's."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.memory import Memory
from llama_index_memory import fact_block, said

from hymem_llama_index import HyMemoryLLM
from hymem_testing.replies import was_said

pytestmark = pytest.mark.hymem_real

SMALL = {
    "structured_output": "always",
    "max_tokens": 120,
    "timeout": 900,
    "extra_body": {"repetition_penalty": 1.05},
}
"""What helps a model of 135 million parameters to hold a shape and to stop."""
PROMPT = "What has the user said? Write it down as a list of facts, in JSON. {{ existing_facts }}"


def test_a_conversation_is_kept_and_given_to_the_agent(monkeypatch, hymem_writer, events):
    monkeypatch.setenv("HYMEM_MAX_TOKENS_IF_CUT", "120")
    llm = HyMemoryLLM(base_url=hymem_writer.base_url, **SMALL)
    block = fact_block(llm, fact_extraction_prompt_template=PROMPT)
    bank = Memory.from_defaults(session_id="ann", token_limit=40, token_flush_size=10, memory_blocks=[block])
    turns = [said("My dog is called Pepper. " * 8), said("I see.", "assistant"), said("And now? " * 12)]
    asyncio.run(bank.aput_messages(turns))
    assert {event.site for event in events} == {"llama-index.extract"}
    assert {event.outcome for event in events} <= {"ok", "partial"}
    assert all(
        sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"} for sent in hymem_writer.chats
    )
    assert bool(block.facts) == any(event.kept for event in events)
    assert all(was_said(fact, hymem_writer) for fact in block.facts)
    given = str(bank.get()[0].content)
    assert all(fact in given for fact in block.facts)


@pytest.mark.hymem_model("hyv3-dummy")
def test_the_request_reaches_the_real_architecture(monkeypatch, hymem_writer):
    """Its text is noise; what is checked is that a write's request is answered in `content`."""
    monkeypatch.setenv("HYMEM_MAX_TOKENS_IF_CUT", "120")
    llm = HyMemoryLLM(base_url=hymem_writer.base_url, on_failure="skip", **SMALL)
    asyncio.run(fact_block(llm).aput([said("My dog is called Pepper.")]))
    sent = hymem_writer.chats[0]
    assert sent.status == 200
    message = sent.reply["choices"][0]["message"]
    assert message["content"]
    assert not message["reasoning"]
