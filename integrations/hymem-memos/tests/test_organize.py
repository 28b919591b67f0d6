"""What reorganises a tree of memories: relations in a word, merged texts between tags, clusters, topics."""

from __future__ import annotations

import json

import pytest
from memos_bank import installed, openai
from packaging.version import Version

import hymem_memos
from hymem import ReplyRejected

ORGANIZE = "memos.memories.textual.tree_text_memory.organize"
OLD = installed < Version("1")
OSLO, BERGEN = "Ann lives in Oslo.", "Ann lives in Bergen."


@pytest.fixture
def llm(hymem_writer, hymem_main):
    """The user's own, whose writes are routed."""
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory

    hymem_memos.enable(base_url=hymem_writer.base_url)
    yield LLMFactory.from_config(LLMConfigFactory.model_validate(openai(hymem_main)))
    assert hymem_main.chats == []


@pytest.fixture
def embedder(hymem_main):
    import memos_bank
    from memos.configs.embedder import EmbedderConfigFactory
    from memos.embedders.factory import EmbedderFactory

    return EmbedderFactory.from_config(EmbedderConfigFactory.model_validate(memos_bank.embedder(hymem_main)))


def memory(text, at):
    from memos.memories.textual.item import TextualMemoryItem, TreeNodeTextualMemoryMetadata

    given = {"memory_type": "UserMemory", "key": "home", "embedding": [1.0, 0.0], "sources": []}
    found = TreeNodeTextualMemoryMetadata(**given, updated_at=f"2026-01-0{at}T00:00:00")
    return TextualMemoryItem(memory=text, metadata=found)


class Graph:
    """The few calls that these functions make. MemOS has no graph that is embedded, before 2.0.33 none that
    needs no server."""

    def __init__(self, *items):
        self.items = {item.id: item for item in items}
        self.added, self.deleted, self.archived = [], [], []

    def search_by_embedding(self, *args, **kwargs):
        return [{"id": each, "score": 1.0} for each in self.items]

    def get_nodes(self, ids, **kwargs):
        return [self.items[each].to_dict() for each in ids]

    def get_edges(self, *args, **kwargs):
        return []

    def add_node(self, id, memory, metadata, **kwargs):
        self.added.append(memory)

    def add_edge(self, *args, **kwargs):
        pass

    def update_node(self, id, fields, **kwargs):
        self.archived.append(id)

    def delete_node(self, id, **kwargs):
        self.deleted.append(id)


def handler(llm, embedder, graph):
    if OLD:
        from memos.memories.textual.tree_text_memory.organize.conflict import ConflictHandler

        return ConflictHandler(graph, llm, embedder)
    from memos.memories.textual.tree_text_memory.organize.handler import NodeHandler

    return NodeHandler(graph, llm, embedder)


WORDS = ("Yes", "yes.", "**yes**") if OLD else ("Contradictory", "contradictory.", "**contradictory**")


@pytest.mark.parametrize("said", [*WORDS, f"<think>independent?</think>{WORDS[0]}"])
def test_a_relation_is_one_word(llm, embedder, hymem_writer, events, said):
    """Upstream compares it to the letter, and takes all else for independent; 0.2 looks for a yes."""
    old, new = memory(OSLO, 1), memory(BERGEN, 2)
    hymem_writer.reply(None, said)
    found = handler(llm, embedder, Graph(old)).detect(new)
    assert [pair[:2] for pair in found] == [[new, old]]
    assert [event.outcome for event in events] == ["ok"]


def test_what_is_no_relation_is_refused(llm, embedder, hymem_writer):
    hymem_writer.reply(None, "They may be related, I cannot tell.")
    with pytest.raises(ReplyRejected):
        handler(llm, embedder, Graph(memory(OSLO, 1))).detect(memory(BERGEN, 2))


def resolve(made, *items):
    return made.resolve(*items) if OLD else made.resolve(*items, "contradictory")


@pytest.mark.parametrize(
    "said", ["<answer>Ann lives in Bergen now.</answer>", "So: <ANSWER> Ann lives in Bergen now. </ANSWER>"]
)
def test_two_memories_are_merged(llm, embedder, hymem_writer, said):
    old, new = memory(OSLO, 1), memory(BERGEN, 2)
    graph = Graph(old, new)
    hymem_writer.reply(None, said)
    resolve(handler(llm, embedder, graph), old, new)
    assert graph.added == ["Ann lives in Bergen now."]
    assert set(graph.archived) == {old.id, new.id}


@pytest.mark.parametrize(
    "said",
    ["Ann lives in Bergen.", "<answer></answer>", "<answer>Nora Noon</answer>", "<answer>Ann"],
)
def test_nothing_is_deleted_on_a_guess(llm, embedder, hymem_writer, said):
    """Without tags upstream dies; a short memory with the letters `no` deletes the older one."""
    old, new = memory(OSLO, 1), memory(BERGEN, 2)
    graph = Graph(old, new)
    hymem_writer.reply(None, said)
    with pytest.raises(ReplyRejected):
        resolve(handler(llm, embedder, graph), old, new)
    assert graph.deleted == graph.added == graph.archived == []


def test_a_plain_no_is_done(llm, embedder, hymem_writer):
    old, new = memory(OSLO, 1), memory(BERGEN, 2)
    graph = Graph(old, new)
    hymem_writer.reply(None, "<answer>No.</answer>")
    resolve(handler(llm, embedder, graph), old, new)
    assert graph.deleted == [old.id]


@pytest.fixture
def reorganizer(llm, embedder):
    from memos.memories.textual.tree_text_memory.organize.reorganizer import GraphStructureReorganizer

    made = GraphStructureReorganizer.__new__(GraphStructureReorganizer)
    made.llm, made.embedder = llm, embedder
    return made


def nodes(*texts):
    from memos.graph_dbs.item import GraphDBNode
    from memos.memories.textual.item import TreeNodeTextualMemoryMetadata

    found = {"memory_type": "UserMemory", "key": "k", "embedding": [1.0], "background": "", "sources": []}
    return [GraphDBNode(memory=text, metadata=TreeNodeTextualMemoryMetadata(**found)) for text in texts]


def test_clusters(reorganizer, hymem_writer, events):
    one, two, three = nodes("a", "b", "c")
    said = {"clusters": [{"ids": [one.id, two.id], "theme": "letters"}, {"ids": []}, {"ids": [three.id]}]}
    hymem_writer.reply(None, f"Here they are:\n```json\n{json.dumps(said)}\n```\nThat is all.")
    assert reorganizer._local_subcluster([one, two, three]) == [[one, two]]
    assert (events[0].site, events[0].outcome) == ("memos.clusters", "partial")


def test_the_letters_json_are_kept(reorganizer, hymem_writer):
    """Upstream takes them, and every fence, out of the whole reply."""
    value = "Ann writes json, in ``` fences."
    said = {"key": "json", "value": value, "tags": ["json"], "summary": "On json."}
    hymem_writer.reply(None, json.dumps(said))
    made = reorganizer._summarize_cluster(nodes("a", "b"), "UserMemory")
    assert (made.memory, made.metadata.key, made.metadata.tags) == (value, "json", ["json"])


def test_a_topic_without_a_text_is_refused(reorganizer, hymem_writer):
    """Up to 1.0.1 it became an empty memory."""
    hymem_writer.reply(None, json.dumps({"key": "home", "tags": []}))
    with pytest.raises(ReplyRejected):
        reorganizer._summarize_cluster(nodes("a", "b"), "UserMemory")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("cause", "CAUSE"),
        (" **NONE**.", "NONE"),
        ("The user moved since she found work.", "The user moved since she found work."),
        ('```json\n{"value": "json", "key": "k"}\n```', '{"value": "\\u006ason", "key": "k"}'),
    ],
)
def test_reasoning_about_relations(llm, embedder, hymem_writer, said, found):
    from memos.memories.textual.tree_text_memory.organize import relation_reason_detector as detectors

    made = detectors.RelationAndReasoningDetector.__new__(detectors.RelationAndReasoningDetector)
    made.llm, made.embedder = llm, embedder
    hymem_writer.reply(None, said)
    assert made._call_llm("whatever the prompt is") == found
    if found.startswith("{"):
        assert made._parse_json_result(found) == {"value": "json", "key": "k"}
