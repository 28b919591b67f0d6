"""EverMemOS as the conformance suite sees it: an extractor of facts, and those it has found for each user.
Imports neither EverMemOS nor the integration by itself."""

from __future__ import annotations

import functools

from evermemos_bank import USERS_KEY, client, facts_reply, memcell

from hymem_testing.conformance import Adapter


class Facts(Adapter):
    integration = "hymem_evermemos"
    framework = "everalgo.user_memory"
    first_seam = "everalgo.user_memory"
    is_handed_in = True
    ways = ("sync", "async")
    sites = ("evermemos.facts",)
    rubbish = "I remember."
    has_names = False

    def before(self, main):
        return {"llm": _like(main)}

    def after(self, main, writer):
        return {"writer": dict(writer), "llm": _like(main) if main is not None else None}

    def open(self, configuration, way):
        llm = _llm(configuration)
        return _kinds()[way](llm=llm)

    def write(self, memory, text, user="ann"):
        return memory.write(text, user)

    def read(self, memory, question):
        from everalgo.rank import agentic

        async def ask():
            found = await agentic._call_llm_for_refined_query(memory._llm, question, question)
            return found.refined_query

        from asgiref.sync import async_to_sync

        return async_to_sync(ask)()

    def memories(self, memory, user="ann"):
        return set(memory.of.get(user, ()))

    def script(self, proxy, facts, said=None):
        proxy.reply(said, facts_reply(*facts))


def _like(main):
    return {"model": main.model, "base_url": main.base_url, "api_key": USERS_KEY}


def _llm(configuration):
    main = client(**configuration["llm"]) if configuration["llm"] is not None else None
    if "writer" not in configuration:
        return main
    from hymem_evermemos import HyMemoryLLM

    return HyMemoryLLM(main_llm=main, **configuration["writer"])


@functools.cache
def _kinds():
    from everalgo.user_memory import AtomicFactExtractor

    class Bank(AtomicFactExtractor):
        """`extract`, as a program without an event loop asks for it."""

        def __init__(self, *, llm):
            super().__init__(llm=llm)
            self.of = {}

        def keep(self, facts, user):
            self.of.setdefault(user, []).extend(each.content for each in facts)

        def write(self, text, user):
            self.keep(self.extract(memcell(text, user), sender_id=user), user)

    class AsyncBank(Bank):
        async def write(self, text, user):
            self.keep(await self.aextract(memcell(text, user), sender_id=user), user)

    return {"sync": Bank, "async": AsyncBank}
