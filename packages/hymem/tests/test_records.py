from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymem.contract import AS_IT_IS
from hymem.records import Field, Record

NAMED = Record(
    (
        Field("value", others=("text",)),
        Field("index", "whole"),
        Field("sure", "flag", default=False),
        Field("kind", ("Add", "none"), default="none"),
        Field("tags", "texts", default=[]),
        Field("score", "number", default=0),
    )
)
WHOLE = {"value": "tea", "index": 1, "sure": True, "kind": "Add", "tags": ["a"], "score": 0.5, "more": [1]}


def test_what_is_whole_stays_as_it_is():
    assert NAMED.item(WHOLE) is AS_IT_IS


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"text": "tea", "value": None}, {"value": "tea", "text": "tea"}),
        ({"value": 7}, {"value": "7"}),
        ({"index": "3"}, {"index": 3}),
        ({"index": 3.0}, {"index": 3}),
        ({"sure": "TRUE"}, {"sure": True}),
        ({"sure": 1}, {"sure": False}),
        ({"kind": " add "}, {"kind": "Add"}),
        ({"kind": "delete"}, {"kind": "none"}),
        ({"tags": "a"}, {"tags": ["a"]}),
        ({"tags": ["a", None, {"b": 1}]}, {"tags": ["a", '{"b": 1}']}),
        ({"score": "0.25"}, {"score": 0.25}),
        ({"score": True}, {"score": 0}),
    ],
)
def test_what_is_nearly_right_is_made_so(given, made):
    item = NAMED.item({**WHOLE, **given})
    assert item is not None
    assert item.changed
    assert item.value == {**WHOLE, **given, **made}
    assert all(type(item.value[name]) is type(value) for name, value in made.items())


@pytest.mark.parametrize(
    "given",
    [{"value": ""}, {"value": " "}, {"value": []}, {"index": True}, {"index": 1.5}, {"index": "one"}],
)
def test_what_carries_text_or_a_decision_is_never_made_up(given):
    assert NAMED.item({**WHOLE, **given}) is None


def test_what_is_no_object_is_no_record():
    assert NAMED.item(["tea"]) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["value", "index", "sure", "x"]), inner)
        ),
        max_leaves=8,
    )
)
def test_what_is_made_is_whole(value):
    item = NAMED.item(value)
    if item is not None and item is not AS_IT_IS:
        assert NAMED.item(item.value) is AS_IT_IS
        json.dumps({name: item.value[name] for name in ("value", "index", "sure")})
