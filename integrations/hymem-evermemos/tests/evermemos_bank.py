"""Facts of a conversation, as `everalgo` extracts them, and what a model says for them."""

from __future__ import annotations

import json

from hymem_testing.http import Body

USERS_KEY = "sk-users-key"
AT = 1_760_000_000_000
"""Milliseconds."""


class Letters:
    """In the place of tiktoken's o200k_base, which is downloaded: four letters are a token."""

    def encode(self, text):
        return [text[at : at + 4] for at in range(0, len(text), 4)]

    def decode(self, tokens):
        return "".join(tokens)


def without_download():
    import everalgo._tokenize

    everalgo._tokenize._tokenizer_cache = Letters()


def client(model, base_url, api_key=USERS_KEY):
    """As EverMemOS makes the client of `[llm]`; but that no connection outlasts the loop it was opened in, of
    which a test has many."""
    import httpx
    from everalgo.llm import LLMConfig
    from everos.component.llm import client

    made = client.build_client(LLMConfig(model=model, api_key=api_key, base_url=base_url))
    unkept = httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0))
    made._client = made._client.with_options(http_client=unkept)
    return made


def memcell(text, user="ann"):
    from everalgo.types import ChatMessage, MemCell

    said = ChatMessage(id=f"m-{user}", role="user", sender_id=user, content=text, timestamp=AT)
    return MemCell(items=[said], timestamp=AT)


def facts_reply(*facts):
    return json.dumps({"atomic_facts": {"time": "today", "atomic_fact": list(facts)}})


REFUSED = Body({"error": {"message": "no"}}, 401)
