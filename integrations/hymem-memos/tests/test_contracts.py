"""What becomes of a reply that one of MemOS's parsers is to be given."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymem.contract import CallFacts, RawReply, Reading, Violation
from hymem_memos import CALL_SITES, contracts

NOTHING = CallFacts()
ALL = {site.contract.name: site.contract for site in CALL_SITES if site.contract is not None}
JSON = {name: each for name, each in ALL.items() if each.schema is not None}
TEXT = st.text(max_size=60) | st.sampled_from(["json", "``` x", "a\nb", '"', "\\", "{", "<answer>", "no"])


def read(contract, value, way="read"):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return getattr(contract, way)(RawReply(text), NOTHING)


NESTED = st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


@pytest.mark.parametrize("contract", ALL.values(), ids=ALL)
@given(text=TEXT | NESTED.map(json.dumps))
@settings(deadline=None, max_examples=40)
def test_any_reply_ends_in_a_reading_or_a_violation(contract, text):
    for way in ("read", "salvage"):
        assert isinstance(read(contract, text, way), (Reading, Violation))


MEMORY = {"key": "home", "memory_type": "UserMemory", "value": "Lives in Oslo", "tags": ["home"]}
PREFERENCE = {"context_summary": "Of tea.", "reasoning": "", "topic": "tea"}
SKILL = {"name": "Travel", "description": "How", "procedure": "1.", "experience": [], "preference": []}
SKILL |= {"examples": [], "tags": [], "update": False, "old_memory_id": ""}
VALID = {
    "memos_memories": {"memory list": [MEMORY], "summary": "s"},
    "memos_memories_or_one": {**MEMORY, "summary": "s"},
    "memos_document": MEMORY,
    "memos_naive": [{"memory": "Lives in Oslo", "metadata": {"type": "fact"}}],
    "memos_merge": {"should_merge": True, "value": "v", "merged_from": ["1"]},
    "memos_trajectories": [
        {"trajectory": "t", "correctness": "c", "experience": "e", "tool_used_status": []}
    ],
    "memos_tasks": [{"task_name": "t", "message_indices": [[0, 2], [4]]}],
    "memos_skill": SKILL,
    "memos_explicit_preferences": [{"explicit_preference": "tea", **PREFERENCE}],
    "memos_implicit_preferences": [{"implicit_preference": "tea", **PREFERENCE}],
    "memos_kept": {"0": {"keep": True, "reason": "r"}, "1": {"keep": False, "reason": "r"}},
    "memos_rewritten": {"0": {"need_rewrite": True, "rewritten": "x", "reason": "r"}},
    "memos_same": {"is_same": True},
    "memos_preference_update": {"need_update": True, "id": "1", "new_memory": "m", "new_preference": "p"},
    "memos_duplicate": {"exists": False},
    "memos_preference_operations": {"trace": [{"type": "delete", "target_id": "1"}]},
    "memos_clusters": {"clusters": [{"ids": ["1", "2"]}]},
    "memos_topic": {"key": "k", "value": "v", "tags": [], "summary": "s"},
    "memos_keyword": {"if_keyword_replace": "false", "doc_scope": None, "original": None, "target": None},
    "memos_judged": [
        {"validity": "true", "user_attitude": "satisfied", "corrected_info": "i", "key": "k", "tags": []}
    ],
    "memos_operations": {"operations": [{"id": "1", "text": "t", "operation": "UPDATE", "old_memory": "o"}]},
    "memos_approved": {"operations_judgement": [{"id": "1", "judgement": "INVALID", "reason": "r"}]},
    "memos_implicit_preference": {"implicit_preference": "tea", **PREFERENCE},
    "memos_motives": [{"motive_id": "m", "description": "d", "memory_ids": ["1"]}],
    "memos_insight": {"dream_content": "d", "hypothetical_question": "q"},
    "memos_binding": {"contexts": [{"ids": ["1"], "confidence": 0.9}]},
    "memos_context": {"key": "k", "memory": "m", "confidence": 0.9},
}


@pytest.mark.parametrize("contract", JSON.values(), ids=JSON)
def test_a_reply_as_the_prompt_asks_for_it_is_handed_on_as_it_came(contract):
    said = json.dumps(VALID[contract.name], indent=2)
    reading = read(contract, said)
    assert (reading.text, reading.steps, reading.dropped) == (said, frozenset(), 0)
    assert reading.value == VALID[contract.name]


def with_trouble(value):
    """The same with what MemOS's parsers take out of a reply, in every text."""
    if isinstance(value, str) and value not in _WORDS:
        return f"{value} ```json```"
    if isinstance(value, list):
        return [with_trouble(each) for each in value]
    return {key: with_trouble(each) for key, each in value.items()} if isinstance(value, dict) else value


_WORDS = {"UserMemory", "true", "false", "satisfied", "UPDATE", "INVALID", "delete", ""}


@pytest.mark.parametrize("contract", JSON.values(), ids=JSON)
def test_what_parsers_take_out_is_not_in_what_they_are_given(contract):
    value = with_trouble(VALID[contract.name])
    reading = read(contract, f"Here it is:\n```json\n{json.dumps(value)}\n```")
    assert "```" not in reading.text
    assert "json" not in reading.text
    assert json.loads(reading.text) == reading.value == value


@pytest.mark.parametrize("contract", ALL.values(), ids=ALL)
def test_what_changes_nothing_is_read_by_the_contract_itself(contract):
    if contract.unchanged is None:
        return
    found = read(contract, contract.unchanged(NOTHING))
    if contract is contracts.DOCUMENT:  # MemOS passes over an empty object; as a reply it is a bad one
        assert isinstance(found, Violation)
    elif contract is contracts.JUDGED:  # a judgement, by which nothing is done
        assert found.value[0]["validity"] == "false"
    else:
        assert found.kept == 0


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (contracts.MERGE, {"should_merge": True, "value": "v"}),
        (contracts.MERGE, {"should_merge": True, "merged_from": ["1"]}),
        (contracts.PREFERENCE_UPDATE, {"need_update": True, "id": "1"}),
        (contracts.KEYWORD, {"if_keyword_replace": "true", "original": "a"}),
        (contracts.TRACE, {"trace": [{"type": "update", "target_id": "1"}]}),
        (contracts.TRACE, {"trace": [{"type": "forget", "target_id": "1"}]}),
        (contracts.ANSWER, "<answer>a</answer> or <answer>b</answer>"),
        (contracts.RELATION, "contradictory or redundant"),
        (contracts.RELATION, "not contradictory"),
        (contracts.RELATION, "The statements aren't contradictory."),
        (contracts.RELATION, "non-contradictory"),
        (contracts.RELATION, "They can never be redundant."),
        (contracts.YES_OR_NO, "I don't think yes."),
        (contracts.YES_OR_NO, "..."),
        (contracts.TRACE, {"trace": []}),
        (contracts.KEPT, [{"memory": "Is a king", "keep": False}]),
        (contracts.REWRITTEN, {"0": {"need_rewrite": False}, "1": {"rewritten": "x"}}),
        (contracts.YES_OR_NO, "yes and no"),
        (contracts.SAME, {"is_same": "perhaps"}),
        (contracts.KEPT, [{"index": 0, "keep": False}, {"index": 0, "keep": True}]),
        (contracts.OPERATIONS, {"operations": [{"operation": "UPDATE", "id": "1"}]}),
    ],
)
def test_a_decision_is_never_made_up(contract, said):
    assert isinstance(read(contract, said), Violation)


@pytest.mark.parametrize(
    ("contract", "value", "text"),
    [
        (contracts.KEPT, {"0": {"keep": False, "reason": ""}}, '{"0": {"keep": false, "reason": ""}'),
        (contracts.MERGE, None, '{"should_merge": true, "value": "v", "merged_from": ["1"],}'),
        (contracts.SKILL, None, json.dumps({**SKILL, "update": True, "old_memory_id": "1"})[:-1]),
    ],
)
def test_nothing_is_overwritten_on_a_guess(contract, value, text):
    assert isinstance(read(contract, text, "salvage"), Violation)


def test_several_memories_of_one_piece_of_a_document():
    said = {"memory list": [MEMORY, {**MEMORY, "value": "Has a cat", "tags": ["cat"]}]}
    found = read(contracts.DOCUMENT, said)
    assert found.value["value"] == "Lives in Oslo\nHas a cat"
    assert found.value["tags"] == ["home", "cat"]


def test_ways_to_say_that_there_is_no_skill():
    for said in ("null", "```json\nnull\n```", "<think>hm</think>None"):
        assert (read(contracts.SKILL, said).text, read(contracts.SKILL, said).kept) == ("null", 0)


def test_who_asks_within_a_comprehension_asks_for_the_function_around_it():
    from hymem_memos.models import asking

    names = {"__name__": "memos.memories.textual.naive", "generate": lambda: asking(1)}
    exec("def extract(): return [generate() for _ in range(2)]", names)
    assert [site and site.id for site in names["extract"]()] == ["memos.naive-extract"] * 2
