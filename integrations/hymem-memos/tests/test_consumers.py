"""The consumers that no other test reaches: preferences in a bank of their own, dreams, files."""

from __future__ import annotations

import json

import pytest
from memos_bank import installed, openai
from packaging.version import Version

import hymem_memos
from hymem import HymemError

HAS_PREFERENCES = pytest.mark.skipif(installed < Version("1.1"), reason="from 1.1 on")
HAS_FILES = pytest.mark.skipif(installed < Version("2"), reason="from 2.0 on")
HAS_DREAMS = pytest.mark.skipif(installed < Version("2.0.19"), reason="from 2.0.19 on")


@pytest.fixture
def llm(hymem_writer, hymem_main):
    """The user's own, whose writes are routed."""
    from memos.configs.llm import LLMConfigFactory
    from memos.llms.factory import LLMFactory

    hymem_memos.enable(base_url=hymem_writer.base_url)
    yield LLMFactory.from_config(LLMConfigFactory.model_validate(openai(hymem_main)))
    assert hymem_main.chats == []


# -- preferences (with Milvus, which no wheel has) -------------------------------------------------


@HAS_PREFERENCES
def test_preferences_are_extracted(llm, hymem_writer, events):
    from memos.memories.textual.prefer_text_memory.extractor import NaiveExtractor

    made = NaiveExtractor.__new__(NaiveExtractor)
    made.llm_provider = llm
    kept = {"context_summary": "Of tea.", "reasoning": "", "topic": "tea"}
    hymem_writer.reply(None, f"So: {json.dumps([{'explicit_preference': 'tea', **kept}])} That is all.")
    assert made.extract_explicit_preference("I like tea.") == [{"preference": "tea", **kept}]
    assert events[0].site == "memos.explicit-preferences"


@HAS_PREFERENCES
@pytest.mark.parametrize("listed", [False, True])
def test_an_implicit_preference(llm, hymem_writer, events, listed):
    """1.1 takes one object, 2.0 a list."""
    from memos.memories.textual.prefer_text_memory.extractor import NaiveExtractor

    made = NaiveExtractor.__new__(NaiveExtractor)
    made.llm_provider = llm
    kept = {"context_summary": "Of noise.", "reasoning": "", "topic": "places"}
    one = {"implicit_preference": "quiet places", **kept}
    hymem_writer.reply(None, json.dumps([one] if listed else one))
    found = made.extract_implicit_preference("It is loud here.")
    wanted = {"preference": "quiet places", **kept}
    assert found == (wanted if installed < Version("2") else [wanted])
    assert events[0].outcome == "ok"
    hymem_writer.clear()
    hymem_writer.reply(None, '{"implicit_preference": "", "context_summary": ""}')
    assert made.extract_implicit_preference("Hello.") is None


@HAS_PREFERENCES
def test_empty_preferences_are_none(llm, hymem_writer, events):
    """MemTensor/MemOS #2007: nodes without a text."""
    from memos.memories.textual.prefer_text_memory.extractor import NaiveExtractor

    made = NaiveExtractor.__new__(NaiveExtractor)
    made.llm_provider = llm
    hymem_writer.reply(None, '[{"explicit_preference": "", "context_summary": ""}]')
    assert made.extract_explicit_preference("I like tea.") is None
    assert events[0].outcome == "failed"


@HAS_PREFERENCES
def test_what_is_decided_about_preferences(llm, hymem_writer, events):
    from memos.memories.textual.prefer_text_memory.adder import NaiveAdder

    made = NaiveAdder.__new__(NaiveAdder)
    made.llm_provider = llm
    hymem_writer.reply(None, "<think>{hm}</think>" + json.dumps({"is_same": "True"}))
    assert made._judge_update_or_add_fast("tea", "Tea") is True
    hymem_writer.clear()
    change = {"need_update": True, "id": "1", "new_memory": "m", "new_preference": "p"}
    hymem_writer.reply(None, json.dumps(change))
    assert made._judge_update_or_add_fine("new", "old") == change
    hymem_writer.clear()
    trace = {"trace": [{"type": "ADD", "target_id": "1"}, {"type": "DELETE", "target_id": "2"}]}
    hymem_writer.reply(None, json.dumps(trace))
    assert made._judge_update_or_add_trace_op("new", "old") == trace
    hymem_writer.clear()
    trace["trace"].append({"type": "UPDATE", "target_id": "2"})  # without what it is to say
    hymem_writer.reply(None, json.dumps(trace))
    assert made._judge_update_or_add_trace_op("new", "old") is None  # then MemOS adds what is new
    assert [(event.site, event.outcome) for event in events] == [
        ("memos.preference-same", "empty"),
        ("memos.preference-update", "ok"),
        ("memos.preference-operations", "ok"),
        ("memos.preference-operations", "failed"),
    ]


# -- files -----------------------------------------------------------------------------------------


@HAS_FILES
@pytest.mark.parametrize("listed", [False, True])
def test_a_file(llm, hymem_writer, listed):
    """MemTensor/MemOS #1124: sometimes a list, sometimes one memory."""
    from memos.mem_reader.read_multi_modal.file_content_parser import FileContentParser

    made = FileContentParser.__new__(FileContentParser)
    made.llm = llm
    one = {"key": "house", "value": "Built in 1901", "tags": []}
    hymem_writer.reply(None, json.dumps([one] if listed else one))
    found = made._get_doc_llm_response("The house was built in 1901.")
    assert (found["key"], found["value"], found["memory_type"]) == (
        "house",
        "Built in 1901",
        "LongTermMemory",
    )


# -- dreams ----------------------------------------------------------------------------------------


@HAS_DREAMS
def test_dreams(llm, hymem_writer, events):
    from memos.dream.contextualization import DreamContextGroup, DreamContextSource, DreamContextualizer
    from memos.dream.pipeline.motive import MotiveFormation
    from memos.dream.pipeline.reasoning import ConsolidationReasoning

    context = {"shared": {"llm": llm}}
    memories = [
        DreamContextSource(id=f"id-{at}", memory=f"Tea {at}", metadata={}, dream={}) for at in range(3)
    ]

    class Snapshot:
        mem_cube_id, pending_memory_ids = "cube", ["id-0"]

    hymem_writer.reply(None, json.dumps({"motives": [{"description": "tea", "memory_ids": ["id-0"]}]}))
    listed = [{"id": "id-0", "content": "Tea"}]
    (cluster,) = MotiveFormation()._llm_form(llm, listed, Snapshot)
    assert cluster.motive.description == "tea"
    hymem_writer.clear()
    hymem_writer.reply(None, f"```json\n{json.dumps({'content': 'Drinks tea at night.'})}\n```")
    reasoning = ConsolidationReasoning()
    reasoning.bind_context(context)
    assert reasoning._llm_reason(llm, cluster, "cube").new_content == "Drinks tea at night."
    contextualizer = DreamContextualizer()
    contextualizer.context = context
    hymem_writer.clear()
    hymem_writer.reply(None, json.dumps({"contexts": [{"ids": ["m1", "m2"], "confidence": 0.9}]}))
    bound = contextualizer._llm_bind_candidate_pool(llm=llm, pool_key="pool", memories=memories)
    assert bound[0].memories == memories[:2]
    hymem_writer.clear()
    hymem_writer.reply(None, json.dumps({"key": "tea", "memory": "Tea, again.", "confidence": 0.9}))
    group = DreamContextGroup(group_key="pool", memories=memories)
    assert contextualizer._summarize_group(group=group)[:2] == ("tea", "Tea, again.")
    assert [event.site for event in events] == [
        "memos.dream-motives",
        "memos.dream-insight",
        "memos.dream-binding",
        "memos.dream-context",
    ]


def test_a_thought_without_its_beginning_and_nothing_after(llm, hymem_writer):
    """MemTensor/MemOS #1324: all tokens went into thinking."""
    from memos.configs.memory import NaiveTextMemoryConfig
    from memos.memories.textual.naive import NaiveTextMemory

    hymem_writer.reply(None, "think>\nplan: [read] {it}</think>")
    memory = NaiveTextMemory(NaiveTextMemoryConfig(extractor_llm=openai(_Nowhere)))
    with pytest.raises(HymemError):
        memory.extract([{"role": "user", "content": "I like tea."}])


class _Nowhere:
    base_url = "http://127.0.0.1:1/v1"
    model = "none"
