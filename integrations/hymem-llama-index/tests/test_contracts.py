"""What becomes of a reply that is to be facts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymem.contract import CallFacts, RawReply, Reading, Violation
from hymem_llama_index.contracts import CONDENSED, FACTS, MOST_FACTS, render

A, B = "Lives in Oslo", "Has a cat"
BOTH = f"<facts><fact>{A}</fact><fact>{B}</fact></facts>"
UPSTREAM = re.compile(r"<fact>(.*?)</fact>", re.DOTALL)
NOTHING = CallFacts()


def read(text, contract=FACTS, finish_reason="stop"):
    return contract.read(RawReply(text, (), finish_reason), NOTHING)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (BOTH, [A, B]),
        (f"```xml\n{BOTH}\n```", [A, B]),
        (f"<think>maybe <fact>a guess</fact></think>{BOTH}", [A, B]),
        (f"maybe <fact>a guess</fact></think>{BOTH}", [A, B]),
        (BOTH.upper().replace(A.upper(), A).replace(B.upper(), B), [A, B]),
        (f'<facts><fact id="1">{A}</fact><fact class="x">{B}</fact ></facts>', [A, B]),
        ("<facts><fact>R&amp;D</fact></facts>", ["R&D"]),
        (f"<fact>{A}<fact>{B}</fact></fact>", [A, B]),
        (f"<facts><!-- <fact>x</fact> --><fact>{A}</fact></facts>", [A]),
        (f"<facts><fact>Specific fact 1</fact><fact>{A}</fact></facts>", [A]),
        (f'{{"facts": ["{A}", "{B}"]}}', [A, B]),
        (f'{{"memories": ["{A}", "{B}"]}}', [A, B]),
        (f'```json\n["{A}", {{"fact": "{B}"}}]\n```', [A, B]),
        (f"- {A}\n- {B}", [A, B]),
        (f"<facts><fact>{A}</fact><fact> {A} </fact></facts>", [A]),
        (f"<facts><fact>{A}</facts>", [A]),
        (f"<facts>\n<fact>{A}\n<fact>{B}\n</facts>", [A, B]),
        (
            "<fact>See https://s.example/?a=5&region=eu&copy=1</fact>",
            ["See https://s.example/?a=5&region=eu&copy=1"],
        ),
        ("- None", []),
        ("- No new facts.", []),
        ('{"facts": "None"}', []),
        ('{"facts": ["No new facts"]}', []),
        ("1. I could not find any facts in this conversation.", []),
        ("<facts></facts>", []),
        ("<FACTS>\n</FACTS>", []),
        ("<facts/>", []),
        ('{"facts": []}', []),
    ],
)
def test_facts(text, facts):
    reading = read(text)
    assert reading.value == facts
    assert [each.strip() for each in UPSTREAM.findall(reading.text)] == facts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "<think>He lives",
        "I see no new facts.",
        f"<facts><fact>{A}</fact><fact>Has a c",
        "- I am glad to hear that.",
        "None",
        "<facts><fact>Specific fact 1</fact></facts>",
    ],
)
def test_what_has_none(text):
    assert isinstance(read(text), Violation)


def test_one_that_was_cut():
    cut = f"<facts><fact>{A}</fact><fact>Has a c"
    assert isinstance(read(cut, finish_reason="length"), Violation)
    saved = FACTS.salvage(RawReply(cut, (), "length"), NOTHING)
    assert (saved.value, saved.kept, saved.dropped) == ([A], 1, 1)
    assert isinstance(CONDENSED.salvage(RawReply(cut, (), "length"), NOTHING), Violation)


@pytest.mark.parametrize(
    "text",
    [
        f"<facts><fact>{A}</fact><fact>Has a c",
        f'{{"facts": ["{A}", "Has a c',
        f'{{"facts": ["{A}", {{"id": 2, "value": "{B}"}}]}}',
        render(["x"] * 0),
        render([f"fact {at}" for at in range(MOST_FACTS)]),
    ],
)
def test_a_part_of_the_list_does_not_replace_it(text):
    for way in (CONDENSED.read, CONDENSED.salvage):
        assert isinstance(way(RawReply(text), NOTHING), Violation)


def test_more_facts_than_most_lists_have():
    texts = [f"fact {at}" for at in range(100)]
    assert read(render(texts), CONDENSED).value == texts
    assert CONDENSED.schema["properties"]["facts"]["maxItems"] > 100


def test_to_condense_to_nothing_is_refused():
    assert isinstance(read("<facts></facts>", CONDENSED), Violation)
    assert read(BOTH, CONDENSED).value == [A, B]
    assert CONDENSED.unchanged(CallFacts({"0": A, "1": B})) == render([A, B])


@given(st.text(max_size=300))
def test_any_text_ends_in_facts_or_a_violation(text):
    for contract in (FACTS, CONDENSED):
        for ended in (read(text, contract), contract.salvage(RawReply(text), NOTHING)):
            assert isinstance(ended, (Reading, Violation))
            if isinstance(ended, Reading):
                assert [each.strip() for each in UPSTREAM.findall(ended.text)] == ended.value


@given(st.lists(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40), max_size=5))
def test_what_is_rendered_is_read_again(texts):
    facts = list(
        dict.fromkeys(each.strip() for each in texts if each.strip() and "<" not in each and "&" not in each)
    )
    assert read(render(facts)).value == facts


def test_no_work_that_grows_with_the_square():
    """Counted in steps, not in time: 200,000 beginnings of tags, and none that ends."""
    for piece in ("<fact>", "<fact ", "<!--", "<facts ", "<think>"):
        assert read(piece * 50_000) is not None
