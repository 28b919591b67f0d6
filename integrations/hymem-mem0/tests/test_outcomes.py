"""Bad replies and dead servers: stored, or an error that the caller of `add()` sees."""

from __future__ import annotations

import json

import pytest
from mem0_bank import ADDITIVE, WRITES, facts_reply, is_decision, script

import hymem_mem0
from hymem import ReplyRejected, WriterUnavailable
from hymem_testing.conformance import cause_of

OSLO = "Lives in Oslo"
SAID = "I live in Oslo."


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
    hymem_mem0.register()


@pytest.mark.parametrize("broken", ["extraction", "decision"])
@pytest.mark.parametrize("reply", ["rubbish", "", '{"memories": 7}', '{"other": []}'])
def test_a_reply_that_cannot_be_used_is_an_error_of_add(bank, swapped, hymem_writer, events, reply, broken):
    script(hymem_writer, OSLO)
    if broken == "decision" and ADDITIVE:
        pytest.skip("2.x makes no decision")
    hymem_writer.reply(is_decision if broken == "decision" else lambda body: not is_decision(body), reply)
    made = bank(swapped)
    with pytest.raises(Exception) as raised:
        made.add(SAID)
    assert isinstance(cause_of(raised.value), ReplyRejected)
    assert made.all() == set()
    assert events[-1].outcome == "failed"
    assert events[-1].requests == 2


def test_when_the_main_model_fails_too_add_raises_the_writers_error(bank, swapped, hymem_writer, hymem_main):
    swapped["llm"]["config"]["writer"]["on_failure"] = "fallback"
    script(hymem_writer, OSLO)
    hymem_writer.reply(None if ADDITIVE else is_decision, body={}, status=500)
    hymem_main.reply(None, body={"error": {"message": SAID}}, status=400)
    with pytest.raises(Exception) as raised:
        bank(swapped).add(SAID)
    assert isinstance(cause_of(raised.value), WriterUnavailable)
    assert SAID not in str(raised.value)


@pytest.mark.parametrize(
    "reply",
    [
        "<think>she {moved}</think>" + facts_reply(OSLO),
        "Here: ```json\n" + facts_reply(OSLO) + "\n```",
        json.dumps({"memories": [OSLO]}),
        json.dumps([OSLO]),
        json.dumps({"facts" if not ADDITIVE else "memory": [{"fact": OSLO}]}),
    ],
)
def test_other_shapes_are_stored(bank, swapped, hymem_writer, events, reply):
    script(hymem_writer, OSLO)
    hymem_writer.reply(lambda body: not is_decision(body), reply)
    made = bank(swapped)
    made.add(SAID)
    assert made.all() == {OSLO}
    assert events[0].steps == ("normalised",)
    assert len(hymem_writer.chats) == WRITES


def test_a_reply_that_is_no_json_is_asked_for_again_with_the_schema(bank, swapped, hymem_writer, events):
    script(hymem_writer, OSLO)
    hymem_writer.reply(lambda body: not is_decision(body), "She lives in Oslo.", times=1)
    made = bank(swapped)
    made.add(SAID)
    assert made.all() == {OSLO}
    assert events[0].steps == ("recovered",)
    second = hymem_writer.chats[1].json["response_format"]
    assert second["type"] == "json_schema"


@pytest.mark.skipif(ADDITIVE, reason="2.x makes no decision")
def test_decisions_on_offered_and_unknown_ids(bank, swapped, hymem_writer, events):
    made = bank(swapped)
    script(hymem_writer, "Lives in Bergen")
    made.add("I live in Bergen.")
    hymem_writer.clear()
    script(
        hymem_writer,
        OSLO,
        decision=[{"id": 0, "text": OSLO, "event": "update", "old_memory": "Lives in Bergen"}],
    )
    made.add(SAID)
    assert made.all() == {OSLO}
    hymem_writer.clear()
    script(hymem_writer, "Has a cat", decision=[{"id": "12", "text": "Has a cat", "event": "UPDATE"}])
    made.add("I have a cat.")
    assert made.all() == {OSLO, "Has a cat"}
    hymem_writer.clear()
    unknown = [
        {"id": "12", "text": OSLO, "event": "DELETE"},
        {"id": "3", "text": "Likes tea", "event": "ADD"},
    ]
    script(hymem_writer, "Likes tea", decision=unknown)
    made.add("I like tea.")
    assert made.all() == {OSLO, "Has a cat", "Likes tea"}
    assert (events[-1].outcome, events[-1].dropped) == ("partial", 1)


@pytest.mark.skipif(ADDITIVE, reason="2.x makes no decision")
def test_the_decision_is_known_by_what_calls_it_and_not_by_its_words(bank, swapped, hymem_writer, events):
    """The conversation quotes Mem0's own decision prompt; the call that extracts stays what it is."""
    quoted = (
        "You are a smart memory manager which controls the memory of a system. Return memory: ADD, UPDATE."
    )
    script(hymem_writer, OSLO)
    bank(swapped).add(quoted)
    assert [event.site for event in events] == ["mem0.extract_facts", "mem0.decide"]
