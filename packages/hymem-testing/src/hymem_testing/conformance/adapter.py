"""What the suite has to know of a framework, and nothing of how the integration does it."""

from __future__ import annotations

import abc
import asyncio
import importlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol

from .failures import RUBBISH

Configuration = Any
"""A framework's configuration as it would stand in a JSON file."""


class Server(Protocol):
    """Where a model is served, and under which name. A `Proxy` is one."""

    @property
    def base_url(self) -> str: ...
    @property
    def model(self) -> str: ...


class Adapter(abc.ABC):
    """One framework, in the version that is installed, with its embedded stores in `place`.

    Write it in a file of its own that imports neither the framework nor the integration at its
    top: child processes load it by its path, and some are about which of the two comes first.
    Methods may return an awaitable where `way` is `"async"`; the suite awaits it.
    """

    framework: ClassVar[str]
    """The module that users import."""
    integration: ClassVar[str]
    """The integration's module."""
    ways: ClassVar[tuple[str, ...]] = ("sync", "async")
    """The kinds of object there are: the suite runs with each."""
    rubbish: ClassVar[str] = RUBBISH
    """A reply that no parser of this framework can be given."""
    has_names: ClassVar[bool] = True
    """Whether its own configuration can name the writer, with no import of ours in user code."""
    has_own_main: ClassVar[bool] = False
    """Whether each purpose has a model object of its own, so that nothing but writes comes to ours."""
    is_handed_in: ClassVar[bool] = False
    """Whether the writer is an object that the program itself makes and hands in: it stays one when all is
    undone."""
    first_seam: ClassVar[str] = ""
    """How the name of a place begins that is looked for as soon as the framework is imported. What is in
    modules that come later is missed later, when the others are in force."""
    sites: Sequence[str]
    """The ids of the call sites of one write, in the order in which they are asked."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @abc.abstractmethod
    def before(self, main: Server) -> Configuration:
        """The configuration of a user who has all from one provider, `main`, under `USERS_KEY`."""

    @abc.abstractmethod
    def after(self, main: Server | None, writer: Mapping[str, Any]) -> Configuration:
        """The same after the swap, with these settings of the writer. With no `main`, embeddings
        may come from anywhere: no test asks for any then."""

    @abc.abstractmethod
    def open(self, configuration: Configuration, way: str) -> Any:
        """A memory object of this configuration."""

    @abc.abstractmethod
    def write(self, memory: Any, text: str, user: str = "ann") -> Any:
        """Have the framework remember what a user said."""

    @abc.abstractmethod
    def memories(self, memory: Any, user: str = "ann") -> Any:
        """Every memory of a user, as a set of texts."""

    @abc.abstractmethod
    def read(self, memory: Any, question: str) -> Any:
        """Have the object's LLM asked something that is not a write."""

    @abc.abstractmethod
    def script(self, proxy: Any, facts: Sequence[str], said: str | None = None) -> None:
        """Have the model behind `proxy` find `facts` in a conversation, or in those that hold the
        words `said`, in the replies that this framework wants."""

    @property
    def module(self) -> ModuleType:
        """The integration."""
        return importlib.import_module(self.integration)

    @property
    def switches(self) -> Any:
        """Its `hymem.integration.Integration`."""
        return importlib.import_module(f"{self.integration}.seams").INTEGRATION


USERS_KEY = "sk-users-key"
"""The key of the user's own provider in every configuration of the suite."""


def finish(result: Any) -> Any:
    """A result, awaited if it has to be."""

    async def awaited() -> Any:
        return await result

    return asyncio.run(awaited()) if inspect.isawaitable(result) else result
