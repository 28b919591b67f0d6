"""MemOS's configurations, and the replies that its parsers want. Imports MemOS only when it is used."""

from __future__ import annotations

import json
import tempfile
from importlib.metadata import version

from packaging.version import Version

from hymem_testing.embeddings import DIMENSIONS

USERS_KEY = "sk-users-key"
installed = Version(version("MemoryOS"))
HAS_FALLBACK = installed >= Version("1.1")
"""Whether the mem reader stores the raw text where an extraction fails."""


def openai(proxy):
    given = {"model_name_or_path": proxy.model, "api_key": USERS_KEY, "api_base": proxy.base_url}
    return {"backend": "openai", "config": given}


def hy_memory(proxy, **more):
    return {"backend": "hy_memory", "config": {"api_base": proxy.base_url, **more}}


def embedder(proxy):
    given = {"provider": "openai", "api_key": USERS_KEY, "base_url": proxy.base_url}
    return {
        "backend": "universal_api",
        "config": {"model_name_or_path": "embedder", "embedding_dims": DIMENSIONS, **given},
    }


def general_text(proxy, writes, place):
    """A configuration of a textual memory on a local Qdrant."""
    store = {"collection_name": "memories", "vector_dimension": DIMENSIONS, "distance_metric": "cosine"}
    return {
        "extractor_llm": writes,
        "vector_db": {"backend": "qdrant", "config": {**store, "path": str(place)}},
        "embedder": embedder(proxy),
    }


def reader(proxy, writes, **more):
    """A configuration of a mem reader."""
    chunks = {"tokenizer_or_token_counter": "character", "chunk_size": 400, "chunk_overlap": 0}
    return {
        "llm": writes,
        "embedder": embedder(proxy),
        "chunker": {"backend": "sentence", "config": {**chunks, "min_sentences_per_chunk": 1}},
        **more,
    }


def said(*texts, role="user"):
    return [{"role": role, "content": text} for text in texts]


def memory_list(*texts, **more):
    items = [{"key": "", "memory_type": "UserMemory", "value": text, "tags": []} for text in texts]
    return json.dumps({"memory list": items, "summary": "", **more}, ensure_ascii=False)


class Bank(dict):
    """A textual memory for each user, and the LLM that answers them."""

    def __init__(self, configuration):
        super().__init__()
        from memos.configs.llm import LLMConfigFactory
        from memos.llms.factory import LLMFactory

        self._text_mem = configuration["text_mem"]
        answers = configuration["answers"]
        self.answers = answers and LLMFactory.from_config(LLMConfigFactory.model_validate(answers))
        self.of("ann")

    def of(self, user):
        from memos.configs.memory import GeneralTextMemoryConfig
        from memos.memories.textual.general import GeneralTextMemory

        if user not in self:
            given = json.loads(json.dumps(self._text_mem))
            given["vector_db"]["config"]["path"] = tempfile.mkdtemp(dir=given["vector_db"]["config"]["path"])
            self[user] = GeneralTextMemory(GeneralTextMemoryConfig(**given))
        return self[user]

    def write(self, text, user):
        memory = self.of(user)
        if items := memory.extract(said(text)):
            memory.add(items)

    def memories(self, user):
        return {item.memory for item in self.of(user).get_all()}


def is_about_memories(body):
    """Of the calls of one write, the extraction: other prompts speak of other things."""
    asked = str(body["messages"])
    return "message_indices" not in asked and "trajectory" not in asked and "task_name" not in asked
