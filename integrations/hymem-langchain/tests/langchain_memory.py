"""What differs between the versions of LangChain, and memories of several users in one object."""

from __future__ import annotations

import importlib
import json
import re
import warnings
from importlib.metadata import PackageNotFoundError, version

from packaging.version import Version

warnings.filterwarnings("ignore", message=".*(deprecated|migration guide).*")


def _version(distribution):
    try:
        return Version(version(distribution))
    except PackageNotFoundError:
        return None


LANGCHAIN = _version("langchain")
HOME = "langchain.memory" if LANGCHAIN.release < (1,) else "langchain_classic.memory"
HAS_MIDDLEWARE = LANGCHAIN.release >= (1,)
HAS_ASYNC_MIDDLEWARE = LANGCHAIN.release >= (1, 1)
HAS_SUMMARIZER = LANGCHAIN.release >= (1, 4, 5)
HAS_LANGMEM = _version("langmem") is not None
HAS_DEEPAGENTS = _version("deepagents") is not None
HAS_STANDARD_TESTS = _version("langchain-tests") is not None
FACT = re.compile(r"Lives in Oslo|Has a (?:cat|word\w+)")


def facts_in(text):
    """Those that the tests speak of."""
    return list(dict.fromkeys(FACT.findall(text)))


def memory_class(name):
    """Of classic memory, out of the module that defines it, since the package keeps an older one after
    a reload."""
    modules = {
        "ConversationSummaryMemory": "summary",
        "ConversationSummaryBufferMemory": "summary_buffer",
        "ConversationEntityMemory": "entity",
    }
    return getattr(importlib.import_module(f"{HOME}.{modules[name]}"), name)


def summary_of(*facts):
    """What a model says: the facts that it is shown, and a line for each that is new."""

    def made(body):
        shown = facts_in(str(body["messages"][-1]["content"]))
        return "\n".join(dict.fromkeys([*shown, *facts]))

    return made


class Summaries:
    """A summary memory for each user, and the model that answers them."""

    def __init__(self, writes_with, answers_with):
        self.model = answers_with
        self._llm = writes_with
        self._of = {"ann": self._made()}

    def _made(self):
        return memory_class("ConversationSummaryMemory")(llm=self._llm)

    @property
    def memories(self):
        return list(self._of.values())

    def of(self, user):
        if user not in self._of:
            self._of[user] = self._made()
        return self._of[user]

    def write(self, text, user):
        self.of(user).save_context({"input": text}, {"output": "I see."})


def middleware(model, writes_with=None):
    """One that summarises all but the last message, of whichever generation; `writes_with` writes."""
    from langchain.agents.middleware.summarization import SummarizationMiddleware

    if HAS_SUMMARIZER and writes_with is not None and model is not None:
        more = {"summarizer": writes_with}
    else:
        model, more = writes_with or model, {}
    if HAS_ASYNC_MIDDLEWARE:
        return SummarizationMiddleware(model, trigger=("messages", 3), keep=("messages", 1), **more)
    return SummarizationMiddleware(model, max_tokens_before_summary=1, messages_to_keep=1, **more)


class Histories:
    """An agent's history for each user, and the middleware that shortens it."""

    def __init__(self, writes_with, answers_with):
        self.model = answers_with
        self.memory = middleware(answers_with, writes_with)
        self._of = {}

    def of(self, user):
        """What stands in the place of the messages before, for this user."""
        return self._of.get(user, "")

    def _state(self, text, user):
        from langchain_core.messages import AIMessage, HumanMessage

        before = [HumanMessage(self.of(user))] if self.of(user) else []
        return {"messages": [*before, HumanMessage(text), AIMessage("I see."), HumanMessage("And now?")]}

    def _keep(self, update, user):
        if update is not None:
            self._of[user] = update["messages"][1].content

    def write(self, text, user):
        self._keep(self.memory.before_model(self._state(text, user), None), user)


class AsyncHistories(Histories):
    async def write(self, text, user):
        self._keep(await self.memory.abefore_model(self._state(text, user), None), user)


def called(facts, *, natively):
    """What a model says that has langmem keep these: as a server parses it, or in JSON."""
    made = [{"name": "Memory", "arguments": {"content": fact}} for fact in facts]
    if not natively:
        return {"content": json.dumps({"calls": made})}
    functions = [{**each, "arguments": json.dumps(each["arguments"])} for each in made]
    calls = [{"id": f"call_{at}", "type": "function", "function": each} for at, each in enumerate(functions)]
    return {"content": "", "tool_calls": calls}


class Stores:
    """A manager of memories for each user, on one store."""

    def __init__(self, writes_with, answers_with):
        from langgraph.store.memory import InMemoryStore

        self.model = answers_with
        self.store = InMemoryStore()
        self._llm = writes_with
        self._of = {"ann": self._made("ann")}

    def _made(self, user):
        extraction = importlib.import_module("langmem.knowledge.extraction")
        given = {"namespace": (user,), "store": self.store, "query_limit": 4}
        return extraction.create_memory_store_manager(self._llm, **given)

    @property
    def memories(self):
        return list(self._of.values())

    def manager(self, user):
        if user not in self._of:
            self._of[user] = self._made(user)
        return self._of[user]

    def of(self, user):
        return {item.value["content"]["content"] for item in self.store.search((user,), limit=1000)}

    def write(self, text, user):
        self.manager(user).invoke({"messages": [("user", text)]})


class AsyncStores(Stores):
    async def write(self, text, user):
        await self.manager(user).ainvoke({"messages": [("user", text)]})
