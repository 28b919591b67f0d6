"""What of a reply's text is taken for JSON, and how much work that may be."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hymem.decode import (
    MAX_CHARS,
    MAX_REPAIR_CHARS,
    MAX_SCANNED_CHARS,
    Decoded,
    Undecodable,
    decode,
    salvage,
    without_thoughts,
)

KEYS = ("facts",)
GOOD = '{"facts": ["Lives in Oslo", "Has a cat"]}'
VALUE = json.loads(GOOD)


def value_of(found: Decoded | Undecodable) -> object:
    assert isinstance(found, Decoded), found
    return found.value


@pytest.mark.parametrize(
    "text",
    [
        "```json\n" + GOOD + "\n```",
        "``` " + GOOD + " ```",
        "Here you are:\n" + GOOD + "\nAnything else?",
        "\ufeff" + GOOD,
        "<think>x</think>" + GOOD,
        "<think>a {brace} and [1]</think>\nprose\n" + GOOD,
        '<think>{"facts": ["a draft"]}</think>' + GOOD,
        "<think:opensource>hm</think:opensource>" + GOOD,
        "<think:6124c78e>hm</think:6124c78e>" + GOOD,
        "no opening tag, {braces} </think>" + GOOD,
        'a draft {"facts": ["draft"]} </think>' + GOOD,
        "Topic {travel}: " + GOOD,
        "See [note] and [1]: " + GOOD,
        GOOD + "\n" + GOOD,
        "[" + GOOD + "]",
        '{"result": ' + GOOD + "}",
        json.dumps(GOOD),
    ],
)
def test_the_one_object_is_found_wherever_it_stands(text):
    found = decode(text, KEYS)
    assert value_of(found) == VALUE
    assert not found.as_sent


def test_a_reply_that_parses_is_left_as_it_is():
    text = '{"facts": ["uses </think> tags", "writes ```json fences```", "says {\\"facts\\": []}"]}'
    found = decode(text, KEYS)
    assert value_of(found) == json.loads(text)
    assert found.as_sent
    assert not found.repaired


def test_raw_newlines_inside_strings_are_taken():
    assert value_of(decode('{"facts": ["two\nlines"]}', KEYS)) == {"facts": ["two\nlines"]}


@pytest.mark.parametrize("dirty", ["\\ud800", "\\u0000", "\ud83d"])
def test_what_stores_die_on_is_taken_out_of_strings(dirty):
    found = decode('{"facts": ["a' + dirty + 'b"]}', KEYS)
    assert value_of(found) == {"facts": ["ab"]}
    assert found.repaired
    assert not found.as_sent


def test_a_surrogate_pair_is_a_character_and_stays():
    found = decode('{"facts": ["\\ud83d\\ude00"]}', KEYS)
    assert value_of(found) == {"facts": ["\U0001f600"]}
    assert found.as_sent


@pytest.mark.parametrize(
    "text",
    [
        '{"facts": NaN}',
        '{"facts": [Infinity]}',
        '{"facts": [1e999]}',
        '{"facts": ' + "9" * 5000 + "}",
        '{"facts": ' + "9" * 301 + "}",
        '{"facts": ["a"], "facts": ["b"]}',
        '{"facts": ' + "[" * 100 + "]" * 100 + "}",
        "[" * 100_000,
        '{"a":' * 100_000,
        "{" * MAX_REPAIR_CHARS,
        '"' + "[" * 100_000,
        "",
        "no",
        "<think>never closed " + GOOD,
        " " * (MAX_CHARS + 1),
        GOOD[:-3],
    ],
)
def test_what_is_refused(text):
    assert isinstance(decode(text, KEYS), Undecodable)


def test_equal_duplicate_keys_are_no_contradiction():
    assert value_of(decode('{"facts": ["a"], "facts": ["a"]}', KEYS)) == {"facts": ["a"]}


def test_two_objects_that_fit_are_ambiguous_for_good():
    text = 'They wrote {"facts": ["imitated"]} to me. ' + GOOD
    for read in (decode, salvage):
        found = read(text, KEYS)
        assert isinstance(found, Undecodable)
        assert "could be meant" in found.reason


def test_an_imitation_inside_a_broken_reply_is_not_taken_for_the_reply():
    text = '{"facts": ["they said {"facts": ["planted"]} to me", "Has a cat'
    assert isinstance(decode(text, KEYS), Undecodable)
    assert "planted" not in str(getattr(salvage(text, KEYS), "value", ""))


def test_an_imitation_inside_a_string_is_text():
    text = json.dumps({"facts": ['the user pasted {"facts": ["planted"]}']})
    assert value_of(decode(text, KEYS)) == json.loads(text)
    cut = text[:-3]
    assert isinstance(salvage(cut, KEYS), Undecodable)


def test_of_a_cut_list_the_whole_items_are_salvaged():
    found = salvage('{"facts": ["Has a cat", "Likes trains", "Works ni', KEYS)
    assert value_of(found) == {"facts": ["Has a cat", "Likes trains"]}
    assert found.cut
    assert not found.guessed


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ('{"facts": ["a", "b",]}', ["a", "b"]),
        ("{'facts': ['a', 'b']}", ["a", "b"]),
        ('{"facts": ["a" "b"]}', ["a", "b"]),
        ('{facts: ["a"]}', ["a"]),
    ],
)
def test_broken_json_is_mended(text, facts):
    found = salvage(text, KEYS)
    assert value_of(found) == {"facts": facts}
    assert found.repaired


def test_a_think_block_left_open_is_only_a_guess():
    found = salvage("<think>hm " + GOOD, KEYS)
    assert value_of(found) == VALUE
    assert found.guessed
    found = salvage("<think>" + GOOD[:-3], KEYS)
    assert value_of(found) == {"facts": ["Lives in Oslo"]}
    assert found.guessed


def test_a_number_at_the_cut_may_be_half_of_one():
    assert value_of(salvage('{"facts": ["a", 12', KEYS)) == {"facts": ["a"]}
    assert value_of(salvage('{"facts": ["a", "b"', KEYS)) == {"facts": ["a", "b"]}


def test_prose_with_more_braces_than_are_looked_into():
    assert isinstance(decode("{a} " * 300 + GOOD, KEYS), Undecodable)
    assert value_of(decode("{a} " * 200 + GOOD, KEYS)) == VALUE


def test_what_mending_makes_of_an_object_has_to_be_one():
    assert isinstance(salvage('{"a"} {"b"}', KEYS), Undecodable)


def test_json_repair_is_never_given_more_than_its_bound():
    long = '{"facts": [' + "'he said no'," * 2000 + "]}"
    found = salvage(long, KEYS)
    assert isinstance(found, Undecodable)
    assert found.work.repaired_chars == 0
    assert isinstance(salvage(long[:1000] + "]}", KEYS), Decoded)


def test_a_reply_of_a_megabyte():
    text = json.dumps({"facts": ["x" * 1000] * 1000})
    assert value_of(decode(text, KEYS)) == json.loads(text)


def test_free_text_loses_the_think_block_in_front_and_nothing_else():
    assert without_thoughts("<think>a</think>\n\ntext <think>b</think>") == ("text <think>b</think>", False)
    assert without_thoughts("a</think>text") == ("text", False)
    assert without_thoughts("<think>a") == ("", True)
    assert without_thoughts("text about <think> and </think>") == ("text about <think> and </think>", False)


# -- properties ----------------------------------------------------------------------------------

leaves = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=20)
values = st.recursive(
    leaves | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
objects = st.fixed_dictionaries({"facts": st.lists(values, max_size=5)})
noise = st.text(
    alphabet=st.sampled_from('{}[]",:\\ \nabfacts01<>/think`\ufeff\ud800\x00é'), max_size=200
) | st.text(max_size=200)


@given(noise)
@example('{"facts": [' + "[" * 70)
@settings(max_examples=400, deadline=None)
def test_any_text_is_decoded_or_refused_in_bounded_work(text):
    for read in (decode, salvage):
        found = read(text, KEYS)
        assert isinstance(found, (Decoded, Undecodable))
        assert found.work.scanned_chars <= MAX_SCANNED_CHARS + len(text)
        assert found.work.scans <= 2 * len(text) + 2
        if isinstance(found, Decoded):
            json.dumps(found.value, allow_nan=False).encode()  # what stores do with it


@given(objects)
@settings(deadline=None)
def test_valid_json_is_taken_as_it_is_and_again(value):
    text = json.dumps(value)
    found = decode(text, KEYS)
    if isinstance(found, Decoded) and found.as_sent:
        assert found.value == value
        again = decode(json.dumps(found.value), KEYS)
        assert value_of(again) == found.value
    else:  # only for what has to be taken out of strings
        assert "\\ud" in text or "\\u0000" in text


@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=6), st.data())
@settings(deadline=None)
def test_cut_at_any_place_nothing_is_made_up(facts, data):
    text = json.dumps({"facts": facts}, ensure_ascii=data.draw(st.booleans()))
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    for found in (decode(cut, KEYS), salvage(cut, KEYS)):
        if isinstance(found, Decoded) and isinstance(found.value, dict) and found.value.get("facts"):
            kept = found.value["facts"]
            cleaned = [value_of(decode(json.dumps([fact]), KEYS))[0] for fact in facts]
            assert kept == cleaned[: len(kept)]


def test_cut_at_every_byte():
    facts = ["Lives in Oslo", 'said "no" {twice}', "日本 \U0001f600", "a\\\\b"]
    for ensure_ascii in (True, False):
        raw = json.dumps({"facts": facts}, ensure_ascii=ensure_ascii).encode()
        for end in range(len(raw)):
            cut = raw[:end].decode(errors="replace")
            assert isinstance(decode(cut, KEYS), Undecodable)
            found = salvage(cut, KEYS)
            kept = found.value["facts"] if isinstance(found, Decoded) else []
            assert kept == facts[: len(kept)]


@pytest.mark.parametrize(
    "cut", ['["Has a cat", "Works ni', '{"facts": "Works ni', '{"facts"', '{"facts": {"text": "Wo']
)
def test_half_a_text_is_never_made_whole(cut):
    found = salvage(cut, KEYS)
    assert isinstance(found, Undecodable) or found.value == {"facts": ["Has a cat"]}


@pytest.mark.parametrize(
    "text", ['{"facts": ["a\x00b"]}', '```\n{"facts": ["a\x00b"]}\n```', '{"facts": ["a\x00b", "c']
)
def test_a_raw_nul_is_taken_out(text):
    for found in (decode(text, KEYS), salvage(text, KEYS)):
        if isinstance(found, Decoded):
            assert found.value["facts"][0] == "ab"
            assert found.repaired


@pytest.mark.parametrize(
    "piece",
    [
        '"[a", ',
        '"likes [tea", ',
        "1, ",
        "{a} ",
        '{"a" ',
        "[[",
        '"x" ',
        "<think></think>",
        '{"facts": [',
        "\\",
    ],
)
def test_work_grows_with_the_text_and_not_with_its_square(piece):
    """Counted by the parsers' own steps, with a profiler and not with a clock."""

    def steps(size):
        text = '{"facts": [' + piece * (size // len(piece))
        counted = 0

        def count(frame, event, argument):
            nonlocal counted
            counted += 1

        totals = []
        for read in (decode, salvage):
            sys.setprofile(count)
            try:
                found = read(text, KEYS)
            finally:
                sys.setprofile(None)
            totals.append(found.work.scanned_chars)
        return counted, sum(totals)

    small, large = steps(4_000), steps(8_000)
    for one, two in zip(small, large, strict=True):
        assert two <= 2.5 * one + 2000


def test_unescaped_quotes_and_openers_do_not_cost_more_than_their_bound():
    for text in ('{"x" ' * 5000, '[" ' * 5000, "{" * 50_000, '{"facts": [' + '"a" "b" ' * 5000):
        for read in (decode, salvage):
            found = read(text, KEYS)
            assert found.work.scanned_chars <= MAX_SCANNED_CHARS + len(text)
            assert found.work.repaired_chars <= MAX_REPAIR_CHARS
