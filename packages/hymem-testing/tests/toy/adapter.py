"""The toy as the suite sees it."""

from __future__ import annotations

import json
import sys

from wrong import be_wrong, is_wrong

from hymem_testing.conformance import USERS_KEY, Adapter

EAGER = ("importing_does_work", "it_is_all_in_one_file")


class Toynotes(Adapter):
    framework = "toynotes"
    integration = "hymem_toynotes_eager" if is_wrong(*EAGER) else "hymem_toynotes"
    sites = ("toynotes.remember",)

    @property
    def module(self):
        found = super().module
        be_wrong()
        return found

    def before(self, main):
        config = {"base_url": main.base_url, "api_key": USERS_KEY, "model": main.model}
        return {"llm": {"provider": "plain", "config": config}}

    def after(self, main, writer):
        config = {"writer": dict(writer)}
        if main is not None:
            config["main_llm"] = self.before(main)["llm"]
        return {"llm": {"provider": "hy_memory", "config": config}}

    def open(self, configuration, way):
        import toynotes

        if sys.modules.get(self.integration, toynotes) is None:
            be_wrong()
        return (toynotes.Notebook if way == "sync" else toynotes.AsyncNotebook)(configuration)

    def write(self, memory, text, user="ann"):
        return memory.add(text, user)

    def memories(self, memory, user="ann"):
        return memory.notes.get(user, set())

    def read(self, memory, question):
        return memory.llm.complete([{"role": "user", "content": question}])

    def script(self, proxy, facts, said=None):
        proxy.reply(said, json.dumps({"notes": list(facts)}))
