"""End to end: what is said in a conversation is written by the model behind the name hy-memory, and found
again. On the double the words of the prompt stand in for a model's."""

from __future__ import annotations

import pytest
from memos_bank import Bank, general_text, hy_memory, openai, said

import hymem_memos
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


@pytest.fixture
def bank(hymem_writer, hymem_main, tmp_path):
    hymem_memos.register()
    text_mem = general_text(hymem_main, hy_memory(hymem_writer, **SMALL), tmp_path)
    return Bank({"text_mem": text_mem, "answers": openai(hymem_main)})


def test_a_conversation_is_kept_and_found_again(bank, hymem_writer, hymem_main, events):
    memory = bank.of("ann")
    items = memory.extract(said("My dog is called Pepper."))
    if items:
        memory.add(items)
    (event,) = events
    assert event.outcome in ("ok", "partial", "empty")
    assert len(items) == event.kept
    assert all(was_said(item.memory, hymem_writer) for item in items)
    found = {item.memory for item in memory.search("What is the name of the dog?", top_k=9)}
    assert found <= {item.memory for item in items}
    assert bool(found) == bool(items)
    assert all(
        sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"} for sent in hymem_writer.chats
    )
    assert hymem_main.chats == []


@pytest.mark.hymem_model("hyv3-dummy")
def test_the_request_reaches_the_real_architecture(hymem_writer, hymem_main, tmp_path):
    """Its text is noise; what is checked is that a write's request is answered in `content`."""
    hymem_memos.register()
    writes = hy_memory(hymem_writer, **SMALL, on_failure="skip")
    bank = Bank({"text_mem": general_text(hymem_main, writes, tmp_path), "answers": openai(hymem_main)})
    bank.of("ann").extract(said("My dog is called Pepper."))
    sent = hymem_writer.chats[0]
    assert sent.status == 200
    message = sent.reply["choices"][0]["message"]
    assert message["content"]
    assert not message["reasoning"]
