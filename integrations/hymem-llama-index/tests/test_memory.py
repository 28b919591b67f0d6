"""`Memory` with a block of facts: archived first and extracted then, so what fails is offered again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import FactExtractionMemoryBlock, Memory, StaticMemoryBlock
from llama_index_memory import USERS_KEY, fact_block, facts_reply, main_llm, said

import hymem_llama_index
from hymem import (
    HymemError,
    NoMainModel,
    PromptTooLong,
    ReplyRejected,
    SettingsError,
    WriterUnavailable,
)
from hymem_llama_index import HyMemoryLLM

LONG = "I live in Oslo, in a house by the sea, and have done so for as long as I can think. "


@pytest.fixture(params=["enabled", "attached", "given"])
def block(request, main, hymem_writer):
    """A block that the writer writes for, in one of the three ways."""
    handles = []

    def make(settings=None, **more):
        given = {"base_url": hymem_writer.base_url, **(settings or {})}
        if request.param == "given":
            return fact_block(HyMemoryLLM(**given), **more)
        made = fact_block(main, **more)
        if request.param == "enabled":
            hymem_llama_index.enable(**given)
        else:
            handles.append(hymem_llama_index.attach(made, **given))
        return made

    yield make
    for handle in handles:
        handle.disable()


def memory(*blocks, **more):
    given = {"session_id": "ann", "token_limit": 40, "token_flush_size": 10, **more}
    return Memory.from_defaults(memory_blocks=list(blocks), **given)


@pytest.mark.hymem_short
@pytest.mark.parametrize("way", ["sync", "async"])
def test_what_is_flushed_is_kept_as_facts(block, hymem_writer, hymem_main, events, way):
    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    made = block()
    bank = memory(made)
    turns = [said(LONG), said("I see.", "assistant"), said(LONG), said("Yes.", "assistant")]
    if way == "sync":
        for turn in turns:
            bank.put(turn)
    else:
        asyncio.run(bank.aput_messages(turns))
    assert made.facts == ["Lives in Oslo"]
    assert "Lives in Oslo" in str(bank.get())
    assert {event.site for event in events} == {"llama-index.extract"}
    assert hymem_main.chats == []
    for sent in hymem_writer.chats:
        assert all(message.keys() == {"role", "content"} for message in sent.json["messages"])
        assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}


@pytest.mark.parametrize(
    "reply", [{"status": 500, "body": {}}, {"content": ""}, {"content": "I see no facts."}]
)
def test_what_failed_is_offered_again(block, hymem_writer, events, reply):
    """Upstream has archived it, and offers it to nobody any more."""
    hymem_writer.reply(None, **reply)
    made = block()
    with pytest.raises(HymemError):
        asyncio.run(made.aput([said("I live in Oslo.")]))
    assert made.facts == []
    hymem_writer.clear()
    hymem_writer.reply("Oslo", facts_reply("Lives in Oslo"))
    hymem_writer.reply("a cat", facts_reply("Has a cat"))
    asyncio.run(made.aput([said("I have a cat.")]))
    assert made.facts == ["Lives in Oslo", "Has a cat"]
    assert [event.outcome for event in events] == ["failed", "ok", "ok"]
    first, _second = hymem_writer.chats
    assert "Oslo" in first.text
    assert "a cat" not in first.text


def test_skipped_it_is_offered_again_as_well(block, hymem_writer):
    hymem_writer.reply(None, status=500, body={})
    made = block({"on_failure": "skip"})
    asyncio.run(made.aput([said("I live in Oslo.")]))
    assert made.facts == []
    hymem_writer.clear()
    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    asyncio.run(made.aput([said("And now?")]))
    assert made.facts == ["Lives in Oslo"]
    assert len(hymem_writer.chats) == 2


def test_a_write_that_is_cancelled_is_offered_again(block, hymem_writer):
    hymem_writer.reply(None, facts_reply("x"), delay=30)
    made = block()

    async def cancelled():
        await asyncio.wait_for(made.aput([said("I live in Oslo.")]), 0.5)

    with pytest.raises((asyncio.TimeoutError, TimeoutError)):
        asyncio.run(cancelled())
    hymem_writer.clear()
    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    asyncio.run(made.aput([said("And now?")]))
    assert "I live in Oslo." in hymem_writer.chats[0].text


def test_two_writes_at_once_that_fail_are_both_offered_again(block, hymem_writer):
    hymem_writer.reply(None, status=500, body={}, delay=0.2)
    made = block()

    async def both():
        texts = ("I live in Oslo.", "I have a cat.")
        return await asyncio.gather(*(made.aput([said(each)]) for each in texts), return_exceptions=True)

    assert all(isinstance(each, WriterUnavailable) for each in asyncio.run(both()))
    hymem_writer.clear()
    hymem_writer.reply("I live in Oslo.", facts_reply("Lives in Oslo"))
    hymem_writer.reply("I have a cat.", facts_reply("Has a cat"))
    hymem_writer.reply("And now?", facts_reply())
    asyncio.run(made.aput([said("And now?")]))
    assert set(made.facts) == {"Lives in Oslo", "Has a cat"}


@pytest.mark.parametrize("on_failure", ["raise", "skip"])
def test_a_batch_that_always_fails_does_not_keep_the_others_back(block, hymem_writer, caplog, on_failure):
    """A document that somebody has pasted, longer than the window."""
    too_long = {"error": {"message": "too long", "param": "input_text"}}
    hymem_writer.reply(None, facts_reply("Has a cat"))
    hymem_writer.reply(lambda body: "PASTED" in str(body["messages"]), None, body=too_long, status=400)
    made = block({"on_failure": on_failure})
    for text in ("PASTED", "I have a cat.", "And now?"):
        with pytest.raises(PromptTooLong) if on_failure == "raise" else contextlib.nullcontext():
            asyncio.run(made.aput([said(text)]))
    assert made.facts == ["Has a cat"]
    assert "offered 3 times" in caplog.text
    hymem_writer.requests.clear()
    asyncio.run(made.aput([said("Hello.")]))
    assert ["PASTED" in sent.text for sent in hymem_writer.chats] == [False]


def test_a_server_that_is_away_for_long_loses_nothing(block, hymem_writer, monkeypatch):
    monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
    hymem_writer.reply(None, None, status=500, body={})
    made = block()
    for at in range(5):
        with pytest.raises(WriterUnavailable):
            asyncio.run(made.aput([said(f"Fact {at}.")]))
    hymem_writer.clear()
    hymem_writer.reply(None, lambda body: facts_reply(body["messages"][0]["content"]))
    asyncio.run(made.aput([said("Fact 5.")]))
    assert made.facts == [f"Fact {at}." for at in range(6)]


def test_cancelled_while_it_condenses_it_is_not_extracted_twice(block, hymem_writer):
    hymem_writer.reply(None, facts_reply("Likes tea"))
    hymem_writer.reply(lambda body: "condens" in str(body["messages"]), facts_reply("x"), delay=30)
    made = block(facts=["a", "b"], max_facts=2)

    async def write():
        await asyncio.wait_for(made.aput([said("I like tea.")]), 1.5)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(write())
    assert made.facts == ["a", "b", "Likes tea"]
    hymem_writer.clear()
    hymem_writer.reply(None, facts_reply())
    made.max_facts = 9
    asyncio.run(made.aput([said("And now?")]))
    assert "I like tea." not in "".join(sent.text for sent in hymem_writer.chats)


def test_one_write_of_a_block_after_the_other(block, hymem_writer):
    """Upstream's condensation replaces what another write has added meanwhile."""

    def answer(body):
        first, last = body["messages"][0]["content"], body["messages"][-1]["content"]
        if "condens" in last:
            time.sleep(0.3)
            return facts_reply("a and b", "Likes tea")
        return facts_reply("Likes tea" if "tea" in first else "Lives in Bergen")

    hymem_writer.reply(None, answer)
    made = block(facts=["a", "b"], max_facts=2)

    async def both():
        await asyncio.gather(made.aput([said("I like tea.")]), made.aput([said("I live in Bergen.")]))

    asyncio.run(both())
    condensed = hymem_writer.chats[-1].text
    assert "Lives in Bergen" in made.facts or "Lives in Bergen" in condensed


class OwnBlock(FactExtractionMemoryBlock):
    """As people write their own: other messages, the same prompt and parser."""

    async def _aput(self, messages):
        prompt = self.fact_extraction_prompt_template.format_messages(existing_facts="")
        response = await self.llm.achat(messages=[*messages, *prompt])
        self.facts += self._parse_facts_xml(response.message.content or "")


def test_a_block_that_extracts_in_its_own_way(main, hymem_writer, hymem_main, events):
    hymem_llama_index.enable(base_url=hymem_writer.base_url)
    made = OwnBlock(llm=main)
    hymem_writer.reply(None, "I see no facts.")
    with pytest.raises(ReplyRejected):
        asyncio.run(made.aput([said("I live in Oslo.")]))
    hymem_writer.clear()
    hymem_writer.reply(None, json.dumps({"facts": ["Lives in Oslo"]}))
    asyncio.run(made.aput([said("And now?")]))
    assert made.facts == ["Lives in Oslo", "Lives in Oslo"]
    assert "I live in Oslo." in hymem_writer.chats[0].text
    assert {event.site for event in events} == {"llama-index.extract"}
    assert hymem_main.chats == []


def test_what_an_llm_cannot_be_shown_is_named(block, hymem_writer, tmp_path):
    """OpenAI's converter opens, fetches or refuses it, and the block's messages would never be written."""
    import llama_index.core.base.llms.types as types

    made = block()
    hymem_writer.reply(None, facts_reply("Has a cat"))
    shown = [types.CachePoint(cache_control=types.CacheControl(type="ephemeral"))]
    gone = tmp_path / "gone.pdf"
    gone.write_bytes(b"%PDF")
    shown.append(types.DocumentBlock(path=gone))
    gone.unlink()
    shown.append(types.ImageBlock(url="http://127.0.0.1:1/gone.png"))
    blocks = [types.TextBlock(text="I have a cat."), *shown]
    asyncio.run(made.aput([ChatMessage(role="user", blocks=blocks)]))
    assert made.facts == ["Has a cat"]
    (sent,) = hymem_writer.chats
    assert sent.json["messages"][0]["content"].split() == ["I", "have", "a", "cat.", "[document]", "[image]"]


def test_an_attached_writer_and_one_of_its_own(hymem_writer):
    made = fact_block(HyMemoryLLM(base_url=hymem_writer.base_url))
    with pytest.raises(SettingsError, match="of its own"):
        hymem_llama_index.attach(made, base_url=hymem_writer.base_url)


def test_a_block_made_without_an_llm_while_it_was_enabled(hymem_writer, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    hymem_writer.reply(None, facts_reply("Has a cat"))
    with hymem_llama_index.enable(base_url=hymem_writer.base_url):
        made = FactExtractionMemoryBlock()
        asyncio.run(made.aput([said("I have a cat.")]))
    assert made.facts == ["Has a cat"]
    with pytest.raises(NoMainModel, match="enabled"):
        asyncio.run(made.aput([said("And a dog.")]))
    assert len(hymem_writer.chats) == 1


def test_an_error_that_is_not_the_writers_is_let_out(block, hymem_writer):
    """Only a condensation that failed is told in the log."""
    hymem_writer.reply(None, facts_reply("Likes tea"))
    made = block(facts=list(OLD), max_facts=2)
    made.fact_condense_prompt_template = None
    with pytest.raises(AttributeError):
        asyncio.run(made.aput([said("I like tea.")]))


OLD = ["Lives in Oslo", "Has a cat"]


def is_condensing(body):
    return "condens" in str(body["messages"][-1]["content"])


@pytest.mark.parametrize(
    "bad", ["<facts></facts>", "", "None.", "<facts><fact>Specific fact 1</fact></facts>"]
)
def test_a_bad_condensation_wipes_nothing(block, hymem_writer, events, bad):
    """run-llama #21103: to 0.14.23 an empty reply is the new list of facts."""
    hymem_writer.reply(None, facts_reply("Likes tea"))
    hymem_writer.reply(is_condensing, bad)
    made = block(facts=list(OLD), max_facts=2)
    asyncio.run(made.aput([said("I like tea.")]))
    assert made.facts == [*OLD, "Likes tea"]
    assert [(event.site, event.outcome) for event in events] == [
        ("llama-index.extract", "ok"),
        ("llama-index.condense", "failed"),
    ]
    asyncio.run(made.aput([said("And now?")]))  # what was extracted is not offered again
    assert all("I like tea." not in sent.text for sent in hymem_writer.chats[3:])


def test_a_condensation(block, hymem_writer, events):
    hymem_writer.reply(None, facts_reply("Likes tea"))
    hymem_writer.reply(is_condensing, facts_reply("Lives in Oslo with a cat", "Likes tea"))
    made = block(facts=list(OLD), max_facts=2)
    asyncio.run(made.aput([said("I like tea.")]))
    assert made.facts == ["Lives in Oslo with a cat", "Likes tea"]
    assert [event.kept for event in events] == [1, 2]


def test_a_cut_condensation_is_no_condensation(block, hymem_writer):
    hymem_writer.reply(None, facts_reply("Likes tea"))
    hymem_writer.reply(is_condensing, "<facts><fact>Likes tea</fact><fact>Liv", finish_reason="length")
    made = block(facts=list(OLD), max_facts=2)
    asyncio.run(made.aput([said("I like tea.")]))
    assert made.facts == [*OLD, "Likes tea"]


def test_the_recovery_is_in_json(block, hymem_writer, events):
    """The schema that a server is held to is of JSON, and what LlamaIndex is given is its XML."""
    hymem_writer.reply(None, "He said that he lives in Oslo.")
    hymem_writer.reply(lambda body: "response_format" in body, json.dumps({"facts": ["Lives in Oslo"]}))
    made = block()
    asyncio.run(made.aput([said("I live in Oslo.")]))
    assert made.facts == ["Lives in Oslo"]
    assert "recovered" in events[0].steps


def test_turns_with_tools_and_images(block, hymem_writer):
    """Section on the wire: no key of LlamaIndex's own, no empty turn, words for what is no text."""
    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    from llama_index.core.base.llms.types import ImageBlock, TextBlock

    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    turns = [
        ChatMessage(
            role="user", blocks=[TextBlock(text="Look:"), ImageBlock(url="http://127.0.0.1:9/x.png")]
        ),
        ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]}),
        ChatMessage(role="tool", content="rain", additional_kwargs={"tool_call_id": "a", "name": "weather"}),
        ChatMessage(role="assistant", content=""),
        ChatMessage(role="user", content="I live in Oslo."),
    ]
    asyncio.run(memory(block()).memory_blocks[0].aput(turns, session_id="s"))
    (sent,) = hymem_writer.chats
    assert "session_id" not in sent.text
    assert all(
        isinstance(message["content"], str) and message["content"] for message in sent.json["messages"]
    )
    assert {message["role"] for message in sent.json["messages"]} <= {"system", "user", "assistant"}
    assert "[image]" in sent.text
    assert "rain" in sent.text


def test_a_batch_that_begins_in_the_middle(block, hymem_writer):
    """run-llama #20256 and #23144: an assistant's turn first, and a system message that is flushed."""
    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    batch = [said("I see.", "assistant"), said("Be brief.", "system"), said("I live in Oslo.")]
    asyncio.run(block().aput(batch))
    roles = [message["role"] for message in hymem_writer.chats[0].json["messages"]]
    assert "system" not in roles[1:]
    assert roles[-1] == "user"
    assert "Be brief." in hymem_writer.chats[0].text


# -- switching on and off ------------------------------------------------------------------------


def test_settings_are_not_touched(hymem_writer, monkeypatch):
    """A block that is made without an LLM, where there is none to be had, has the writer."""
    from llama_index.core import Settings

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    before = Settings._llm
    Settings._llm = None
    try:
        with pytest.raises(Exception):  # noqa: B017  # OpenAI's package says so in its own way
            FactExtractionMemoryBlock()
        hymem_llama_index.enable(base_url=hymem_writer.base_url)
        hymem_writer.reply(None, facts_reply("Lives in Oslo"))
        made = FactExtractionMemoryBlock()
        asyncio.run(made.aput([said("I live in Oslo.")]))
        assert made.facts == ["Lives in Oslo"]
        assert Settings._llm is None
        hymem_llama_index.disable()
        with pytest.raises(Exception):  # noqa: B017  # as above
            FactExtractionMemoryBlock()
    finally:
        Settings._llm = before


def test_a_memory_is_attached_with_its_blocks(main, hymem_writer, hymem_main):
    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    hymem_main.reply(None, facts_reply("By the main model"))
    made, other = fact_block(main), fact_block(main)
    bank = memory(made, StaticMemoryBlock(name="static", static_content="x"))
    with hymem_llama_index.attach(bank, base_url=hymem_writer.base_url):
        asyncio.run(made.aput([said("I live in Oslo.")]))
        asyncio.run(other.aput([said("I live in Oslo.")]))
    asyncio.run(made.aput([said("And now?")]))
    assert made.facts == ["Lives in Oslo", "By the main model"]
    assert other.facts == ["By the main model"]
    assert made.llm is main
    with pytest.raises(TypeError, match="FactExtractionMemoryBlock"):
        hymem_llama_index.attach(object(), base_url=hymem_writer.base_url)


def test_an_agent(main, hymem_writer, hymem_main):
    """Its own LLM answers; the facts are the writer's."""
    from llama_index.core.agent.workflow import FunctionAgent

    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    hymem_main.clear()  # what is behind it streams
    hymem_llama_index.enable(base_url=hymem_writer.base_url)
    made = fact_block(main)
    answering = main_llm(hymem_main, is_function_calling_model=True)

    async def conversation():
        bank = memory(made, token_limit=60)
        agent = FunctionAgent(llm=answering, tools=[])
        for text in (LONG, "And where do I live?", LONG):
            await agent.run(text, memory=bank)

    asyncio.run(conversation())
    assert made.facts == ["Lives in Oslo"]
    assert len(hymem_main.chats) == 3
    assert all("fact extraction" not in sent.text for sent in hymem_main.chats)


def test_sync_use_in_changing_loops(hymem_writer):
    """run-llama #20433: a client that is kept for another loop."""
    asyncio.run(asyncio.sleep(0))
    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    bank = memory(fact_block(HyMemoryLLM(base_url=hymem_writer.base_url)))
    for _ in range(5):
        bank.put(said(LONG))
        bank.put(said("I see.", "assistant"))
    assert bank.memory_blocks[0].facts == ["Lives in Oslo"]
    assert {sent.status for sent in hymem_writer.chats} == {200}


def test_an_error_is_none_that_llamaindex_masks(hymem_writer):
    """`asyncio_run` takes every RuntimeError for its own, and runs a used coroutine again."""
    for error in (WriterUnavailable, ReplyRejected):
        assert not issubclass(error, RuntimeError)
    hymem_writer.reply(None, status=500, body={})
    bank = memory(fact_block(HyMemoryLLM(base_url=hymem_writer.base_url)))

    def conversation():
        for _ in range(3):
            bank.put(said(LONG))
            bank.put(said("I see.", "assistant"))

    with pytest.raises(WriterUnavailable):
        conversation()


def test_fallback(main, hymem_writer, hymem_main, events):
    hymem_writer.reply(None, status=500, body={})
    hymem_main.reply(None, facts_reply("By the main model"))
    hymem_llama_index.enable(base_url=hymem_writer.base_url, on_failure="fallback")
    made = fact_block(main)
    asyncio.run(made.aput([said("I live in Oslo.")]))
    assert made.facts == ["By the main model"]
    assert "fell_back" in events[0].steps
    assert hymem_main.chats[0].headers["authorization"] == f"Bearer {USERS_KEY}"
