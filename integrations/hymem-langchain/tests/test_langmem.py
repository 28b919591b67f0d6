"""langmem's managers, thread extractor and running summary: tool calls without flags on the server, and
errors that trustcall would swallow."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from adapter import USERS_KEY
from langchain_memory import HAS_LANGMEM

if not HAS_LANGMEM:
    pytest.skip("langmem is not in this cell", allow_module_level=True)

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from langmem import create_memory_manager, create_memory_store_manager, create_thread_extractor
from langmem.short_term import RunningSummary, SummarizationNode, asummarize_messages, summarize_messages
from pydantic import BaseModel, ConfigDict, Field

import hymem_langchain
from hymem import HymemError, ReplyRejected, Writer, WriterUnavailable
from hymem_langchain import ChatHyMemory

WAYS = ("sync", "async")
SAID = [HumanMessage("I live in Oslo."), AIMessage("I see.")]
OLD = [("1", "Memory", {"content": "Lives in Bergen"}), ("2", "Memory", {"content": "Has a cat"})]


@pytest.fixture
def main(hymem_main):
    hymem_main.reply(None, "an answer")
    given = {"model": hymem_main.model, "base_url": hymem_main.base_url, "api_key": USERS_KEY}
    return ChatOpenAI(**given, max_retries=0)


@pytest.fixture(params=["enabled", "attached", "given"])
def manager(request, main, hymem_writer):
    """A memory manager that the writer writes for, in one of the three ways."""

    handles = []

    def make(**given):
        settings = {"base_url": hymem_writer.base_url, **given.pop("settings", {})}
        if request.param == "given":
            return create_memory_manager(ChatHyMemory(**settings), **given)
        if request.param == "enabled":
            hymem_langchain.enable(**settings)
        made = create_memory_manager(main, **given)
        if request.param == "attached":
            handles.append(hymem_langchain.attach(made, **settings))
        return made

    yield make
    for handle in handles:
        handle.disable()


def ask(runnable, way, given, **more):
    if way == "sync":
        return runnable.invoke(given, **more)
    return asyncio.run(runnable.ainvoke(given, **more))


def calls(*made):
    return json.dumps({"calls": [{"name": name, "arguments": arguments} for name, arguments in made]})


def patch(document, value, op="replace", path="/content"):
    patches = [{"op": op, "path": path, "value": value}]
    return ("PatchDoc", {"json_doc_id": document, "planned_edits": "-", "patches": patches})


def contents(memories):
    return [(memory.id, getattr(memory.content, "content", memory.content)) for memory in memories]


# -- writing, changing, deleting -----------------------------------------------------------------


@pytest.mark.hymem_short
@pytest.mark.parametrize("way", WAYS)
def test_new_memories(manager, hymem_writer, hymem_main, events, way):
    hymem_writer.reply(None, calls(("Memory", {"content": "Lives in Oslo"})))
    made = ask(manager(), way, {"messages": SAID})
    assert [text for _, text in contents(made)] == ["Lives in Oslo"]
    assert [(event.site, event.outcome, event.kept) for event in events] == [("langchain.memories", "ok", 1)]
    (sent,) = hymem_writer.chats
    assert "tools" not in sent.json
    assert "tool_choice" not in sent.json
    assert "I live in Oslo" in sent.text
    assert {each["role"] for each in sent.json["messages"]} == {"system", "user"}
    assert "Memory" in sent.json["messages"][0]["content"]  # which the template is not told of
    assert hymem_main.chats == []


@pytest.mark.parametrize("way", WAYS)
def test_a_change_an_addition_and_a_deletion(manager, hymem_writer, events, way):
    removed = ("RemoveDoc", {"json_doc_id": "2"})
    added = ("Memory", {"content": "Works at sea"})
    hymem_writer.reply(None, calls(patch("1", "Lives in Oslo"), added, removed))
    made = ask(manager(enable_deletes=True), way, {"messages": SAID, "existing": OLD})
    found = {id: text for id, text in contents(made) if id in "12"}
    assert found["1"] == "Lives in Oslo"
    assert type(next(memory.content for memory in made if memory.id == "2")).__name__ == "RemoveDoc"
    assert "Works at sea" in [text for _, text in contents(made)]
    assert events[0].kept == 3
    (sent,) = hymem_writer.chats
    kinds = sent.json["response_format"]["json_schema"]["schema"]["properties"]["calls"]
    assert [kind["properties"]["name"]["const"] for kind in kinds["items"]["anyOf"]] == [
        *("PatchDoc", "Memory", "RemoveDoc")
    ]
    assert kinds["minItems"] == 1  # trustcall wants a call


def test_nothing_to_remember(manager, hymem_writer, events):
    hymem_writer.reply(None, calls())
    assert manager().invoke({"messages": SAID}) == []
    assert events[0].outcome == "empty"


class Job(BaseModel):
    title: str
    since: int = Field(gt=1900)


class Person(BaseModel):
    """Who it is."""

    model_config = ConfigDict(extra="forbid")  # langmem #106
    name: str
    jobs: list[Job] = []


class Place(BaseModel):
    town: str


def test_schemas_with_others_inside(manager, hymem_writer, events):
    """langmem #106: the SDK refuses functions that are not strict. And `$ref` is of the root, not of the
    place where a schema stands."""
    person = {"name": "Ann", "jobs": [{"title": "sailor", "since": 2020}]}
    hymem_writer.reply(None, calls(("Person", person), ("Place", {"town": "Oslo"})))
    made = manager(schemas=[Person, Place]).invoke({"messages": SAID})
    assert [memory.content for memory in made] == [Person(**person), Place(town="Oslo")]
    schema = hymem_writer.chats[0].json["response_format"]["json_schema"]["schema"]
    named = re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(schema))
    assert named
    assert set(named) <= set(schema["$defs"])


def test_a_call_that_is_not_of_its_schema_is_repaired(manager, hymem_writer, events):
    wrong = {"name": "Ann", "jobs": [{"title": "sailor", "since": 20}]}

    def repaired(body):
        document = re.search(r"json_doc_id=\[(\w+)\]", str(body["messages"]))[1]
        changed = [{"op": "replace", "path": "/jobs/0/since", "value": 2020}]
        arguments = {"json_doc_id": document, "planned_edits": "-", "patches": changed}
        return calls(("PatchFunctionErrors", arguments))

    hymem_writer.reply(lambda body: "PatchFunctionErrors" in str(body["messages"][0]), repaired)
    hymem_writer.reply(
        lambda body: "PatchFunctionErrors" not in str(body["messages"][0]), calls(("Person", wrong))
    )
    (made,) = manager(schemas=[Person]).invoke({"messages": SAID})
    assert made.content.jobs[0].since == 2020
    assert [event.outcome for event in events] == ["ok", "ok"]
    assert {each["role"] for each in hymem_writer.chats[1].json["messages"]} <= {
        "system",
        "user",
        "assistant",
    }


def test_several_steps(manager, hymem_writer, events):
    hymem_writer.reply(None, calls(("Memory", {"content": "Lives in Oslo"})), times=1)
    hymem_writer.reply(lambda body: "Done" in str(body["messages"][0]), calls(("Done", {})))
    made = manager().invoke({"messages": SAID, "max_steps": 3})
    assert [text for _, text in contents(made)] == ["Lives in Oslo"]
    assert len(hymem_writer.chats) == 2
    assert not any(each["role"] == "tool" for each in hymem_writer.chats[1].json["messages"])


def test_native_calls_when_asked(hymem_writer, events):
    function = {"name": "Memory", "arguments": '{"content": "Lives in Oslo"}'}
    hymem_writer.reply(None, "", tool_calls=[{"id": "1", "type": "function", "function": function}])
    model = ChatHyMemory(base_url=hymem_writer.base_url, tool_mode="native")
    (made,) = create_memory_manager(model).invoke({"messages": SAID})
    assert made.content.content == "Lives in Oslo"
    assert [tool["function"]["name"] for tool in hymem_writer.chats[0].json["tools"]] == ["Memory"]
    assert "response_format" not in hymem_writer.chats[0].json


# -- what goes wrong -----------------------------------------------------------------------------

WITHOUT_ID = ("PatchDoc", {"planned_edits": "-", "patches": []})
WITHOUT_PLACE = patch("1", "x", path="/no/such")
BAD = {
    "status 500": {"status": 500, "body": {}},
    "status 400": {"status": 400, "body": {"error": {"message": "no"}}},
    "empty": {"content": ""},
    "a thought": {"content": "<think>He lives"},
    "prose": {"content": "I remember that he lives in Oslo."},
    "no call": {"content": calls()},
    "a patch without an id": {"content": calls(WITHOUT_ID)},
    "a patch of another": {"content": calls(patch("9", "x"))},
    "a patch of no place": {"content": calls(WITHOUT_PLACE)},
    "an unknown function": {"content": calls(("Memorise", {"content": "x"}))},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reply", BAD.values(), ids=BAD)
def test_an_error_ends_a_change_at_once(manager, hymem_writer, events, reply, way):
    """langmem #133, trustcall #13 and #10: upstream asks 25 times, and tells of a recursion limit."""
    hymem_writer.reply(None, **reply)
    made = manager()
    with pytest.raises(HymemError) as raised:
        ask(made, way, {"messages": SAID, "existing": OLD})
    assert isinstance(raised.value, (WriterUnavailable, ReplyRejected))
    assert len(hymem_writer.chats) <= 3
    assert [event.outcome for event in events] == ["failed"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reply", [BAD["status 500"], BAD["prose"]], ids=["status 500", "prose"])
def test_an_error_without_memories_yet(manager, hymem_writer, events, reply, way):
    hymem_writer.reply(None, **reply)
    made = manager()
    with pytest.raises(HymemError):
        ask(made, way, {"messages": SAID})
    assert [event.outcome for event in events] == ["failed"]


def test_what_trustcall_cannot_repair_is_told(manager, hymem_writer):
    """Upstream: three requests, then nothing, without a word."""
    hymem_writer.reply(None, calls(("Person", {"name": "Ann", "jobs": [{"title": "x", "since": 1}]})))
    made = manager(schemas=[Person])
    with pytest.raises(ReplyRejected):
        made.invoke({"messages": SAID})


def test_skipped_nothing_changes(manager, hymem_writer, events):
    hymem_writer.reply(None, status=500, body={})
    made = manager(settings={"on_failure": "skip"}).invoke({"messages": SAID, "existing": OLD})
    assert {memory.id: memory.content["content"] for memory in made} == {
        "1": "Lives in Bergen",
        "2": "Has a cat",
    }
    assert [event.outcome for event in events] == ["failed"]


def test_fallback_is_the_main_model_with_its_own_functions(main, hymem_writer, hymem_main):
    hymem_writer.reply(None, status=500, body={})
    function = {"name": "Memory", "arguments": '{"content": "Lives in Oslo"}'}
    hymem_main.clear()
    hymem_main.reply(None, "", tool_calls=[{"id": "1", "type": "function", "function": function}])
    hymem_langchain.enable(base_url=hymem_writer.base_url, on_failure="fallback")
    (made,) = create_memory_manager(main).invoke({"messages": SAID})
    assert made.content.content == "Lives in Oslo"
    assert hymem_main.chats[0].json["tools"][0]["function"]["name"] == "Memory"


def test_native_calls_of_a_server_without_the_flags(hymem_writer):
    """vllm #55754: both flags are needed, and what the server says names one."""
    hymem_writer.reply(None, status=400, body={"error": {"message": "no", "type": "BadRequestError"}})
    model = ChatHyMemory(base_url=hymem_writer.base_url, tool_mode="native")
    with pytest.raises(WriterUnavailable, match=r"--enable-auto-tool-choice.*--tool-call-parser"):
        model.bind_tools([Person], tool_choice="any").invoke("x")


def test_a_server_that_does_not_hold_to_required(hymem_writer):
    """vllm #54808: prose where a call was required."""
    hymem_writer.reply(None, "He lives in Oslo.")
    model = ChatHyMemory(base_url=hymem_writer.base_url, tool_mode="native")
    with pytest.raises(ReplyRejected, match=r"--enable-auto-tool-choice.*--tool-call-parser"):
        model.bind_tools([Person], tool_choice="any").invoke("x")


# -- a store, and what is searched for it --------------------------------------------------------


@pytest.mark.hymem_short
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", ["enabled", "attached"])
def test_a_store(main, hymem_writer, hymem_main, made, way):
    """What is searched for is the query model's; what is kept, phases included, the writer's."""
    search = {"name": "search_memory", "arguments": '{"query": "Oslo"}'}
    hymem_main.clear()
    hymem_main.reply(None, "", tool_calls=[{"id": "1", "type": "function", "function": search}])
    hymem_writer.reply(None, calls(("Memory", {"content": "Likes the sea"})))
    hymem_writer.reply(None, calls(("Memory", {"content": "Lives in Oslo"})), times=1)
    store = InMemoryStore()
    given = {"namespace": ("ann",), "store": store, "phases": [{"include_messages": True}]}
    if made == "enabled":
        hymem_langchain.enable(base_url=hymem_writer.base_url)
    manager = create_memory_store_manager(main, query_model=main, **given)
    if made == "attached":
        handle = hymem_langchain.attach(manager, base_url=hymem_writer.base_url)
    ask(manager, way, {"messages": SAID})
    kept = {item.value["content"]["content"] for item in store.search(("ann",))}
    assert kept == {"Lives in Oslo", "Likes the sea"}
    assert len(hymem_main.chats) == 1
    assert len(hymem_writer.chats) == 2
    if made == "attached":
        handle.disable()


@pytest.mark.parametrize("way", WAYS)
def test_a_thread(main, hymem_writer, way):
    summary = {"title": "Oslo", "summary": "He lives in Oslo."}
    hymem_writer.reply(None, calls(("SummarizeThread", summary)))
    before = create_thread_extractor(main)
    hymem_langchain.enable(base_url=hymem_writer.base_url, on_failure="skip")
    extractor = create_thread_extractor(main)
    assert ask(extractor, way, {"messages": SAID}).summary == "He lives in Oslo."
    hymem_writer.clear()
    hymem_writer.reply(None, calls())
    with pytest.raises(ReplyRejected):  # there is no "nothing has changed": upstream has an IndexError
        ask(extractor, way, {"messages": SAID})
    hymem_langchain.disable()
    for each in (before, extractor):  # the main model again, which answers in prose
        with pytest.raises(IndexError):
            each.invoke({"messages": SAID})


def test_one_thread_extractor(main, hymem_writer):
    hymem_langchain.register()
    extractor = create_thread_extractor(main)
    hymem_writer.reply(None, calls(("SummarizeThread", {"title": "Oslo", "summary": "In Oslo."})))
    with hymem_langchain.attach(extractor, base_url=hymem_writer.base_url):
        assert extractor.invoke({"messages": SAID}).summary == "In Oslo."


def test_the_agents_own_tools_stay(main, hymem_writer, hymem_main):
    from langmem import create_memory_searcher, create_prompt_optimizer

    hymem_langchain.enable(base_url=hymem_writer.base_url)
    search = {"name": "search_memory", "arguments": '{"query": "Oslo"}'}
    hymem_main.clear()
    hymem_main.reply(None, "", tool_calls=[{"id": "1", "type": "function", "function": search}])
    store = InMemoryStore()
    from langgraph.graph import StateGraph

    searcher = create_memory_searcher(main, namespace=("ann",))
    graph = StateGraph(dict).add_node("search", lambda state: {"found": searcher.invoke({"messages": SAID})})
    graph.add_edge("__start__", "search")
    graph.compile(store=store).invoke({})
    assert len(hymem_main.chats) == 1
    with pytest.raises(Exception):  # noqa: B017  # whatever it makes of that answer
        create_prompt_optimizer(main, kind="prompt_memory").invoke(
            {"trajectories": [(SAID, None)], "prompt": "x"}
        )
    assert len(hymem_main.chats) == 2
    assert hymem_writer.chats == []


# -- running summaries ---------------------------------------------------------------------------


def history(*texts):
    kinds = (HumanMessage, AIMessage)
    return [kinds[at % 2](text, id=str(at)) for at, text in enumerate(texts)]


LONG = history("I live in Oslo. " * 20, "I see.", "And now?")
LIMITS = {"max_tokens": 90, "max_tokens_before_summary": 60, "max_summary_tokens": 40}


@pytest.fixture(params=["enabled", "attached", "given"])
def node(request, main, hymem_writer):
    handles = []

    def make(**settings):
        given = {"base_url": hymem_writer.base_url, **settings}
        if request.param == "given":
            return SummarizationNode(model=ChatHyMemory(**given).bind(max_tokens=128), **LIMITS)
        made = SummarizationNode(model=main.bind(max_tokens=128), **LIMITS)
        if request.param == "enabled":
            hymem_langchain.enable(**given)
        else:
            handles.append(hymem_langchain.attach(made, **given))
        return made

    yield make
    for handle in handles:
        handle.disable()


@pytest.mark.parametrize("way", WAYS)
def test_a_running_summary(node, hymem_writer, hymem_main, events, way):
    hymem_writer.reply(None, "Lives in Oslo.")
    update = ask(node(), way, {"messages": LONG})
    assert update["context"]["running_summary"].summary == "Lives in Oslo."
    assert [event.site for event in events] == ["langchain.running_summary"]
    assert hymem_writer.chats[0].json["max_tokens"] == 128
    assert hymem_main.chats == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reply", [{"content": ""}, {"status": 500, "body": {}}])
def test_a_running_summary_that_fails(node, hymem_writer, reply, way):
    hymem_writer.reply(None, **reply)
    made = node()
    with pytest.raises(HymemError):
        ask(made, way, {"messages": LONG})


@pytest.mark.parametrize("way", WAYS)
def test_a_running_summary_that_is_skipped(node, hymem_writer, way):
    """Nothing is left out: the summary before, and every message that it has nothing of."""
    hymem_writer.reply(None, status=500, body={})
    made = node(on_failure="skip")
    assert ask(made, way, {"messages": LONG})["summarized_messages"] == LONG
    before = RunningSummary("Likes tea.", {"a"}, "a")
    said = [HumanMessage("Tea?", id="a"), *LONG]
    update = ask(made, way, {"messages": said, "context": {"running_summary": before}})
    left = update["summarized_messages"]
    assert "Likes tea." in left[0].content
    assert left[1:] == LONG
    assert update["context"]["running_summary"] == before


@pytest.mark.parametrize("way", WAYS)
def test_the_function(main, hymem_writer, way):
    hymem_writer.reply(None, "Lives in Oslo.")
    hymem_langchain.enable(base_url=hymem_writer.base_url)
    import langmem.short_term as short_term

    given = {"running_summary": None, "model": main, **LIMITS}
    if way == "sync":
        made = short_term.summarize_messages(LONG, **given)
    else:
        made = asyncio.run(short_term.asummarize_messages(LONG, **given))
    assert made.running_summary.summary == "Lives in Oslo."
    hymem_langchain.disable()
    assert short_term.summarize_messages is summarize_messages
    assert short_term.asummarize_messages is asummarize_messages


@pytest.mark.parametrize("starts_with", ["assistant", "tools"])
def test_what_is_summarised_is_in_an_order_that_templates_take(hymem_writer, starts_with):
    """langmem #77, #111, #126: a summary that starts in the middle of a turn, or of parallel calls."""
    hymem_writer.reply(None, "It rains in Oslo and Bergen.")
    parallel = [
        {"id": id, "name": "weather", "args": {"town": town}} for id, town in (("a", "Oslo"), ("b", "Bergen"))
    ]
    said = {
        "assistant": history("x", "I am here. " * 30, "And now? ")[1:],
        "tools": [
            HumanMessage("How is it? " * 30, id="1"),
            AIMessage("", tool_calls=parallel, id="2"),
            ToolMessage("rain", tool_call_id="a", id="3"),
            ToolMessage("rain", tool_call_id="b", id="4"),
            HumanMessage("Thanks.", id="5"),
        ],
    }[starts_with]
    model = ChatHyMemory(base_url=hymem_writer.base_url)
    limits = {"max_tokens": 20, "max_tokens_before_summary": 10, "max_summary_tokens": 5}
    summarize_messages(said, running_summary=None, model=model, **limits)
    messages = hymem_writer.chats[0].json["messages"]
    assert {each["role"] for each in messages} <= {"user", "assistant"}
    assert messages[-1]["role"] == "user"
    assert all(isinstance(each["content"], str) and "tool_calls" not in each for each in messages)


def test_disabled_all_of_it_is_as_it_was(main, hymem_writer, hymem_main):
    import langmem.knowledge.extraction as extraction

    before = (extraction.create_extractor, extraction.MemoryManager.invoke)
    hymem_langchain.enable(base_url=hymem_writer.base_url)
    assert (extraction.create_extractor, extraction.MemoryManager.invoke) != before
    hymem_langchain.disable()
    assert (extraction.create_extractor, extraction.MemoryManager.invoke) == before
    create_memory_manager(main).invoke({"messages": SAID})
    assert len(hymem_main.chats) == 1
    assert hymem_writer.chats == []


# -- what a second look found --------------------------------------------------------------------


def test_a_thread_extractor_follows_each_switch(main, hymem_writer):
    hymem_writer.reply(None, calls(("SummarizeThread", {"title": "Oslo", "summary": "In Oslo."})))
    hymem_langchain.register()
    extractor = create_thread_extractor(main)
    for _ in range(2):
        hymem_langchain.enable(base_url=hymem_writer.base_url)
        assert extractor.invoke({"messages": SAID}).summary == "In Oslo."
        hymem_langchain.disable()
        hymem_langchain.register()
        with pytest.raises(IndexError):  # the main model, in prose
            extractor.invoke({"messages": SAID})
    writer = Writer(base_url=hymem_writer.base_url, framework="langchain")
    for _ in range(2):
        with hymem_langchain.attach(extractor, writer):
            assert extractor.invoke({"messages": SAID}).summary == "In Oslo."
    assert len(hymem_writer.chats) == 4


class Profile(BaseModel):
    likes: str
    town: str


KNOWN = [("1", "Profile", {"likes": "tea", "town": "Bergen"})]


def test_two_patches_of_one_document_are_both_kept(manager, hymem_writer, events):
    """trustcall applies each to what was there before, and langmem keeps the last."""
    hymem_writer.reply(None, calls(patch("1", "rain", path="/likes"), patch("1", "Oslo", path="/town")))
    made = manager(schemas=[Profile])
    (memory,) = made.invoke({"messages": SAID, "existing": KNOWN})
    assert memory.content == Profile(likes="rain", town="Oslo")
    hymem_writer.clear()
    hymem_writer.reply(None, calls(patch("1", "rain", path="/likes"), patch("1", "x", path="/no/such")))
    (memory,) = made.invoke({"messages": SAID, "existing": KNOWN})
    assert memory.content == Profile(likes="rain", town="Bergen")
    assert events[-1].outcome == "partial"


@pytest.mark.parametrize(
    ("existing", "document"), [([(1, "Memory", {"content": "x"})], 1), ([("1", "Memory", {})], "1")]
)
def test_a_change_that_trustcall_would_forget_is_an_error(manager, hymem_writer, existing, document):
    hymem_writer.reply(None, calls(patch(document, "Lives in Oslo", op="add")))
    made = manager()
    with pytest.raises(ReplyRejected):
        made.invoke({"messages": SAID, "existing": existing})


class Example(BaseModel):
    text: str


class Procedure(BaseModel):
    rule: str
    examples: list[Example]
    default: Example | None = None


def test_fields_that_are_called_as_words_of_json_schema(manager, hymem_writer):
    procedure = {"rule": "Ask first.", "examples": [{"text": "May I?"}]}
    hymem_writer.reply(None, calls(("Procedure", procedure)))
    (made,) = manager(schemas=[Procedure]).invoke({"messages": SAID})
    assert made.content == Procedure(**procedure)
    schema = hymem_writer.chats[0].json["response_format"]["json_schema"]["schema"]
    named = re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(schema))
    assert set(named) == {"Procedure.Example"} <= set(schema["$defs"])
    arguments = schema["properties"]["calls"]["items"]["anyOf"][0]["properties"]["arguments"]
    assert "maxLength" not in json.dumps(arguments)  # what a server closes at a bound would look whole


def is_repair(body):
    return "PatchFunctionErrors" in str(body["messages"][0])


WRONG = ("Person", {"name": "Ann", "jobs": [{"title": "sailor", "since": 20}]})


def test_a_repair_that_fails_is_skipped_and_the_other_calls_are_kept(manager, hymem_writer, events):
    hymem_writer.reply(None, calls(WRONG, ("Place", {"town": "Oslo"})))
    hymem_writer.reply(is_repair, status=500, body={})
    made = manager(schemas=[Person, Place], settings={"on_failure": "skip"}).invoke({"messages": SAID})
    assert [memory.content for memory in made] == [Place(town="Oslo")]
    assert [event.outcome for event in events] == ["ok", "failed"]


def test_as_many_repairs_as_the_user_says(manager, hymem_writer):
    def repaired(value):
        def made(body):
            document = re.search(r"json_doc_id=\[(\w+)\]", str(body["messages"]))[1]
            changed = [{"op": "replace", "path": "/jobs/0/since", "value": value}]
            arguments = {"json_doc_id": document, "planned_edits": "", "patches": changed}
            return calls(("PatchFunctionErrors", arguments))

        return made

    hymem_writer.reply(None, calls(WRONG))
    hymem_writer.reply(is_repair, repaired(2020))
    hymem_writer.reply(is_repair, repaired(30), times=3)
    config = {"configurable": {"max_attempts": 6}, "recursion_limit": 100}
    (made,) = manager(schemas=[Person]).invoke({"messages": SAID}, config=config)
    assert made.content.jobs[0].since == 2020


def test_a_summary_that_is_skipped_where_nothing_is_registered_is_an_error(hymem_writer):
    """There, an empty answer would be kept."""
    hymem_writer.reply(None, status=500, body={})
    model = ChatHyMemory(base_url=hymem_writer.base_url, on_failure="skip")
    hymem_langchain.disable()
    with pytest.raises(WriterUnavailable):
        summarize_messages(LONG, running_summary=None, model=model, **LIMITS)
