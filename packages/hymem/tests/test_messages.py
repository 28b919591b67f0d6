"""Conversations in the shape that every chat template takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymem.messages import plain

USER = {"role": "user", "content": "Hello"}


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def test_plain_messages_are_not_touched():
    messages = [turn("system", "s"), USER, turn("assistant", "a")]
    assert plain(messages) is messages


CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}


@pytest.mark.parametrize(
    ("message", "becomes"),
    [
        (turn("assistant", None, tool_calls=[CALL]), turn("assistant", '[called add: {"a": 2}]')),
        (turn("assistant", "Wait.", tool_calls=[CALL]), turn("assistant", 'Wait.\n[called add: {"a": 2}]')),
        (turn("tool", "4", name="add"), turn("user", "[result of add: 4]")),
        (turn("tool", "4", tool_call_id="1"), turn("user", "[result of 1: 4]")),
        (turn("function", "4"), turn("user", "[result: 4]")),
        (turn("system", "Later"), turn("user", "Later")),
        (turn("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), turn("user", "a\nb")),
        (turn("assistant", None), turn("assistant", "")),
    ],
)
def test_other_messages_become_plain_ones(message, becomes):
    assert plain([USER, message]) == [USER, becomes]


def test_system_messages_in_front_become_one():
    messages = [turn("system", "a"), turn("developer", "b"), USER]
    assert plain(messages) == [turn("system", "a\n\nb"), USER]
    assert plain([turn("developer", "b"), USER]) == [turn("system", "b"), USER]


def test_what_is_not_text_is_left_to_the_server():
    image = turn("user", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}])
    assert plain([USER, image]) == [USER, image]


contents = (
    st.none() | st.text() | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}))
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])},
    optional={"content": contents, "name": st.text(), "tool_calls": st.lists(st.just(CALL), max_size=2)},
)


@given(st.lists(messages))
def test_any_conversation(given_messages):
    made = plain(given_messages)
    assert plain(made) is made
    assert [message["role"] for message in made[1:]].count("system") == 0
    whole = "\n".join(message["content"] for message in made)
    for message in given_messages:
        if isinstance(message.get("content"), str):
            assert message["content"] in whole
