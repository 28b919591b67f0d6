"""LangChain as the conformance suite sees it: classic summary memory, and the middleware of agents.
Imports neither LangChain nor the integration by itself."""

from __future__ import annotations

import os

os.environ |= {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}

from langchain_memory import (
    HAS_ASYNC_MIDDLEWARE,
    HOME,
    AsyncHistories,
    AsyncStores,
    Histories,
    Stores,
    Summaries,
    called,
    facts_in,
    summary_of,
)

from hymem_testing.conformance import USERS_KEY, Adapter


class LangChain(Adapter):
    """What both have in common: a model that writes, and one that answers."""

    integration = "hymem_langchain"
    rubbish = "<think>What did he say?"
    has_names = True
    has_own_main = True

    def before(self, main):
        return {"writes": _openai(main), "answers": _openai(main)}

    def after(self, main, writer):
        given = {**writer, "model": f"hy_memory:{writer.get('model', 'hy-memory')}"}
        answers = _openai(main) if main is not None else None
        return {"writes": given, "main_llm": answers, "answers": answers}

    def read(self, memory, question):
        return memory.model.invoke(question).content

    def script(self, proxy, facts, said=None):
        proxy.reply(said, summary_of(*facts))

    @staticmethod
    def models(configuration):
        """The one that writes, and the one that answers."""
        given = dict(configuration["writes"])
        if configuration.get("main_llm") is not None:
            given["main_llm"] = _model(configuration["main_llm"])
        answers = configuration["answers"]
        return _model(given), answers and _model(answers)


class Classic(LangChain):
    framework = HOME.partition(".")[0]
    ways = ("sync",)  # upstream's own asynchronous chains write nothing: see test_classic.py
    sites = ("langchain.summary",)

    def open(self, configuration, way):
        return Summaries(*self.models(configuration))

    def write(self, memory, text, user="ann"):
        return memory.write(text, user)

    def memories(self, memory, user="ann"):
        return {line for line in memory.of(user).buffer.splitlines() if line}


class Middleware(LangChain):
    framework = "langchain.agents.middleware"
    ways = ("sync", "async") if HAS_ASYNC_MIDDLEWARE else ("sync",)
    sites = ("langchain.history",)

    def open(self, configuration, way):
        return (AsyncHistories if way == "async" else Histories)(*self.models(configuration))

    def write(self, memory, text, user="ann"):
        return memory.write(text, user)

    def memories(self, memory, user="ann"):
        return set(facts_in(memory.of(user)))


class Managers(LangChain):
    """langmem: a manager of a store for each user. Its main model calls functions natively."""

    framework = "langmem"
    ways = ("sync", "async")
    sites = ("langchain.memories",)
    rubbish = "I remember."

    def open(self, configuration, way):
        return (AsyncStores if way == "async" else Stores)(*self.models(configuration))

    def write(self, memory, text, user="ann"):
        return memory.write(text, user)

    def memories(self, memory, user="ann"):
        return memory.of(user)

    def script(self, proxy, facts, said=None):
        proxy.reply(said, **called(facts, natively=proxy.model != "hy-memory"))


def _openai(main):
    return {"model": "openai:" + main.model, "base_url": main.base_url, "api_key": USERS_KEY}


def _model(given):
    """As an application makes its models out of its configuration."""
    from langchain_openai import ChatOpenAI

    provider, _, model = given["model"].partition(":")
    more = {name: value for name, value in given.items() if name != "model"}
    if provider == "openai":
        return ChatOpenAI(model=model, max_retries=0, **more)
    from langchain.chat_models import init_chat_model

    return init_chat_model(**{"model": given["model"], **more})
