"""`HyMemoryLLM`: Mem0's LLM object, whose writes go to the writer and all else to the main model."""

from __future__ import annotations

import difflib
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from mem0.configs.llms.base import BaseLlmConfig
from mem0.llms.base import LLMBase

from hymem import scope
from hymem.contract import RawReply
from hymem.errors import NoMainModel, SettingsError, WriteError
from hymem.events import is_power_of_ten
from hymem.integration import CallSite
from hymem.patching import Switch
from hymem.plan import NO_FACTS, WriteCall
from hymem.settings import WriterSettings, load_settings
from hymem.writer import Writer

from .call_sites import BY_ID, GRAPH_TOOLS, UNKNOWN
from .seams import INTEGRATION, PROVIDERS

log = logging.getLogger("hymem.mem0")

HERE = "llm.config"

_SETTINGS = frozenset(WriterSettings.model_fields)
_FRAMEWORKS_OWN = frozenset({"temperature", "max_tokens"})
"""Flat keys that Mem0 and the servers around it fill in by themselves (OpenMemory: 0.1 and 2000),
and that therefore never count for the writer."""
_MAINS = frozenset({"enable_vision", "vision_details"})


class HyMemoryConfig(BaseLlmConfig):  # type: ignore[misc]  # mem0 has no types
    """`llm.config` of provider `hy_memory`.

    `{"writer": {...}, "main_llm": {"provider": ..., "config": ...}}`. Without `writer`, flat keys
    named like the writer's settings are taken, except `temperature` and `max_tokens`; other flat
    keys are left over from a server's default configuration, and ignored with one log line.
    `graph_writes`: have the graph (before Mem0 2) written by the writer as well, whose server then
    needs `--enable-auto-tool-choice --tool-call-parser hy_v3`. Raises `SettingsError`.
    """

    def __init__(
        self,
        writer: Mapping[str, Any] | None = None,
        main_llm: Mapping[str, Any] | None = None,
        graph_writes: bool = False,
        **flat: Any,
    ) -> None:
        super().__init__(
            max_tokens=flat.get("max_tokens") or 2000,  # Mem0's own default; for free text only
            enable_vision=bool(flat.get("enable_vision")),
            vision_details=flat.get("vision_details"),
        )
        self.main_llm = _checked_main(main_llm)
        if not isinstance(graph_writes, bool):
            raise SettingsError(f"{HERE}.graph_writes has to be true or false")
        self.graph_writes = graph_writes
        if writer is None:
            self.settings = _from_flat_keys(flat, self.main_llm)
        else:
            _say_ignored(set(flat) - _MAINS, "`writer` is there, and counts alone")
            self.settings = load_settings(writer, framework="mem0", where=f"{HERE}.writer")
        self.model = self.settings.model
        if self.settings.on_failure == "fallback" and self.main_llm is None:
            raise SettingsError(f'on_failure="fallback" needs a main model: set {HERE}.main_llm')


def _from_flat_keys(flat: Mapping[str, Any], main_llm: Mapping[str, Any] | None) -> WriterSettings:
    taken = {
        name: value
        for name, value in flat.items()
        if name in _SETTINGS - _FRAMEWORKS_OWN and value is not None
    }
    others = set(flat) - set(taken) - _FRAMEWORKS_OWN - _MAINS
    for name in sorted(others):
        if near := difflib.get_close_matches(name, _SETTINGS, n=1, cutoff=0.8):
            raise SettingsError(f"unknown setting {name!r} ({HERE}); did you mean {near[0]!r}?")
    _say_ignored({name for name in others if flat[name] is not None}, "they are no settings of the writer")
    settings = load_settings(taken, framework="mem0", where=HERE)
    key = settings.api_key.get_secret_value()
    host = urlsplit(settings.base_url).hostname or ""
    users = {os.environ.get("OPENAI_API_KEY"), ((main_llm or {}).get("config") or {}).get("api_key")}
    if settings.source("api_key") == HERE and key in users and not f".{host}".endswith(".openai.com"):
        raise SettingsError(
            f"{HERE}.api_key is the key of your own provider (OPENAI_API_KEY, or main_llm's), "
            f"probably merged in from a default configuration; it was not sent to "
            f"{settings.base_url}. Put the writer's settings under {HERE}.writer"
        )
    return settings


def _say_ignored(names: set[str], why: str) -> None:
    if names:
        log.warning("%s: ignored %s; %s", HERE, ", ".join(sorted(names)), why)


def _checked_main(main_llm: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if main_llm is None:
        return None
    where = f"{HERE}.main_llm"
    if not isinstance(main_llm, Mapping) or not isinstance(main_llm.get("provider"), str):
        raise SettingsError(f'{where} has to be {{"provider": ..., "config": ...}}, as `llm` itself was')
    if unknown := set(main_llm) - {"provider", "config"}:
        raise SettingsError(f"{where}: unknown key {sorted(unknown)[0]!r}; known: 'provider', 'config'")
    if main_llm["provider"] in PROVIDERS:
        raise SettingsError(
            f"{where}.provider is {main_llm['provider']!r}: that is the writer, not a main model"
        )
    return dict(main_llm)


class HyMemoryLLM(LLMBase):  # type: ignore[misc]  # mem0 has no types
    """Mem0's LLM for provider `hy_memory`, and around the LLM of an object that is routed.

    Which model serves a call depends on the scope it is made in, never on the words in it.
    """

    def __init__(self, config: HyMemoryConfig | Mapping[str, Any] | None = None) -> None:
        if not isinstance(config, HyMemoryConfig):
            config = HyMemoryConfig(**(config or {}))
        super().__init__(config)
        main: Any = None
        if config.main_llm is not None:
            from mem0.utils.factory import LlmFactory

            main = LlmFactory.create(config.main_llm["provider"], dict(config.main_llm.get("config") or {}))
        self._set(Writer(config.settings, framework="mem0"), main)
        INTEGRATION.say_what_skip_cannot(config.settings)

    @classmethod
    def around(cls, main: Any, writer: Writer, switch: Switch) -> HyMemoryLLM:
        """The LLM that leaves `main` in charge of everything but writes, and of those too when
        `switch` is off."""
        made = cls.__new__(cls)
        made.config = getattr(main, "config", None)  # what Mem0 reads there is the main model's
        made._set(writer, main, switch)
        return made

    def _set(self, writer: Writer, main: Any, switch: Switch | None = None) -> None:
        self.writer = writer
        self.main = main
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        """What else an application uses of its LLM object, its client say."""
        main = vars(self).get("main")
        if main is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(main, name)

    def __repr__(self) -> str:
        main = "none" if self.main is None else type(self.main).__name__
        return f"HyMemoryLLM(writer={self.writer!r}, main={main})"

    def generate_response(
        self,
        messages: list[dict[str, Any]],
        response_format: Any = None,
        tools: list[dict[str, Any]] | None = None,
        tool_choice: str = "auto",
        **kwargs: Any,
    ) -> Any:
        """A reply as Mem0's providers give it: text, or with `tools` a dict.

        Inside a write, it is the writer's, checked; elsewhere the main model's, untouched.
        Raises `WriterUnavailable`, `PromptTooLong`, `ReplyRejected`, or `NoMainModel`.
        """
        asked: dict[str, Any] = {"messages": messages}
        if kwargs:
            asked |= kwargs
        if response_format is not None:
            asked["response_format"] = response_format
        if tools is not None:
            asked |= {"tools": tools, "tool_choice": tool_choice}
        opened = scope.current()
        if opened is None or opened.site not in BY_ID:  # of another framework, which asks Mem0
            return self._ask_main(asked)
        off = self._switch is not None and not self._switch.on
        site = None if off else self._site(opened, tools)
        if site is None:
            return self._ask_main(asked)
        return self._write(opened, site, asked)

    def _site(self, opened: scope.Scope, tools: Any) -> CallSite | None:
        """Which write this is; None for what stays with the main model: the graph's, unless
        `graph_writes` is set."""
        if tools:
            if not getattr(self.config, "graph_writes", False):
                return None
            return GRAPH_TOOLS.get(opened.site, {}).get(tools[0].get("function", {}).get("name"))
        site = BY_ID[opened.site]
        opened.site = UNKNOWN.id  # a second call of the same write is one we do not know
        return site

    def _ask_main(self, asked: dict[str, Any]) -> Any:
        if self.main is None:
            raise NoMainModel(
                "this call does not write memory (an image caption, a graph search, a call of your own), "
                f"and provider 'hy_memory' has no main model for it: set {HERE}.main_llm to the `llm` "
                "you had before"
            )
        return self.main.generate_response(**asked)

    def _write(self, opened: scope.Scope, site: CallSite, asked: dict[str, Any]) -> Any:
        facts, opened.facts = opened.facts or NO_FACTS, None
        if site is UNKNOWN and is_power_of_ten(times := self.writer.note_unknown_site()):
            log.warning("Mem0 makes a call inside a write that is not in the catalogue (%d so far)", times)
        assert site.contract is not None  # every site that opens a scope has one
        call: WriteCall[Any] = WriteCall(
            messages=asked["messages"],
            contract=site.contract,
            site=site.id,
            facts=facts,
            max_tokens=getattr(self.config, "max_tokens", None),
            response_format=asked.get("response_format"),
            tools=asked.get("tools"),
            tool_choice=asked.get("tool_choice"),
        )
        try:
            reply = self.writer.write(call, main=self._fallback(asked), wanted=lambda: opened.open)
        except WriteError as error:
            opened.failures.append(error)
            raise
        return {"content": "", "tool_calls": reply.value or []} if call.tools else reply.text

    def _fallback(self, asked: dict[str, Any]) -> Callable[[], RawReply] | None:
        if self.main is None:
            return None
        return lambda: _raw(self._ask_main(asked))


def _raw(answer: Any) -> RawReply:
    """What Mem0's providers answer, as a server would have sent it."""
    if not isinstance(answer, dict):
        return RawReply(answer or "")
    calls = [
        {"function": {"name": each.get("name"), "arguments": json.dumps(each.get("arguments"))}}
        for each in answer.get("tool_calls") or ()
    ]
    return RawReply(answer.get("content") or "", tuple(calls))
