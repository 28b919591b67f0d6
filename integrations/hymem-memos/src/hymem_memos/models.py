"""`HyMemoryLLM`: the writer as an LLM of MemOS. Writes go to the writer, all else to a main model."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from memos.configs.llm import BaseLLMConfig
from memos.llms.base import BaseLLM
from packaging.version import Version
from pydantic import Field, ValidationError, model_validator

from hymem import scope
from hymem.callers import Callers
from hymem.contract import RawReply
from hymem.errors import HymemError, NoMainModel, SettingsError, WriteError
from hymem.events import is_power_of_ten
from hymem.integration import CallSite
from hymem.patching import Switch
from hymem.plan import WriteCall
from hymem.settings import WriterSettings, load_settings
from hymem.writer import Writer

from .call_sites import (
    BY_ID,
    CALL_SITES,
    CHAT,
    DOCUMENT,
    FEEDBACK_ASKED,
    FILE,
    JUDGED,
    KEYWORD,
    MULTIMODAL,
    OPERATIONS,
    UNKNOWN,
)
from .seams import BACKEND, FRAMEWORK, INTEGRATION

HERE = f"the config of backend {BACKEND!r}"

_SETTINGS = {
    "base_url": "api_base",
    "model": "model_name_or_path",
    "headers": "default_headers",
}
"""Setting of the writer → what MemOS calls it."""

_THROUGH = ("generate", "generate_stream", "wrapper", "timed_wrapper", "inside")
"""A subclass's method that calls its parent's, what decorates it, and a pool's thread."""
_VERSION = FRAMEWORK.version() or Version(str(FRAMEWORK.newest))
_HERE = [site for site in CALL_SITES if site is not UNKNOWN and site.is_in(_VERSION)]
CALLERS = Callers(_HERE, _THROUGH)
_FOR_FEEDBACK = Callers(
    [site for site in _HERE if site is not FEEDBACK_ASKED], (*_THROUGH, "_get_llm_response")
)
_RAW_TEXT = Version("1.1") <= _VERSION
"""Whether MemOS stores the raw text in the place of what could not be extracted."""


class ConfigurationRefused(HymemError):
    """A `SettingsError` of a configuration that MemOS reads. No `ValueError`: pydantic would tell it with the
    whole configuration beside it, the key too."""


class HyMemoryLLMConfig(BaseLLMConfig):  # type: ignore[misc]  # memos is not looked into
    """`config` of `{"backend": "hy_memory", "config": {...}}`.

    Fields are the writer's settings, with MemOS's names for three (`api_base`, `model_name_or_path`,
    `default_headers`; ours are taken too). What is not given comes from `HYMEM_MEMOS_*`, `HYMEM_*` and the
    file named by `HYMEM_CONFIG`. `main_llm`: `{"backend", "config"}` of the LLM that answers, where code
    that answers is given this one.
    """

    # Of whatever type: MemOS tells what is wrong with one together with all that stands beside it, the key
    # among it. `settings()` checks them, and tells no value.
    model_name_or_path: Any = None
    api_base: Any = None
    api_key: Any = Field(default=None, repr=False)
    default_headers: Any = Field(default=None, repr=False)
    temperature: Any = None
    max_tokens: Any = None
    max_tokens_if_cut: Any = None
    reasoning_effort: Any = None
    structured_output: Any = None
    on_failure: Any = None
    timeout: Any = None
    max_connections: Any = None
    extra_body: Any = None
    record: Any = None
    record_content: Any = None
    main_llm: Any = Field(default=None, repr=False)
    # What MemOS's own LLMs have and the writer does not send.
    top_p: Any = None
    top_k: Any = None
    remove_think_prefix: Any = None

    @model_validator(mode="before")
    @classmethod
    def _with_our_names(cls, given: Any) -> Any:
        """Unknown names are errors that say what is meant; MemOS's own say that they are forbidden."""
        if not isinstance(given, Mapping):
            return given
        named = {_SETTINGS.get(name, name): value for name, value in given.items()}
        if len(named) != len(given):
            raise ConfigurationRefused(f"a setting is given under two names ({HERE})")
        for name in named.keys() - cls.model_fields.keys():
            near = difflib.get_close_matches(name, [*cls.model_fields, *_SETTINGS], n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigurationRefused(f"unknown setting {name!r} ({HERE}){hint}")
        return named

    @model_validator(mode="after")
    def _is_sound(self) -> HyMemoryLLMConfig:
        main = self.main_llm
        if main is not None and not (isinstance(main, Mapping) and isinstance(main.get("backend"), str)):
            raise ConfigurationRefused(f'main_llm has to be {{"backend": ..., "config": ...}} ({HERE})')
        if main is not None and main["backend"] == BACKEND:
            raise ConfigurationRefused(f"main_llm is the writer itself ({HERE}); name the LLM that answers")
        if main is not None:
            _check_main(main)
        try:
            settings = self.settings()
        except SettingsError as error:
            raise ConfigurationRefused(str(error)) from None
        if settings.on_failure == "fallback" and main is None:
            raise ConfigurationRefused(f'on_failure="fallback" needs a main model: set main_llm ({HERE})')
        return self

    def settings(self) -> WriterSettings:
        """The writer's, with those of the environment. Raises `SettingsError`."""
        given = {name: getattr(self, _SETTINGS.get(name, name)) for name in WriterSettings.model_fields}
        wanted = {name: value for name, value in given.items() if value is not None}
        return load_settings(wanted, framework="memos", where=HERE)


def _check_main(main: Mapping[str, Any]) -> None:
    from memos.configs.llm import LLMConfigFactory

    try:
        LLMConfigFactory.model_validate(main)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
        # Of one inside another pydantic makes a text, with the key in it.
        what = "; ".join(sorted({str(each["type"]) for each in found}))
        raise ConfigurationRefused(
            f"main_llm is no configuration of an LLM of MemOS ({HERE}): {what}; put there what the slot had"
        ) from None


class HyMemoryLLM(BaseLLM):  # type: ignore[misc]  # memos is not looked into
    """MemOS's LLM of backend `hy_memory`, and around the LLM of an object that is attached.

    Which model serves a call depends on the function that asks, never on the words it asks with.
    """

    def __init__(self, config: HyMemoryLLMConfig) -> None:
        settings = config.settings()
        self.config = config.model_copy(update={"model_name_or_path": settings.model})
        main = None
        if config.main_llm is not None:
            from memos.configs.llm import LLMConfigFactory
            from memos.llms.factory import LLMFactory

            main = LLMFactory.from_config(LLMConfigFactory.model_validate(config.main_llm))
        self._set(Writer(settings, framework="memos"), main, named=True)
        INTEGRATION.say_what_skip_cannot(settings)

    @classmethod
    def around(cls, main: Any, writer: Writer, switch: Switch, site: CallSite | None = None) -> HyMemoryLLM:
        """The LLM that leaves `main` in charge of everything but writes, and of those too when `switch` is
        off. With `site` everything is that write."""
        made = cls.__new__(cls)
        made.config = getattr(main, "config", None)  # what MemOS reads there is the main model's
        made._set(writer, main, switch, site)
        return made

    def _set(
        self,
        writer: Writer,
        main: Any,
        switch: Switch | None = None,
        site: CallSite | None = None,
        *,
        named: bool = False,
    ) -> None:
        self.writer, self.main, self.named = writer, main, named
        self._switch, self._site = switch, site

    def __getattr__(self, name: str) -> Any:
        """What else is asked of an LLM object, its client say."""
        main = vars(self).get("main")
        if main is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(main, name)

    def __repr__(self) -> str:
        main = "none" if self.main is None else type(self.main).__name__
        return f"HyMemoryLLM(writer={self.writer!r}, main={main})"

    def generate(self, messages: Any, **kwargs: Any) -> str:
        """A reply as MemOS's LLMs give it. For a write it is the writer's, checked; else the main model's.

        Raises `WriterUnavailable`, `PromptTooLong`, `ReplyRejected`, or `NoMainModel`.
        """
        site = None if self._switch is not None and not self._switch.on else self._site or asking(1)
        if site is None and self.named:
            site = UNKNOWN
            if is_power_of_ten(times := self.writer.note_unknown_site()):
                said = "backend 'hy_memory' is asked by code that is not in the catalogue (%d so far)"
                INTEGRATION.log.warning(said, times)
        if site is None or site.side == "read":
            return self._main_for(site).generate(messages, **kwargs)  # type: ignore[no-any-return]
        main = self.main
        return write(self.writer, site, messages, main and (lambda: main.generate(messages, **kwargs)))

    def generate_stream(self, messages: Any, **kwargs: Any) -> Iterator[str]:
        """MemOS streams answers, never writes: those are one piece."""
        site = None if self._switch is not None and not self._switch.on else asking(1)
        if (site is None and not self.named) or (site is not None and site.side == "read"):
            return self._main_for(site).generate_stream(messages, **kwargs)  # type: ignore[no-any-return]
        return iter([self.generate(messages, **kwargs)])

    def _main_for(self, site: CallSite | None) -> Any:
        if self.main is None:
            if is_power_of_ten(times := next(_astray)):  # MemOS often swallows what is raised
                said = "%s came to backend 'hy_memory', which has no main model to ask (%d so far)"
                INTEGRATION.log.error(said, "a call that is no write" if site is None else site.id, times)
            what = "a call that is no write" if site is None else f"{site.id}, which is no write,"
            raise NoMainModel(
                f"{what} came to backend {BACKEND!r}. If it is in a slot that answers (chat_model, "
                "dispatcher_llm), put your own LLM there. Else it shares an LLM that writes: set general_llm "
                f"and image_parser_llm of the mem reader to your own, or main_llm in {HERE}"
            )
        return self.main


_astray = itertools.count(1)


def asking(depth: int) -> CallSite | None:
    """The call site of whoever asks, `depth` frames up; in a pool, of the scope that work was given in."""
    opened = scope.current()
    inside = BY_ID.get(opened.site) if opened is not None else None
    if inside is not None and inside.side == "read":
        return inside  # a search that reads pages as if they were to be remembered
    site = CALLERS.find(depth + 1)
    if site is FEEDBACK_ASKED:  # asked by a method, or through a pool, where that is not on the stack
        return _FOR_FEEDBACK.find(depth + 1) or inside or site
    return site


def write(writer: Writer, site: CallSite, messages: Any, main: Callable[[], Any] | None) -> str:
    """Have it written. What the framework asks for beside its messages (feedback's temperature 0.3, another
    model for skills) is meant for another model."""
    assert site.contract is not None  # every write has one
    call: WriteCall[Any] = WriteCall(messages=list(messages), contract=site.contract, site=site.id)
    opened = scope.current()
    try:
        reply = writer.write(call, main=main and (lambda: RawReply(main() or "")))
    except WriteError as error:
        if opened is not None and site in _TOLD:
            opened.facts = error
            opened.failures.append(error)
        raise
    if reply.error is not None and opened is not None and site in _TOLD:
        opened.facts = reply.error
    if reply.error is not None and _RAW_TEXT and site in (CHAT, MULTIMODAL):
        raise reply.error  # which MemOS catches: it stores the raw text, and chats on
    return reply.text


_TOLD = (CHAT, MULTIMODAL, DOCUMENT, FILE, KEYWORD, JUDGED, OPERATIONS)
"""Whose failures are raised where nothing came of the whole. What is extracted beside, preferences say, may
well be nothing."""
