"""The SDK as the conformance suite sees it. Imports neither the SDK nor the integration by itself."""

from __future__ import annotations

import asyncio

import hy_memory_bank as bank

from hymem_testing.conformance import USERS_KEY, Adapter

assert USERS_KEY == bank.USERS_KEY


class Client(Adapter):
    framework = "hy_memory"
    integration = "hymem_hy_memory"
    sites = ("hy-memory.extract",)
    has_own_main = True  # its section `llm`, which is there in any case

    def before(self, main):
        return bank.configuration(main, self.place)

    def after(self, main, writer):
        return {**self.before(main), "hy_memory": dict(writer)}

    def open(self, configuration, way):
        made = bank.client(configuration)
        made.way = way
        return made

    def write(self, memory, text, user="ann"):
        said = [{"role": "user", "content": text}]
        if memory.way == "async":
            return _added(memory, said, user)
        return _checked(memory.add(said, user_id=user))

    def memories(self, memory, user="ann"):
        return set(bank.facts(memory, user))

    def read(self, memory, question):
        async def ask():
            writer = await memory._registry.get_writer()
            return (await writer.mem_agent.llm_provider.complete(question)).content

        return memory._loop_thread.run(ask())

    def script(self, proxy, facts, said=None):
        bank.script(proxy, *facts, said=said)


async def _added(memory, said, user):
    return _checked(await memory.async_add(said, user_id=user))


def _checked(result):
    """The SDK raises nothing: a failure is told in what it returns."""
    if not result["success"]:
        raise RuntimeError(result["error_message"]) from _told(result["error_message"])
    return result


def _told(message):
    """hymem's error, as far as the message tells of it: its kind, its call site, and what was wrong."""
    from hymem import errors
    from hymem.plan import _KINDS

    name, _, text = message.partition("] ")[2].partition(": ")
    error = getattr(errors, name)(text)
    error.site = next(site for site in Client.sites if site in text)
    if name == "WriterUnavailable":
        status = "answered HTTP" in text
        error.kind = "status" if status else next(kind for kind, words in _KINDS.items() if words in text)
    return error


class Extraction(Client):
    """The extractor alone, without a client: what of the SDK survives a fork. A client's threads do not, and
    Chroma's neither."""

    def open(self, configuration, way):
        from hy_memory.agent.extractor import Extractor
        from hy_memory.agent.llm_provider import LLMProvider
        from hy_memory.config import MemoryConfig

        config = MemoryConfig.from_dict(configuration)
        made = Extractor(LLMProvider(config), config.llm)
        made.way, made.found = way, {}
        return made

    def write(self, memory, text, user="ann"):
        extracting = _extracted(memory, text, user)
        return extracting if memory.way == "async" else asyncio.run(extracting)

    def memories(self, memory, user="ann"):
        return {each["content"] for each in memory.found.get(user, ())}


async def _extracted(extractor, text, user):
    result = await extractor.extract(text)
    if not result.success:
        raise RuntimeError(result.error)
    extractor.found.setdefault(user, []).extend(result.info["memory"])
