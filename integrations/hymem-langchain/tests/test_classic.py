"""Classic memory: what is kept when a write fails, and what upstream does not do when it is asynchronous."""

from __future__ import annotations

import asyncio
import warnings

import pytest
from adapter import USERS_KEY
from langchain_memory import HOME, memory_class, summary_of

import hymem_langchain
from hymem import PromptTooLong, ReplyRejected, WriterUnavailable
from hymem_langchain import ChatHyMemory

OSLO = ({"input": "I live in Oslo."}, {"output": "I see."})
CAT = ({"input": "I have a cat."}, {"output": "I see."})


@pytest.fixture
def main(hymem_main):
    from langchain_openai import ChatOpenAI

    class Counting(ChatOpenAI):
        """Whose tokens are counted without a network."""

        def get_num_tokens_from_messages(self, messages, *args, **kwargs):
            return 10 * len(messages)

    return Counting(model=hymem_main.model, base_url=hymem_main.base_url, api_key=USERS_KEY, max_retries=0)


@pytest.fixture
def enabled(hymem_writer):
    return lambda **settings: hymem_langchain.enable(base_url=hymem_writer.base_url, **settings)


def down(proxy, times=None):
    proxy.reply(None, status=500, body={"error": {"message": "x"}}, times=times)


@pytest.mark.parametrize("on_failure", ["raise", "skip"])
def test_a_turn_whose_summary_failed_is_offered_with_the_next(enabled, main, hymem_writer, on_failure):
    enabled(on_failure=on_failure)
    memory = memory_class("ConversationSummaryMemory")(llm=main, buffer="Has a dog.")
    down(hymem_writer)
    if on_failure == "raise":
        with pytest.raises(WriterUnavailable):
            memory.save_context(*OSLO)
    else:
        memory.save_context(*OSLO)
    assert memory.buffer == "Has a dog."
    hymem_writer.clear()
    hymem_writer.reply(None, "Has a dog, and more.")
    memory.save_context(*CAT)
    assert memory.buffer == "Has a dog, and more."
    (sent,) = hymem_writer.chats
    assert "I live in Oslo." in sent.text
    memory.save_context(*CAT)
    assert "I live in Oslo." not in hymem_writer.chats[-1].text.rpartition("New lines")[2]


def test_a_message_that_is_in_no_summary_is_given_up(enabled, main, hymem_writer, caplog):
    """One that is too long would make every prompt too long that comes after."""
    too_long = {"error": {"message": "too long", "param": "input_text"}}
    hymem_writer.reply(None, "Has a cat.")
    hymem_writer.reply(lambda body: "PASTED" in str(body["messages"]), None, body=too_long, status=400)
    enabled()
    memory = memory_class("ConversationSummaryMemory")(llm=main)
    for said in ({"input": "PASTED"}, CAT[0], CAT[0]):
        with pytest.raises(PromptTooLong):
            memory.save_context(said, CAT[1])
    assert "offered 3 times" in caplog.text
    memory.save_context(*CAT)
    assert memory.buffer == "Has a cat."


def test_a_summary_that_was_cut_twice_replaces_nothing(enabled, main, hymem_writer):
    hymem_writer.reply(None, "Lives in Os", finish_reason="length")
    enabled()
    memory = memory_class("ConversationSummaryMemory")(llm=main, buffer="Lives in Oslo.")
    with pytest.raises(ReplyRejected):
        memory.save_context(*CAT)
    assert memory.buffer == "Lives in Oslo."


@pytest.mark.parametrize("on_failure", ["raise", "skip"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_messages_that_were_to_be_summarised_stay_when_it_fails(
    enabled, main, hymem_writer, hymem_main, on_failure, way
):
    enabled(on_failure=on_failure)
    memory = memory_class("ConversationSummaryBufferMemory")(llm=main, max_token_limit=35)
    memory.save_context(*OSLO)
    down(hymem_writer)

    def save():
        if way == "sync":
            memory.save_context(*CAT)
        else:
            asyncio.run(memory.asave_context(*CAT))

    if on_failure == "raise":
        with pytest.raises(WriterUnavailable):
            save()
    else:
        save()
    assert [each.content for each in memory.chat_memory.messages][:2] == ["I live in Oslo.", "I see."]
    hymem_writer.clear()
    hymem_writer.reply(None, "Lives in Oslo.")
    memory.prune()
    assert memory.moving_summary_buffer == "Lives in Oslo."
    assert len(memory.chat_memory.messages) == 3
    assert hymem_main.chats == []


def test_messages_whose_summary_says_nothing_new_are_taken_out(enabled, main, hymem_writer):
    """An echo of the summary is an answer: the same messages are not asked about for ever."""
    enabled()
    memory = memory_class("ConversationSummaryBufferMemory")(llm=main, max_token_limit=15)
    memory.moving_summary_buffer = "Lives in Oslo."
    hymem_writer.reply(None, "Lives in Oslo.")
    memory.save_context(*OSLO)
    assert len(memory.chat_memory.messages) == 1
    assert memory.moving_summary_buffer == "Lives in Oslo."


@pytest.mark.hymem_short
@pytest.mark.parametrize("name", ["ConversationSummaryMemory", "ConversationEntityMemory"])
def test_asynchronous_chains_write(enabled, main, hymem_writer, hymem_main, name):
    """langchain #3230: upstream keeps the messages and asks nobody."""
    hymem_main.reply(None, "Alex")
    hymem_writer.reply(None, "Alex")
    memory = memory_class(name)(llm=main)

    async def turn():
        await memory.aload_memory_variables({"input": "I'm Alex."})
        await memory.asave_context({"input": "I'm Alex."}, {"output": "Hi."})

    asyncio.run(turn())
    before = len(hymem_main.chats)
    assert before == (name == "ConversationEntityMemory")
    enabled()
    asyncio.run(turn())
    assert len(hymem_main.chats) == before
    assert hymem_writer.chats
    found = memory.buffer if name == "ConversationSummaryMemory" else memory.entity_store.store["Alex"]
    assert found == "Alex"
    assert len(memory.chat_memory.messages) == 4


ENTITIES = {
    '["Alex", "Seattle"]': {"Alex", "Seattle"},
    "Output: Alex, Seattle": {"Alex", "Seattle"},
    "```json\n[]\n```": set(),
    "None": set(),
    "<think>hm, ok</think>Alex": {"Alex"},
}


@pytest.mark.parametrize("reply", ENTITIES)
@pytest.mark.parametrize("how", ["enabled", "given by hand"])
def test_entities_are_never_junk(enabled, main, hymem_writer, events, reply, how):
    """Both calls of it go to the writer, also where a `ChatHyMemory` is given and nothing is registered."""
    if how == "enabled":
        enabled()
    model = main if how == "enabled" else ChatHyMemory(base_url=hymem_writer.base_url)
    memory = memory_class("ConversationEntityMemory")(llm=model)
    hymem_writer.reply(None, reply)
    found = memory.load_memory_variables({"input": "Alex lives in Seattle."})
    assert set(found["entities"]) == ENTITIES[reply]
    hymem_writer.reply(None, "Known.")
    memory.save_context({"input": "Alex lives in Seattle."}, {"output": "I see."})
    assert memory.entity_store.store == dict.fromkeys(ENTITIES[reply], "Known.")
    expected = ["langchain.entities"] + ["langchain.entity_summary"] * len(ENTITIES[reply])
    assert [event.site for event in events] == expected


def test_skipped_entities_keep_what_is_known(enabled, main, hymem_writer):
    enabled(on_failure="skip")
    memory = memory_class("ConversationEntityMemory")(llm=main)
    memory.entity_store.set("Alex", "Lives in Seattle.")
    memory.entity_cache = ["Bob", "Alex"]
    down(hymem_writer)
    memory.save_context({"input": "Alex moved."}, {"output": "I see."})
    assert memory.entity_store.store["Alex"] == "Lives in Seattle."


def test_triples(enabled, main, hymem_writer, hymem_main, events):
    pytest.importorskip("networkx")
    kg = pytest.importorskip("langchain_community.memory.kg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = kg.ConversationKGMemory(llm=main)
    enabled()
    hymem_writer.reply(None, '("Alex", "lives in", "Oslo")\n(Alex, likes, tea, and cake)')
    memory.save_context({"input": "I'm Alex of Oslo."}, {"output": "I see."})
    assert set(memory.kg.get_triples()) == {("Alex", "Oslo", "lives in"), ("Alex", "tea; and cake", "likes")}
    assert [event.site for event in events] == ["langchain.triples"]
    hymem_main.reply(None, "Alex")
    memory.load_memory_variables({"input": "Where does Alex live?"})
    assert len(hymem_main.chats) == 1  # a read: what it finds is not kept


def test_the_model_of_everything_else_stays(enabled, main, hymem_writer, hymem_main):
    enabled()
    memory = memory_class("ConversationSummaryMemory")(llm=main)
    hymem_writer.reply(None, summary_of("Lives in Oslo"))
    memory.save_context(*OSLO)
    assert memory.llm is main
    assert hymem_main.chats == []
    another = memory_class("ConversationSummaryMemory")(
        llm=ChatHyMemory(base_url=hymem_writer.base_url, model="m")
    )
    another.save_context(*OSLO)
    assert [sent.json["model"] for sent in hymem_writer.chats] == ["hy-memory", "m"]


def test_attaching_finds_the_memories_inside(main, hymem_writer):
    module = __import__(f"{HOME}.combined", fromlist=["CombinedMemory"])
    made = memory_class("ConversationSummaryMemory")(llm=main, memory_key="a", input_key="input")
    combined = module.CombinedMemory(memories=[made])
    hymem_writer.reply(None, "Lives in Oslo")
    with hymem_langchain.attach(combined, base_url=hymem_writer.base_url) as handle:
        made.save_context(*OSLO)
        assert handle.stats().writes == 1
    with pytest.raises(TypeError, match="attach"):
        hymem_langchain.attach(main)


def test_messages_of_another_conversation_are_never_offered(main, hymem_writer, hymem_main):
    """`predict_new_summary` by itself, for whoever's messages; what was cleared; a main model that fails."""
    from langchain_core.messages import HumanMessage

    ann, bob = [HumanMessage("ANN: my PIN is 1234")], [HumanMessage("BOB: hello")]
    ChatHyMemory(base_url=hymem_writer.base_url)  # registers, and routes nothing
    for routed, proxy in ((False, hymem_main), (True, hymem_writer)):
        if routed:
            hymem_langchain.enable(base_url=hymem_writer.base_url)
        memory = memory_class("ConversationSummaryMemory")(llm=main)
        down(proxy)
        with pytest.raises(Exception):  # noqa: B017  # the main model's own, or hymem's
            memory.predict_new_summary(ann, "")
        with pytest.raises(Exception):  # noqa: B017  # as above
            memory.save_context({"input": ann[0].content}, {"output": "I see."})
        memory.clear()
        proxy.clear()
        proxy.reply(None, "Said hello.")
        memory.predict_new_summary(bob, "")
        memory.save_context({"input": bob[0].content}, {"output": "Hello."})
        assert all("PIN" not in sent.text for sent in proxy.chats)


def test_what_comes_while_a_summary_is_waited_for_stays(enabled, main, hymem_writer):
    from langchain_core.messages import HumanMessage

    enabled()
    memory = memory_class("ConversationSummaryBufferMemory")(llm=main, max_token_limit=15)
    memory.chat_memory.messages += [HumanMessage("one"), HumanMessage("two")]

    def failing(body):
        memory.chat_memory.messages.append(HumanMessage("meanwhile"))
        return ""

    hymem_writer.reply(None, failing)
    with pytest.raises(ReplyRejected):
        memory.prune()
    said = [each.content for each in memory.chat_memory.messages]
    assert said[:2] == ["one", "two"]
    assert "meanwhile" in said
