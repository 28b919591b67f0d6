"""What people have reported of EverMemOS, where a writer of its own cures it. The numbers are of
https://github.com/EverMind-AI/EverOS/issues; what it cannot cure is on EverMemOS's page."""

from __future__ import annotations

import asyncio
import json

import evermemos_bank as bank
import pytest

import hymem_evermemos


@pytest.fixture
def llm(hymem_writer, hymem_main):
    hymem_evermemos.enable(base_url=hymem_writer.base_url)
    return bank.client(hymem_main.model, hymem_main.base_url)


def test_333_a_slow_model_has_the_time_it_needs(llm, hymem_writer):
    """EverMemOS's own client gives up after a time that cannot be set before 1.3.1."""
    from everalgo.user_memory import AtomicFactExtractor

    llm._client = llm._client.with_options(timeout=0.2)
    hymem_writer.reply(None, bank.facts_reply("Ann lives in Oslo."), delay=0.6)
    (found,) = asyncio.run(AtomicFactExtractor(llm=llm).aextract_from_text("x", timestamp=0))
    assert found.content == "Ann lives in Oslo."


@pytest.mark.parametrize(
    "text", ["Use {name} in f-strings.", "End it with }", "if (a) { b(); }", '{"a": {"b": 1}}']
)
def test_code_in_a_conversation_is_no_bad_reply(llm, hymem_writer, text):
    """Of no number: an episode about code, a template or JSON cannot be parsed, and is lost."""
    from everalgo.boundary import detect_boundaries
    from everalgo.types import ChatMessage
    from everalgo.user_memory import EpisodeExtractor

    said = {"title": text, "content": text, "summary": text}
    hymem_writer.reply(None, json.dumps(said))
    extractor = EpisodeExtractor(llm=llm)
    found = asyncio.run(extractor.aextract(bank.memcell(text), sender_id=None))
    assert (found.subject, found.episode) == (text, text)
    hymem_writer.reply(None, json.dumps({"reasoning": text, "boundaries": [1], "should_wait": False}))
    messages = [
        ChatMessage(id=str(at), role="user", sender_id="ann", content=text, timestamp=bank.AT + at)
        for at in range(3)
    ]
    assert len(asyncio.run(detect_boundaries(messages, llm=llm)).cells) == 1
