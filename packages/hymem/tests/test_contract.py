"""What becomes of a reply that is read through a contract."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymem.contract import (
    FREE_TEXT,
    MEMORIES,
    CallFacts,
    Contract,
    Item,
    RawReply,
    Reading,
    Violation,
    checked_items,
    list_schema,
)
from hymem.decode import cleaned

NO_FACTS = CallFacts()


def read(contract, text, **kwargs):
    return contract.read(RawReply(text, **kwargs), NO_FACTS)


def test_a_good_reply_is_handed_on_byte_for_byte():
    text = '{ "memories" :\t["a","b\\u00e9"] }\n'
    reading = read(MEMORIES, text)
    assert reading.text == text
    assert reading.value == ["a", "bé"]
    assert reading.steps == frozenset()
    assert (reading.kept, reading.dropped) == (2, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"facts": ["a"]}', ["a"]),
        ('["a", "b"]', ["a", "b"]),
        ('{"memories": "a"}', ["a"]),
        ('{"memories": [["a"], "b"]}', ["a", "b"]),
        ('{"memories": [{"fact": "a"}, {"text": "b"}]}', ["a", "b"]),
        ('{"memories": {"text": "a"}}', ["a"]),
    ],
)
def test_other_shapes_of_the_same_are_rendered_for_the_parser(text, value):
    reading = read(MEMORIES, text)
    assert reading.value == value
    assert json.loads(reading.text) == {"memories": value}
    assert "normalised" in reading.steps


def test_one_list_under_two_names_is_one_list():
    assert read(MEMORIES, '{"memories": ["a"], "facts": ["a"]}').value == ["a"]


def test_items_that_cannot_be_used_are_counted():
    reading = read(MEMORIES, '{"memories": ["a", 7, "", null, {"x": 1}]}')
    assert reading.value == ["a"]
    assert (reading.kept, reading.dropped) == (1, 4)


@pytest.mark.parametrize(
    "text",
    [
        '{"memories": ["a"], "facts": ["b"]}',
        '{"memories": [], "facts": ["b"]}',
        '{"memories": null}',
        '{"memories": 3}',
        '{"other": []}',
        '{"memories": [7]}',
        "",
        "prose",
        "7",
    ],
)
def test_what_has_nothing_usable_is_a_violation_and_not_an_empty_reply(text):
    violation = read(MEMORIES, text)
    assert isinstance(violation, Violation)


def test_a_valid_empty_reply_is_one():
    reading = read(MEMORIES, '{"memories": []}')
    assert reading.value == []
    assert reading.text == '{"memories": []}'


def test_a_violation_never_quotes_the_reply():
    for text in (
        '{"secret-key": []}',
        '{"memories": [{"secret-key": 1}]}',
        "secret-key",
        '{"memories": "secret-key',
    ):
        violation = read(MEMORIES, text)
        assert "secret-key" not in str(violation)


def test_a_guess_may_add_but_not_overwrite():
    def item(value):
        return Item(value, overwrites=value.startswith("!")) if isinstance(value, str) else None

    contract: Contract[list[str]] = Contract(
        name="ops",
        schema=list_schema("ops", {"type": "string"}),
        keys=("ops",),
        check=lambda value, facts: checked_items(value, ("ops",), item),
        render=lambda value: json.dumps({"ops": value}),
    )
    broken = RawReply("{'ops': ['add']}")
    assert isinstance(contract.salvage(broken, NO_FACTS), Reading)
    broken = RawReply("{'ops': ['!replace']}")
    assert isinstance(contract.salvage(broken, NO_FACTS), Violation)


def test_free_text():
    assert read(FREE_TEXT, " as it came \n").text == " as it came \n"
    assert read(FREE_TEXT, "<think>hm</think>text").text == "text"
    assert isinstance(read(FREE_TEXT, "<think>hm"), Violation)
    assert isinstance(read(FREE_TEXT, " \n"), Violation)
    assert isinstance(read(FREE_TEXT, "half a sent", finish_reason="length"), Violation)
    cut = RawReply("half a sent", finish_reason="length")
    assert isinstance(FREE_TEXT.salvage(cut, NO_FACTS), Violation)
    kept = dataclasses.replace(FREE_TEXT, whole=False).salvage(cut, NO_FACTS)
    assert (kept.text, kept.dropped) == ("half a sent", 1)


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_reply_ends_in_a_reading_or_a_violation(text):
    for contract in (MEMORIES, FREE_TEXT):
        for way in (contract.read, contract.salvage):
            found = way(RawReply(text), NO_FACTS)
            assert isinstance(found, (Reading, Violation))


usable = st.text(min_size=1, max_size=40).filter(lambda text: cleaned(text).strip())


@given(st.lists(usable, max_size=6))
@settings(deadline=None)
def test_what_is_rendered_is_read_as_it_is(texts):
    first = read(MEMORIES, json.dumps(texts))
    assert isinstance(first, Reading)
    again = read(MEMORIES, first.text)
    assert again.text == first.text
    assert again.value == first.value
    assert again.steps == frozenset()


clean = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=40)


@given(st.lists(clean.filter(str.strip), max_size=6), st.sampled_from([None, 0, 2]), st.booleans())
@settings(deadline=None)
def test_a_valid_reply_comes_through_byte_for_byte(texts, indent, ensure_ascii):
    text = json.dumps({"memories": texts}, indent=indent, ensure_ascii=ensure_ascii)
    reading = read(MEMORIES, text)
    assert reading.text == text
    assert reading.value == texts
    assert (reading.kept, reading.dropped, reading.steps) == (len(texts), 0, frozenset())


@pytest.mark.parametrize("text", ["\x00", " \x00\n", "\ud800", "<think>x</think>\x00"])
def test_text_of_which_nothing_is_left_is_empty(text):
    """NUL and lone surrogates are taken out, and then it would overwrite a memory with nothing."""
    assert isinstance(FREE_TEXT.read(RawReply(text, (), "stop"), CallFacts()), Violation)
    assert isinstance(FREE_TEXT.salvage(RawReply(text, (), "length"), CallFacts()), Violation)
