"""Near misses of the replies that LangChain's parsers take: recovered or refused, never stored as junk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymem.contract import CallFacts, RawReply, Violation
from hymem_langchain.contracts import ENTITIES, HISTORY, SUMMARY, SUMMARY_NOW, TRIPLES, structured

FACTS = CallFacts()


def read(contract, text, finish_reason="stop", facts=FACTS):
    return contract.read(RawReply(text, (), finish_reason), facts)


@pytest.mark.parametrize(
    ("reply", "given_to_langchain"),
    [
        ("Alex, Seattle", "Alex, Seattle"),
        ("Alex", "Alex"),
        ("NONE", "NONE"),
        ("None", "NONE"),
        ("NONE.", "NONE"),
        ("N/A", "NONE"),
        ('["Alex", "Seattle"]', "Alex, Seattle"),
        ('{"entities": ["Alex"]}', "Alex"),
        ("Output: Alex, Seattle", "Alex, Seattle"),
        ('```json\n["Alex"]\n```', "Alex"),
        ("```\nAlex, Seattle\n```", "Alex, Seattle"),
        ("<think>hm, ok</think>Alex", "Alex"),
        ("- Alex\n- Seattle", "Alex, Seattle"),
        ("1. Alex\n2. Seattle", "Alex, Seattle"),
        ("Alex, Alex, Seattle", "Alex, Seattle"),
        ('"Alex", "Seattle"', "Alex, Seattle"),
        ("[]", "NONE"),
        ('["Paris, Texas"]', "Paris Texas"),
    ],
)
def test_entities(reply, given_to_langchain):
    assert read(ENTITIES, reply).text == given_to_langchain


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   ",
        "<think>who is it?</think>",
        "The entities of this conversation are those of a man who lives in a small town in the west.",
    ],
)
def test_entities_that_are_none(reply):
    assert isinstance(read(ENTITIES, reply), Violation)


@pytest.mark.parametrize(
    ("reply", "given_to_langchain", "dropped"),
    [
        ("(Alex, lives in, Oslo)", "(Alex, lives in, Oslo)", 0),
        ("(A, is, B)<|>(C, is, D)", "(A, is, B)<|>(C, is, D)", 0),
        ("(A, is, B)\n(C, is, D)", "(A, is, B)<|>(C, is, D)", 0),
        ("NONE", "NONE", 0),
        ("None.", "NONE", 0),
        ('("Alex", "lives in", "Oslo")', "(Alex, lives in, Oslo)", 0),
        ("(Alex, likes, tea, coffee and cake)", "(Alex, likes, tea; coffee and cake)", 0),
        ("```\n(Alex, lives in, Oslo)\n```", "(Alex, lives in, Oslo)", 0),
        ('[["Alex", "lives in", "Oslo"]]', "(Alex, lives in, Oslo)", 0),
        ('[{"subject": "A", "predicate": "is", "object": "B"}]', "(A, is, B)", 0),
        ("(Alex, lives)<|>(C, is, D)", "(C, is, D)", 1),
        ("Here they are: (A, is, B)", "(A, is, B)", 0),
        ("<think>(X, is, Y)</think>(A, is, B)", "(A, is, B)", 0),
    ],
)
def test_triples(reply, given_to_langchain, dropped):
    reading = read(TRIPLES, reply)
    assert (reading.text, reading.dropped) == (given_to_langchain, dropped)


@pytest.mark.parametrize("reply", ["", "(Alex, lives)", "He lives in Oslo.", "()", "(a, , c)"])
def test_triples_that_are_none(reply):
    assert isinstance(read(TRIPLES, reply), Violation)


def test_langchains_own_parser_takes_every_triple_that_is_handed_on():
    kg = pytest.importorskip("langchain_community.graphs.networkx_graph")
    text = read(TRIPLES, '("A", "is (really)", "B, C")<|>(D, is, E)').text
    assert [tuple(each) for each in kg.parse_triples(text)] == [("A", "is really", "B; C"), ("D", "is", "E")]


@pytest.mark.parametrize("contract", [SUMMARY, HISTORY])
@pytest.mark.parametrize("reply", ["", " \n", "<think>hm</think>", "<think>hm"])
def test_a_summary_is_never_replaced_by_nothing(contract, reply):
    assert isinstance(read(contract, reply), Violation)


@pytest.mark.parametrize("contract", [SUMMARY, HISTORY, ENTITIES, TRIPLES])
def test_what_was_cut_is_not_taken_at_first(contract):
    assert isinstance(read(contract, "(A, is, B), C", "length"), Violation)


def test_an_echo_of_the_summary_writes_nothing():
    facts = CallFacts({SUMMARY_NOW: "Lives in Oslo."})
    assert read(SUMMARY, "Lives in Oslo.", facts=facts).kept == 0
    assert SUMMARY.unchanged(facts) == "Lives in Oslo."


def test_structured_output_is_an_object():
    contract = structured({"type": "object", "properties": {"name": {"type": "string"}}})
    assert read(contract, 'Sure: {"name": "Alex"}').value == {"name": "Alex"}
    assert isinstance(read(contract, "no JSON"), Violation)


@pytest.mark.parametrize("contract", [ENTITIES, TRIPLES, SUMMARY])
@given(text=st.text(max_size=300))
def test_whatever_is_answered_is_taken_or_refused(contract, text):
    """And what is handed on is taken again for what it is."""
    reading = read(contract, text)
    if not isinstance(reading, Violation):
        again = read(contract, reading.text)
        assert again.text == reading.text
        assert again.value == reading.value
