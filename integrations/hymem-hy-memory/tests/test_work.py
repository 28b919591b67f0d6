"""Work with tools, end to end: which store it belongs to, what is learned from it, and what that replaces."""

from __future__ import annotations

import json
import re

import hy_memory_bank as bank
import pytest
from hy_memory_bank import IS_2

import hymem_hy_memory

CALL = {"name": "Read", "arguments": json.dumps({"path": "ci.yml"})}
TRACE = [
    {"role": "user", "content": "CI npm run build fails, fix ci.yml"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c1", "type": "function", "function": CALL}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "Read", "content": "node-version: 18"},
    {"role": "assistant", "content": "Raised node to 20, the build passes."},
]
TASK, FACT = "fix the failing npm run build in CI", "CI npm run build failed under node 18; node is 20 now."
EXPERIENCE = {
    "task": TASK,
    "search_keys": ["npm run build node 18"],
    "solution": "set node-version: 20 in ci.yml",
    "boundary_envs": "node: 20",
    "confidence": 0.9,
}
SCENE = {"scene": "coding"} if IS_2 else {}
LIST = "experiences" if IS_2 else "memories"
EXTRACTING, DECIDING = "You extract durable", "You decide how to merge new coding memory drafts"
JUDGING = "single-label scene classifier" if IS_2 else "is_coding"
SUPERSEDING, CHAINING = "You maintain session-level WORKING FACTS", "A user task in a working-memory store"


@pytest.fixture
def client(tmp_path, hymem_writer, hymem_main):
    hymem_hy_memory.enable(base_url=hymem_writer.base_url)
    return bank.client(bank.configuration(hymem_main, tmp_path))


def script(writer, *experiences, fact=FACT, ops=None):
    """Have the writer learn this of a conversation with tools, and add it."""
    said = {LIST: list(experiences), "fact": {"statement": fact, "files": ["ci.yml"]} if fact else None}
    writer.reply(EXTRACTING, f"```json\n{json.dumps(said)}\n```")
    writer.reply(DECIDING, json.dumps({"ops": ops or [{"draft_idx": 0, "action": "ADD"}]}))
    writer.reply(JUDGING, '```json {"scene": "coding", "is_coding": true}```')


def work(client, messages=TRACE, **more):
    return client.add(messages, user_id="ann", session_id="s", **{**SCENE, **more})


def found(client, query="npm run build in CI fails"):
    if not IS_2:
        return client.search(query, user_ids=["ann"], scene="productivity", min_score=0.0)
    return client.search(query, user_ids=["ann"], scene="coding")


def tasks(client):
    return [each["task"] for each in found(client).get("experiences" if IS_2 else "coding_memories") or []]


def sites(events):
    return [event.site.removeprefix("hy-memory.") for event in events]


def test_what_was_done_is_found_again(client, hymem_writer, hymem_main, events):
    script(hymem_writer, EXPERIENCE)
    result = work(client, **({"scene": None} if IS_2 else {}))
    assert result["success"] is True
    assert tasks(client) == [TASK]
    if IS_2:
        assert [each["statement"] for each in found(client)["facts"]] == [FACT]
        assert sites(events) == ["scene", "coding-extract", "coding-reconcile"]
        assert hymem_writer.chats[1].json["max_tokens"] == 4096
    else:
        assert sites(events) == ["is-coding", "coding-extract-1", "coding-reconcile-1"]
    assert hymem_main.chats == []


@pytest.mark.skipif(not IS_2, reason="came with 2.0")
def test_what_a_new_fact_replaces(client, hymem_writer, events):
    script(hymem_writer, EXPERIENCE)
    work(client)
    newer = "CI npm run build passes under node 22."
    script(hymem_writer, fact=newer)
    hymem_writer.reply(
        SUPERSEDING,
        lambda body: json.dumps(
            {"ops": [{"supersedes": re.findall(r"fact_id=(\S+)", body["messages"][-1]["content"])[0]}]}
        ),
    )
    hymem_writer.reply(CHAINING, '<think>{x}</think>{"summary": "Node was raised twice."}')
    result = work(client)
    assert result["fact_ops_summary"]["supersede"] == 1
    (fact,) = found(client)["facts"]
    assert (fact["statement"], fact["fact_chain_summary"]) == (newer, "Node was raised twice.")
    assert sites(events)[-3:] == ["coding-extract", "fact-reconcile", "fact-summary"]


@pytest.mark.parametrize("target", ["exp_xxx", "mem_xxx", "of another"])
def test_an_update_of_what_was_not_offered_is_an_addition(client, hymem_writer, target):
    """Before 2.0.6 it would make a row of that name, which the next user takes over."""
    named = {"target_experience_id": target, "target_memory_id": target}
    script(hymem_writer, EXPERIENCE, ops=[{"draft_idx": 0, "action": "UPDATE", **named}])
    result = work(client)
    ids = result["experience_ids"] if IS_2 else result["memory_ids"]
    assert len(ids) == 1
    assert target not in ids
    assert tasks(client) == [TASK]


def test_an_update_of_what_was(client, hymem_writer):
    script(hymem_writer, EXPERIENCE)
    work(client)
    name, shown = ("target_experience_id", "experience_id") if IS_2 else ("target_memory_id", "memory_id")
    better = {**EXPERIENCE, "solution": "set node-version: 22 in ci.yml"}
    script(hymem_writer, better)
    hymem_writer.reply(
        DECIDING,
        lambda body: json.dumps(
            {
                "ops": [
                    {
                        "action": "update",
                        name: re.findall(rf"- {shown}=(\S+)", body["messages"][-1]["content"])[0],
                    }
                ]
            }
        ),
    )
    assert work(client)["ops_summary"]["update"] == 1
    assert tasks(client) == [TASK]


@pytest.mark.parametrize("said", ["", "Sure.", '{"experiences": [', "{}"], ids=str)
def test_work_that_could_not_be_extracted_is_an_error(client, hymem_writer, hymem_main, said):
    """The SDK says `success: True`, and takes the same messages for read when they are given again."""
    script(hymem_writer)
    hymem_writer.reply(EXTRACTING, said)
    result = work(client)
    assert (result["success"], result["error_code"]) == (False, 502)
    assert "coding-extract" in result["error_message"]
    before = len(hymem_writer.chats)
    script(hymem_writer, EXPERIENCE)
    assert work(client)["success"] is True
    assert tasks(client) == [TASK]
    again = next(sent for sent in hymem_writer.chats[before:] if EXTRACTING in sent.text)
    assert again.text.count("npm run build fails") == 1
    assert hymem_main.chats == []


def test_work_with_nothing_in_it_is_no_error(client, hymem_writer, events):
    script(hymem_writer, fact=None)
    result = work(client)
    assert result["success"] is True
    assert tasks(client) == []
    assert events[-1].outcome == "empty"


@pytest.mark.parametrize("value", [["a", "b"], {"a": 1}, 5], ids=str)
def test_a_wrong_type_does_not_end_the_add(client, hymem_writer, value):
    """An `AttributeError` out of `add()`, in the SDK alone."""
    script(hymem_writer, {**EXPERIENCE, "boundary_envs": value}, "a mere text")
    assert work(client)["success"] is True
    assert tasks(client) == [TASK]


def test_a_judge_that_fails_sends_it_to_the_chat(client, hymem_writer, events):
    bank.script(hymem_writer, "The user fixed CI.")
    hymem_writer.reply(JUDGING, "no idea")
    result = work(client, **({"scene": None} if IS_2 else {}))
    assert result["success"] is True
    assert bank.facts(client) == ["The user fixed CI."]
    assert [event.outcome for event in events][:2] == ["failed", "ok"]


@pytest.mark.skipif(not IS_2, reason="there is one language before 2.0")
def test_work_in_chinese(client, hymem_writer, events):
    said = {"experiences": [{**EXPERIENCE, "task": "修复持续集成"}], "fact": {"statement": "节点是二十。"}}
    hymem_writer.reply(None, json.dumps(said, ensure_ascii=False))
    hymem_writer.reply("coding memory drafts", '{"ops": []}')
    messages = [{**TRACE[0], "content": "持续集成构建失败。请修复。"}, *TRACE[1:]]
    assert work(client, messages)["success"] is True
    assert {event.outcome for event in events} <= {"ok", "empty"}
    assert [each["statement"] for each in found(client, "节点是二十。")["facts"]] == ["节点是二十。"]


@pytest.mark.skipif(IS_2, reason="went with 2.0")
def test_the_curator_stays_with_the_main_model(tmp_path, hymem_writer, hymem_main):
    """An agent that writes with tools, over many turns, is another kind of thing."""
    hymem_hy_memory.enable(base_url=hymem_writer.base_url)
    client = bank.client(bank.configuration(hymem_main, tmp_path), coding_writer="agent")
    script(hymem_writer)
    hymem_main.reply(None, "nothing to do")
    work(client)
    assert len(hymem_main.chats) == 1
    assert len(hymem_writer.chats) == 1
