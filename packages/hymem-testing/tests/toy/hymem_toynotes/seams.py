"""How the toy's calls are reached."""

from __future__ import annotations

import toynotes

from hymem import SettingsError, scope, standin
from hymem.frameworks import Framework
from hymem.integration import Integration, Route, scoped
from hymem.patching import Attribute, Entry, Patch, Switch

from .call_sites import CALL_SITES, REMEMBER
from .models import HyMemoryLLM


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


def probe(main, place):
    config = {"base_url": main.base_url, "api_key": standin.KEY, "model": standin.MODEL}
    notebook = toynotes.Notebook({"llm": {"provider": "plain", "config": config}})
    question = [{"role": "user", "content": "What do I drink?"}]
    return Route(
        writes={"Notebook.add": lambda: notebook.add("I drink tea.", "ann")},
        read=lambda: notebook.llm.complete(question),
    )


FRAMEWORK = Framework(
    id="toynotes",
    title="Toynotes",
    distribution="toynotes",
    module="toynotes",
    integration="hymem-toynotes",
    anchor="toynotes",
    floor="1.0",
    tested=("1.0", "2.0"),
)
INTEGRATION = Integration(
    FRAMEWORK,
    core="0.1",
    call_sites=CALL_SITES,
    base=base,
    routed=routed,
    attach_to=attach_to,
    probe=probe,
)
