"""`ChatHyMemory` as a LangChain user expects a chat model to be, over the wire."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from hymem import ReplyRejected, SettingsError, WriterUnavailable, scope
from hymem_langchain import ChatHyMemory
from hymem_testing.guard import guarded, refused


@pytest.fixture
def chat(hymem_writer):
    return lambda **given: ChatHyMemory(base_url=hymem_writer.base_url, **given)


@pytest.mark.hymem_short
def test_a_request_and_its_answer(chat, hymem_writer, events):
    hymem_writer.reply(None, "Lives in Oslo")
    answer = chat().invoke([SystemMessage("Summarise."), HumanMessage("I live in Oslo.")])
    assert answer.content == "Lives in Oslo"
    assert answer.usage_metadata["total_tokens"] == 12
    assert answer.response_metadata["model_name"] == "hy-memory"
    assert answer.response_metadata["finish_reason"] == "stop"
    (sent,) = hymem_writer.chats
    assert sent.json == {
        "model": "hy-memory",
        "messages": [
            {"role": "system", "content": "Summarise."},
            {"role": "user", "content": "I live in Oslo."},
        ],
        "max_tokens": 4096,
        "temperature": 0.0,
        "chat_template_kwargs": {"reasoning_effort": "no_think"},
    }
    assert [event.site for event in events] == ["langchain.asked"]


def test_max_tokens_stays_max_tokens(chat, hymem_writer):
    """langchain #30113: `ChatOpenAI` sends it under another name."""
    hymem_writer.reply(None, "Lives in Oslo")
    chat(max_tokens=512).invoke("x")
    chat(max_tokens=512).bind(max_tokens=9).invoke("x")
    assert [sent.json["max_tokens"] for sent in hymem_writer.chats] == [512, 9]
    assert not any("max_completion_tokens" in sent.json for sent in hymem_writer.chats)


def test_what_is_bound_is_added_to_the_body(chat, hymem_writer):
    """A bound `extra_body` takes the place of the constructor's in `ChatOpenAI`, and no_think goes."""
    hymem_writer.reply(None, "Lives in Oslo")
    model = chat(extra_body={"repetition_penalty": 1.05, **NO_THINK})
    model.bind(extra_body={"top_k": 5, "chat_template_kwargs": {"tone": "dry"}}, stop=["\n"]).invoke("x")
    body = hymem_writer.chats[0].json
    assert (body["repetition_penalty"], body["top_k"], body["stop"]) == (1.05, 5, ["\n"])
    assert body["chat_template_kwargs"] == {"tone": "dry", "reasoning_effort": "no_think"}
    assert body["temperature"] == 0.0


NO_THINK = {"chat_template_kwargs": {"reasoning_effort": "no_think"}}


def test_settings_come_from_the_environment_and_the_nearest_wins(monkeypatch):
    monkeypatch.setenv("HYMEM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("HYMEM_LANGCHAIN_MODEL", "of-langchain")
    monkeypatch.setenv("HYMEM_API_KEY", "sk-planted")
    model = ChatHyMemory()
    assert (model.openai_api_base, model.model_name) == ("http://127.0.0.1:1/v1", "of-langchain")
    assert ChatHyMemory(model="nearest").writer.settings.model == "nearest"
    assert "sk-planted" not in repr(model) + str(model) + dumps(model)
    for wrong, said in (({"timeout": -1}, "timeout"), ({"base_ulr": "x"}, "base_url")):
        with pytest.raises(SettingsError, match=said) as raised:
            ChatHyMemory(api_key="sk-planted", **wrong)
        assert "sk-planted" not in str(raised.value)
    with pytest.raises(ValueError, match="on_failure") as raised:
        ChatHyMemory(api_key="sk-planted", on_failure="shrug")
    assert "sk-planted" not in str(raised.value)


def test_other_peoples_settings_do_not_count(chat, hymem_writer, monkeypatch):
    """The SDK sends `OPENAI_ORG_ID`, LangSmith's gateway reroutes; vLLM knows neither."""
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "LANGSMITH_API_KEY"):
        monkeypatch.setenv(name, "sk-users-key")
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("LANGSMITH_GATEWAY", "true")
    hymem_writer.reply(None, "Lives in Oslo")
    chat().invoke("x")
    assert hymem_writer.chats[0].headers["authorization"] == "Bearer EMPTY"
    assert "sk-users-key" not in str(dict(hymem_writer.chats[0].headers))
    assert ChatHyMemory().writer.settings.base_url == "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize("reply", ["", None, "<think>Alex moved"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_reply_that_says_nothing_raises(chat, hymem_writer, reply, way):
    """langchain #35059: `content` is null where a reasoning parser took it all, and a memory is wiped."""
    hymem_writer.reply(None, reply)
    with pytest.raises(ReplyRejected):
        chat().invoke("x") if way == "sync" else asyncio.run(chat().ainvoke("x"))


def test_a_reply_that_was_cut_is_asked_for_again(chat, hymem_writer):
    hymem_writer.reply(None, "Lives in Oslo and wor", finish_reason="length", times=1)
    hymem_writer.reply(lambda body: body["max_tokens"] > 4096, "Lives in Oslo and works.")
    assert chat().invoke("x").content == "Lives in Oslo and works."


def test_batches_and_loops(chat, hymem_writer):
    """langchain #35783: a client that is kept for the process fails in the second loop."""
    hymem_writer.reply(None, "Lives in Oslo")
    model = chat()
    assert [each.content for each in model.batch(["a", "b", "c"])] == ["Lives in Oslo"] * 3
    for _ in range(2):
        assert asyncio.run(model.ainvoke("x")).content == "Lives in Oslo"
    assert len(hymem_writer.chats) == 5


def test_a_stream_is_one_checked_piece(chat, hymem_writer):
    hymem_writer.reply(None, "Lives in Oslo")
    chunks = [chunk.content for chunk in chat().stream("x") if chunk.content]
    assert chunks == ["Lives in Oslo"]

    async def collected():
        return [chunk.content async for chunk in chat().astream("x") if chunk.content]

    assert asyncio.run(collected()) == ["Lives in Oslo"]
    assert not any(sent.json.get("stream") for sent in hymem_writer.chats)
    hymem_writer.reply(None, "")
    with pytest.raises(ReplyRejected):
        list(chat().stream("x"))


class Person(BaseModel):
    """Who it is."""

    name: str
    age: int


def test_structured_output(chat, hymem_writer):
    hymem_writer.reply(None, 'Here it is: {"name": "Alex", "age": 40}')
    assert chat().with_structured_output(Person).invoke("x") == Person(name="Alex", age=40)
    asked = hymem_writer.chats[0].json
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["name", "age"]
    assert "tools" not in asked
    schema = {**Person.model_json_schema(), "title": "Person", "description": "Who it is."}
    assert chat().with_structured_output(schema).invoke("x") == {"name": "Alex", "age": 40}


def test_tools_are_native_calls(chat, hymem_writer):
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "Person", "arguments": '{"name": "A", "age": 1}'},
    }
    hymem_writer.reply(None, "", tool_calls=[call], finish_reason="tool_calls")
    answer = chat().bind_tools([Person]).invoke("x")
    assert [(each["name"], each["args"]) for each in answer.tool_calls] == [
        ("Person", {"name": "A", "age": 1})
    ]


def test_inside_a_write_of_another_framework(chat, hymem_writer, events):
    """Mem0, say, with its provider `langchain`: the scope that is open is not one of ours."""
    hymem_writer.reply(None, "Lives in Oslo")
    with scope.writing("mem0.extract_additive"):
        assert chat().invoke("x").content == "Lives in Oslo"
    assert [event.site for event in events] == ["langchain.asked"]


def test_an_error_of_the_server(chat, hymem_writer):
    hymem_writer.reply(None, status=404, body={"error": {"message": "x", "type": "NotFoundError"}})
    with pytest.raises(WriterUnavailable, match="404"):
        chat().invoke("x")


def test_fallback_needs_and_has_a_main_model(chat, hymem_writer, hymem_main):
    from langchain_openai import ChatOpenAI

    with pytest.raises(SettingsError, match="main_llm"):
        chat(on_failure="fallback")
    hymem_writer.reply(None, "")
    hymem_main.reply(None, "By the main model")
    main = ChatOpenAI(model=hymem_main.model, base_url=hymem_main.base_url, api_key="sk-users-key")
    assert chat(on_failure="fallback", main_llm=main).invoke("x").content == "By the main model"


def test_tokens_are_counted_without_a_network(tmp_path):
    """langchain #18650, tiktoken #369: an unknown name raises, and a file is fetched."""
    code = """
from hymem_langchain import ChatHyMemory
from langchain_core.messages import HumanMessage
model = ChatHyMemory()
print(model.get_num_tokens("one two three four"))
print(model.get_num_tokens_from_messages([HumanMessage("x " * 40)]))
"""
    log = tmp_path / "network.log"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=guarded(log),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(int(count) > 3 for count in done.stdout.split())
    assert refused(log) == []


def test_messages_of_agents(chat, hymem_writer):
    """Tool turns, of which chat templates without tools know nothing."""
    hymem_writer.reply(None, "Asked for the weather")
    call = {"id": "1", "name": "weather", "args": {"town": "Oslo"}}
    said = [HumanMessage("And?"), AIMessage("", tool_calls=[call]), ToolMessage("rain", tool_call_id="1")]
    chat().invoke([*said, HumanMessage("Summarise.")])
    roles = {each["role"] for each in hymem_writer.chats[0].json["messages"]}
    assert roles <= {"user", "assistant", "system"}
    assert "rain" in json.dumps(hymem_writer.chats[0].json)


def test_any_way_to_say_which_function(chat, hymem_writer):
    """trustcall #64: a model that does not know `tool_choice="any"`. And Anthropic's form of a name."""
    from langchain_core.runnables import RunnableBinding

    class Place(BaseModel):
        town: str

    hymem_writer.reply(None, '{"calls": [{"name": "Place", "arguments": {"town": "Oslo"}}]}')
    choices = [
        "any",
        "required",
        "auto",
        True,
        "Place",
        {"type": "tool", "name": "Place"},
        {"type": "allowed_tools"},
    ]
    for choice in choices:
        tools = [Place] if choice is True else [Person, Place]
        bound = chat().bind_tools(tools)
        if choice != "auto":
            bound = (
                bound.bind(tool_choice=choice)
                if isinstance(choice, dict)
                else chat().bind_tools(tools, tool_choice=choice)
            )
        assert isinstance(bound, RunnableBinding)
        assert isinstance(bound.bound, ChatHyMemory)
        assert bound.invoke("x").tool_calls[0]["args"] == {"town": "Oslo"}
