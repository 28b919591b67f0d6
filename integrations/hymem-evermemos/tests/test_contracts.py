"""What becomes of a reply that one of EverMemOS's parsers is to be given."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymem.contract import CallFacts, RawReply, Reading, Violation
from hymem_evermemos import CALL_SITES, contracts

NOTHING = CallFacts()
ALL = {site.contract.name: site.contract for site in CALL_SITES if site.contract is not None}
JSON = {name: each for name, each in ALL.items() if each.schema is not None}
FLAT = (contracts.BOUNDARIES, contracts.BOUNDARY_STEP, contracts.CLUSTER)
TEXT = st.text(max_size=60) | st.sampled_from(["{", "}", "{name}", '"', "\\", "\\{", "a\nb", "```json"])


def read(contract, value, facts=NOTHING, way="read"):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return getattr(contract, way)(RawReply(text), facts)


NESTED = st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


@pytest.mark.parametrize("contract", ALL.values(), ids=ALL)
@given(text=TEXT | NESTED.map(json.dumps))
@settings(deadline=None, max_examples=40)
def test_any_reply_ends_in_a_reading_or_a_violation(contract, text):
    for way in ("read", "salvage"):
        assert isinstance(read(contract, text, way=way), (Reading, Violation))


EXPLICIT = {"category": "home", "description": "Lives in Oslo", "evidence": "said so"}
TRAIT = {"trait": "calm", "description": "Is calm", "basis": "b", "evidence": "e"}
TOPIC = {"topic": "Tea", "summary": "Of tea.", "block_refs": "0-2", "children": []}
VALID = {
    "evermemos_boundaries": {"reasoning": "r", "boundaries": [2], "should_wait": False},
    "evermemos_boundary_step": {
        "reasoning": "r",
        "should_end": True,
        "confidence": 0.9,
        "topic_summary": "t",
    },
    "evermemos_episode": {"title": "t", "content": "c", "summary": "s"},
    "evermemos_reflection": {"title": "t", "content": "c"},
    "evermemos_facts": {"atomic_facts": {"time": "today", "atomic_fact": ["Ann lives in Oslo."]}},
    "evermemos_foresight": {
        "foresights": [
            {
                "content": "c",
                "evidence": "e",
                "start_time": "2026-01-01",
                "end_time": None,
                "duration_days": 7,
            }
        ]
    },
    "evermemos_profile": {"explicit_info": [EXPLICIT], "implicit_traits": [TRAIT]},
    "evermemos_profile_compact": {"explicit_info": [EXPLICIT], "implicit_traits": []},
    "evermemos_profile_update": {
        "operations": [
            {"action": "update", "type": "explicit_info", "index": 0, "data": {"description": "d"}}
        ],
        "update_note": "n",
    },
    "evermemos_tool_calls": {"compressed_messages": [{"role": "tool", "tool_call_id": "1", "content": "c"}]},
    "evermemos_case_worth": {"has_exploration": True, "has_user_correction": False, "reason": "r"},
    "evermemos_case": {"task_intent": "t", "approach": "a", "quality_score": 0.5, "key_insight": "k"},
    "evermemos_cluster": {"idx": 0, "reason": "r"},
    "evermemos_skills": {
        "operations": [{"action": "update", "index": 0, "data": {"confidence": 0.7}}],
        "update_note": "n",
    },
    "evermemos_skill_maturity": {"completeness": 4, "executability": 3, "evidence": 2, "clarity": 5},
    "evermemos_agent_profile": {"candidates": [{"signal": "s", "speech_act": "directive"}]},
    "evermemos_topics": {"summary": "s", "topics": [TOPIC], "keywords": ["k"]},
    "evermemos_document_summary": {"summary": "s", "subject": "t"},
    "evermemos_topic_merges": {"merges": [{"indices": [0, 2], "topic": "t", "summary": "s"}]},
    "evermemos_topic_splits": {
        "results": [
            {"original_topic": "Tea", "should_split": True, "block_refs": "0", "children": [TOPIC]},
            {"original_topic": "Milk", "should_split": False, "reason": "r"},
        ]
    },
    "evermemos_block_assignments": {"assignments": [{"block_id": 1, "topic_index": 0, "reason": "r"}]},
    "evermemos_category": {"category_id": "food"},
}


@pytest.mark.parametrize("contract", JSON.values(), ids=JSON)
def test_a_reply_as_the_prompt_asks_for_it_is_handed_on_as_it_came(contract):
    said = json.dumps(VALID[contract.name], indent=2)
    reading = read(contract, said)
    assert (reading.text, reading.steps, reading.dropped) == (said, frozenset(), 0)
    assert reading.value == VALID[contract.name]


def test_the_block_of_facts_has_two_names():
    said = '{"event_log": {"time": "today", "atomic_fact": ["a"]}}'
    assert read(contracts.FACTS, said).text == said


def with_trouble(value):
    """The same with braces in every text that is not a word."""
    if isinstance(value, str) and value not in _WORDS:
        return f"{value} }} {{name}} {{"
    if isinstance(value, list):
        return [with_trouble(each) for each in value]
    return {key: with_trouble(each) for key, each in value.items()} if isinstance(value, dict) else value


_WORDS = {"update", "explicit_info", "tool", "directive"}


@pytest.mark.parametrize("contract", JSON.values(), ids=JSON)
def test_no_brace_is_left_inside_a_text(contract):
    """EverMemOS counts them, or takes the first for the end."""
    value = with_trouble(VALID[contract.name])
    reading = read(contract, value)
    assert json.loads(reading.text) == reading.value == value
    assert reading.text == first_balanced(reading.text)
    if any(contract is each for each in FLAT):
        assert reading.text.count("{") == 1


def first_balanced(text):
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return text[: at + 1]
    return None


@pytest.mark.parametrize("contract", ALL.values(), ids=ALL)
def test_what_changes_nothing_is_read_by_the_contract_itself(contract):
    if contract.unchanged is not None:
        assert read(contract, contract.unchanged(NOTHING)).kept == 0


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (contracts.BOUNDARIES, {"reasoning": "r"}),
        (contracts.BOUNDARIES, {"boundaries": ["soon"], "should_wait": False}),
        (contracts.BOUNDARY_STEP, {"should_end": "perhaps"}),
        (contracts.EPISODE, {"title": "t"}),
        (contracts.EPISODE, {"title": "t", "content": " "}),
        (contracts.EPISODE, {"title": "t", "content": {"a": 1}}),
        (contracts.FACTS, {"atomic_facts": {"time": "today"}}),
        (contracts.FACTS, {"atomic_facts": {"time": "today", "atomic_fact": [1, {}]}}),
        (contracts.FORESIGHT, {"foresights": [{"evidence": "e"}]}),
        (contracts.PROFILE, {"profile": []}),
        (contracts.PROFILE_COMPACT, {"explicit_info": [EXPLICIT]}),
        (contracts.PROFILE_COMPACT, {"explicit_info": [], "implicit_traits": []}),
        (contracts.PROFILE_COMPACT, {"explicit_info": [EXPLICIT, {}], "implicit_traits": []}),
        (contracts.PROFILE_UPDATE, {"operations": [{"action": "forget", "type": "explicit_info"}]}),
        (contracts.PROFILE_UPDATE, {"operations": [{"action": "update", "index": 0}]}),
        (contracts.TOOLS, {"compressed_messages": [{"role": "tool"}]}),
        (contracts.WORTH, {"reason": "r"}),
        (contracts.WORTH, {"has_exploration": "perhaps"}),
        (contracts.CASE, {"task_intent": "t"}),
        (contracts.CASE, {"task_intent": "", "approach": "a"}),
        (contracts.CLUSTER, {"idx": "the first"}),
        (contracts.CLUSTER, {"reason": "r"}),
        (contracts.SKILLS, {"operations": [{"action": "add", "data": {"name": "n"}}]}),
        (contracts.MATURITY, {"completeness": 1}),
        (contracts.AGENT_PROFILE, {"candidates": [{}]}),
        (contracts.TOPICS, {"summary": "s"}),
        (contracts.MERGES, {"merges": [{"indices": [1]}]}),
        (contracts.SPLITS, {"results": [{"original_topic": "t", "should_split": "true"}]}),
        (contracts.ASSIGNMENTS, {"assignments": [{"block_id": 1}]}),
        (contracts.CATEGORY, {"category_id": None}),
    ],
)
def test_a_decision_is_never_made_up(contract, said):
    assert isinstance(read(contract, said), Violation)


@pytest.mark.parametrize(
    ("contract", "said", "made"),
    [
        (
            contracts.BOUNDARIES,
            {"boundaries": ["3", 5.0, None]},
            {"boundaries": [3, 5], "should_wait": False},
        ),
        (contracts.BOUNDARIES, {"should_wait": "true"}, {"boundaries": [], "should_wait": True}),
        (contracts.BOUNDARIES, [2], {"boundaries": [2]}),
        (contracts.BOUNDARY_STEP, {"should_end": "false"}, {"should_end": False}),
        (contracts.EPISODE, {"subject": "t", "episode": "c"}, {"title": "t", "content": "c"}),
        (contracts.EPISODE, {"content": ["a", "b"]}, {"content": "a\nb", "title": ""}),
        (
            contracts.FACTS,
            {"memories": ["a", {"fact": "b"}]},
            {"atomic_facts": {"time": "unknown", "atomic_fact": ["a", "b"]}},
        ),
        (contracts.FACTS, ["a"], {"atomic_facts": {"time": "unknown", "atomic_fact": ["a"]}}),
        (
            contracts.FORESIGHT,
            {"foresights": ["c", {"foresight": "d", "duration_days": "7"}]},
            {"foresights": [{"content": "c"}, {"foresight": "d", "content": "d", "duration_days": 7.0}]},
        ),
        (
            contracts.PROFILE,
            {"explicit_info": ["Lives in Oslo"], "implicit_traits": [{"trait": "calm"}]},
            {
                "explicit_info": [{"description": "Lives in Oslo"}],
                "implicit_traits": [{"trait": "calm", "description": "calm"}],
            },
        ),
        (contracts.PROFILE, {"explicit_info": [EXPLICIT]}, {"implicit_traits": []}),
        (
            contracts.WORTH,
            {"has_exploration": "true"},
            {"has_exploration": True, "has_user_correction": False},
        ),
        (contracts.CASE, {"task_intent": "t", "approach": ["a", "b"]}, {"approach": "a\nb"}),
        (contracts.CLUSTER, {"idx": "new"}, {"idx": -1}),
        (contracts.CLUSTER, {"idx": "2", "reason": {"a": 1}}, {"idx": 2}),
        (
            contracts.TOPICS,
            {"topics": [{"name": "Tea", "block_refs": [0, 1], "children": [{"topic": "Milk"}]}]},
            {
                "topics": [
                    {"name": "Tea", "topic": "Tea", "block_refs": "0,1", "children": [{"topic": "Milk"}]}
                ]
            },
        ),
    ],
)
def test_what_is_nearly_right_is_made_so(contract, said, made):
    reading = read(contract, said)
    found = json.loads(reading.text)
    assert {name: found[name] for name in made} == made
    assert "normalised" in reading.steps


ONE_OF_EACH = contracts.offered(explicit_info=["a", "b", "c"], implicit_traits=["t"])


def operation(action, kind="explicit_info", **more):
    return {"action": action, "type": kind, **more}


@pytest.mark.parametrize(
    ("said", "done", "dropped"),
    [
        # A deletion moves what is behind it: so it comes after the updates, the last one first.
        (
            [operation("delete", index=0), operation("update", index=2, data={"description": "x"})],
            [operation("update", index=2, data={"description": "x"}), operation("delete", index=0)],
            0,
        ),
        (
            [operation("delete", index=0), operation("delete", index=2)],
            [operation("delete", index=2), operation("delete", index=0)],
            0,
        ),
        ([operation("delete", index="1")], [operation("delete", index=1)], 0),
        (
            [operation("delete", index=1, reason="x"), operation("delete", index=1, reason="y")],
            [operation("delete", index=1, reason="x")],
            1,
        ),
        (
            [operation("update", index=1, data={"description": "x", "evidence": None, "category": ""})],
            [operation("update", index=1, data={"description": "x"})],
            0,
        ),
        (
            [operation("update", index=1, data={"description": ""}), operation("none")],
            [operation("none")],
            1,
        ),
        (
            [{"action": "update", "index": 0, "data": {"description": "x"}}, operation("none")],
            [operation("none")],
            1,
        ),
        (
            [operation("update", index=1, data={"description": "x"}), operation("delete", index=1)],
            [operation("update", index=1, data={"description": "x"})],
            1,
        ),
        ([operation("delete", index=7), operation("none")], [operation("none")], 1),
        (
            [operation("update", index=7, data={"description": "x"})],
            [operation("add", data={"description": "x"})],
            0,
        ),
        (
            [{"action": "ADD", "type": "explicit", "description": "x"}],
            [{"action": "add", "type": "explicit_info", "description": "x", "data": {"description": "x"}}],
            0,
        ),
        (
            [{"action": "add", "data": {"trait": "calm", "basis": "b"}}],
            [operation("add", "implicit_traits", data={"trait": "calm", "basis": "b", "description": "b"})],
            0,
        ),
        ([{"action": "delete", "type": "facts", "index": 0}, operation("none")], [operation("none")], 1),
        ([operation("delete", index=7)], [{"action": "none"}], 1),
    ],
)
def test_what_is_done_to_a_profile(said, done, dropped):
    reading = read(contracts.PROFILE_UPDATE, {"operations": said}, ONE_OF_EACH)
    assert json.loads(reading.text)["operations"] == done
    assert reading.dropped == dropped


def test_an_update_of_a_skill_that_was_not_offered_is_an_addition():
    new = {"name": "n", "content": "c"}
    said = {
        "operations": [
            {"action": "update", "index": 3, "data": new},
            {"action": "update", "index": 0, "data": {"confidence": 1}},
        ]
    }
    reading = read(contracts.SKILLS, said, contracts.offered(skills=["a"]))
    assert json.loads(reading.text)["operations"] == [{"action": "add", "data": new}, said["operations"][1]]
    assert isinstance(
        read(contracts.SKILLS, {"operations": [said["operations"][1]]}, contracts.offered(skills=[])),
        Violation,
    )


CALL = {"id": "1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}


def test_as_many_messages_as_there_were_and_of_their_kinds():
    facts = contracts.offered(messages=["assistant:1", "tool:1"])
    asks = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    answers = {"role": "tool", "tool_call_id": "1", "content": "c"}
    assert read(contracts.TOOLS, {"compressed_messages": [asks, answers]}, facts).steps == frozenset()
    bad = [[asks], [answers, asks], [{"role": "assistant"}, {"role": "assistant"}], [asks, {"role": "tool"}]]
    for messages in (*bad, [{**asks, "tool_calls": []}, answers], [asks, {**answers, "content": None}]):
        assert isinstance(read(contracts.TOOLS, {"compressed_messages": messages}, facts), Violation)
    loose = {**CALL, "function": {"name": "grep", "arguments": {"a": 1}}}
    said = [{**asks, "tool_calls": [loose]}, {"role": "tool", "content": [{"type": "text", "text": "c"}]}]
    made = json.loads(read(contracts.TOOLS, {"compressed_messages": said}, facts).text)["compressed_messages"]
    assert made[0]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert made[1] == answers


def test_nothing_that_overwrites_is_done_on_a_guess():
    said = json.dumps({"operations": [operation("delete", index=0)]})
    quoted = json.dumps({"operations": [operation("delete", index=1)]})
    assert isinstance(read(contracts.PROFILE_UPDATE, f"{quoted} or {said}", ONE_OF_EACH), Violation)


def test_parts_that_are_lost_are_counted():
    said = {"summary": "s", "topics": [{"topic": "Tea", "children": [{"summary": "x"}, {"topic": "Milk"}]}]}
    reading = read(contracts.TOPICS, said)
    assert (reading.kept, reading.dropped) == (1, 1)
    merges = {"merges": [{"indices": [0, 1]}, {"indices": [1, 2]}]}
    assert json.loads(read(contracts.MERGES, merges).text)["merges"] == [{"indices": [0, 1]}]


def test_a_profile_that_is_cut_is_not_taken_for_a_whole_one():
    said = json.dumps({"explicit_info": [EXPLICIT], "implicit_traits": [TRAIT, TRAIT]})
    for at in (said.index("calm"), said.rindex("calm")):
        assert isinstance(read(contracts.PROFILE, said[:at], way="salvage"), Violation)
