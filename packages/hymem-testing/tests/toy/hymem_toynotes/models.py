"""The toy's LLM."""

from __future__ import annotations

import toynotes

from hymem import NoMainModel, WriteError, Writer, scope
from hymem.contract import RawReply
from hymem.plan import WriteCall

from .call_sites import REMEMBER
from .contracts import NOTES


class HyMemoryLLM:
    def __init__(self, writer, main_llm=None, switch=None):
        self.writer = writer if isinstance(writer, Writer) else Writer(framework="toynotes", **writer)
        self.main = toynotes.make_llm(main_llm) if isinstance(main_llm, dict) else main_llm
        self.switch = switch

    def complete(self, messages):
        opened = scope.current()
        if opened is None or not (self.switch is None or self.switch.on):
            return self.ask(messages)
        try:
            return self.writer.write(self.call(messages), main=self.fallback(messages)).text
        except WriteError as error:
            opened.failures.append(error)
            raise

    async def acomplete(self, messages):
        opened = scope.current()
        if opened is None or not (self.switch is None or self.switch.on):
            return self.ask(messages)
        try:
            return (await self.writer.awrite(self.call(messages), main=self.afallback(messages))).text
        except WriteError as error:
            opened.failures.append(error)
            raise

    def call(self, messages):
        return WriteCall(messages, NOTES, site=REMEMBER.id)

    def ask(self, messages):
        if self.main is None:
            raise NoMainModel("set main_llm")
        return self.main.complete(messages)

    def fallback(self, messages):
        return None if self.main is None else lambda: RawReply(self.ask(messages))

    def afallback(self, messages):
        async def ask():
            return RawReply(self.ask(messages))

        return None if self.main is None else ask
