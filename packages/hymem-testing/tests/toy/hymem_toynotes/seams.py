"""The toy's call sites, its LLM, and how its calls are reached."""

from __future__ import annotations

import toynotes

from hymem import NoMainModel, SettingsError, WriteError, Writer, scope
from hymem.contract import RawReply, text_list
from hymem.integration import CallSite, Framework, Integration, scoped
from hymem.patching import Attribute, Entry, Patch, Switch
from hymem.plan import WriteCall

NOTES = text_list("notes", "notes")
REMEMBER = CallSite(
    id="toynotes.remember",
    side="write",
    where=("toynotes:Notebook._remember", "toynotes:AsyncNotebook._remember"),
    contract=NOTES,
    after_failure="unchanged",
)
CALL_SITES = (REMEMBER,)


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


class RoutedLLM:
    """`Notebook.llm` while the process is routed."""

    def __init__(self, switch):
        self.switch = switch

    def __get__(self, notebook, owner=None):
        llm = vars(notebook)["llm"]
        routed = scope.current() is not None and self.switch.on and not isinstance(llm, HyMemoryLLM)
        return HyMemoryLLM(INTEGRATION.writer, llm, self.switch) if routed else llm

    def __set__(self, notebook, llm):
        vars(notebook)["llm"] = llm


def base(switch):
    owners = (toynotes.Notebook, toynotes.AsyncNotebook)
    return [
        Patch(
            Entry(toynotes.PROVIDERS, "hy_memory", "toynotes:PROVIDERS['hy_memory']"),
            lambda _: HyMemoryLLM,
            False,
        ),
        *(Patch(Attribute(owner, "_remember"), scoped(switch, REMEMBER.id)) for owner in owners),
    ]


def routed(switch):
    return [Patch(Attribute(toynotes.Notebook, "llm"), lambda _: RoutedLLM(switch), False)]


def attach_to(notebook, writer):
    if not isinstance(notebook, toynotes.Notebook):
        raise TypeError("attach() takes a Notebook")
    own = vars(notebook)["llm"]
    if isinstance(own, HyMemoryLLM):
        raise SettingsError("its writes go to a writer already")
    switch = Switch()
    switch.on = True
    notebook.llm = HyMemoryLLM(writer, own, switch)

    def undo():
        switch.on = False
        notebook.llm = own
        return []

    return undo


INTEGRATION = Integration(
    Framework("toynotes", "toynotes", "toynotes", "1.0", "2.0", "hymem-toynotes"),
    core="0.1",
    call_sites=CALL_SITES,
    base=base,
    routed=routed,
    attach_to=attach_to,
)
