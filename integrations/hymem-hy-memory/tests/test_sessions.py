"""What a session was about, and summaries of what is over."""

from __future__ import annotations

import json
import time

import hy_memory_bank as bank
import pytest
from hy_memory_bank import IS_2

import hymem_hy_memory
from hymem import ReplyRejected

BOUNDARY, CORRECTION = "episodic-memory boundary detector", "previous boundary JSON was internally"
CAPSULE, NARRATIVE = "compact retrieval capsule", "retrieval-friendly episode narrative"
COOKING, SKIING = "The user cooks pasta on Sundays.", "The user goes skiing in Norway."
SAID = [
    {"role": "user", "content": "I cook pasta on Sundays."},
    {"role": "assistant", "content": "Nice."},
    {"role": "user", "content": "And I go skiing in Norway."},
    {"role": "assistant", "content": "Great."},
]
needs_2 = pytest.mark.skipif(not IS_2, reason="came with 2.0")


@pytest.fixture
def opened(tmp_path, hymem_writer, hymem_main, monkeypatch):
    hymem_hy_memory.enable(base_url=hymem_writer.base_url)

    def opened(mode="pro", **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return bank.client(bank.configuration(hymem_main, tmp_path), mode=mode)

    return opened


def talk(client, writer, *facts):
    bank.script(writer, *(facts or (COOKING, SKIING)))
    assert client.add(SAID, user_id="ann", session_id="s")["success"] is True


def finalize(client):
    return client.finalize_session(user_id="ann", session_id="s")


def of(events, *names):
    return [event for event in events if event.site.removeprefix("hy-memory.") in names]


@needs_2
def test_events_of_a_session(opened, hymem_writer, hymem_main, events):
    client = opened(MEMORY_DYNAMIC_EPISODE_ENABLED="true")
    talk(client, hymem_writer)
    hymem_writer.reply(BOUNDARY, '<think>{2}</think>{"boundaries": ["2", 9], "event_count": "3"}')

    def capsule(body):
        about = "pasta" if "pasta" in body["messages"][-1]["content"] else "skiing"
        return json.dumps({"title": f"About {about}", "summary": f"The user's {about} {{}} ```."})

    hymem_writer.reply(CAPSULE, capsule)
    done = finalize(client)
    assert (done["success"], done["episode_count"]) == (True, 2)
    titles = {client.get(each)["content"] for each in done["episode_ids"]}
    assert titles == {"About pasta", "About skiing"}
    assert finalize(client)["status"] == "reused"
    assert [event.site for event in of(events, "boundaries", "capsule")] == [
        "hy-memory.boundaries",
        *["hy-memory.capsule"] * 2,
    ]
    assert hymem_main.chats == []
    assert {sent.json["max_tokens"] for sent in hymem_writer.chats} == {4096}


@needs_2
@pytest.mark.parametrize(
    "said", ['{"boundaries": [2], "event_count": 5}', "no idea", '{"boundaries": [null, {}]}']
)
def test_boundaries_that_cannot_be_used_make_one_event(opened, hymem_writer, events, said):
    """As in the SDK, without its correction: hymem has asked twice by then."""
    client = opened(MEMORY_DYNAMIC_EPISODE_ENABLED="true")
    talk(client, hymem_writer)
    hymem_writer.reply(BOUNDARY, said)
    hymem_writer.reply(CAPSULE, '{"title": "All", "summary": "All of it."}')
    assert finalize(client)["episode_count"] == 1
    assert not any(CORRECTION in sent.text for sent in hymem_writer.chats)


@needs_2
def test_a_capsule_that_fails_is_raised_and_can_be_had_later(opened, hymem_writer):
    client = opened(MEMORY_DYNAMIC_EPISODE_ENABLED="true")
    talk(client, hymem_writer)
    hymem_writer.reply(BOUNDARY, '{"boundaries": [], "event_count": 1}')
    hymem_writer.reply(CAPSULE, '{"title": "All", "summary": ""}')
    with pytest.raises(ReplyRejected, match=r"hy-memory\.capsule"):
        finalize(client)
    hymem_writer.reply(CAPSULE, '{"title": "All", "summary": "All of it."}')
    assert finalize(client)["episode_count"] == 1


@needs_2
@pytest.mark.parametrize(
    "said", ["The user cooks.", "<think>{x}</think>The user cooks.", '{"narrative": "The user cooks."}']
)
def test_a_session_as_a_text(opened, hymem_writer, events, said):
    """Whatever is said the first time stays: the SDK does not ask again."""
    client = opened(MEMORY_SESSION_EPISODE_ENABLED="true")
    talk(client, hymem_writer)
    hymem_writer.reply(NARRATIVE, said)
    assert client.get(finalize(client)["episode_id"])["content"] == "The user cooks."
    assert len(of(events, "session")) == 1


@needs_2
def test_a_text_that_is_cut_is_asked_for_again(opened, hymem_writer):
    client = opened(MEMORY_SESSION_EPISODE_ENABLED="true")
    talk(client, hymem_writer)
    hymem_writer.reply(NARRATIVE, "The user cooks, and goes skiing.")
    hymem_writer.reply(NARRATIVE, "The user co", finish_reason="length", times=1)
    assert client.get(finalize(client)["episode_id"])["content"] == "The user cooks, and goes skiing."
    asked = [sent.json["max_tokens"] for sent in hymem_writer.chats if NARRATIVE in sent.text]
    assert asked == [3000, 8192]


@needs_2
@pytest.mark.parametrize("language", ["English", "Chinese"])
def test_summaries_of_topics_and_episodes_come_in_the_background(opened, hymem_writer, events, language):
    """Detached work of a write: begun inside it, finished behind it."""
    client = opened(
        "ultra",
        MEMORY_TOPIC_SUMMARY_ENABLED="true",
        MEMORY_TOPIC_SUMMARY_MIN_MEMORIES="1",
        MEMORY_TOPIC_SUMMARY_STEP="1",
        MEMORY_EPISODE_SUMMARY_ENABLED="true",
        MEMORY_EPISODE_SUMMARY_MIN_MEMORIES="1",
        MEMORY_EPISODE_GAP_MINUTES="0",
    )
    asked = "summarizing|everything known about|总结|概括"
    facts = (COOKING, SKIING) if language == "English" else ("用户星期天做意大利面。", "用户在挪威滑雪。")
    hymem_writer.reply(None, "A summary.")
    for fact in facts:
        bank.script(hymem_writer, fact)
        hymem_writer.reply(
            lambda body: (
                any(each in body["messages"][-1]["content"] for each in asked.split("|"))
                and len(body["messages"]) == 1
                and "[{" not in body["messages"][-1]["content"]
            ),
            "A summary.",
        )
        client.add(fact, user_id="ann", session_id="s")
    end = time.monotonic() + 30
    while not of(events, "topic-summary", "episode-summary") and time.monotonic() < end:
        time.sleep(0.05)
    assert of(events, "topic-summary", "episode-summary")


@pytest.mark.skipif(IS_2, reason="went with 2.0")
def test_rolling_summaries_leave_out_no_line(opened, hymem_writer, events):
    client = opened(MEMORY_ENABLE_SUMMARY="true", MEMORY_SUMMARY_BUFFER_WINDOW="2")
    said = {"summary_list": [{"content": "The user cooks ``` pasta.", "topic": "food", "line_ids": ["0"]}]}
    bank.script(hymem_writer, COOKING)
    hymem_writer.reply("daily conversation summaries", json.dumps(said))
    client.add(SAID, user_id="ann", session_id="s")
    client.add(SAID, user_id="ann", session_id="s")
    rolled = of(events, "rolling-summary")
    assert [event.outcome for event in rolled] == ["ok"] * len(rolled)
    assert rolled
    assert "The user cooks ``` pasta." in bank.facts(client, layer="l3_summary")
