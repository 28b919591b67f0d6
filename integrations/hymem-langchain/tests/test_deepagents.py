"""deepagents' middleware, which has LangChain's own make its summaries."""

from __future__ import annotations

import asyncio

import pytest
from adapter import USERS_KEY
from langchain_memory import HAS_DEEPAGENTS

if not HAS_DEEPAGENTS:
    pytest.skip("deepagents is not in this cell", allow_module_level=True)

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI

import hymem_langchain
from hymem import HymemError
from hymem_langchain import ChatHyMemory

SAID = [HumanMessage("I live in Oslo."), AIMessage("I see."), HumanMessage("And now?")]
WAYS = ("sync", "async")


@pytest.fixture
def main(hymem_main):
    hymem_main.reply(None, "an answer")
    given = {"model": hymem_main.model, "base_url": hymem_main.base_url, "api_key": USERS_KEY}
    return ChatOpenAI(**given, max_retries=0, profile={"max_input_tokens": 100_000})


@pytest.fixture(params=["enabled", "attached", "given"])
def agent(request, main, hymem_writer):
    handles = []

    def make(**settings):
        given = {"base_url": hymem_writer.base_url, **settings}
        limits = {"trigger": ("messages", 3), "keep": ("messages", 1), "backend": StateBackend()}
        if request.param == "given":
            limits["summarizer"] = ChatHyMemory(**given)
        made = SummarizationMiddleware(model=main, **limits)
        if request.param == "enabled":
            hymem_langchain.enable(**given)
        elif request.param == "attached":
            handles.append(hymem_langchain.attach(made, **given))
        return create_deep_agent(model=main, middleware=[made])

    yield make
    for handle in handles:
        handle.disable()


def ask(agent, way):
    given = {"messages": list(SAID)}
    return agent.invoke(given) if way == "sync" else asyncio.run(agent.ainvoke(given))


@pytest.mark.parametrize("way", WAYS)
def test_the_summary_is_the_writers(agent, hymem_writer, hymem_main, events, way):
    hymem_writer.reply(None, "Lives in Oslo.")
    assert ask(agent(), way)["messages"][-1].content == "an answer"
    assert [event.site for event in events] == ["langchain.history"]
    (asked,) = hymem_main.chats
    assert "Lives in Oslo." in asked.text
    assert "I live in Oslo." not in asked.text


@pytest.mark.parametrize("way", WAYS)
def test_a_summary_that_fails_is_told(agent, hymem_writer, hymem_main, way):
    hymem_writer.reply(None, "")
    made = agent()
    with pytest.raises(HymemError):
        ask(made, way)
    assert hymem_main.chats == []


@pytest.mark.parametrize("way", WAYS)
def test_skipped_the_agent_is_given_it_all(agent, hymem_writer, hymem_main, way):
    hymem_writer.reply(None, status=500, body={})
    assert ask(agent(on_failure="skip"), way)["messages"][-1].content == "an answer"
    (asked,) = hymem_main.chats
    assert "I live in Oslo." in asked.text
