"""`HyMemoryLLM` as a LlamaIndex user expects an LLM to be, over the wire."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle

import pytest
from llama_index.core.base.llms.base import BaseLLM
from llama_index_memory import facts_reply, main_llm, said

from hymem import ReplyRejected, SettingsError, WriterUnavailable
from hymem_llama_index import HyMemoryLLM

NO_THINK = {"chat_template_kwargs": {"reasoning_effort": "no_think"}}


@pytest.fixture
def llm(hymem_writer):
    return lambda **given: HyMemoryLLM(api_base=hymem_writer.base_url, **given)


@pytest.mark.hymem_short
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_request_and_its_answer(llm, hymem_writer, events, way):
    """run-llama #16634: without `is_chat_model` it would be a completion, and no template."""
    hymem_writer.reply(None, "Lives in Oslo")
    messages = [said("Summarise.", "system"), said("I live in Oslo.")]
    answer = llm().chat(messages) if way == "sync" else asyncio.run(llm().achat(messages))
    assert answer.message.content == "Lives in Oslo"
    assert answer.additional_kwargs["total_tokens"] == 12
    (sent,) = hymem_writer.requests
    assert sent.path == "/v1/chat/completions"
    assert sent.json == {
        "model": "hy-memory",
        "messages": [
            {"role": "system", "content": "Summarise."},
            {"role": "user", "content": "I live in Oslo."},
        ],
        "max_tokens": 4096,
        "temperature": 0.0,
        **NO_THINK,
    }
    assert [event.site for event in events] == ["llama-index.asked"]


def test_every_way_to_ask(llm, hymem_writer):
    hymem_writer.reply(None, "Lives in Oslo")
    made = llm()
    assert made.complete("x").text == "Lives in Oslo"
    assert asyncio.run(made.acomplete("x")).text == "Lives in Oslo"
    assert [each.delta for each in made.stream_chat([said("x")])] == ["Lives in Oslo"]
    assert "".join(each.delta for each in made.stream_complete("x")) == "Lives in Oslo"

    async def streamed():
        return [each.delta async for each in await made.astream_chat([said("x")])]

    assert asyncio.run(streamed()) == ["Lives in Oslo"]
    assert not any(sent.json.get("stream") for sent in hymem_writer.chats)


def test_what_a_call_asks_for(llm, hymem_writer):
    """run-llama #21634, #20790: `extra_body` replaced or ignored, a `tool_choice` without tools."""
    hymem_writer.reply(None, "Lives in Oslo")
    made = llm(extra_body={"repetition_penalty": 1.05, **NO_THINK})
    body = {"top_k": 5, "chat_template_kwargs": {"tone": "dry"}}
    made.chat([said("x")], max_tokens=7, temperature=0.9, tool_choice="required", extra_body=body)
    sent = hymem_writer.chats[0].json
    assert (sent["max_tokens"], sent["temperature"]) == (7, 0.0)
    assert (sent["repetition_penalty"], sent["top_k"]) == (1.05, 5)
    assert sent["chat_template_kwargs"] == {"tone": "dry", "reasoning_effort": "no_think"}
    assert "tool_choice" not in sent


def test_arguments(monkeypatch):
    monkeypatch.setenv("HYMEM_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("HYMEM_LLAMA_INDEX_MODEL", "of-llama-index")
    monkeypatch.setenv("HYMEM_API_KEY", "sk-planted")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-users-key")
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9/v1")
    made = HyMemoryLLM()
    assert (made.api_base, made.model) == ("http://127.0.0.1:1/v1", "of-llama-index")
    assert HyMemoryLLM("nearest", base_url="http://127.0.0.1:2/v1").writer.settings.base_url.endswith(":2/v1")
    assert "sk-planted" not in repr(made) + str(made) + str(made.to_dict())
    for wrong, near in (
        ({"extra_bdy": {}}, "extra_body"),
        ({"base_ulr": "x"}, "base_url"),
        ({"timeout": -1}, "timeout"),
    ):
        with pytest.raises(SettingsError, match=near) as raised:
            HyMemoryLLM(api_key="sk-planted", **wrong)
        assert "sk-planted" not in str(raised.value)
    with pytest.raises(SettingsError, match="main_llm"):
        HyMemoryLLM(on_failure="fallback")


def test_the_window_is_the_servers(llm, hymem_server):
    made = llm()
    assert made.metadata.context_window == made.writer.max_model_len() > 0
    assert made.metadata.is_chat_model
    assert not made.metadata.is_function_calling_model
    assert llm(context_window=5000).metadata.context_window == 5000
    assert HyMemoryLLM(api_base="http://127.0.0.1:1/v1").metadata.context_window == 32_768


def test_a_window_that_is_not_told_is_not_asked_for_again_and_again(llm, hymem_writer, hymem_server):
    hymem_writer.reply(None, "ok")
    asking = llm(base_url=f"{hymem_writer.url}/nothing/v1")

    async def ask():
        return [asking.metadata.context_window for _ in range(3)]

    assert asyncio.run(ask()) == [32_768] * 3
    assert asking.metadata.context_window == 32_768
    assert len([sent for sent in hymem_writer.requests if sent.path.endswith("/models")]) <= 1


def test_what_it_was_made_with_stays(llm):
    made = llm()
    with pytest.raises(SettingsError, match="make another"):
        made.max_tokens = 5
    made.callback_manager = made.callback_manager
    again = pickle.loads(pickle.dumps(made))
    assert again.writer.settings.timeout == made.writer.settings.timeout == 120.0


def test_what_openai_like_is_told_beside_the_rest(llm, hymem_writer):
    """The habit of `OpenAILike`: `additional_kwargs`, and an `extra_body` inside."""
    more = {"top_p": 0.5, "extra_body": {"chat_template_kwargs": {"reasoning_effort": "no_think"}, "seed": 1}}
    llm(additional_kwargs=more, temperature=0.1).complete(
        "Hello.", extra_headers={"Authorization": "Bearer x"}
    )
    (sent,) = hymem_writer.chats
    assert (sent.json["top_p"], sent.json["seed"], sent.json["temperature"]) == (0.5, 1, 0.1)
    assert "extra_headers" not in sent.json
    hymem_writer.reply(None, "ok")
    llm(reasoning_effort=None).complete("Hello.")
    assert "chat_template_kwargs" not in hymem_writer.chats[-1].json
    with pytest.raises(SettingsError, match="is_function_calling_model"):
        llm(is_function_calling_model=True)


def test_headers_are_in_no_text(llm):
    made = llm(default_headers={"x-gateway": "sk-planted"})
    for text in (repr(made), str(made), made.to_json(), str(made.to_dict()), str(made.model_dump())):
        assert "sk-planted" not in text
    assert made.writer.settings.headers["x-gateway"].get_secret_value() == "sk-planted"


def test_copies(llm, hymem_writer):
    hymem_writer.reply(None, "Lives in Oslo")
    made = llm(max_tokens=9)
    for each in (
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),
        HyMemoryLLM.from_dict(made.to_dict()),
    ):
        assert each.complete("x").text == "Lives in Oslo"
        assert hymem_writer.chats[-1].json["max_tokens"] == 9
    assert BaseLLM in type(made).__mro__
    assert made.class_name() == "HyMemoryLLM"


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("reply", ["", None, "<think>He lives"])
def test_a_reply_that_says_nothing_raises(llm, hymem_writer, reply, way):
    """run-llama #21582, #21075: the text is in `reasoning`, where a parser took it all."""
    hymem_writer.reply(None, reply)
    with pytest.raises(ReplyRejected):
        llm().chat([said("x")]) if way == "sync" else asyncio.run(llm().achat([said("x")]))


def test_one_layer_of_retries(llm, hymem_writer, monkeypatch):
    """LlamaIndex's own multiply: an SDK's times tenacity's."""
    monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
    hymem_writer.reply(None, status=503, body={})
    with pytest.raises(WriterUnavailable):
        llm().complete("x")
    assert len(hymem_writer.chats) == 4
    hymem_writer.clear()
    hymem_writer.reply(None, status=500, body={})
    with pytest.raises(WriterUnavailable):
        llm().complete("x")
    assert len(hymem_writer.chats) == 1


def test_an_extractor_of_a_graph_that_is_given_it(llm, hymem_writer, hymem_main, events):
    """By its argument, and by nothing else."""
    from llama_index.core.indices.property_graph import SimpleLLMPathExtractor
    from llama_index.core.schema import TextNode

    hymem_writer.reply(None, "(Alex, lives in, Oslo)")
    extractor = SimpleLLMPathExtractor(llm=llm(), num_workers=1)
    (node,) = asyncio.run(extractor.acall([TextNode(text="Alex lives in Oslo.")]))
    assert "Alex" in str(node.metadata)
    import hymem_llama_index

    hymem_llama_index.enable(base_url=hymem_writer.base_url)
    hymem_main.reply(None, facts_reply())
    before = len(hymem_writer.chats)
    other = SimpleLLMPathExtractor(llm=main_llm(hymem_main), num_workers=1)
    asyncio.run(other.acall([TextNode(text="Alex lives in Oslo.")]))
    assert len(hymem_main.chats) == 1
    assert len(hymem_writer.chats) == before


def test_an_extractor_that_finds_its_own_types(llm, hymem_writer):
    from llama_index.core.indices.property_graph import DynamicLLMPathExtractor
    from llama_index.core.schema import TextNode

    said = {"head": "Alex", "head_type": "P", "relation": "LIVES_IN", "tail": "Oslo", "tail_type": "C"}
    hymem_writer.reply(None, f"<think>a city</think>{json.dumps([said])}")
    extractor = DynamicLLMPathExtractor(llm=llm(), num_workers=1)
    (node,) = asyncio.run(extractor.acall([TextNode(text="Alex lives in Oslo.")]))
    assert "LIVES_IN" in str(node.metadata)


TRIPLET = {
    "subject": {"type": "PERSON", "name": "Alex"},
    "relation": {"type": "LIVES_IN"},
    "object": {"type": "PLACE", "name": "Oslo"},
}


def schema_extractor(llm):
    from typing import Literal

    from llama_index.core.indices.property_graph import SchemaLLMPathExtractor

    return SchemaLLMPathExtractor(
        llm=llm,
        possible_entities=Literal["PERSON", "PLACE"],
        possible_relations=Literal["LIVES_IN"],
        strict=False,
        num_workers=1,
    )


def found_by(extractor):
    from llama_index.core.schema import TextNode

    (node,) = asyncio.run(extractor.acall([TextNode(text="Alex lives in Oslo.")]))
    return [each.name for each in node.metadata.get("nodes", [])]


@pytest.mark.parametrize("text", ["{}", "```json\n{}\n```", "<think>hm</think>{}"])
def test_an_extractor_with_a_schema(llm, hymem_writer, text):
    """run-llama #20790, #17677: a `tool_choice` without tools is refused by vLLM, and JSON in the text is
    what a server without flags for tools answers."""
    hymem_writer.reply(None, text.replace("{}", json.dumps({"triplets": [TRIPLET]})))
    assert found_by(schema_extractor(llm())) == ["Alex", "Oslo"]
    (sent,) = hymem_writer.chats
    assert not sent.json.keys() & {"tools", "tool_choice"}


def test_an_extractor_whose_reply_is_cut(llm, hymem_writer, events):
    """run-llama #17424: zero triplets, and not a word. It is asked for again, with more room, and counted."""
    whole = json.dumps({"triplets": [TRIPLET]})
    hymem_writer.reply(None, whole)
    hymem_writer.reply(lambda body: body["max_tokens"] <= 4096, whole[:40], finish_reason="length")
    assert found_by(schema_extractor(llm())) == ["Alex", "Oslo"]
    assert "recovered" in events[0].steps
