"""What becomes of a reply that one of the SDK's parsers is to be given."""

from __future__ import annotations

import importlib
import json

import pytest
from hy_memory_bank import IS_2
from hypothesis import given, settings
from hypothesis import strategies as st

from hymem.contract import CallFacts, RawReply, Reading, Violation
from hymem_hy_memory import CALL_SITES, contracts

NOTHING = CallFacts()
ALL = {site.contract.name: site.contract for site in CALL_SITES if site.contract is not None}
JSON = {name: each for name, each in ALL.items() if each.schema is not None}
TROUBLE = ["```", "```json", "{", "}", "[]", "[{", "{name}", '"', "\\", "a\nb", "<think>", "null", "饮茶。"]
TEXT = st.text(max_size=60) | st.sampled_from(TROUBLE)
NESTED = st.recursive(TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


def read(contract, value, facts=NOTHING, way="read", **reply):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return getattr(contract, way)(RawReply(text, **reply), facts)


@pytest.mark.parametrize("contract", ALL.values(), ids=ALL)
@given(text=TEXT | NESTED.map(json.dumps))
@settings(deadline=None, max_examples=40)
def test_any_reply_ends_in_a_reading_or_a_violation(contract, text):
    for way in ("read", "salvage"):
        assert isinstance(read(contract, text, way=way), (Reading, Violation))


MEMORY = {"content": "The user lives in Oslo.", "tags": ["home"], "owner": "user"}
EXPERIENCE = {
    "task": "fix CI",
    "search_keys": ["node 18"],
    "solution": "use node 20",
    "boundary_envs": "node: 20",
    "confidence": 0.9,
}
VALID = {
    "hy_memory_extract": {
        "memory": [MEMORY],
        "intentions": [{**MEMORY, "valid_until": "2026-12-31"}],
        "basic_info": {"name": "Ann", "age": 30},
    },
    "hy_memory_reconcile": [
        {"op": "ADD", "content": "a", "owner": "user", "tags": ["t"]},
        {"op": "UPDATE", "memory_id": "m1", "content": "b", "owner": "user", "tags": []},
        {"op": "SUPERSEDE", "memory_ids": ["m2", "m3"], "content": "c", "supersede_reason": "r"},
    ],
    "hy_memory_search_queries": ["where Ann lives"],
    "hy_memory_rolled": {
        "summary_list": [{"content": "c", "topic": "t", "line_ids": [0, 1], "is_continuation": False}],
        "keep_line_ids": [2],
    },
    "hy_memory_boundaries": {"reasoning": "r", "event_count": 2, "boundaries": [3]},
    "hy_memory_capsule": {"title": "t", "summary": "s"},
    "hy_memory_scene": {"scene": "coding", "reason": "r"},
    "hy_memory_is_coding": {"is_coding": True, "reason": "r"},
    "hy_memory_work": {"experiences": [EXPERIENCE], "fact": {"statement": "s", "files": ["a.py"]}},
    "hy_memory_work_1": {"memories": [{**EXPERIENCE, "boundary_scope": "user"}]},
    "hy_memory_drafts": {
        "ops": [
            {"draft_idx": 0, "action": "UPDATE", "target_experience_id": "e1", "reason": "r"},
            {"draft_idx": 1, "action": "ADD"},
        ]
    },
    "hy_memory_drafts_1": {"ops": [{"draft_idx": 0, "action": "UPDATE", "target_memory_id": "e1"}]},
    "hy_memory_supersedes": {"ops": [{"draft_idx": 0, "supersedes": ["f1"], "reason": "r"}]},
    "hy_memory_thoughts": [
        {
            "op": "create_schema",
            "schema_kind": "behavior_pattern",
            "content": "c",
            "retrieval_text": "r",
            "evidence_list": ["f1"],
            "tags": ["t"],
            "confidence": 0.9,
        },
        {"op": "add_evidence", "node_id": "s1", "evidence_list": ["f2"]},
        {"op": "add_edge", "source_id": "s1", "target_id": "s2", "reason": "r"},
        {"op": "skip_fact", "node_id": "f3", "reason": "r"},
    ],
    "hy_memory_promoted": {"selected": [{"node_id": "f1", "reason": "r"}], "demote": []},
    "hy_memory_retired": {"retire_schema_ids": ["s1"], "reason_by_id": {"s1": "r"}},
    "hy_memory_abstracted": {"abstraction_for_embedding": "a"},
    "hy_memory_induced": {"core_pattern": "c", "reasoning": "r", "confidence": 0.8},
    "hy_memory_catalog": {"domains": {"habits_items": [1, 2], "values_coping": []}},
    "hy_memory_clauses": {"selected": [{"parent": 1, "candidates": [2]}]},
    "hy_memory_removed": {"remove": [1]},
}


@pytest.mark.parametrize("contract", JSON.values(), ids=JSON)
def test_a_reply_as_the_prompt_asks_for_it_is_handed_on_as_it_came(contract):
    said = json.dumps(VALID[contract.name], indent=2)
    reading = read(contract, said)
    assert (reading.text, reading.steps, reading.dropped) == (said, frozenset(), 0)
    assert reading.value == VALID[contract.name]
    fenced = read(contract, f"```json\n{said}\n```")
    assert json.loads(fenced.text) == reading.value
    assert "```" not in fenced.text


@pytest.mark.parametrize("contract", JSON.values(), ids=JSON)
def test_what_is_handed_on_says_what_was_read(contract):
    """Of a reply in a list or in parts, too."""
    valid = VALID[contract.name]
    inner = [next(iter(valid.values()))] if isinstance(valid, dict) else []
    for said in ([valid], *inner, *(valid if isinstance(valid, list) else [])):
        reading = read(contract, said)
        if isinstance(reading, Reading):
            assert json.loads(reading.text) == reading.value


# -- as the SDK's own parsers read it ------------------------------------------------------------------


def _of(path):
    module, _, name = path.partition(":")
    found = importlib.import_module(f"hy_memory.{module}")
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _operations(text):
    fence = _of("agent.reconciler:MemoryReconciler._strip_code_fence")
    return json.loads(fence(text))


PARSERS = {
    "hy_memory_extract": lambda text: _of("agent.extractor:Extractor._parse_json")(None, text),
    "hy_memory_reconcile": _operations,
    "hy_memory_thoughts": _of("pipelines.system2_agent:_parse_operations_json"),
}
if IS_2:
    PARSERS |= {
        "hy_memory_boundaries": _of("agent.episode_summary:_parse_json_object"),
        "hy_memory_capsule": _of("agent.episode_summary:_parse_json_object"),
        "hy_memory_promoted": _of("pipelines.system2_agent:_parse_json_object"),
        "hy_memory_retired": _of("pipelines.system2_agent:_parse_json_object"),
        "hy_memory_catalog": _of("pipelines.balanced_catalog:_parse_json_object"),
        "hy_memory_clauses": _of("pipelines.specific_supplement:_parse_json_object"),
        "hy_memory_removed": _of("pipelines.specific_supplement:_parse_json_object"),
    }


def with_words(value, word):
    """The same with `word` in every text that may say anything."""
    if isinstance(value, list):
        return [with_words(each, word) for each in value]
    if isinstance(value, dict):
        free = ("content", "reason", "reasoning", "summary", "title", "retrieval_text", "tags")
        return {
            name: _worded(each, word) if name in free else with_words(each, word)
            for name, each in value.items()
        }
    return value


def _worded(value, word):
    return [f"{each} {word}" for each in value] if isinstance(value, list) else f"{value} {word}"


@pytest.mark.parametrize("name", PARSERS)
@given(word=TEXT)
@settings(deadline=None, max_examples=60)
def test_its_own_parser_reads_what_is_meant(name, word):
    """Whatever stands in a text: a fence, a brace, a list that is empty."""
    said = json.dumps(with_words(VALID[name], word))
    for reply in (said, f"```json\n{said}\n```"):
        reading = read(ALL[name], reply)
        assert isinstance(reading, Reading)
        assert PARSERS[name](reading.text) == reading.value


@pytest.mark.parametrize("contract", ALL.values(), ids=ALL)
def test_what_changes_nothing_is_read_by_the_contract_itself(contract):
    if contract.unchanged is not None:
        facts = contracts.counted(3) if contract is contracts.ROLLED else NOTHING
        reading = read(contract, contract.unchanged(facts), facts)
        assert reading.dropped == 0
        assert reading.kept in (0, 1)  # a session is one event at least, and each scene is one


# -- extraction ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"memories": ["Lives in Oslo."]},
        {"memory": ["Lives in Oslo."]},
        {"facts": [{"fact": "Lives in Oslo."}]},
        {"identity": [{"content": "Lives in Oslo."}]},
        {"memory": {"content": "Lives in Oslo."}},
        ["Lives in Oslo."],
        [{"memory": "Lives in Oslo."}],
        {"memory": [], "facts": ["Lives in Oslo."], "basic_info": []},
        {"memory": [{"content": "Lives in Oslo.", "tags": "home"}]},
    ],
    ids=str,
)
def test_memories_under_whatever_name(said):
    (found,) = read(contracts.EXTRACT, said).value["memory"]
    assert found["content"] == "Lives in Oslo."
    assert isinstance(found.get("tags", []), list)


def test_what_is_known_of_the_user_is_something():
    reading = read(contracts.EXTRACT, {"basic_info": {"name": "Ann", "age": None}})
    assert (reading.kept, reading.value["basic_info"]["name"]) == (1, "Ann")
    assert read(contracts.EXTRACT, {"memory": ["a"], "basic_info": ["Ann"]}).dropped == 1
    assert isinstance(read(contracts.EXTRACT, "{}"), Violation)


def test_intentions_that_are_switched_off_are_memories():
    said = {"memory": [], "intentions": [{"content": "Will move.", "valid_until": None}]}
    reading = read(contracts.EXTRACT, said, CallFacts({contracts.NO_INTENTIONS: ""}))
    assert [each["content"] for each in reading.value["memory"]] == ["Will move."]
    assert reading.value["intentions"] == []
    assert read(contracts.EXTRACT, said).value["intentions"] == said["intentions"]


BROKEN = (
    '{"memory": [{"content": "a"}], "intentions": [{"content": "b"}], "basic_info": {"name": "Ann",}}',
    '{"memory": [{"content": "a"}], "intentions": [{"content": "b"},], "basic_info": {"name": "Ann"}}',
    '{"memory": [{"content": "a"}], "intentions": [{"content": "b"}], "basic_info": {"name": "Ann"}',
)


@pytest.mark.parametrize("said", BROKEN)
def test_of_a_reply_that_is_broken_behind_its_memories_all_is_kept(said):
    reading = read(contracts.EXTRACT, said, way="salvage")
    assert [len(reading.value[name]) for name in ("memory", "intentions", "basic_info")] == [1, 1, 1]
    assert (reading.kept, reading.dropped) == (3, 0)


@pytest.mark.parametrize(
    "part", [{"intentions": [{"intention": "go"}]}, {"identity": {"name": "Ann"}}, {"memory": [MEMORY, {}]}]
)
def test_one_bad_part_does_not_take_the_others_with_it(part):
    said = {"memory": [MEMORY], "basic_info": {"name": "Ann"}, **part}
    reading = read(contracts.EXTRACT, said)
    assert (reading.value["memory"], reading.value["basic_info"]) == ([MEMORY], {"name": "Ann"})
    assert (reading.kept, reading.dropped) == (2, 1)


@pytest.mark.parametrize("word", ["none", "null", "N/A", ""])
def test_a_word_for_nothing_is_no_memory(word):
    assert read(contracts.EXTRACT, {"memory": word}).value["memory"] == []
    reading = read(contracts.WORK, {"experiences": word, "fact": word})
    assert (reading.value["experiences"], reading.value["fact"]) == ([], None)


def test_a_profile_of_an_older_prompt():
    assert read(contracts.EXTRACT, {"profile": {"job": "nurse"}}).kept == 1


def test_a_reply_that_is_cut_behind_its_memories_is_told_to_be_a_part():
    said = json.dumps({"memory": [MEMORY], "intentions": [MEMORY]})[:-20]
    reading = read(contracts.EXTRACT, said, way="salvage", finish_reason="length")
    assert (reading.kept, reading.dropped) == (1, 1)


# -- reconciliation --------------------------------------------------------------------------------------

OFFERED = contracts.offered(["m1", "m2"])


def op(word, **more):
    return {"op": word, "content": "c", **more}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ([op("UPDATE", memory_id="0")], [op("ADD")]),
        ([op("UPDATE")], [op("ADD")]),
        ([op("SUPERSEDE", memory_id="nope", supersede_reason="r")], [op("ADD")]),
        ([op("SUPERSEDE", memory_ids=["m1", "nope"])], [op("SUPERSEDE", memory_id="m1")]),
        ([op("SUPERSEDE", memory_ids=["m2", "m1"])], [op("SUPERSEDE", memory_ids=["m2", "m1"])]),
        ([op("update", id="m1")], [op("UPDATE", memory_id="m1")]),
        (
            [op("UPDATE", memory_id="m1"), op("UPDATE", memory_id="m1")],
            [op("UPDATE", memory_id="m1"), op("ADD")],
        ),
        ({"ops": [op("ADD")]}, [op("ADD")]),
        ([{"reason": "r", "ops": [op("ADD")]}], [op("ADD")]),
        (op("ADD"), [op("ADD")]),
        ([{"op": "NONE"}], []),
        ([], []),
        ([{"op": "MERGE", "content": "c", "memory_id": "m1"}], [op("ADD")]),
        (["c"], [op("ADD")]),
        ([{"op": "DELETE", "memory_id": "m1"}], [{"op": "DELETE", "memory_id": "m1"}]),
        ([op("ADD"), {"op": "DELETE", "memory_id": "nope"}], [op("ADD")]),
        ([{"op": "KEEP", "content": "c"}], [op("ADD")]),
        ([{"op": "KEEP", "memory_id": "m1", "content": "c"}], []),
    ],
    ids=str,
)
def test_what_an_operation_may_name(said, meant):
    """A text is never left out for the sake of an id; an update without a text would delete."""
    reading = read(contracts.RECONCILE, said, OFFERED)
    assert reading.value == json.loads(reading.text) == meant


@pytest.mark.parametrize(
    "said",
    [
        *("", "Sure.", "{}", "[1]"),
        [{"op": "UPDATE", "memory_id": "m1"}],
        [op("ADD"), {"op": "UPDATE", "memory_id": "m1"}],
        {"ops": "none"},
    ],
    ids=str,
)
def test_no_reconciliation_at_all_is_none(said):
    assert isinstance(read(contracts.RECONCILE, said, OFFERED), Violation)


def test_of_a_reconciliation_that_is_cut_nothing_is_taken():
    said = json.dumps([op("ADD"), op("ADD", tags=["a"])])[:-8]
    assert isinstance(read(contracts.RECONCILE, said, OFFERED, "salvage", finish_reason="length"), Violation)


def test_all_that_is_new():
    memories = [{"content": "say ```", "layer": "L2_FACT", "tags": [], "owner": None}, "b"]
    assert _operations(contracts.add_all(memories)) == [
        {"op": "ADD", "content": "say ```", "tags": [], "owner": None},
        {"op": "ADD", "content": "b"},
    ]


# -- work with tools -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "experiences", "statement"),
    [
        ({"experiences": [EXPERIENCE], "fact": None}, 1, None),
        ({"experiences": [], "fact": None}, 0, None),
        ({"memories": [EXPERIENCE]}, 1, None),
        ({"memories": ["a", "b"]}, 0, "a\nb"),
        ({"experiences": [], "fact": "s"}, 0, "s"),
        ({"experiences": [], "facts": [{"statement": "s"}, {"statement": "t"}]}, 0, "s\nt"),
        ({"experiences": [{**EXPERIENCE, "solution": ["a", "b"], "boundary_envs": {"node": 20}}]}, 1, None),
        ([EXPERIENCE], 1, None),
    ],
    ids=str,
)
def test_experiences_and_a_fact(said, experiences, statement):
    """The SDK dies of a list in the place of a text, and takes one fact alone."""
    value = read(contracts.WORK, said).value
    assert len(value["experiences"]) == experiences
    assert all(
        isinstance(each[name], str) for each in value["experiences"] for name in ("task", "boundary_envs")
    )
    assert (value["fact"] or {}).get("statement") == statement


@pytest.mark.parametrize(
    "said", ["{}", "nothing", {"experiences": [{"task": "t"}]}, {"fact": {"files": []}}], ids=str
)
def test_work_of_which_nothing_can_be_had(said):
    assert isinstance(read(contracts.WORK, said), Violation)


@pytest.mark.parametrize(
    ("scope", "known", "meant"),
    [
        (None, (), "user"),
        ("project", (), "user"),
        ("project", ("workspace",), "project"),
        ("strict", ("workspace",), "user"),
        ("strict", ("workspace", "branch"), "strict"),
        ("global", (), "global"),
        ("nope", ("workspace",), "nope"),
    ],
)
def test_what_cannot_be_bound_is_the_users(scope, known, meant):
    facts = CallFacts({"": "", **dict.fromkeys(known, "")})
    (found,) = read(contracts.WORK_1, {"memories": [{**EXPERIENCE, "boundary_scope": scope}]}, facts).value[
        "memories"
    ]
    assert found["boundary_scope"] == meant


@pytest.mark.parametrize(
    "said",
    ['{"experiences": [], "fact": {"statement": "s",}}', '{"experiences": [], "fact": {"statement": "s"}'],
)
def test_of_a_fact_that_is_broken_the_text_is_kept(said):
    assert read(contracts.WORK, said, way="salvage").value["fact"] == {"statement": "s"}


def test_work_of_which_nothing_is_left_is_no_reply():
    """Not one that had nothing to say."""
    said = '{"experiences": [], "fact": {"statement": ""}}'
    assert isinstance(read(contracts.WORK, said, way="salvage"), Violation)


@pytest.mark.parametrize(
    "said", ["coding", '"Coding."', "```\ncoding\n```", "coding\nsince it is code", '{"scene": "coding."}']
)
def test_a_scene_in_a_word(said):
    assert json.loads(read(contracts.SCENE, said).text)["scene"] == "coding"


@pytest.mark.parametrize("said", ["1", '{"is_coding": true}', '{"scene": 1}'])
def test_a_scene_of_the_older_kind(said):
    assert read(contracts.SCENE, said).value["scene"] == "working"


@pytest.mark.parametrize("said", ['```json {"scene": "coding"}```', '{"label": "CODING"}'])
def test_a_scene(said):
    assert read(contracts.SCENE, said).value["scene"] == "coding"


def test_before_it_had_three_scenes():
    assert read(contracts.IS_CODING, {"is_coding": "false"}).value["is_coding"] is False
    assert read(contracts.IS_CODING, {"scene": "working"}).value["is_coding"] is True


class Candidate:
    def __init__(self, name):
        self.experience_id = self.fact_id = name


CANDIDATES = [[Candidate("e1"), Candidate("e2")], [Candidate("e3")]]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"draft_idx": "0", "action": "update", "target_experience_id": "e1"}, True),
        ({"action": "DELETE", "target_experience_id": "e3"}, True),
        ({"draft_idx": 1, "action": "UPDATE", "target_experience_id": "e1"}, False),
        ({"draft_idx": 0, "action": "UPDATE", "target_experience_id": "exp_xxx"}, False),
        ({"draft_idx": 0, "action": "UPDATE", "target_experience_id": ["e1"]}, False),
        ({"draft_idx": 0, "action": ["ADD"]}, False),
        ({"draft_idx": 0, "action": "SKIP"}, True),
    ],
    ids=str,
)
def test_what_happens_to_drafts(said, kept):
    """What is left out is added by the SDK. Before 2.0.6 it would do what it is told to any row."""
    facts = contracts.offered_to_drafts(CANDIDATES, "experience_id")
    assert len(read(contracts.DRAFTS, {"ops": [said]}, facts).value["ops"]) == kept


def test_two_drafts_do_not_change_the_same():
    facts = contracts.offered_to_drafts([[Candidate("e1")], [Candidate("e1")]], "experience_id")
    said = [{"draft_idx": at, "action": "UPDATE", "target_experience_id": "e1"} for at in (0, 1)]
    assert [each["draft_idx"] for each in read(contracts.DRAFTS, {"ops": said}, facts).value["ops"]] == [0]


def test_what_a_fact_takes_the_place_of():
    facts = contracts.offered_to_drafts(CANDIDATES, "fact_id")
    said = {"ops": [{"draft_idx": 0, "supersedes": "e1"}, {"draft_idx": 1, "supersedes": ["e1", "e3"]}]}
    value = read(contracts.SUPERSEDES, said, facts).value
    assert [each["supersedes"] for each in value["ops"]] == [["e1"], ["e3"]]


# -- sessions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "cuts"),
    [
        ({"event_count": 2, "boundaries": [2]}, [2]),
        ({"event_count": "2", "boundaries": ["2"]}, [2]),
        ({"boundaries": [4, 2]}, [2, 4]),
        ({"event_count": 3, "boundaries": [2, 9]}, [2]),
        ({"event_count": 2, "boundaries": [2, 2]}, [2]),
        ({"event_count": 2, "boundaries": 2}, [2]),
        ({"event_count": 1, "boundaries": []}, []),
        ({"event_count": 1, "boundaries": None}, []),
        ([2], [2]),
    ],
    ids=str,
)
def test_boundaries_are_one_less_than_events(said, cuts):
    value = read(contracts.BOUNDARIES, said, contracts.counted(6)).value
    assert (value["boundaries"], value["event_count"]) == (cuts, len(cuts) + 1)


@pytest.mark.parametrize(
    "said", [{"event_count": 3, "boundaries": [2]}, {"event_count": 1}, {"boundaries": "x"}], ids=str
)
def test_boundaries_that_do_not_agree(said):
    assert isinstance(read(contracts.BOUNDARIES, said, contracts.counted(6)), Violation)


def test_a_capsule_that_is_cut_is_none():
    said = '{"title": "t", "summary": "The user'
    assert isinstance(read(contracts.CAPSULE, said, way="salvage", finish_reason="length"), Violation)
    assert read(contracts.CAPSULE, {"title": None, "summary": ["a", "b"]}).value["summary"] == "a\nb"


def test_no_line_is_gone_that_a_summary_does_not_speak_of():
    said = {
        "summary_list": [
            {"content": "c", "line_ids": ["0", 1]},
            {"content": "d", "line_ids": [1, 2]},
            {"content": "", "line_ids": [3]},
        ],
        "keep_line_ids": [],
    }
    reading = read(contracts.ROLLED, said, contracts.counted(6))
    assert [each["line_ids"] for each in reading.value["summary_list"]] == [[0, 1], [2]]
    assert reading.value["keep_line_ids"] == [3, 4, 5]
    assert reading.dropped == 1


# -- System 2 --------------------------------------------------------------------------------------------

MATERIALS = {
    "clusters": [{"facts": [{"node_id": "f1"}, {"node_id": "f2"}]}],
    "graph_forward": [{"node_id": "s1"}],
    "graph_reverse": [{"schema_id": "s2"}],
}
COVERED = {"clusters": [{**MATERIALS["clusters"][0], "group_type": "source_context_review"}]}


def created(*evidence, **more):
    return {"op": "create_schema", "content": "c", "evidence_list": list(evidence), **more}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ([created("f1", "nope")], [created("f1")]),
        ([created("f1", tags=None, confidence="0.7")], [created("f1", tags=[], confidence=0.7)]),
        ([{**created("f1"), "op": "revise_schema", "node_id": "nope"}], [created("f1")]),
        (
            [{**created("f1"), "op": "revise_schema", "node_id": "s1"}],
            [{**created("f1"), "op": "revise_schema", "node_id": "s1"}],
        ),
        ([created("f1"), {"op": "add_edge", "source_id": "s1", "target_id": "nope"}], [created("f1")]),
        ({"operations": [created("f1")]}, [created("f1")]),
        (created("f1"), [created("f1")]),
        ([{"op": "skip_fact", "node_id": "f1"}], [{"op": "skip_fact", "node_id": "f1"}]),
        ([], []),
    ],
    ids=str,
)
def test_what_system_2_may_name(said, meant):
    reading = read(contracts.THOUGHTS, said, contracts.materials(MATERIALS))
    assert reading.value == json.loads(reading.text) == meant


@pytest.mark.parametrize(
    "said",
    [
        [created("nope")],
        [created()],
        [created("f1", content="")],
        [{"op": "add_evidence", "node_id": "nope", "evidence_list": ["f1"]}],
        [{"op": "delete_schema", "node_id": "s1"}],
        ["x"],
        "nothing to say",
        [{"op": "skip_fact", "node_id": "nope"}],
        [{"op": "add_edge", "source_id": "nope", "target_id": "s1"}],
    ],
    ids=str,
)
def test_what_system_2_would_settle_facts_by(said):
    """The SDK checks nothing, and holds every fact to be thought about; a failure asks again another time."""
    assert isinstance(read(contracts.THOUGHTS, said, contracts.materials(MATERIALS)), Violation)


def test_of_operations_that_are_cut_nothing_is_taken():
    """With `[]` in it, the SDK would take it for nothing to do."""
    said = json.dumps([created("f1", tags=[]), created("f2")])[:-12]
    facts = contracts.materials(MATERIALS)
    for way in ("read", "salvage"):
        assert isinstance(read(contracts.THOUGHTS, said, facts, way, finish_reason="length"), Violation)


def test_every_candidate_has_to_be_covered():
    facts = contracts.materials(COVERED)
    assert isinstance(read(contracts.THOUGHTS, [created("f1")], facts), Violation)
    both = [created("f1"), {"op": "skip_fact", "node_id": "f2"}]
    assert read(contracts.THOUGHTS, both, facts).value == both
    assert read(contracts.THOUGHTS, [], facts).value == []
    assert read(contracts.THOUGHTS, [created("f1")], contracts.materials(MATERIALS)).kept == 1


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (contracts.PROMOTED, {"selected": ["nope"]}),
        (contracts.RETIRED, {"retire_schema_ids": {"a": "why"}}),
        (contracts.REMOVED, {"remove": ["P1"]}),
        (contracts.CATALOG, {"habits_items": [9]}),
        (contracts.BOUNDARIES, {"event_count": 2, "boundaries": [{"index": 3}]}),
        (contracts.BOUNDARIES, {"event_count": 2, "boundaries": [3.7]}),
    ],
)
def test_choices_of_which_none_was_offered_are_not_none(contract, said):
    """The SDK would hold what it asked to be settled."""
    facts = CallFacts({"": "", "a": "", contracts.MESSAGES: "6"})
    assert isinstance(read(contract, said, facts), Violation)


def test_a_draft_that_is_named_wrong_is_not_guessed():
    facts = contracts.offered_to_drafts(CANDIDATES, "fact_id")
    assert isinstance(
        read(contracts.SUPERSEDES, {"ops": [{"draft_idx": "x", "supersedes": ["e1"]}]}, facts), Violation
    )
    reading = read(contracts.SUPERSEDES, {"ops": [{"draft_idx": 0, "supersedes": ["e1", "nope"]}]}, facts)
    assert (reading.value["ops"][0]["supersedes"], reading.dropped) == (["e1"], 1)


def test_what_is_promoted_retired_and_sorted():
    facts = contracts.offered(["a", "b"])
    value = read(contracts.PROMOTED, {"selected": ["a", {"node_id": "x"}]}, facts).value
    assert value == {"selected": [{"node_id": "a", "reason": ""}], "demote": []}
    value = read(contracts.RETIRED, {"retire_schema_ids": "a", "reason_by_id": ["r"]}, facts).value
    assert value == {"retire_schema_ids": ["a"], "reason_by_id": {}}
    value = read(
        contracts.CATALOG, {"habits_items": "2", "values_coping": [1, 9]}, contracts.counted(3)
    ).value
    assert value == {"domains": {"habits_items": [2], "values_coping": [1]}}
    value = read(contracts.CLAUSES, {"selected": [{"parent": "P1", "candidates": "P1C2"}]}).value
    assert value == {"selected": [{"parent": 1, "candidates": [2]}]}
    assert read(contracts.REMOVED, {"remove": "2"}, contracts.counted(2)).value == {"remove": [2]}
    assert read(contracts.INDUCED, "null").text == "null"


@pytest.mark.parametrize(
    "said",
    ["A summary.", "```\nA summary.\n```", '{"summary": "A summary."}', "<think>{x}</think>A summary."],
)
def test_a_summary_in_plain_text(said):
    assert read(contracts.SUMMARY, said).text == "A summary."
