"""Mem0 as the conformance suite sees it. Imports neither Mem0 nor the integration by itself."""

from __future__ import annotations

import os
import tempfile

# Read by Mem0 when it is imported.
os.environ["MEM0_TELEMETRY"] = "False"
os.environ.setdefault("MEM0_DIR", tempfile.mkdtemp(prefix="mem0-"))

from mem0_bank import ADDITIVE, SITES, add_all, facts_reply, is_decision

from hymem_testing.conformance import USERS_KEY, Adapter

DIMENSIONS = 384


class Mem0(Adapter):
    framework = "mem0"
    integration = "hymem_mem0"
    sites = SITES

    def before(self, main):
        key = {"openai_base_url": main.base_url, "api_key": USERS_KEY}
        embedder = {"model": "embedder", "embedding_dims": DIMENSIONS, **key}
        store = {"path": str(self.place / "qdrant"), "embedding_model_dims": DIMENSIONS}
        return {
            "llm": {"provider": "openai", "config": {"model": main.model, **key}},
            "embedder": {"provider": "openai", "config": embedder},
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": str(self.place / "history.db"),
        }

    def after(self, main, writer):
        before = self.before(main or _Nowhere)
        config = {"writer": dict(writer)}
        if main is not None:
            config["main_llm"] = before["llm"]
        return {**before, "llm": {"provider": "hy_memory", "config": config}}

    def open(self, configuration, way):
        import mem0
        from mem0_bank import Bank

        cls = mem0.Memory if way == "sync" else mem0.AsyncMemory
        return Bank(cls, configuration).memory

    def write(self, memory, text, user="ann"):
        return memory.add([{"role": "user", "content": text}], user_id=user)

    def memories(self, memory, user="ann"):
        found = memory.get_all(**({"filters": {"user_id": user}} if ADDITIVE else {"user_id": user}))
        return _texts(found) if isinstance(found, dict) else _awaited_texts(found)

    def read(self, memory, question):
        return memory.llm.generate_response([{"role": "user", "content": question}])

    def script(self, proxy, facts, said=None):
        proxy.reply(said, facts_reply(*facts))
        if not ADDITIVE:
            known = facts[0] if said else ""
            proxy.reply(lambda body: is_decision(body) and known in str(body["messages"]), add_all)


class _Nowhere:
    base_url = "http://127.0.0.1:1/v1"
    model = "none"


def _texts(found):
    return {each["memory"] for each in found["results"]}


async def _awaited_texts(found):
    return _texts(await found)
