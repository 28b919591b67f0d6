"""Mem0 as a memory of LlamaIndex (`llama-index-memory-mem0`): its configuration is Mem0's, and so is the
swap."""

from __future__ import annotations

import pytest
from mem0_bank import ADDITIVE, add_all, facts_reply, is_decision

pytest.importorskip("llama_index.memory.mem0", reason="llama-index-memory-mem0 is not in this cell")


@pytest.fixture
def said():
    from llama_index.core.base.llms.types import ChatMessage

    return lambda text, role="user": ChatMessage(role=role, content=text)


def test_what_is_said_is_written_by_the_writer(swapped, hymem_writer, hymem_main, events, said):
    from llama_index.memory.mem0 import Mem0Memory

    import hymem_mem0

    hymem_mem0.register()
    hymem_writer.reply(None, facts_reply("Lives in Oslo"))
    if not ADDITIVE:
        hymem_writer.reply(is_decision, add_all)
    memory = Mem0Memory.from_config(context={"user_id": "ann"}, config=swapped)
    memory.put(said("I live in Oslo."))
    assert "Lives in Oslo" in str(memory.get("Where do I live?"))
    assert len(events) == (1 if ADDITIVE else 2)  # routed once, whatever LlamaIndex has put around it
    assert sum(event.requests for event in events) == len(hymem_writer.chats)
    assert hymem_main.chats == []
