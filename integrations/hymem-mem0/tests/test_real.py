"""End to end: a conversation written by the model behind the name hy-memory, and found again.

On the double the words of the prompt stand in for a model's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import mem0
import pytest
from mem0_bank import ADDITIVE, Bank, check_wire

import hymem_mem0
from hymem_testing.metrics import answered
from hymem_testing.replies import was_said

pytestmark = pytest.mark.hymem_real

SMALL = {
    "structured_output": "always",
    "max_tokens": 200,
    "max_tokens_if_cut": 200,
    "timeout": 900,
    "extra_body": {"repetition_penalty": 1.05},
}
"""What helps a model of 135 million parameters to hold a shape and to stop."""


def test_a_conversation_is_written_and_found_again(swapped, hymem_server, hymem_writer, hymem_main, events):
    if hymem_server.kind == "external":
        pytest.skip("the numbers of another server are not ours alone")
    before = answered(hymem_server.url)
    hymem_mem0.register()
    swapped["llm"]["config"]["writer"] |= SMALL
    if ADDITIVE:
        swapped["custom_instructions"] = "Write what the user says in New Messages. Do not use the examples."
    made = Bank(mem0.Memory, swapped)
    made.add("My dog is called Pepper.")
    assert {event.outcome for event in events} <= {"ok", "partial", "empty"}
    assert all(event.prompt_tokens for event in events)
    check_wire(hymem_writer, hymem_main)
    assert hymem_main.chats == []
    seen = [sent for sent in hymem_writer.chats if sent.status == 200]
    assert answered(hymem_server.url) - before == len(seen)
    assert sum(event.requests for event in events) == len(hymem_writer.chats)
    if ADDITIVE and hymem_server.real:
        bank = made.all()
        assert bool(bank) == any(event.kept for event in events)
        assert all(was_said(text, hymem_writer) for text in bank)
        found = made.search("What is the name of the dog?")
        assert bool(found) == bool(bank)
        assert set(found) <= bank


@pytest.mark.hymem_model("hyv3-dummy")
def test_the_request_reaches_the_real_architecture(swapped, hymem_server, hymem_writer, events):
    """Its text is noise; what is checked is that a write's request is answered in `content`."""
    hymem_mem0.register()
    short = {"max_tokens": 100, "max_tokens_if_cut": 100, "structured_output": "always", "on_failure": "skip"}
    swapped["llm"]["config"]["writer"] |= short
    memory = mem0.Memory.from_config(swapped)
    if ADDITIVE:  # its prompt is longer than this model's window
        hymem_writer.reply(None, body={"error": {"param": "input_text"}}, status=400)
        memory.add("My dog is called Pepper.", user_id="ann")
        assert events[0].error == "PromptTooLong"
        return
    memory.add("My dog is called Pepper.", user_id="ann")
    (sent,) = hymem_writer.chats[:1]
    assert sent.status == 200
    message = sent.reply["choices"][0]["message"]
    assert message["content"]
    assert not message["reasoning"]
    assert len(events) >= 1


def locomo():
    """LoCoMo's own file, where somebody has put it: its licence does not let us ship it."""
    beside = Path(__file__).resolve().parents[4] / "shared/data/locomo/locomo10.json"
    path = Path(os.environ.get("HYMEM_TEST_LOCOMO", beside))
    return path if path.is_file() else None


@pytest.mark.skipif(locomo() is None, reason="LoCoMo's locomo10.json is not here (HYMEM_TEST_LOCOMO)")
def test_what_people_really_say_goes_through(swapped, hymem_server, hymem_writer, hymem_main, events):
    """The first session of LoCoMo's first conversation, a turn at a time, every write with an event."""
    if hymem_server.real:
        pytest.skip("on a real server this is what `./dev demo --conversation` does")
    hymem_mem0.register()
    swapped["llm"]["config"]["writer"]["structured_output"] = "always"
    made = Bank(mem0.Memory, swapped)
    turns = json.loads(locomo().read_text(encoding="utf-8"))[0]["conversation"]["session_1"]
    for turn in turns:
        made.add(f"{turn['speaker']}: {turn['text']}")
    assert sum(event.requests for event in events) == len(hymem_writer.chats)
    assert len(events) >= len(turns)
    assert "failed" not in {event.outcome for event in events}
