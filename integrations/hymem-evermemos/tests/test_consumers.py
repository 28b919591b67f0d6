"""Every call site, by the code of EverMemOS that asks it, and what that makes of the reply."""

from __future__ import annotations

import asyncio
import importlib.util
import json

import evermemos_bank as bank
import pytest
from everos_server import VERSION
from packaging.version import Version

import hymem_evermemos
from hymem import WriterUnavailable

HAS_MORE = Version("1.1") <= VERSION
needs_more = pytest.mark.skipif(not HAS_MORE, reason="came with 1.1")
SAID = "I live in {Oslo}, by the sea."


@pytest.fixture
def llm(hymem_writer, hymem_main):
    """The client of `[llm]`, in a process that is enabled."""
    hymem_evermemos.enable(base_url=hymem_writer.base_url)
    return bank.client(hymem_main.model, hymem_main.base_url)


@pytest.fixture
def asked(llm, hymem_writer, hymem_main, events):
    """Have something extracted, the writer saying this: what came of it, and the event of the write."""

    def ask(said, make, *, site):
        hymem_writer.reply(None, said if isinstance(said, str) else json.dumps(said))
        made = asyncio.run(make(llm))
        assert hymem_main.chats == []
        assert {event.site for event in events} == {f"evermemos.{site}"}
        assert {event.outcome for event in events} <= {"ok", "empty", "partial"}
        return made

    return ask


def chat(*texts):
    from everalgo.types import ChatMessage

    return [
        ChatMessage(id=f"m{at}", role="user", sender_id="ann", content=text, timestamp=bank.AT + at)
        for at, text in enumerate(texts)
    ]


def test_boundaries(asked):
    from everalgo.boundary import detect_boundaries

    said = {"reasoning": "{two} talks }", "boundaries": ["1"], "should_wait": "false"}
    found = asked(said, lambda llm: detect_boundaries(chat("a", "b", "c"), llm=llm), site="boundaries")
    assert [len(cell.items) for cell in found.cells] == [1]
    assert len(found.tail) == 2


def test_a_boundary_after_each_message(asked):
    from everalgo.boundary.chat import adetect_boundary_step

    found = asked(
        {"should_end": "true", "reasoning": "{}"},
        lambda llm: adetect_boundary_step(chat("a"), chat("b"), llm=llm),
        site="boundary-step",
    )
    assert found.should_end is True


def test_an_episode(asked):
    from everalgo.user_memory import EpisodeExtractor

    said = f"<think>{{}}</think>{json.dumps({'title': 'Home', 'content': SAID + ' }', 'summary': 's'})}"
    found = asked(
        said,
        lambda llm: EpisodeExtractor(llm=llm).aextract(bank.memcell(SAID), sender_id=None),
        site="episode",
    )
    assert (found.subject, found.episode) == ("Home", SAID + " }")


@pytest.mark.parametrize("of", ["a memcell", "a text"])
def test_facts(asked, of):
    from everalgo.user_memory import AtomicFactExtractor

    def make(llm):
        extractor = AtomicFactExtractor(llm=llm)
        if of == "a text":
            return extractor.aextract_from_text(SAID, timestamp=bank.AT)
        return extractor.aextract(bank.memcell(SAID), sender_id="ann")

    found = asked({"facts": ["Lives in {Oslo", {"fact": "By the sea"}]}, make, site="facts")
    assert [each.content for each in found] == ["Lives in {Oslo", "By the sea"]


def test_foresight(asked, hymem_writer):
    from everalgo.user_memory import ForesightExtractor

    said = {"foresights": [{"content": "Will move", "start_time": "2026-01-01", "duration_days": "7"}]}
    (found,) = asked(
        said,
        lambda llm: ForesightExtractor(llm=llm).aextract(bank.memcell(SAID), sender_id="ann"),
        site="foresight",
    )
    assert (found.foresight, found.end_time) == ("Will move", "2026-01-08")
    assert hymem_writer.chats[0].json["temperature"] == 0.0  # it asks for 0.3


def old_profile():
    from everalgo.types import Profile

    entries = [{"category": "home", "description": text} for text in ("in Bergen", "by a lake", "with a dog")]
    given = {"owner_id": "ann", "summary": "", "timestamp": bank.AT, "explicit_info": entries}
    return Profile.model_validate({**given, "implicit_traits": []})


def profiled(old):
    from everalgo.user_memory import ProfileExtractor

    return lambda llm: ProfileExtractor(llm=llm).aextract(
        [bank.memcell(SAID)], sender_id="ann", old_profile=old
    )


def test_a_first_profile(asked):
    found = asked({"explicit_info": [{"content": SAID}]}, profiled(None), site="profile")
    assert [each["description"] for each in found.explicit_info] == [SAID]


def test_what_a_profile_says_now(asked):
    """A deletion moves what is behind it; a number may be text; one that is not there becomes an addition."""
    operations = [
        {"action": "delete", "type": "explicit_info", "index": 0},
        {"action": "update", "type": "explicit_info", "index": "2", "data": {"description": "with a cat"}},
        {"action": "update", "type": "explicit_info", "index": 9, "data": {"description": SAID}},
    ]
    found = asked({"operations": operations}, profiled(old_profile()), site="profile-update")
    assert [each["description"] for each in found.explicit_info] == ["by a lake", "with a cat", SAID]


def test_a_profile_that_is_too_long(llm, hymem_writer, events, monkeypatch):
    monkeypatch.setattr("everalgo.user_memory.profile._PROFILE_COMPACT_THRESHOLD", 1)
    hymem_writer.reply(None, json.dumps({"explicit_info": [{"description": SAID}], "implicit_traits": []}))
    hymem_writer.reply("=== explicit_info", '{"operations": [{"action": "none"}]}')
    found = asyncio.run(profiled(old_profile())(llm))
    assert [each["description"] for each in found.explicit_info] == [SAID]
    assert [event.site for event in events] == ["evermemos.profile-update", "evermemos.profile-compact"]


def trajectory():
    from everalgo.types import (
        ChatMessage,
        MemCell,
        ToolCall,
        ToolCallFunction,
        ToolCallRequest,
        ToolCallResult,
    )

    call = ToolCall(id="c1", type="function", function=ToolCallFunction(name="grep", arguments="{}"))
    rounds = []
    for at in range(3):
        rounds += [
            ToolCallRequest(
                kind="tool_call",
                tool_calls=[call],
                content="look",
                timestamp=bank.AT + at,
                sender_id="helper",
            ),
            ToolCallResult(
                kind="tool_result", tool_call_id="c1", content="found " * 330, timestamp=bank.AT + at
            ),
        ]
    first, last = chat("Why does it time out?", "No, look again.")
    answer = ChatMessage(
        id="m9", role="assistant", sender_id="helper", content="It is three seconds.", timestamp=bank.AT + 9
    )
    return MemCell(items=[first, *rounds, last, answer], timestamp=bank.AT)


def test_a_case(llm, hymem_writer, events, monkeypatch):
    """What its tools said is made shorter first, each message in its place."""
    from everalgo.agent_memory import AgentCaseExtractor

    monkeypatch.setattr("everalgo.agent_memory.case.PRE_COMPRESS_CHUNK_SIZE", 1200)
    call = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
    short = [
        {"role": "assistant", "content": "look", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found {it}"},
    ]

    def compressed(body):
        count = body["messages"][0]["content"].count('"role": "tool"')
        return json.dumps({"compressed_messages": short * count})

    case = {"task_intent": "Find it", "approach": ["Look", "{Look} again"], "quality_score": 0.9}
    hymem_writer.reply("quality_score", json.dumps(case))
    hymem_writer.reply("has_exploration", '{"has_exploration": "true"}')
    hymem_writer.reply("compressed_messages", compressed)
    found = asyncio.run(AgentCaseExtractor(llm=llm).aextract(trajectory()))
    (one,) = found
    assert (one.task_intent, one.approach) == ("Find it", "Look\n{Look} again")
    sites = {event.site.removeprefix("evermemos.") for event in events}
    assert sites == {"tool-calls", "case", *(["case-worth"] if HAS_MORE else [])}
    assert {event.outcome for event in events} == {"ok"}


STEPS = "\n".join(f"{at}. Do what has to be done in this step {{of}} it." for at in range(6))


def test_skills(asked):
    from everalgo.agent_memory import AgentSkillExtractor
    from everalgo.types import AgentCase

    case = AgentCase(id="k", timestamp=bank.AT, task_intent="t", approach="a", quality_score=0.9)
    operations = [{"action": "UPDATE", "index": 4, "data": {"name": "Mend", "content": STEPS}}]
    (found,) = asked(
        {"operations": operations, "update_note": "{"},
        lambda llm: AgentSkillExtractor(llm=llm).aextract(
            case, existing_relevant_skills=[], supporting_cases=[]
        ),
        site="skills",
    )
    assert (found.name, found.content) == ("Mend", STEPS)


def test_how_mature_a_skill_is(llm, hymem_writer, events):
    from everalgo.agent_memory import AgentSkillExtractor
    from everalgo.types import AgentCase

    case = AgentCase(id="k", timestamp=bank.AT, task_intent="t", approach="a", quality_score=0.9)
    added = {"operations": [{"action": "add", "data": {"name": "Mend", "content": STEPS}}], "update_note": ""}
    hymem_writer.reply(None, json.dumps(added))
    four = {"completeness": "5", "executability": 5, "evidence": 5.0, "clarity": 5, "reason": "{"}
    hymem_writer.reply("executability", json.dumps(four))
    (found,) = asyncio.run(
        AgentSkillExtractor(llm=llm).aextract(
            case, existing_relevant_skills=[], supporting_cases=[], skip_maturity_scoring=False
        )
    )
    assert found.maturity_score == 1.0
    assert [event.site for event in events] == ["evermemos.skills", "evermemos.skill-maturity"]


def test_a_cluster(asked):
    import numpy as np
    from everalgo.clustering import Cluster
    from everalgo.clustering.algorithm import cluster_by_llm

    def cluster(name, vector):
        given = {"id": name, "count": 1, "last_ts": bank.AT, "preview": [name], "members": [name]}
        return Cluster(centroid=np.array(vector), **given)

    there = [cluster("a", [1.0, 0.0]), cluster("b", [0.0, 1.0])]
    found = asked(
        {"idx": "1", "reason": "like {b"},
        lambda llm: cluster_by_llm(cluster("new", [0.7, 0.7]), there, llm=llm),
        site="cluster",
    )
    assert found.id == "b"


@needs_more
def test_a_reflection(asked, hymem_writer):
    """It asks for a class, and is given an instance."""
    from everalgo.types import Episode
    from everalgo.user_memory import EpisodeReflector

    episodes = [
        Episode(owner_id="ann", episode=text, subject="s", timestamp=bank.AT + at)
        for at, text in enumerate(("In Oslo.", "In Bergen."))
    ]
    said = f"<think>of {{both}}</think>{json.dumps({'title': 'Home', 'content': SAID})}"
    found = asked(said, lambda llm: EpisodeReflector(llm=llm).areflect(episodes), site="reflection")
    assert (found.subject, found.episode) == ("Home", SAID)
    assert hymem_writer.chats[0].json["response_format"]["type"] == "json_schema"


@pytest.mark.skipif(
    importlib.util.find_spec("everalgo.agent_memory.profile") is None, reason="everalgo-agent-memory has none"
)
def test_an_agents_own_profile(asked):
    from everalgo.agent_memory.profile import _call_llm_for_profile_update

    found = asked(
        {"candidates": [{"signal": "Answer in {Norwegian"}, {}]},
        lambda llm: _call_llm_for_profile_update(llm, "a prompt"),
        site="agent-profile",
    )
    assert found["candidates"] == [{"signal": "Answer in {Norwegian"}]


# -- documents -----------------------------------------------------------------------------------


@needs_more
def test_a_documents_topics(asked):
    from everalgo.knowledge.extractor import _aextract_batch
    from everalgo.knowledge.prompts.en.topic_tree_extract import TOPIC_TREE_EXTRACT_PROMPT_EN

    found = asked(
        {"summary": "```{}```", "topics": [{"title": "Tea", "block_refs": [0, 1]}]},
        lambda llm: _aextract_batch(llm, "T", [(0, "a"), (1, "b")], TOPIC_TREE_EXTRACT_PROMPT_EN),
        site="topics",
    )
    assert found["topics"][0]["topic"] == "Tea"
    assert found["topics"][0]["block_refs"] == "0,1"
    assert found["summary"] == "```{}```"


@needs_more
def test_a_documents_summary(asked):
    from everalgo.knowledge._batch_merge import amerge_doc_summary

    parts = [{"summary": "a"}, {"summary": "b"}]
    assert (
        asked({"summary": SAID}, lambda llm: amerge_doc_summary(llm, "T", parts), site="document-summary")
        == SAID
    )


TOPICS = [{"topic": name, "summary": name, "block_refs": "0", "children": []} for name in "abcd"]


@needs_more
def test_topics_that_are_the_same(asked):
    from everalgo.knowledge._batch_merge import amerge_topics

    found = asked(
        {"merges": [{"indices": ["0", 2], "topic": "ac", "summary": "{"}]},
        lambda llm: amerge_topics(llm, "T", [dict(each) for each in TOPICS]),
        site="topic-merges",
    )
    assert [each["topic"] for each in found] == ["ac", "b", "d"]


@needs_more
def test_a_topic_that_is_split(asked):
    from everalgo.knowledge._postprocess import asplit_unsplit_leaves

    unsplit = [{"topic_name": "a", "path": [0], "block_ids": [0], "heading_ids": [0], "total_chars": 1}]
    below = [{"name": "x", "summary": "{", "block_refs": [0]}]
    said = {"results": [{"original_topic": "a", "should_split": "true", "children": below}]}
    found = asked(
        said,
        lambda llm: asplit_unsplit_leaves(llm, "T", [dict(each) for each in TOPICS], unsplit, {0: "text"}),
        site="topic-splits",
    )
    assert [each["topic"] for each in found[0]["children"]] == ["x"]


@needs_more
def test_a_block_of_no_topic(asked):
    from everalgo.knowledge._postprocess import aassign_uncovered_blocks

    found = asked(
        {"assignments": [{"block_id": "7", "topic_index": 1}]},
        lambda llm: aassign_uncovered_blocks(
            llm, "T", [dict(each) for each in TOPICS], [{"block_id": 7, "text": "x"}], {7: "x"}
        ),
        site="block-assignments",
    )
    assert found[1]["block_refs"] == "0,7"


@needs_more
def test_a_documents_category(asked):
    from everalgo.knowledge._classify import aclassify_category
    from everalgo.types import CategorySpec

    known = [CategorySpec(id="food", name="Food", description="Of food.")]
    found = asked({"category": "food"}, lambda llm: aclassify_category(llm, "T", "s", known), site="category")
    assert found == "food"


# -- what is no write ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "function", "said"),
    [
        ("agentic", "_call_llm_for_sufficiency", '{"is_sufficient": true}'),
        ("agentic", "_call_llm_for_multi_queries", '{"queries": ["a"]}'),
        ("rerank", "_call_llm_for_rerank", '{"ranking": []}'),
    ],
)
def test_searches_ask_the_main_model(llm, hymem_writer, hymem_main, module, function, said):
    """Of the client that writes are made with; the refined query is the conformance suite's."""
    asks = getattr(importlib.import_module(f"everalgo.rank.{module}"), function)
    hymem_main.reply(None, said)
    with pytest.raises((TypeError, ValueError)) if module == "rerank" else _nothing():
        asyncio.run(asks(llm, "Where does Ann live?"))
    assert hymem_writer.requests == []
    assert len(hymem_main.chats) == 1


def _nothing():
    import contextlib

    return contextlib.nullcontext()


# -- errors, and how often it is tried -----------------------------------------------------------


def detected(llm):
    """As `everos` tries: three times on a `ValueError`, in one task."""
    from everalgo.boundary import detect_boundaries

    async def tried():
        for attempt in range(3):
            try:
                return await detect_boundaries(chat("a", "b"), llm=llm)
            except ValueError:
                if attempt == 2:
                    raise

    return tried()


def test_the_same_request_is_never_sent_twice(llm, hymem_writer, events):
    """Two that differ, and then what they have come to: it is told at once when EverMemOS asks again."""
    hymem_writer.reply(None, "I remember.")
    with pytest.raises(ValueError, match="cannot be used") as raised:
        asyncio.run(detected(llm))
    assert type(raised.value).__name__ == "ReplyRejected"
    assert len(hymem_writer.chats) == 2
    assert hymem_writer.chats[0].raw != hymem_writer.chats[1].raw
    assert [event.outcome for event in events] == ["failed"]
    hymem_writer.reply(None, '{"boundaries": [1], "should_wait": false}')
    assert asyncio.run(detected(llm)).cells  # another time it is asked again


def test_a_server_that_is_away_is_no_bad_reply(llm, hymem_writer):
    """An `LLMError`, as `everalgo` has it: nothing is set aside for it."""
    from everalgo.llm.errors import LLMError

    hymem_writer.reply(None, answer=bank.REFUSED)
    with pytest.raises(WriterUnavailable) as raised:
        asyncio.run(detected(llm))
    assert isinstance(raised.value, LLMError)
    assert not isinstance(raised.value, ValueError)
    assert len(hymem_writer.chats) == 1


def test_another_time_it_may_be_asked(hymem_writer, llm, monkeypatch):
    """A program of one task, whose server is mended meanwhile."""
    from everalgo.boundary import detect_boundaries

    async def both():
        with pytest.raises(ValueError, match="cannot be used"):
            await detect_boundaries(chat("a", "b"), llm=llm)
        hymem_writer.reply(None, '{"boundaries": [1], "should_wait": false}')
        with pytest.raises(ValueError, match="cannot be used"):
            await detect_boundaries(chat("a", "b"), llm=llm)
        monkeypatch.setattr("hymem_evermemos.models.REMEMBERED", 0.0)
        return await detect_boundaries(chat("a", "b"), llm=llm)

    hymem_writer.reply(None, "I remember.")
    assert asyncio.run(both()).cells


def test_a_main_model_that_fails_once_is_asked_again(hymem_writer, hymem_main):
    hymem_evermemos.enable(base_url=hymem_writer.base_url, on_failure="fallback")
    hymem_writer.reply(None, "I remember.")
    hymem_main.reply(None, '{"boundaries": [1], "should_wait": false}')
    hymem_main.reply(None, "Sure.", times=1)
    found = asyncio.run(detected(bank.client(hymem_main.model, hymem_main.base_url)))
    assert [len(cell.items) for cell in found.cells] == [1]
    assert len(hymem_main.chats) == 2


@needs_more
def test_a_pass_over_a_document_that_fails_leaves_it_as_it_is(llm, hymem_writer, events):
    from everalgo.knowledge._classify import aclassify_category
    from everalgo.types import CategorySpec

    known = [CategorySpec(id="food", name="Food", description="Of food.")]
    hymem_writer.reply(None, '{"category_id": null}')
    assert asyncio.run(aclassify_category(llm, "T", "s", known)) == ""
    assert [event.outcome for event in events] == ["failed"]
    hymem_writer.reply(None, answer=bank.REFUSED)
    with pytest.raises(WriterUnavailable):
        asyncio.run(aclassify_category(llm, "T", "s", known))


class Traced:
    """A client of somebody's own around EverMemOS's."""

    def __init__(self, inner):
        self._inner, self.seen = inner, []

    async def chat(self, *args, **kwargs):
        async def attempt():
            self.seen.append(await self._inner.chat(*args, **kwargs))
            return self.seen[-1]

        return await asyncio.wait_for(attempt(), 30)


def test_somebody_elses_wrapper_is_looked_past_and_sees_the_tokens(llm, hymem_writer, hymem_main):
    from everalgo.user_memory import AtomicFactExtractor

    hymem_writer.reply(None, bank.facts_reply("a"))
    traced = Traced(llm)
    asyncio.run(AtomicFactExtractor(llm=traced).aextract_from_text("x", timestamp=0))
    assert hymem_main.chats == []
    (reply,) = traced.seen
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7, 5)
    assert (reply.model, reply.finish_reason) == ("hy-memory", "stop")


def test_the_coming_protocol(hymem_writer, hymem_main):
    """`achat` of everalgo-core 0.6: a class has to be named, and the text has to fit it."""
    from pydantic import BaseModel

    class Verdict(BaseModel):
        sure: bool

    llm = hymem_evermemos.HyMemoryLLM(base_url=hymem_writer.base_url)
    hymem_writer.reply(None, '<think>{}</think>{"sure": true}')
    text = asyncio.run(llm.achat([{"role": "user", "content": "x"}], response_format=Verdict))
    assert Verdict.model_validate_json(text).sure
    hymem_writer.reply(None, '{"sure": "perhaps"}')
    with pytest.raises(ValueError, match="sure"):
        asyncio.run(llm.achat([{"role": "user", "content": "x"}], response_format=Verdict))
