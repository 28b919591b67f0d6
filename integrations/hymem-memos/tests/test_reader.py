"""What the mem reader extracts, by the writer named in its configuration, enabled, or attached."""

from __future__ import annotations

import contextlib
import json

import pytest
from memos_bank import HAS_FALLBACK, hy_memory, installed, memory_list, openai, reader, said
from packaging.version import Version

import hymem_memos
from hymem import NoMainModel, ReplyRejected, WriterUnavailable

INFO = {"user_id": "ann", "session_id": "one"}
MULTIMODAL = installed >= Version("2")
LOSES_ITS_FALLBACK = Version("2.0.3") <= installed <= Version("2.0.20")


@pytest.fixture(params=["given", "enabled", "attached"])
def mem_reader(request, hymem_writer, hymem_main):
    """Makes a mem reader that the writer writes for, in one of the three ways."""
    handles = []

    def make(kind="simple_struct", settings=None, **more):
        given = {"base_url": hymem_writer.base_url, **(settings or {})}
        if request.param == "given":
            hymem_memos.register()
            named = {name: value for name, value in given.items() if name != "base_url"}
            made = build(kind, reader(hymem_main, hy_memory(hymem_writer, **named), **more))
        else:
            made = build(kind, reader(hymem_main, openai(hymem_main), **more))
        if request.param == "enabled":
            hymem_memos.enable(**given)
        elif request.param == "attached":
            handles.append(hymem_memos.attach(made, **given))
        return made

    yield make
    for handle in handles:
        handle.disable()


def build(kind, configuration):
    """By the class, since the factory gives the same object for the same configuration."""
    from memos.configs import mem_reader as configs

    if kind == "multimodal_struct":
        from memos.mem_reader.multi_modal_struct import MultiModalStructMemReader

        return MultiModalStructMemReader(configs.MultiModalStructMemReaderConfig(**configuration))
    from memos.mem_reader.simple_struct import SimpleStructMemReader

    return SimpleStructMemReader(configs.SimpleStructMemReaderConfig(**configuration))


def texts(memories):
    return [item.memory for group in memories for item in group]


@pytest.mark.hymem_short
def test_a_conversation(mem_reader, hymem_writer, hymem_main, events):
    hymem_writer.reply(None, memory_list("Lives in Oslo", "Has a cat"))
    made = mem_reader()
    found = made.get_memory([said("I live in Oslo."), said("I have a cat.")], type="chat", info=dict(INFO))
    assert sorted(texts(found)) == sorted(["Lives in Oslo", "Has a cat"] * 2)
    assert [event.site for event in events] == ["memos.extract"] * 2
    assert {event.outcome for event in events} == {"ok"}
    assert hymem_main.chats == []
    for sent in hymem_writer.chats:
        assert sent.json["temperature"] == 0.0
        assert sent.json["max_tokens"] == 4096
        assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
        assert sent.headers["authorization"] == "Bearer EMPTY"


@pytest.mark.parametrize("kind", ["长期记忆", "用户记忆", "usermemory", "Fact", None])
def test_types_of_memories(mem_reader, hymem_writer, kind):
    """Of an unknown type upstream loses the memory, or the whole conversation."""
    item = {"key": "city", "memory_type": kind, "value": "Lives in Oslo", "tags": ["city"]}
    hymem_writer.reply(None, json.dumps({"memory list": [item], "summary": ""}))
    (group,) = mem_reader().get_memory([said("I live in Oslo.")], type="chat", info=dict(INFO))
    (memory,) = group
    user = kind in ("用户记忆", "usermemory")
    assert memory.metadata.memory_type == ("UserMemory" if user else "LongTermMemory")
    assert (memory.metadata.key, memory.metadata.tags) == ("city", ["city"])


def test_a_conversation_in_chinese(mem_reader, hymem_writer, events):
    hymem_writer.reply(None, memory_list("用户住在奥斯陆"))
    found = mem_reader().get_memory([said("我住在奥斯陆, 很喜欢这里。")], type="chat", info=dict(INFO))
    assert texts(found) == ["用户住在奥斯陆"]
    assert events[0].outcome == "ok"


DOCUMENTS = pytest.mark.skipif(MULTIMODAL, reason="the reader of 2.x loses documents before it asks anybody")
DOCUMENT = ["The house by the sea was built in 1901. " * 15 + "It is UNREADABLE. " * 15]
IN_A_POOL_OF_ITS_OWN = Version("1") <= installed < Version("1.1")
"""Then what fails in it is logged and counted, and cannot be raised."""


@DOCUMENTS
def test_a_document(mem_reader, hymem_writer, hymem_main, events):
    hymem_writer.reply(None, json.dumps({"key": "house", "value": "Built in 1901", "tags": []}))
    found = mem_reader().get_memory(DOCUMENT, type="doc", info=dict(INFO))
    assert set(texts(found)) == {"Built in 1901"}
    assert len(events) > 1
    assert {event.site for event in events} == {"memos.extract-document"}
    assert len(hymem_writer.chats) == len(events)
    assert hymem_main.chats == []


@DOCUMENTS
def test_a_document_of_which_nothing_comes_is_an_error(mem_reader, hymem_writer, events):
    """Upstream logs each piece, and gives an empty list."""
    hymem_writer.reply(None, "I see.")
    with contextlib.nullcontext() if IN_A_POOL_OF_ITS_OWN else pytest.raises(ReplyRejected):
        mem_reader().get_memory(DOCUMENT, type="doc", info=dict(INFO))
    assert {event.outcome for event in events} == {"failed"}


@DOCUMENTS
def test_a_piece_of_a_document_that_fails_does_not_take_the_others_with_it(mem_reader, hymem_writer, events):
    if installed < Version("1"):
        pytest.skip("one piece that fails is an error of the whole")
    hymem_writer.reply(None, json.dumps({"key": "house", "value": "Built in 1901", "tags": []}))
    hymem_writer.reply("UNREADABLE", "I see.")
    found = mem_reader().get_memory(DOCUMENT, type="doc", info=dict(INFO))
    assert set(texts(found)) == {"Built in 1901"}
    assert sorted({event.outcome for event in events}) == ["failed", "ok"]


@pytest.mark.parametrize("bad", [{"status": 500, "body": {}}, {"content": "I see."}, {"content": ""}])
def test_an_extraction_that_fails(mem_reader, hymem_writer, hymem_main, events, caplog, bad):
    """Where upstream stores the raw text, it does; where nothing would be left, the error is raised."""
    hymem_writer.reply(None, **bad)
    made = mem_reader()

    def write():
        return made.get_memory([said("I live in Oslo.")], type="chat", info=dict(INFO))

    if HAS_FALLBACK and not LOSES_ITS_FALLBACK:
        (text,) = texts(write())
        assert "I live in Oslo." in text
    else:
        with pytest.raises((WriterUnavailable, ReplyRejected)):
            write()
    assert [event.outcome for event in events] == ["failed"]
    assert "memos.extract" in caplog.text
    assert hymem_main.chats == []


def test_skipped_the_chat_goes_on(mem_reader, hymem_writer, events):
    """Where upstream stores the raw text it does; where it would raise, nothing is stored."""
    hymem_writer.reply(None, "")
    made = mem_reader(settings={"on_failure": "skip"})
    found = made.get_memory([said("I live in Oslo.")], type="chat", info=dict(INFO))
    has_raw_text = any("I live in Oslo." in text for text in texts(found))
    assert has_raw_text == (HAS_FALLBACK and not LOSES_ITS_FALLBACK)
    assert events[0].outcome == "failed"


@pytest.mark.skipif(not HAS_FALLBACK, reason="from 1.1 on")
@pytest.mark.parametrize("on_failure", ["raise", "skip"])
@pytest.mark.parametrize("kind", ["simple_struct", "multimodal_struct"])
def test_raw_text_that_is_stored_already_is_not_deleted(mem_reader, hymem_writer, kind, on_failure):
    """The scheduler makes memories of it later, and deletes it, whatever came of it."""
    if kind == "multimodal_struct" and not MULTIMODAL:
        pytest.skip("from 2.0 on")
    made = mem_reader(kind, settings={"on_failure": on_failure})
    more = {"mode": "fast"}
    ((raw,),) = made.get_memory([said("I live in Oslo.")], type="chat", info=dict(INFO), **more)
    hymem_writer.reply(None, None, status=500, body={})
    for transferred in made.fine_transfer_simple_mem([raw], type="chat"):
        assert any("I live in Oslo." in item.memory for item in transferred)
        assert all(item.id != raw.id for item in transferred)
    hymem_writer.clear()
    hymem_writer.reply(None, memory_list())
    assert texts(made.fine_transfer_simple_mem([raw], type="chat")) == []  # there is nothing in it


@pytest.mark.skipif(not MULTIMODAL, reason="from 2.0 on")
def test_what_is_extracted_beside_may_be_nothing(mem_reader, hymem_writer, events, monkeypatch):
    monkeypatch.setenv("ENABLE_PREFERENCE_MEMORY", "true")
    hymem_writer.reply(None, "Cannot extract implicit preference")
    hymem_writer.reply(is_about("memory list"), memory_list())
    hymem_writer.reply(is_about("message_indices"), "[]")
    made = mem_reader("multimodal_struct")
    assert texts(made.get_memory([said("Hello.")], type="chat", info=dict(INFO))) == []
    assert "failed" in {event.outcome for event in events}


@pytest.mark.skipif(installed < Version("1.1"), reason="from 1.1 on")
def test_a_readers_own_way_to_ask_stays_with_the_main_model(hymem_writer, hymem_main):
    from memos.configs.mem_reader import SimpleStructMemReaderConfig
    from memos.mem_reader.simple_struct import SimpleStructMemReader

    class Own(SimpleStructMemReader):
        def _get_llm_response(self, mem_str, *args):
            return json.loads(self.llm.generate([{"role": "user", "content": f"Mine: {mem_str}"}]))

    hymem_main.reply(None, memory_list("By my own prompt"))
    hymem_memos.enable(base_url=hymem_writer.base_url)
    made = Own(SimpleStructMemReaderConfig(**reader(hymem_main, openai(hymem_main))))
    found = made.get_memory([said("I live in Oslo.")], type="chat", info=dict(INFO))
    assert texts(found) == ["By my own prompt"]
    assert hymem_writer.chats == []


def test_fallback(hymem_writer, hymem_main, events):
    hymem_writer.reply(None, "")
    hymem_main.reply(None, memory_list("Lives in Oslo"))
    hymem_memos.enable(base_url=hymem_writer.base_url, on_failure="fallback")
    made = build("simple_struct", reader(hymem_main, openai(hymem_main)))
    found = made.get_memory([said("I live in Oslo.")], type="chat", info=dict(INFO))
    assert texts(found) == ["Lives in Oslo"]
    assert "fell_back" in events[0].steps


# -- what else the multimodal reader writes --------------------------------------------------------

TOOLS = [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "weather", "arguments": {"city": "Oslo"}}]},
    {"role": "tool", "content": "tool: rain", "tool_call_id": "1"},
]


@pytest.mark.skipif(not MULTIMODAL, reason="from 2.0 on")
@pytest.mark.hymem_short
def test_a_multimodal_conversation(mem_reader, hymem_writer, hymem_main, events, monkeypatch):
    """The memories of the general LLM (preferences, tools, skills) are written by the writer, too."""
    monkeypatch.setenv("ENABLE_PREFERENCE_MEMORY", "true")
    memory = {
        "trajectory": "asked -> rain",
        "correctness": "success",
        "experience": "",
        "tool_used_status": [],
    }
    kept = {"context_summary": "About tea.", "reasoning": "", "topic": "tea"}
    hymem_writer.reply(None, memory_list("Lives in Oslo"))
    hymem_writer.reply(is_about("trajectory"), json.dumps([memory]))
    hymem_writer.reply(is_about("explicit_preference"), json.dumps([{"explicit_preference": "tea", **kept}]))
    hymem_writer.reply(is_about("implicit_preference"), json.dumps([{"implicit_preference": "hot", **kept}]))
    hymem_writer.reply(is_about("message_indices"), "[]")
    made = mem_reader("multimodal_struct")
    found = made.get_memory([[*said("I live in Oslo, and like tea."), *TOOLS]], type="chat", info=dict(INFO))
    assert {"Lives in Oslo", "asked -> rain", "About tea."} <= set(texts(found))
    assert {
        "memos.extract-multimodal",
        "memos.tool-trajectory",
        "memos.explicit-preferences",
        "memos.implicit-preferences",
    } <= {event.site for event in events}
    assert {event.outcome for event in events} <= {"ok", "empty"}
    assert hymem_main.chats == []


def is_about(word):
    return lambda body: word in str(body["messages"])


@pytest.mark.skipif(not MULTIMODAL, reason="from 2.0 on")
def test_skills(mem_reader, hymem_writer, hymem_main, events, monkeypatch):
    """Upstream dies of an object in the place of a list, and passes the name of another model."""
    from memos.mem_reader.read_skill_memory import process_skill_memory as skills

    monkeypatch.setenv("SKILLS_LLM", "another-model")
    tasks = [{"task_name": "Travel", "message_indices": [[0, 1]]}]
    skill = {"name": "Travel", "description": "How to travel", "procedure": "1. go", "update": True}
    hymem_writer.reply(None, f"<think>{{}}</think>{json.dumps(skill)}")
    hymem_writer.reply(is_about("message_indices"), json.dumps({"tasks": tasks}))
    llm = mem_reader("multimodal_struct").general_llm
    turns = [{"role": "user", "content": "I go to Oslo."}, {"role": "assistant", "content": "By train?"}]
    assert skills._split_task_chunk_by_llm(llm, turns) == {"Travel": turns}
    made = skills._extract_skill_memory_by_llm(turns, [], llm, [])
    assert (made["name"], made["update"]) == ("Travel", False)  # it names no skill that it replaces
    assert [event.site for event in events] == ["memos.skill-tasks", "memos.skill"]
    assert {sent.json["model"] for sent in hymem_writer.chats} == {"hy-memory"}
    hymem_writer.clear()
    hymem_writer.reply(None, "null")
    assert skills._extract_skill_memory_by_llm(turns, [], llm, []) is None


@pytest.mark.skipif(not MULTIMODAL, reason="from 2.0 on")
def test_a_query_is_no_write(hymem_writer, hymem_main):
    from memos.mem_reader.read_skill_memory import process_skill_memory as skills

    hymem_memos.enable(base_url=hymem_writer.base_url)
    hymem_main.reply(None, "how to travel")
    llm = build("multimodal_struct", reader(hymem_main, openai(hymem_main))).general_llm
    assert skills._rewrite_query("Travel", said("I go."), llm, True) == "how to travel"
    assert hymem_writer.chats == []


@pytest.mark.skipif(not MULTIMODAL, reason="from 2.0 on")
def test_filters(mem_reader, hymem_writer, hymem_main, events):
    """In a list, or with a verdict by number."""
    made = mem_reader()
    hymem_writer.reply(None, memory_list("Lives in Oslo", "Is a cat"))
    turns = [*said("I live in Oslo."), *said("Ah.", role="assistant")]
    ((one, two),) = made.get_memory([turns], type="chat", info=dict(INFO))
    for reply in (
        json.dumps({"1": {"keep": False, "reason": "no"}}),
        json.dumps({"verdicts": [{"index": 1, "keep": "false", "reason": "no"}]}),
    ):
        hymem_writer.clear()
        hymem_writer.reply(None, reply)
        assert made.filter_hallucination_in_memories(turns, [one, two]) == [one]
    hymem_writer.clear()
    hymem_writer.reply(None, "Both are fine.")
    assert made.filter_hallucination_in_memories(turns, [one, two]) == [one, two]
    assert events[-1].outcome == "failed"
    assert hymem_main.chats == []


# -- what is no write ------------------------------------------------------------------------------


def test_what_answers_and_shares_the_writers_object(hymem_writer, hymem_main):
    """With a main model it answers; without one it is an error that says where to put it."""
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory
    from memos.memories.textual.tree_text_memory.retrieve.task_goal_parser import TaskGoalParser

    hymem_memos.register()
    hymem_main.reply(
        None, json.dumps({"keys": [], "tags": [], "memories": [], "rephrased_instruction": "tea"})
    )
    with_main = hy_memory(hymem_writer, main_llm=openai(hymem_main))
    for given in (with_main, hy_memory(hymem_writer)):
        llm = LLMFactory.from_config(LLMConfigFactory.model_validate(given))
        parser = TaskGoalParser.__new__(TaskGoalParser)
        parser.llm = llm
        if given is with_main:
            TaskGoalParser._parse_fine(parser, "What do I drink?")
        else:
            with pytest.raises(NoMainModel, match="main_llm"):
                read_directly(llm)
    assert len(hymem_main.chats) == 1
    assert hymem_writer.chats == []


def read_directly(llm):
    """The parser swallows what is raised."""
    from memos.memories.textual.tree_text_memory.retrieve import reasoner

    code = "def reason(llm): return llm.generate([{'role': 'user', 'content': 'q'}])"
    namespace = {"__name__": reasoner.__name__}
    exec(code, namespace)
    return namespace["reason"](llm)


@DOCUMENTS
@pytest.mark.skipif(installed < Version("1.1"), reason="before, the pool is Python's own")
def test_pages_that_a_search_reads_are_not_remembered(hymem_writer, hymem_main):
    """The retriever has a mem reader of its own, and asks it as if the page were to be stored."""
    from memos.memories.textual.tree_text_memory.retrieve.bochasearch import BochaAISearchRetriever

    hymem_memos.enable(base_url=hymem_writer.base_url)
    hymem_main.reply(None, json.dumps({"key": "tea", "value": "Tea is hot.", "tags": []}))
    retriever = BochaAISearchRetriever.__new__(BochaAISearchRetriever)
    retriever.reader = build("simple_struct", reader(hymem_main, openai(hymem_main)))
    retriever.embedder = retriever.reader.embedder
    page = {"name": "Tea", "summary": "Tea is hot.", "snippet": "Tea is hot.", "url": "http://127.0.0.1/"}
    retriever._process_result(page, "tea", "tea", dict(INFO))
    assert hymem_writer.chats == []
    assert len(hymem_main.chats) == 1
