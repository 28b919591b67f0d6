"""An adapter over what differs between Mem0's versions, and the replies their parsers want."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import tempfile
import threading
from importlib.metadata import version

from packaging.version import Version

ADDITIVE = Version(version("mem0ai")) >= Version("2")
"""From 2.0.0 on a write is one additive extraction; before, an extraction and a decision."""

WRITES = 1 if ADDITIVE else 2
SITES = ["mem0.extract_additive"] if ADDITIVE else ["mem0.extract_facts", "mem0.decide"]


def _locked(lock, method):
    def locked(*args, **kwargs):
        with lock:
            return method(*args, **kwargs)

    return locked


class _NewFolder:
    """A path that is another one each time it is asked for."""

    def __fspath__(self):
        return tempfile.mkdtemp(prefix="mem0-")


def keep_stores_apart():
    """Mem0 0.1 opens, for each object and with telemetry off, a second local Qdrant at one and the same
    place, and deletes what is there: SQLite then ends in a disk I/O error, now and then."""
    from mem0.memory import main

    if hasattr(main, "mem0_dir"):
        main.mem0_dir = _NewFolder()


class Bank:
    """A memory object of either class in either version, called in one way."""

    def __init__(self, cls, config):
        keep_stores_apart()
        made = cls.from_config(config)
        self.memory = asyncio.run(made) if inspect.isawaitable(made) else made
        # One thread at a time: Qdrant's local mode is not made for more, and loses what two write at
        # once ("bad parameter or other API misuse" in Mem0's log).
        lock, store = threading.RLock(), self.memory.vector_store
        for name in ("insert", "search", "list", "get", "update", "delete"):
            setattr(store, name, _locked(lock, getattr(store, name)))

    def _run(self, result):
        return asyncio.run(result) if inspect.isawaitable(result) else result

    def add(self, messages, user="ann", **kwargs):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self._run(self.memory.add(messages, user_id=user, **kwargs))["results"]

    def all(self, user="ann"):
        kwargs = {"filters": {"user_id": user}} if ADDITIVE else {"user_id": user}
        return {each["memory"] for each in self._run(self.memory.get_all(**kwargs))["results"]}

    def search(self, query, user="ann", **more):
        kwargs = {"filters": {"user_id": user}, "threshold": 0.0} if ADDITIVE else {"user_id": user}
        kwargs |= more
        return [each["memory"] for each in self._run(self.memory.search(query, **kwargs))["results"]]


def facts_reply(*facts):
    """What a writer says in the extraction of this version."""
    if ADDITIVE:
        items = [{"id": str(at), "text": fact, "attributed_to": "user"} for at, fact in enumerate(facts)]
        return json.dumps({"memory": items})
    return json.dumps({"facts": list(facts)})


def is_decision(body):
    """The decision of 0.1 and 1.0 is one user message alone. Only for scripting replies."""
    return len(body["messages"]) == 1


def add_all(body):
    """The decision to add each of the facts that the prompt of 0.1 and 1.0 shows."""
    shown = body["messages"][0]["content"].split("```")
    facts = ast.literal_eval(shown[-2].strip())
    adds = [{"id": f"new-{at}", "text": fact, "event": "ADD"} for at, fact in enumerate(facts)]
    return json.dumps({"memory": adds})


def script(proxy, *facts, decision=None):
    """Have the writer extract `facts`, and add them all unless a decision is given."""
    proxy.reply(None, facts_reply(*facts))
    if not ADDITIVE:
        proxy.reply(is_decision, add_all if decision is None else json.dumps({"memory": decision}))


def check_wire(hymem_writer, hymem_main):
    """Of each write, what has to be true on both servers."""
    for sent in hymem_writer.requests:
        body = sent.json
        assert body["model"] == "hy-memory"
        assert body["temperature"] == 0.0
        assert body["max_tokens"] > 0
        assert body["chat_template_kwargs"]["reasoning_effort"] == "no_think"
        assert "reasoning_effort" not in body
        assert "users" not in str(dict(sent.headers))
    for sent in hymem_main.requests:
        assert "writers" not in str(dict(sent.headers))
        assert sent.headers["authorization"] == "Bearer sk-users-key"
