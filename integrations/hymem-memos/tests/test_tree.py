"""A tree of memories on a real PostgreSQL: written, found, related and corrected."""

from __future__ import annotations

import json
import time

import pytest
from memos_bank import embedder, hy_memory, memory_list, openai, reader, said
from memos_postgres import graph, postgres

import hymem_memos

OSLO, BERGEN = "Ann lives in Oslo by the sea", "Ann lives in Bergen by the sea"
INFO = {"user_id": "ann", "session_id": "one"}


@pytest.fixture
def database():
    with postgres() as place:
        yield place


@pytest.fixture
def vectors(database):
    """As MemOS expects them. Its backend gives them as text, by which the reorganizer dies and a search that
    leaves out what is alike finds nothing."""
    import psycopg2
    from psycopg2 import extensions

    connection = psycopg2.connect(host=database, user="postgres", dbname="postgres")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'vector'::regtype::oid")
        (oid,) = cursor.fetchone()
    connection.close()
    kind = extensions.new_type((oid,), "VECTOR", lambda text, _: text and json.loads(text))
    extensions.register_type(kind)
    yield
    extensions.string_types.pop(oid)


@pytest.fixture
def tree(database, vectors, hymem_writer, hymem_main):
    from memos.configs.memory import TreeTextMemoryConfig
    from memos.memories.textual.tree import TreeTextMemory

    hymem_memos.register()
    given = {
        "extractor_llm": hy_memory(hymem_writer),
        "dispatcher_llm": openai(hymem_main),
        "reorganize": True,
    }
    given |= {"embedder": embedder(hymem_main), "graph_db": graph(database)}
    made = TreeTextMemory(TreeTextMemoryConfig(**given))
    yield made
    made.memory_manager.close()
    made.graph_store.pool.closeall()


@pytest.fixture
def remember(tree, hymem_writer, hymem_main):
    from memos.configs.mem_reader import SimpleStructMemReaderConfig
    from memos.mem_reader.simple_struct import SimpleStructMemReader

    given = SimpleStructMemReaderConfig(**reader(hymem_main, hy_memory(hymem_writer)))
    made = SimpleStructMemReader(given)

    def write(text, memory):
        hymem_writer.reply("memory list", memory_list(memory))
        (items,) = made.get_memory([said(text)], type="chat", info=dict(INFO))
        return tree.add(items, user_name="ann")

    return write


def found(tree):
    items = tree.search("Where does Ann live?", top_k=5, info=dict(INFO), mode="fast", user_name="ann")
    return {item.memory for item in items}


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    assert condition()


def test_what_is_written_is_found_and_related(tree, remember, hymem_writer, hymem_main, events):
    hymem_writer.reply("contradictory", "The two are contradictory.")
    hymem_writer.reply("<answer>", "<answer>Ann lives in Bergen by the sea, and no longer in Oslo</answer>")
    remember("I live in Oslo.", OSLO)
    assert found(tree) == {OSLO}
    remember("I live in Bergen now.", BERGEN)
    wait_for(lambda: any(event.site == "memos.resolve" for event in events))
    assert [(event.site, event.outcome) for event in events if event.site != "memos.extract"] == [
        ("memos.relation", "ok"),
        ("memos.resolve", "ok"),
    ]
    assert hymem_main.chats == []


def test_feedback_corrects_a_memory(tree, remember, hymem_writer, hymem_main, events):
    from memos.mem_feedback.simple_feedback import SimpleMemFeedback

    hymem_writer.reply("contradictory", "independent")
    (known,) = remember("I live in Oslo.", OSLO)
    judged = {"validity": "true", "user_attitude": "dissatisfied", "corrected_info": BERGEN}
    judged |= {"key": "home", "tags": ["home"]}
    change = {"id": known, "text": BERGEN, "operation": "UPDATE", "old_memory": OSLO}
    hymem_writer.reply("if_keyword_replace", '{"if_keyword_replace": "false"}')
    hymem_writer.reply("user_attitude", json.dumps([judged]))
    asks = '"operations"'
    operations = json.dumps({"operations": [change]})
    hymem_writer.reply(lambda body: asks in body["messages"][0]["content"], operations)
    hymem_main.reply(None, "I see.")
    feedback = SimpleMemFeedback(
        llm=tree.extractor_llm,
        embedder=tree.embedder,
        graph_store=tree.graph_store,
        memory_manager=tree.memory_manager,
        mem_reader=None,
        searcher=None,
        reranker=None,
        pref_feedback=False,
    )
    done = feedback.process_feedback(
        "ann",
        "ann",
        [{"role": "user", "content": "Where do I live?"}, {"role": "assistant", "content": "In Oslo."}],
        "No, in Bergen.",
        retrieved_memory_ids=[known],
    )
    assert [each["text"] for each in done["record"]["update"]] == [BERGEN]
    assert found(tree) == {BERGEN}
    assert {"memos.feedback-keyword", "memos.feedback-judge", "memos.feedback-operations"} <= {
        event.site for event in events
    }
    assert {event.outcome for event in events} <= {"ok", "empty"}
    assert hymem_main.chats == []
