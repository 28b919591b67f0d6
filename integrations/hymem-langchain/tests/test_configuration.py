"""The writer by its name, as configurations have it: `"hy_memory:hy-memory"`, in every version."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys

import pytest
from langchain_memory import HAS_LANGMEM, HAS_MIDDLEWARE, HAS_SUMMARIZER
from langchain_openai import ChatOpenAI

import hymem_langchain
from hymem import SettingsError
from hymem_langchain import ChatHyMemory

NAME = "hy_memory:hy-memory"
HOMES = [
    f"{home}.chat_models"
    for home in ("langchain", "langchain_classic")
    if importlib.util.find_spec(home) is not None
]


@pytest.fixture(params=HOMES)
def init_chat_model(request):
    hymem_langchain.register()
    return importlib.import_module(request.param).init_chat_model


@pytest.mark.hymem_short
def test_a_name_is_a_model(init_chat_model, hymem_writer, monkeypatch):
    monkeypatch.setenv("HYMEM_LANGCHAIN_BASE_URL", hymem_writer.base_url)
    hymem_writer.reply(None, "Lives in Oslo")
    for made in (
        init_chat_model(NAME),
        init_chat_model("hy-memory", model_provider="hy_memory"),
        init_chat_model("hy-memory", model_provider="hy-memory"),
        init_chat_model(NAME, base_url=hymem_writer.base_url, max_tokens=9),
    ):
        assert isinstance(made, ChatHyMemory)
        assert made.invoke("x").content == "Lives in Oslo"
    assert [sent.json["max_tokens"] for sent in hymem_writer.chats] == [4096, 4096, 4096, 9]


def test_a_name_that_is_set_at_run_time(init_chat_model, hymem_writer):
    hymem_writer.reply(None, "Lives in Oslo")
    made = init_chat_model(configurable_fields=("model", "base_url"))
    given = {"configurable": {"model": NAME, "base_url": hymem_writer.base_url}}
    assert made.invoke("x", config=given).content == "Lives in Oslo"


def test_a_setting_that_is_wrong_is_told(init_chat_model):
    with pytest.raises(SettingsError, match="did you mean 'timeout'"):
        init_chat_model(NAME, timeuot=3)


def test_other_names_are_as_they_were(init_chat_model, hymem_main):
    given = {"base_url": hymem_main.base_url, "api_key": "sk-users-key"}
    assert isinstance(init_chat_model("openai:gpt-5.4", **given), ChatOpenAI)
    assert isinstance(init_chat_model("gpt-5.4", model_provider="openai", **given), ChatOpenAI)
    for unknown in ("hy-memory", "nobody:hy-memory"):
        with pytest.raises(ValueError, match="provider"):
            init_chat_model(unknown)
    hymem_langchain.disable()
    with pytest.raises(ValueError, match="provider"):
        init_chat_model(NAME)


@pytest.mark.skipif(not HAS_MIDDLEWARE, reason="there is no middleware before 1.0")
def test_a_middleware_by_name(hymem_writer, hymem_main, monkeypatch):
    from langchain.agents import create_agent
    from langchain.agents.middleware import SummarizationMiddleware
    from langchain_core.messages import AIMessage, HumanMessage

    hymem_langchain.register()
    monkeypatch.setenv("HYMEM_BASE_URL", hymem_writer.base_url)
    hymem_writer.reply(None, "Lives in Oslo.")
    hymem_main.reply(None, "an answer")
    main = ChatOpenAI(model=hymem_main.model, base_url=hymem_main.base_url, api_key="sk-users-key")
    if HAS_SUMMARIZER:
        made = SummarizationMiddleware(main, summarizer=NAME, trigger=("messages", 3), keep=("messages", 1))
    else:
        made = SummarizationMiddleware(NAME, max_tokens_before_summary=1, messages_to_keep=1)
    said = [HumanMessage("I live in Oslo."), AIMessage("I see."), HumanMessage("And now?")]
    answer = create_agent(main, middleware=[made]).invoke({"messages": said})
    assert "Lives in Oslo." in answer["messages"][0].content
    assert answer["messages"][-1].content == "an answer"
    assert (len(hymem_writer.chats), len(hymem_main.chats)) == (1, 1)


@pytest.mark.skipif(not HAS_LANGMEM, reason="langmem is not in this cell")
def test_a_manager_by_name(hymem_writer, monkeypatch):
    from langchain_core.messages import HumanMessage
    from langmem import create_memory_manager, create_thread_extractor

    hymem_langchain.register()
    monkeypatch.setenv("HYMEM_BASE_URL", hymem_writer.base_url)
    said = {"messages": [HumanMessage("I live in Oslo.")]}
    calls = [{"name": "Memory", "arguments": {"content": "Lives in Oslo"}}]
    hymem_writer.reply(None, json.dumps({"calls": calls}))
    (memory,) = create_memory_manager(NAME).invoke(said)
    assert memory.content.content == "Lives in Oslo"
    calls = [{"name": "SummarizeThread", "arguments": {"title": "Oslo", "summary": "In Oslo."}}]
    hymem_writer.clear()
    hymem_writer.reply(None, json.dumps({"calls": calls}))
    assert create_thread_extractor(NAME).invoke(said).summary == "In Oslo."


def test_what_is_imported_later_is_known_too(tmp_path):
    """A model that is made before the memory it is for is imported: with the hook, or the next one made."""
    code = """
from hymem_langchain import ChatHyMemory
import hymem_langchain.seams as seams
ChatHyMemory()
before = len(seams.INTEGRATION.status())
from langchain_openai import ChatOpenAI
try:
    from langchain_classic.memory import ConversationSummaryMemory
except ImportError:
    from langchain.memory import ConversationSummaryMemory
ChatHyMemory()
status = seams.INTEGRATION.status()
assert len(status) > before and all(status.values()), status
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
