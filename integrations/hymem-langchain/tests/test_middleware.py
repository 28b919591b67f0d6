"""`SummarizationMiddleware`, in every generation: a failed summary never deletes a history."""

from __future__ import annotations

import asyncio

import pytest
from adapter import USERS_KEY
from langchain_memory import HAS_ASYNC_MIDDLEWARE, HAS_MIDDLEWARE, HAS_SUMMARIZER, middleware

if not HAS_MIDDLEWARE:
    pytest.skip("there is no middleware before 1.0", allow_module_level=True)

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI

import hymem_langchain
from hymem import HymemError
from hymem_langchain import ChatHyMemory

WAYS = ["sync", "async"] if HAS_ASYNC_MIDDLEWARE else ["sync"]
LONG = [HumanMessage("I live in Oslo. " * 20), AIMessage("I see."), HumanMessage("And now?")]


@pytest.fixture
def main(hymem_main):
    hymem_main.reply(None, "an answer")
    given = {"model": hymem_main.model, "base_url": hymem_main.base_url, "api_key": USERS_KEY}
    return ChatOpenAI(**given, max_retries=0, max_tokens=16)


@pytest.fixture(params=["enabled", "attached", "given"])
def made(request, main, hymem_writer):
    """A middleware whose summaries the writer writes, in one of the three ways."""

    handles = []

    def make(**settings):
        given = {"base_url": hymem_writer.base_url, **settings}
        if request.param == "given":
            hymem_langchain.register()
            return middleware(main, ChatHyMemory(**given))
        of_main = middleware(main)
        if request.param == "enabled":
            hymem_langchain.enable(**given)
        else:
            handles.append(hymem_langchain.attach(of_main, **given))
        return of_main

    yield make
    for handle in handles:
        handle.disable()


def shortened(memory, way):
    state = {"messages": list(LONG)}
    return (
        memory.before_model(state, None) if way == "sync" else asyncio.run(memory.abefore_model(state, None))
    )


@pytest.mark.hymem_short
@pytest.mark.parametrize("way", WAYS)
def test_the_summary_is_the_writers(made, hymem_writer, hymem_main, events, way):
    hymem_writer.reply(None, "Lives in Oslo.")
    update = shortened(made(), way)
    assert "Lives in Oslo." in update["messages"][1].content
    assert [event.site for event in events] == ["langchain.history"]
    assert hymem_main.chats == []


@pytest.mark.parametrize("reply", [{"status": 500, "body": {}}, {"content": ""}, {"content": "<think>hm"}])
@pytest.mark.parametrize("way", WAYS)
def test_a_failed_summary_deletes_nothing(made, hymem_writer, events, reply, way):
    """langchain #38867: up to 1.3.14 upstream stores the error's text, and the history is gone."""
    hymem_writer.reply(None, **reply)
    with pytest.raises(HymemError):
        shortened(made(), way)
    assert {event.outcome for event in events} == {"failed"}


@pytest.mark.parametrize("way", WAYS)
def test_skipped_the_history_stays_as_it_is(made, hymem_writer, way):
    hymem_writer.reply(None, status=500, body={})
    assert shortened(made(on_failure="skip"), way) is None


def test_an_agent(made, main, hymem_writer, hymem_main):
    """Its own model answers, and no word of the writer is in what its user is streamed."""
    hymem_main.clear()  # what is behind it streams
    hymem_writer.reply(None, "A summary that nobody is shown.")
    agent = create_agent(main, middleware=[made()])
    streamed = agent.stream({"messages": list(LONG)}, stream_mode="messages")
    said = [(message, told) for message, told in streamed if message.type.startswith("AI")]
    assert {told["langgraph_node"] for _, told in said} == {"model"}
    assert "".join(message.content for message, _ in said)
    assert len(hymem_writer.chats) == 1
    assert all("A summary that nobody is shown." in sent.text for sent in hymem_main.chats)
    assert not hymem_writer.chats[0].json.get("stream")


def test_when_to_summarise_is_decided_with_the_agents_model(made, main):
    memory = made()
    if not isinstance(memory.model, ChatHyMemory):  # before 1.4.5 there is one model for both
        assert memory.model is main


@pytest.mark.parametrize("way", WAYS)
def test_an_agent_that_was_made_before(main, hymem_writer, way):
    """It keeps the method that deletes: it is told so, and nothing is deleted."""
    agent = create_agent(main, middleware=[middleware(main)])
    hymem_writer.reply(None, status=500, body={})
    hymem_langchain.enable(base_url=hymem_writer.base_url, on_failure="skip")
    given = {"messages": list(LONG)}
    with pytest.raises(HymemError, match="after that"):
        agent.invoke(given) if way == "sync" else asyncio.run(agent.ainvoke(given))


@pytest.mark.skipif(not HAS_SUMMARIZER, reason="there is one model for both before 1.4.5")
def test_a_summarizer_with_another_behind_it(main, hymem_writer, hymem_main):
    from langchain_core.output_parsers import StrOutputParser

    hymem_writer.reply(None, status=500, body={})
    hymem_main.reply(None, "By the main model")
    writer = ChatHyMemory(base_url=hymem_writer.base_url)
    made = middleware(main, writer.with_fallbacks([main]) | StrOutputParser())
    assert "By the main model" in made.before_model({"messages": list(LONG)}, None)["messages"][1].content


@pytest.mark.parametrize("way", WAYS)
def test_langchains_cache_keeps_no_answer_of_a_write(made, hymem_writer, way):
    from langchain_core.caches import InMemoryCache
    from langchain_core.globals import set_llm_cache

    set_llm_cache(InMemoryCache())
    try:
        hymem_writer.reply(None, status=500, body={})
        memory = made(on_failure="skip")
        assert shortened(memory, way) is None
        hymem_writer.clear()
        hymem_writer.reply(None, "Lives in Oslo.")
        assert "Lives in Oslo." in shortened(memory, way)["messages"][1].content
    finally:
        set_llm_cache(None)
