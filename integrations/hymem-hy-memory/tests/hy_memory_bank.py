"""Clients of the SDK with embedded stores, and the replies that its parsers want."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import weakref
from importlib.metadata import version

from packaging.version import Version

USERS_KEY = "sk-users-key"
DIMENSIONS = 384
VERSION = Version(version("hy-memory"))
IS_2 = Version("2") <= VERSION

# Read when the SDK is imported. Its tokenizer would be downloaded; without it letters are counted.
sys.modules["tiktoken"] = None
os.environ.setdefault("MEMORY_DATA_DIR", tempfile.mkdtemp(prefix="hy-memory-"))
os.environ.setdefault("MEMORY_LOG_LEVEL", "ERROR")
os.environ["ANONYMIZED_TELEMETRY"] = "False"
# From 2.0 on a trace is written in the background; SQLite crashes where the client is closed meanwhile.
os.environ["MEMORY_PIPELINE_TRACE_ENABLED"] = "false"

_opened = weakref.WeakSet()


def configuration(main, place, **sections):
    """All of one provider, and all that is stored in `place`."""
    from_one = {"base_url": main.base_url, "api_key": USERS_KEY, "max_retries": 1, "retry_delay": 0.0}
    return {
        "llm": {"model": main.model, **from_one},
        "embedder": {"model": "embedder", **from_one},
        "vector_store": {
            "provider": "chroma",
            "persist_directory": str(place / "vectors"),
            "embedding_dims": DIMENSIONS,
        },
        "graph_store": {"provider": "kuzu", "db_path": str(place / "graph")},
        "cache": {"backend": "sqlite", "db_path": str(place / "cache.db")},
        "history": {"db_path": str(place / "history.db")},
        "coding": {"db_path": str(place / "coding.db")},
        **sections,
    }


def client(configuration, mode="pro", **more):
    from hy_memory import HyMemoryClient
    from hy_memory.config import MemoryConfig

    made = HyMemoryClient(MemoryConfig.from_dict(configuration), mode=mode, **more)
    _opened.add(made)
    return made


def close_all():
    from hy_memory.metrics import MetricsCollector

    # Its metrics are one for all clients, with tasks of the first one's loop: any other cannot be closed.
    metrics = MetricsCollector.get()
    for task in filter(None, (getattr(metrics, name, None) for name in ("_flush_task", "_cleanup_task"))):
        if not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)
    MetricsCollector.reset()
    for each in list(_opened):
        _opened.discard(each)
        each.close()


def facts(made, user="ann", layer="l2_fact"):
    """What is remembered of a user, as texts."""
    found = made.list_memories(user_id=user)["vdb"]
    found = found["memories"] if isinstance(found, dict) else found
    return [each["content"] for each in found if each["layer"].lower() == layer and is_active(each)]


def is_active(memory):
    return str(memory.get("status", "active")).lower() == "active"


# -- what a model says -------------------------------------------------------------------------------


def extracted(*facts, **more):
    items = [{"content": fact, "tags": ["home"], "owner": "user"} for fact in facts]
    return json.dumps({"memory": items, "intentions": [], "basic_info": {}, **more}, ensure_ascii=False)


def operations(*given):
    return json.dumps(list(given), ensure_ascii=False)


def is_reconciling(body):
    """Only for scripting replies."""
    told = any(each["content"] for each in body["messages"] if each["role"] == "system")
    return "## Existing memories" in body["messages"][-1]["content"] and not told


def shown(body):
    """What a reconciliation shows: the memories there are, and the new ones."""
    text = body["messages"][-1]["content"]
    existing = text.rpartition("## Existing memories")[2]
    existing, _, new = existing.partition("## New memories")
    return _list_in(existing), _list_in(new)


def _list_in(text):
    start = re.search(r"^\[", text, re.MULTILINE).start()
    return json.JSONDecoder().raw_decode(text, start)[0]


def add_what_is_new(body):
    existing, new = shown(body)
    known = {each["content"] for each in existing}
    return operations(*({"op": "ADD", **each} for each in new if each["content"] not in known))


def script(proxy, *facts, said=None, decision=None):
    """Have the writer extract `facts`, and add those that are new unless a decision is given."""
    proxy.reply(said, extracted(*facts))
    mine = facts[0] if said else ""
    proxy.reply(
        lambda body: is_reconciling(body) and mine in str(body["messages"]),
        add_what_is_new if decision is None else decision,
    )
