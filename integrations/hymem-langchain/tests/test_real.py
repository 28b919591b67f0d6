"""End to end: what is said in a conversation is written by the model behind the name hy-memory, and found
again. On the double the words of the prompt stand in for a model's."""

from __future__ import annotations

import pytest
from adapter import USERS_KEY
from langchain_core.messages import AIMessage, HumanMessage
from langchain_memory import HAS_LANGMEM, memory_class
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

import hymem_langchain
from hymem_langchain import ChatHyMemory
from hymem_testing.replies import was_said

pytestmark = pytest.mark.hymem_real

SAID = [HumanMessage("My dog is called Pepper."), AIMessage("I see.")]
SMALL = {
    "max_tokens": 120,
    "max_tokens_if_cut": 120,
    "timeout": 900,
    "extra_body": {"repetition_penalty": 1.05},
}
"""What helps a model of 135 million parameters to stop."""


class Fact(BaseModel):
    """What the user has said, in a few words."""

    content: str = Field(max_length=80)


@pytest.fixture
def main(hymem_main):
    given = {"base_url": hymem_main.base_url, "api_key": USERS_KEY}
    return (
        ChatOpenAI(model=hymem_main.model, **given),
        OpenAIEmbeddings(model="embeddings", check_embedding_ctx_length=False, **given),
    )


@pytest.mark.skipif(not HAS_LANGMEM, reason="langmem is not in this cell")
def test_a_conversation_is_kept_and_found_again(main, hymem_server, hymem_writer, hymem_main, events):
    from langgraph.store.memory import InMemoryStore
    from langmem import create_memory_store_manager

    model, embeddings = main
    store = InMemoryStore(index={"embed": embeddings, "dims": len(embeddings.embed_query("x"))})
    hymem_langchain.enable(base_url=hymem_writer.base_url, **SMALL)
    manager = create_memory_store_manager(
        model,
        schemas=[Fact],
        namespace=("ann",),
        store=store,
        enable_deletes=False,
        instructions="Write down what the user says of himself.",
    )
    manager.invoke({"messages": SAID})
    assert [event.site for event in events] == ["langchain.memories"]
    assert events[0].outcome in ("ok", "partial", "empty")
    assert all(
        sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"} for sent in hymem_writer.chats
    )
    assert hymem_main.chats == []
    if hymem_server.real:
        found = store.search(("ann",), query="What is the name of the dog?")
        assert len(found) == events[0].kept
        texts = [item.value["content"]["content"] for item in found]
        assert all(was_said(text, hymem_writer) for text in texts)


def test_a_summary(main, hymem_writer, hymem_main, events):
    hymem_langchain.enable(base_url=hymem_writer.base_url, **SMALL)
    memory = memory_class("ConversationSummaryMemory")(llm=main[0])
    memory.save_context({"input": SAID[0].content}, {"output": SAID[1].content})
    assert memory.buffer.strip()
    assert events[0].outcome in ("ok", "partial")
    assert hymem_main.chats == []


@pytest.mark.hymem_model("hyv3-dummy")
@pytest.mark.parametrize("tool_mode", ["json_schema", "native"])
def test_the_request_reaches_the_real_architecture(hymem_writer, tool_mode):
    """Its text is noise; what is checked is that the request is answered, and where."""
    model = ChatHyMemory(base_url=hymem_writer.base_url, tool_mode=tool_mode, on_failure="skip", **SMALL)
    model.bind_tools([Fact]).invoke("My dog is called Pepper.")
    (sent,) = hymem_writer.chats[:1]
    assert sent.status == 200
    message = sent.reply["choices"][0]["message"]
    assert message["content"] or message["tool_calls"]
    assert not message["reasoning"]
