"""End to end: what is said in a conversation is written by the model behind the name hy-memory, and found
again by EverOS's own search. On the double the words of the prompt stand in for a model's."""

from __future__ import annotations

import asyncio
import contextlib
import json

import evermemos_bank as bank
import pytest
from everos_server import VERSION, EverOS
from packaging.version import Version

import hymem_evermemos
from hymem import ReplyRejected
from hymem_testing.replies import was_said

pytestmark = pytest.mark.hymem_real

SMALL = {
    "HYMEM_STRUCTURED_OUTPUT": "always",
    "HYMEM_MAX_TOKENS": "200",
    "HYMEM_MAX_TOKENS_IF_CUT": "200",
    "HYMEM_TIMEOUT": "900",
    "HYMEM_EXTRA_BODY": '{"repetition_penalty": 1.05}',
}
"""What helps a model of 135 million parameters to hold a shape and to stop."""


BACKGROUND = (
    "extract_atomic_facts",
    "extract_foresight",
    "extract_user_profile",
    "trigger_profile_clustering",
)
QUIET = "".join(f"[strategies.{name}]\nenabled = false\n" for name in BACKGROUND)
"""Boundary and episode are asked in the request; a small model on the CPU takes a minute for the rest."""


def episode(body):
    """Of a text that is cut nothing is kept; a small model's are."""
    return json.dumps({"title": "Ann's dog", "content": "Ann has a dog called Pepper.", "summary": "A dog."})


@pytest.mark.skipif(Version("1.5") > VERSION, reason="it stores vectors of 1024 numbers only")
def test_a_conversation_is_kept_and_found_again(tmp_path, hymem_writer, hymem_main):
    """Boundary and episode are the model's own where it comes to an end; then it is asked no more."""
    environ = {"HYMEM_ENABLE": "evermemos", "HYMEM_BASE_URL": hymem_writer.base_url, **SMALL}
    with EverOS(tmp_path / "root", hymem_main, embeds=True, environ=environ, ome=QUIET) as everos:
        assert everos.add("My dog is called Pepper.")[0] == 200
        status, said = everos.flush()
        if status == 500:  # its episode was cut: the request and its keeping are what is seen of it
            assert list(everos.root.glob(".hymem/episodes/*"))
            hymem_writer.reply('"content"', episode)
            status, said = everos.flush()
            everos.until(lambda: not list(everos.root.glob(".hymem/episodes/*")))
        assert status == 200, said
        found = everos.until(lambda: everos.search("What is the dog called?", method="vector")["episodes"])
        text = found[0].get("episode") or str(found[0])
        assert was_said(text, hymem_writer) or "Pepper" in text
    asked = {"should_wait", '"content"'}
    assert all(any(word in sent.text for sent in hymem_writer.chats) for word in asked)
    for sent in hymem_writer.chats:
        assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
    assert hymem_main.chats == []


@pytest.mark.hymem_model("hyv3-dummy")
def test_the_request_reaches_the_real_architecture(hymem_writer, hymem_main):
    """Its text is noise; what is checked is that a write's request is answered in `content`."""
    from everalgo.user_memory import AtomicFactExtractor

    hymem_evermemos.enable(base_url=hymem_writer.base_url, max_tokens=32, max_tokens_if_cut=32)
    extractor = AtomicFactExtractor(llm=bank.client(hymem_main.model, hymem_main.base_url))
    with contextlib.suppress(ReplyRejected):
        asyncio.run(extractor.aextract_from_text("Ann drinks tea.", timestamp=0))
    sent = hymem_writer.chats[0]
    assert sent.status == 200
    message = sent.reply["choices"][0]["message"]
    assert message["content"]
    assert not message["reasoning"]
    assert hymem_main.chats == []
