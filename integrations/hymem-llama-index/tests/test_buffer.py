"""`ChatSummaryMemoryBuffer`: upstream takes turns out of the store before it has their summary."""

from __future__ import annotations

import concurrent.futures

import pytest
from llama_index.core.memory import ChatSummaryMemoryBuffer
from llama_index_memory import said

import hymem_llama_index
from hymem import HymemError, ReplyRejected
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


def test_a_turn_that_comes_while_a_summary_fails_stays(buffer, hymem_writer):
    made = buffer()

    def come(body):
        made.put(said("In Bergen."))
        return ""

    hymem_writer.reply(None, come)
    with pytest.raises(ReplyRejected):
        made.get()
    assert "In Bergen." in [turn.content for turn in made.get_all()]
    assert [turn.content for turn in made.get_all()][: len(TURNS)] == [turn.content for turn in TURNS]


def test_summaries_at_once_that_fail(buffer, hymem_writer):
    hymem_writer.reply(None, "", delay=0.1)
    made = buffer()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(made.get) for _ in range(2)]
    assert all(isinstance(each.exception(), ReplyRejected) for each in asked)
    assert [turn.content for turn in made.get_all()] == [turn.content for turn in TURNS]


def test_a_summary_that_was_cut_twice_replaces_nothing(buffer, hymem_writer):
    hymem_writer.reply(None, "The user lives in Os", finish_reason="length")
    made = buffer()
    with pytest.raises(ReplyRejected):
        made.get()
    assert [turn.content for turn in made.get_all()] == [turn.content for turn in TURNS]


def test_a_buffer_that_summarises_in_its_own_way(main, hymem_writer, hymem_main, events):
    class Own(ChatSummaryMemoryBuffer):
        def _summarize_oldest_chat_history(self, chat_history_to_be_summarized):
            asked = self._get_prompt_to_summarize(chat_history_to_be_summarized)
            return said(self.llm.chat([said(f"In short: {asked}")]).message.content, "system")

    hymem_llama_index.enable(base_url=hymem_writer.base_url)
    hymem_writer.reply(None, "Oslo, and so on.")
    made = Own.from_defaults(chat_history=list(TURNS), llm=main, token_limit=20)
    assert made.get()[0].content == "Oslo, and so on."
    assert [event.site for event in events] == ["llama-index.history"]
    assert hymem_main.chats == []
