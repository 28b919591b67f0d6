"""`ChatSummaryMemoryBuffer`: upstream takes turns out of the store before it has their summary."""

from __future__ import annotations

import pytest
from llama_index.core.memory import ChatSummaryMemoryBuffer
from llama_index_memory import said

import hymem_llama_index
from hymem import HymemError
from hymem_llama_index import HyMemoryLLM

TURNS = [
    said(f"{text} " * 8, role)
    for text, role in (("Oslo", "user"), ("ah", "assistant"), ("cat", "user"), ("oh", "assistant"))
]
LIMIT = 20


@pytest.fixture(params=["enabled", "attached", "given"])
def buffer(request, main, hymem_writer):
    handles = []

    def make(**settings):
        given = {"base_url": hymem_writer.base_url, **settings}
        writes = HyMemoryLLM(**given) if request.param == "given" else main
        made = ChatSummaryMemoryBuffer.from_defaults(chat_history=list(TURNS), llm=writes, token_limit=LIMIT)
        if request.param == "enabled":
            hymem_llama_index.enable(**given)
        elif request.param == "attached":
            handles.append(hymem_llama_index.attach(made, **given))
        return made

    yield make
    for handle in handles:
        handle.disable()


@pytest.mark.hymem_short
def test_the_summary_is_the_writers(buffer, hymem_writer, hymem_main, events):
    hymem_writer.reply(None, "Lives in Oslo.")
    made = buffer()
    first, *rest = made.get()
    assert (first.role.value, first.content) == ("system", "Lives in Oslo.")
    assert len(rest) < len(TURNS)
    assert [event.site for event in events] == ["llama-index.history"]
    assert hymem_main.chats == []


@pytest.mark.parametrize(
    "reply", [{"status": 500, "body": {}}, {"content": ""}, {"content": None}, {"content": "<think>"}]
)
def test_a_summary_that_fails_loses_no_turn(buffer, hymem_writer, reply):
    hymem_writer.reply(None, **reply)
    made = buffer()
    with pytest.raises(HymemError):
        made.get()
    assert made.get_all() == TURNS
    hymem_writer.clear()
    hymem_writer.reply(None, "Lives in Oslo.")
    assert made.get()[0].content == "Lives in Oslo."
    assert "Oslo Oslo" in hymem_writer.chats[0].text


def test_skipped_the_turns_are_given_as_they_are(buffer, hymem_writer):
    hymem_writer.reply(None, status=500, body={})
    made = buffer(on_failure="skip")
    assert made.get() == TURNS
    assert made.get_all() == TURNS


def test_a_buffer_without_an_llm_stays_without(hymem_writer):
    """run-llama #14958: that is LlamaIndex's way to say that older turns are left out."""
    hymem_llama_index.enable(base_url=hymem_writer.base_url)
    made = ChatSummaryMemoryBuffer.from_defaults(chat_history=list(TURNS), token_limit=LIMIT)
    assert len(made.get()) < len(TURNS)
    assert hymem_writer.chats == []
