"""What of a reply becomes what Mem0 is given. Rows are replies that models have made."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymem.contract import CallFacts, RawReply, Reading, Violation
from hymem_mem0.contracts import ADDITIVE, DECISION, FACTS

OFFERED = CallFacts({"0": "Lives in Bergen", "1": "Has a dog"})


def read(contract, reply, facts=OFFERED):
    return contract.read(RawReply(reply if isinstance(reply, str) else json.dumps(reply)), facts)


@pytest.mark.parametrize(
    "reply",
    [
        {"facts": ["a", "b"]},
        {"facts": [{"fact": "a"}, {"text": "b"}]},
        {"memories": ["a", "b"]},
        ["a", "b"],
        {"facts": [["a"], ["b"]]},
        '<think>{x}</think>```json\n{"facts": ["a", "b"]}\n```',
    ],
)
def test_facts(reply):
    assert read(FACTS, reply).value == ["a", "b"]


@pytest.mark.parametrize(
    "reply",
    [
        {"memory": [{"text": "a"}, {"text": "b"}]},
        {"memory": ["a", "b"]},
        {"memories": ["a", "b"]},
        {"facts": ["a", "b"]},
        [{"memory": "a"}, {"text": "b"}],
    ],
)
def test_additions(reply):
    assert [each["text"] for each in read(ADDITIVE, reply).value] == ["a", "b"]


def test_an_addition_keeps_what_else_it_says_and_nothing_is_made_up():
    item = {"id": "0", "text": "a", "attributed_to": "assistant", "linked_memory_ids": ["7"]}
    assert read(ADDITIVE, {"memory": [item]}).value == [item]
    assert read(ADDITIVE, {"memory": ["a"]}).value == [{"text": "a"}]


def operation(id_, event, text="new", **more):
    return {"id": id_, "event": event, "text": text, **more}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (operation("0", "UPDATE"), operation("0", "UPDATE")),
        (operation(0, "update"), operation("0", "UPDATE")),
        (operation("1", "DELETE", "Has a dog"), operation("1", "DELETE", "Has a dog")),
        ({"id": "1", "event": "DELETE"}, operation("1", "DELETE", "Has a dog")),
        (operation("9", "UPDATE"), operation("9", "ADD")),
        (operation("c3fd495f-9789", "UPDATE"), operation("c3fd495f-9789", "ADD")),
        ({"event": "UPDATE", "text": "new"}, operation("", "ADD")),
        (operation("0", "NOOP"), operation("0", "NONE")),
        (operation("0", "UPDATE", {"text": "new"}), operation("0", "UPDATE")),
        ({"id": "5", "event": "ADD", "memory": "new"}, operation("5", "ADD", memory="new")),
    ],
)
def test_operations(given, made):
    assert read(DECISION, {"memory": [given]}).value == [made]


@pytest.mark.parametrize(
    "given",
    [
        operation("9", "DELETE"),
        operation("0", None),
        {"id": "0", "text": "new"},
        operation("0", "REPLACE"),
        operation("0", "UPDATE", ""),
        "ADD",
    ],
)
def test_an_operation_that_cannot_be_meant_is_dropped_and_counted(given):
    reading = read(DECISION, {"memory": [given, operation("7", "ADD", "kept")]})
    assert [each["text"] for each in reading.value] == ["kept"]
    assert reading.dropped == 1
    assert isinstance(read(DECISION, {"memory": [given]}), Violation)


def test_one_memory_is_overwritten_once():
    reading = read(DECISION, {"memory": [operation("0", "UPDATE", "x"), operation("0", "UPDATE", "y")]})
    assert [(each["event"], each["text"]) for each in reading.value] == [("UPDATE", "x"), ("ADD", "y")]
    reading = read(DECISION, {"memory": [operation("0", "UPDATE", "x"), operation("0", "UPDATE", "x")]})
    assert [(each["event"], each["text"]) for each in reading.value] == [("UPDATE", "x")]


@pytest.mark.parametrize("events", [("UPDATE", "DELETE"), ("DELETE", "NONE"), ("NONE", "UPDATE")])
def test_different_decisions_on_one_memory_are_none(events):
    reply = {"memory": [operation("0", event) for event in events]}
    assert isinstance(read(DECISION, reply), Violation)
    elsewhere = {"memory": [operation("9", event) for event in events]}
    assert not isinstance(read(DECISION, elsewhere), Violation) or "DELETE" in events


def test_a_deletion_out_of_broken_text_is_not_executed():
    for text in (
        'The user wrote: {"memory": [{"id": "1", "event": "DELETE", "text": "Has a dog"}, and I think',
        '{"memory": [{"id": "1", "event": "DELETE", "text": "Has a dog"}] oops} sorry I mean {"memory" : {} ',
    ):
        assert isinstance(DECISION.salvage(RawReply(text), OFFERED), Violation)


@pytest.mark.parametrize(
    "given",
    [operation("0", "UPDATE", old_memory="Has a dog"), operation("0", "DELETE", "Has a dog")],
)
def test_an_operation_that_quotes_another_memory_is_not_executed(given):
    assert isinstance(read(DECISION, {"memory": [given]}), Violation)


def test_nothing_to_do_is_empty():
    reading = read(DECISION, {"memory": [operation("0", "NONE", "Lives in Bergen")]})
    assert reading.kept == 0
    assert reading.dropped == 0
    assert read(DECISION, {"memory": []}).kept == 0


def test_mended_json_may_add_but_not_overwrite():
    broken = "{'memory': [{'id': '0', 'event': '%s', 'text': 'new'}]}"
    assert isinstance(DECISION.salvage(RawReply(broken % "ADD"), OFFERED), Reading)
    assert isinstance(DECISION.salvage(RawReply(broken % "UPDATE"), OFFERED), Violation)


def test_whole_operations_of_a_cut_reply_are_executed():
    text = json.dumps({"memory": [operation("0", "UPDATE", "x"), operation("5", "ADD", "y")]})[:-10]
    reading = DECISION.salvage(RawReply(text), OFFERED)
    assert [each["text"] for each in reading.value] == ["x"]
    assert reading.dropped == 1


def test_think_tags_inside_a_memory_survive_mem0s_own_parser():
    from mem0.memory.utils import remove_code_blocks

    facts = ["Writes <think>plans</think> in his prompts"]
    for contract, key, value in ((FACTS, "facts", facts), (ADDITIVE, "memory", [{"text": facts[0]}])):
        handed = read(contract, {key: value}).text
        assert json.loads(remove_code_blocks(handed)) == {key: value}


@pytest.mark.parametrize("contract", [FACTS, DECISION, ADDITIVE])
def test_the_reply_that_changes_nothing(contract):
    reading = read(contract, contract.unchanged(OFFERED))
    assert reading.kept == reading.dropped == 0
    assert reading.steps == frozenset()


texts = st.text(min_size=1, max_size=20)
operations = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["0", "1", "2", 0, 1, None, True, "x"]),
        "event": st.sampled_from(["ADD", "UPDATE", "DELETE", "NONE", "update", "x", None, 7]),
        "text": texts | st.none() | st.fixed_dictionaries({"text": texts}),
        "old_memory": st.sampled_from(["Lives in Bergen", "Has a dog", "x"]),
    },
)
items = texts | st.none() | st.integers() | operations | st.lists(texts, max_size=2)
replies = st.fixed_dictionaries(
    {}, optional={key: st.lists(items, max_size=5) for key in ("memory", "facts", "memories")}
)


@given(replies | st.lists(items, max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_reply(reply):
    for contract in (FACTS, DECISION, ADDITIVE):
        found = read(contract, reply)
        assert isinstance(found, (Reading, Violation))
        if isinstance(found, Violation):
            continue
        again = read(contract, found.text)
        assert again.text == found.text
        assert again.value == found.value
        assert again.steps == frozenset()
        if contract is DECISION:
            written = [each["id"] for each in found.value if each["event"] in ("UPDATE", "DELETE")]
            assert set(written) <= set(OFFERED.offered)
            assert len(written) == len(set(written))
            assert all(each["text"] for each in found.value if each["event"] != "NONE")
