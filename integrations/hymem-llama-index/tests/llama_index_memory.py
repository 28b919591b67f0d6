"""Memories of LlamaIndex for several users, and what a model says for them."""

from __future__ import annotations

import importlib

USERS_KEY = "sk-users-key"


def facts_reply(*facts):
    return "<facts>\n" + "".join(f"  <fact>{fact}</fact>\n" for fact in facts) + "</facts>"


def main_llm(proxy, **more):
    from llama_index.llms.openai_like import OpenAILike

    given = {"model": proxy.model, "api_base": proxy.base_url, "api_key": USERS_KEY}
    return OpenAILike(**given, is_chat_model=True, reuse_client=False, max_retries=0, **more)


def said(text, role="user"):
    from llama_index.core.base.llms.types import ChatMessage

    return ChatMessage(role=role, content=text)


def fact_block(llm, **more):
    """Of the class that stands in its module, since the package keeps an older one after a reload."""
    module = importlib.import_module("llama_index.core.memory.memory_blocks.fact")
    return module.FactExtractionMemoryBlock(llm=llm, **more)


class Blocks:
    """A fact block for each user, and the LLM that answers them."""

    def __init__(self, writes_with, answers_with):
        self.model = answers_with
        self._llm = writes_with
        self._of = {"ann": fact_block(writes_with)}

    @property
    def memories(self):
        return list(self._of.values())

    def of(self, user):
        if user not in self._of:
            self._of[user] = fact_block(self._llm)
        return self._of[user]

    def write(self, text, user):
        from llama_index.core.async_utils import asyncio_run

        asyncio_run(self.of(user).aput([said(text)]))  # as `Memory.put` does


class AsyncBlocks(Blocks):
    async def write(self, text, user):
        await self.of(user).aput([said(text)])
