"""System 2, end to end: what is thought about what is known."""

from __future__ import annotations

import json
import re

import hy_memory_bank as bank
import pytest
from hy_memory_bank import IS_2

import hymem_hy_memory

KNOWN = [
    f"The user cooks pasta at home by recipe, {more}."
    for more in (
        "weighing flour on scales",
        "from printed cards always",
        "with a kitchen timer",
        "noting every result down",
    )
]
"""Near each other, as the SDK's clusters want them, and not the same."""
THINKING, BEHAVIOUR = "cognitive processing Agent", "You are a behavioral psychologist"
PATTERN = "When cooking, the user follows ``` {exact} rules."


@pytest.fixture
def opened(tmp_path, hymem_writer, hymem_main, monkeypatch):
    hymem_hy_memory.enable(base_url=hymem_writer.base_url)
    bank.script(hymem_writer, *KNOWN)
    hymem_writer.reply(BEHAVIOUR, '```json {"abstraction_for_embedding": "Seeks structure."}```')

    def opened(**environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        client = bank.client(bank.configuration(hymem_main, tmp_path), mode="ultra")
        assert client.add("I cook by the recipe.", user_id="ann")["success"] is True
        return client

    return opened


def evolve(client):
    return client.evolve("ann") if IS_2 else client.digest("ann")


def offered(body):
    return re.findall(r"\(id=([0-9a-f-]{8,})", body["messages"][-1]["content"])


def schema(body, **more):
    return {"op": "create_schema", "content": PATTERN, "evidence_list": offered(body)[:4], "tags": [], **more}


def schemas(client):
    """2.0.4 lists those that are retired, too."""
    nodes = client.list_memories(user_id="ann")["graph"]
    nodes = nodes.get("nodes") or nodes.get("memories") if isinstance(nodes, dict) else nodes
    return [
        each["content"]
        for each in nodes or []
        if each["layer"].lower() == "l6_schema" and bank.is_active(each)
    ]


def test_a_schema_is_made_of_facts(opened, hymem_writer, hymem_main, events):
    """Whatever stands in its text. In 1.2.21 what cannot be read counts as nothing to do."""
    client = opened()
    hymem_writer.reply(
        THINKING, lambda body: f"<think>[{{}}]</think>```json\n{json.dumps([schema(body)])}\n```"
    )
    done = evolve(client)
    assert done["success"] is True, done
    assert schemas(client) == [PATTERN]
    assert [event.site for event in events][1:] == ["hy-memory.system2", "hy-memory.behaviour"]
    assert hymem_main.chats == []
    found = client.search("How does the user cook pasta?", user_ids=["ann"], min_score=0.0)
    assert "pasta" in str(found)


@pytest.mark.parametrize(
    "said",
    [
        "Sure.",
        '["x"]',
        '[{"op": "create_schema", "content": "c", "evidence_list": ["nope"], "tags": []}]',
        '[{"op": "add_evidence", "node_id": "nope", "evidence_list": []}]',
    ],
    ids=str,
)
def test_thoughts_that_cannot_be_used_are_an_error_and_asked_for_again(opened, hymem_writer, said):
    """In the SDK some of these end `evolve()`, some are stored as they are, and some settle every fact."""
    client = opened()
    hymem_writer.reply(THINKING, said)
    done = evolve(client)
    assert done["success"] is False
    assert schemas(client) == []
    hymem_writer.reply(THINKING, lambda body: json.dumps([schema(body)]))
    assert evolve(client)["success"] is True
    assert schemas(client) == [PATTERN]


def test_thoughts_that_are_cut_settle_nothing(opened, hymem_writer):
    """With `"tags": []` in it, the SDK takes what is cut for nothing to do, and the facts for settled."""
    client = opened()
    hymem_writer.reply(THINKING, lambda body: json.dumps([schema(body)])[:-4], finish_reason="length")
    assert evolve(client)["success"] is False
    asked = [sent.json["max_tokens"] for sent in hymem_writer.chats if THINKING in sent.text]
    assert asked == [4096, 8192]
    hymem_writer.reply(THINKING, lambda body: json.dumps([schema(body)]))
    assert evolve(client)["success"] is True
    assert schemas(client) == [PATTERN]


def test_a_writer_that_is_away(opened, hymem_writer, hymem_main):
    """1.2.21 says `success: True`."""
    client = opened()
    hymem_writer.reply(THINKING, status=500, body={})
    done = evolve(client)
    assert done["success"] is False
    assert hymem_main.chats == []


def test_nothing_to_think_of_is_no_error(opened, hymem_writer, events):
    client = opened()
    hymem_writer.reply(THINKING, "```json\n[]\n```")
    assert evolve(client)["success"] is True
    assert [event.outcome for event in events if event.site == "hy-memory.system2"] == ["empty"]


def test_a_sweep(opened, hymem_writer, events):
    client = opened()
    hymem_writer.reply(THINKING, lambda body: json.dumps([schema(body)]))
    hymem_writer.reply(BEHAVIOUR, "no idea")
    evolve(client)
    hymem_writer.reply(BEHAVIOUR, '{"abstraction_for_embedding": "Seeks structure."}')
    client.sweep(user_ids=["ann"])
    found = [event.outcome for event in events if event.site == "hy-memory.behaviour"]
    assert found == ["failed", "ok"]


needs_2 = pytest.mark.skipif(not IS_2, reason="came with 2.0")


@needs_2
@pytest.mark.parametrize("said", ["{}", '{"selected": [', "Sure."], ids=str)
def test_what_is_not_decided_on_is_asked_again(opened, hymem_writer, events, monkeypatch, said):
    """Any object counts as a review of all the facts, in the SDK alone."""
    switch_on(monkeypatch, "_S2_PROFILE_FACT_PROMOTION_ENABLED")
    client = opened()
    hymem_writer.reply(THINKING, "[]")
    profile = "long-term emotional Profile channel"
    hymem_writer.reply(profile, said)
    assert evolve(client)["success"] is False
    hymem_writer.reply(profile, '{"selected": [], "demote": []}')
    assert evolve(client)["success"] is True
    outcomes = [event.outcome for event in events if event.site == "hy-memory.profile-promotion"]
    assert outcomes == ["failed", "empty"]


def switch_on(monkeypatch, name):
    """What the environment says is read when the SDK is imported."""
    monkeypatch.setattr(f"hy_memory.pipelines.system2_agent.{name}", True)


@needs_2
def test_what_is_to_be_forgotten(opened, hymem_writer, events, monkeypatch):
    """A list in the place of the reasons, or a reply that is cut, ends `evolve()` in the SDK alone."""
    switch_on(monkeypatch, "_S2_FORGET_ENABLED")
    client = opened()
    hymem_writer.reply(THINKING, lambda body: json.dumps([schema(body)]))
    assert evolve(client)["success"] is True
    said = "Please forget that I cook pasta by the recipe."
    bank.script(hymem_writer, "The user asked the assistant to forget that the user cooks pasta by recipe.")
    client.add([{"role": "user", "content": said}], user_id="ann")
    hymem_writer.reply(
        "ONE explicit user forgetting directive",
        lambda body: json.dumps(
            {
                "retire_schema_ids": json.loads(body["messages"][-1]["content"])["candidate_active_schemas"][
                    0
                ]["node_id"],
                "reason_by_id": ["r"],
            }
        ),
    )
    hymem_writer.reply(THINKING, "[]")
    evolve(client)
    assert [event.outcome for event in events if event.site == "hy-memory.forget"] == ["ok"]
    assert schemas(client) == []


TOLD = (
    "The user grieves for a mentor who died.",
    "The user takes quiet walks to cope with grief.",
    "The user keeps a garden of roses.",
    "The user asked about knee pain because the user has had knee pain for three years after an accident.",
    "The user asked the assistant to forget that they keep roses in the garden.",
)


def numbered(body, words):
    lines = body["messages"][-1]["content"].splitlines()
    return next(int(line.partition(".")[0]) for line in lines if words in line and line[0].isdigit())


@needs_2
def test_a_catalog_and_its_supplement(opened, hymem_writer, events):
    """Three questions of one function, each held to its own shape. A number where a list should be ends
    `evolve()` in the SDK alone."""
    bank.script(hymem_writer, *TOLD)
    client = opened(
        MEMORY_EVOLING_BALANCED_CATALOG_ENABLED="true",
        MEMORY_USER_PROFILE_BALANCED_CATALOG_ENABLED="true",
        MEMORY_EVOLING_SPECIFIC_SUPPLEMENT_ENABLED="true",
        MEMORY_USER_PROFILE_SPECIFIC_SUPPLEMENT_ENABLED="true",
    )
    hymem_writer.reply(THINKING, "[]")
    hymem_writer.reply(
        "Build a balanced long-term persona catalog",
        lambda body: json.dumps({"values_coping": numbered(body, "quiet walks")}),
    )
    hymem_writer.reply(
        "specific-personal-evidence supplement",
        lambda body: json.dumps(
            {
                "domains": {
                    "health_accessibility": numbered(body, "knee pain"),
                    "habits_items": [str(numbered(body, "keeps a garden"))],
                }
            }
        ),
    )
    hymem_writer.reply("Select explicit personal claims", '{"selected": [{"parent": "P1", "candidates": 1}]}')
    hymem_writer.reply("supplement entries that must be suppressed", '{"remove": "1"}')
    assert evolve(client)["success"] is True
    found = [event for event in events if "catalog" in event.site or "supplement" in event.site]
    assert [event.site.removeprefix("hy-memory.") for event in found] == [
        *("catalog", "supplement", "supplement-clauses", "supplement-forget"),
    ]
    assert {event.outcome for event in found} == {"ok"}
