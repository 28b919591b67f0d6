"""End to end: what is said in a conversation is written by the model behind the name hy-memory, and found
again by EverOS's own search. On the double the words of the prompt stand in for a model's."""

from __future__ import annotations

import json

import pytest
from everos_server import VERSION, EverOS
from packaging.version import Version

from hymem_testing.replies import was_said

pytestmark = [
    pytest.mark.hymem_real,
    pytest.mark.skipif(Version("1.5") > VERSION, reason="it stores vectors of 1024 numbers only"),
]

SMALL = {
    "HYMEM_STRUCTURED_OUTPUT": "always",
    "HYMEM_MAX_TOKENS": "200",
    "HYMEM_MAX_TOKENS_IF_CUT": "200",
    "HYMEM_TIMEOUT": "300",
    "HYMEM_EXTRA_BODY": '{"repetition_penalty": 1.05}',
}
"""What helps a model of 135 million parameters to hold a shape and to stop."""


def episode(body):
    """Of a text that is cut nothing is kept; a small model's are."""
    return json.dumps({"title": "Ann's dog", "content": "Ann has a dog called Pepper.", "summary": "A dog."})


def test_a_conversation_is_kept_and_found_again(tmp_path, hymem_writer, hymem_main):
    """Boundary and episode are the model's own where it comes to an end; then it is asked no more."""
    environ = {"HYMEM_ENABLE": "evermemos", "HYMEM_BASE_URL": hymem_writer.base_url, **SMALL}
    ome = "[strategies.extract_user_profile]\nenabled = false\n"
    with EverOS(tmp_path / "root", hymem_main, embeds=True, environ=environ, ome=ome) as everos:
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
