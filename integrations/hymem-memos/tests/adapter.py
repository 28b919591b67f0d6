"""MemOS as the conformance suite sees it: a textual memory on a local Qdrant. Imports neither MemOS nor the
integration by itself."""

from __future__ import annotations

import os
import tempfile

# Read by MemOS when it is imported; it writes logs and databases below the working directory otherwise.
os.environ.setdefault("MEMOS_BASE_PATH", tempfile.mkdtemp(prefix="memos-"))
os.environ["HF_HUB_OFFLINE"] = "1"

from memos_bank import Bank, general_text, memory_list, openai

from hymem_testing.conformance import Adapter


class MemOS(Adapter):
    framework = "memos.llms.factory"
    integration = "hymem_memos"
    ways = ("sync",)
    sites = ("memos.general-extract",)
    has_own_main = True
    first_seam = "memos.llms.base"

    def before(self, main):
        return {"text_mem": general_text(main, openai(main), self.place), "answers": openai(main)}

    def after(self, main, writer):
        given = {"backend": "hy_memory", "config": dict(writer)}
        if main is not None:
            given["config"]["main_llm"] = openai(main)
        text_mem = general_text(main or _Nowhere, given, self.place)
        return {"text_mem": text_mem, "answers": None if main is None else openai(main)}

    def open(self, configuration, way):
        return Bank(configuration)

    def write(self, memory, text, user="ann"):
        memory.write(text, user)

    def memories(self, memory, user="ann"):
        return memory.memories(user)

    def read(self, memory, question):
        return memory.answers.generate([{"role": "user", "content": question}])

    def script(self, proxy, facts, said=None):
        proxy.reply(said, memory_list(*facts))


class _Nowhere:
    base_url = "http://127.0.0.1:1/v1"
    model = "none"
