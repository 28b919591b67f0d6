"""`HyMemoryLLM`: the writer as an LLM of LlamaIndex.

Its messages are converted by the parent's code, and sent, checked and counted by hymem's writer.
"""

from __future__ import annotations

import asyncio
import difflib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, MessageRole, TextBlock
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai.utils import to_openai_message_dicts
from llama_index.llms.openai_like import OpenAILike

from hymem import scope
from hymem.contract import RawReply
from hymem.errors import HymemError, NoMainModel, SettingsError, WriteError
from hymem.integration import CallSite
from hymem.patching import Switch
from hymem.plan import NO_FACTS, Reply, WriteCall
from hymem.settings import WriterSettings, load_settings
from hymem.writer import Writer

from .call_sites import ASKED, BY_ID, CONDENSE, EXTRACT
from .contracts import Known

HERE = "HyMemoryLLM"
WINDOW = 32_768
"""Tokens; where the server does not say how many it has room for."""
SECONDS_TO_ASK_AGAIN = 60.0

_SETTINGS = {"base_url": "api_base", "headers": "default_headers"}
"""Setting of the writer → what LlamaIndex calls it."""
_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name"})
_SENT_BY_HYMEM = frozenset(
    {"model", "messages", "stream", "stream_options", "temperature", "max_tokens", "max_completion_tokens"}
    | {"tools", "tool_choice", "parallel_tool_calls", "response_format", "extra_body", "reasoning_effort"}
    | {"extra_headers", "extra_query", "timeout"}
)


class HyMemoryLLM(OpenAILike):  # type: ignore[misc]  # it is not looked into
    """Hy-Memory as an LLM: give it to what keeps memory.

    >>> block = FactExtractionMemoryBlock(llm=HyMemoryLLM(api_base="http://127.0.0.1:8000/v1"))

    What is not given comes from `HYMEM_LLAMA_INDEX_*`, `HYMEM_*` and the file named by `HYMEM_CONFIG`. A
    reply that is empty, cut or a mere thought raises `ReplyRejected`, a server that cannot be reached
    `WriterUnavailable`. A stream is one piece. `main_llm` writes where `on_failure="fallback"` says so.
    Unknown arguments are errors; LlamaIndex's own classes ignore them.
    """

    model: str = Field(default="hy-memory")
    api_key: str | None = Field(default=None, exclude=True, repr=False)
    default_headers: dict[str, str] | None = Field(default=None, exclude=True, repr=False)
    is_chat_model: bool = True
    context_window: int = Field(default=0, description="Tokens; 0: as many as the server has room for.")
    extra_body: dict[str, Any] | None = None
    on_failure: str | None = None
    structured_output: str | None = None
    reasoning_effort: str | None = None
    main_llm: Any = Field(default=None, exclude=True, repr=False)

    _given: WriterSettings | None = PrivateAttr(default=None)
    _writing: Writer | None = PrivateAttr(default=None)
    _switch: Switch | None = PrivateAttr(default=None)
    _window: int = PrivateAttr(default=0)
    _ask_again: float = PrivateAttr(default=0.0)

    def __init__(self, model: str | None = None, *, base_url: str | None = None, **given: Any) -> None:
        given = {name: value for name, value in given.items() if name != "class_name"}
        for name in given.keys() - type(self).model_fields.keys():
            near = difflib.get_close_matches(name, [*type(self).model_fields, "base_url"], n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SettingsError(f"unknown argument {name!r} ({HERE}){hint}")
        if base_url is not None:
            given["api_base"] = base_url
        settings = _settings(model, given)
        for name in given.keys() & _NOT_OURS:
            if given[name] != type(self).model_fields[name].get_default():
                raise SettingsError(f"{name!r} is nothing that {HERE} can be told; leave it out")
        if settings.on_failure == "fallback" and given.get("main_llm") is None:
            raise SettingsError('on_failure="fallback" needs a main model: set main_llm')
        own = {name: given.pop(name) for name in _OURS if name in given}
        given |= {
            "api_base": settings.base_url,
            "api_key": settings.api_key.get_secret_value() if settings.api_key else "EMPTY",
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "timeout": settings.timeout,
            "is_chat_model": True,
        }
        super().__init__(model=settings.model, **given)
        for name, value in own.items():
            setattr(self, name, value)
        self._given = settings  # from here on, what it was made with stays
        _make_known()

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_given", None) is not None and name in _FIXED:
            raise SettingsError(f"{HERE}.{name} is part of what it was made with; make another")
        super().__setattr__(name, value)

    @classmethod
    def around(cls, main: Any, writer: Writer, switch: Switch) -> HyMemoryLLM:
        """One that writes with `writer`, and is `main` when `switch` is off."""
        settings = writer.settings
        made: HyMemoryLLM = cls.model_construct(model=settings.model, main_llm=main, is_chat_model=True)
        made._given, made._writing, made._switch = settings, writer, switch
        return made

    @classmethod
    def class_name(cls) -> str:
        return "HyMemoryLLM"

    @property
    def writer(self) -> Writer:
        """Its counters, settings and endpoint. A copy of the LLM has one of its own."""
        if self._writing is None:
            self._writing = Writer(self._given or _settings(self.model, {}), framework="llama-index")
        return self._writing

    def __deepcopy__(self, memo: Any = None) -> HyMemoryLLM:
        made: HyMemoryLLM = self.model_copy()
        made._writing = None
        return made

    @property
    def metadata(self) -> LLMMetadata:
        return self._metadata(self.context_window or self._served_window())

    def to_payload(self) -> dict[str, Any]:
        """What LlamaIndex's events tell of an LLM, for which no server is asked."""
        known = self._metadata(self.context_window or self._window or WINDOW)
        return {"class_name": self.class_name(), **known.model_dump()}

    def _metadata(self, window: int) -> LLMMetadata:
        return LLMMetadata(
            context_window=window,
            num_output=self.max_tokens or -1,
            is_chat_model=True,
            is_function_calling_model=False,
            model_name=self.model,
        )

    def _served_window(self) -> int:
        """Asked once; where no answer comes, or none with a number, again after a while. An event loop does
        not stand still for it: there, the answer counts from when it has come."""
        if self._window or time.monotonic() < self._ask_again:
            return self._window or WINDOW
        self._ask_again = time.monotonic() + SECONDS_TO_ASK_AGAIN
        asking = threading.Thread(target=self._ask_window, daemon=True)
        asking.start()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asking.join()
        return self._window or WINDOW

    def _ask_window(self) -> None:
        self._window = self.writer.max_model_len(min(5.0, self.writer.settings.timeout)) or 0

    # The parent asks `metadata` for each of these whether this is a chat model; it is.

    def _use_chat_completions(self, kwargs: dict[str, Any]) -> bool:
        kwargs.pop("use_chat_completions", None)
        return True

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return OpenAI.chat(self, messages, **kwargs)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return await OpenAI.achat(self, messages, **kwargs)

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Iterator[ChatResponse]:
        return OpenAI.stream_chat(self, messages, **kwargs)  # type: ignore[no-any-return]

    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> AsyncIterator[ChatResponse]:
        return await OpenAI.astream_chat(self, messages, **kwargs)  # type: ignore[no-any-return]

    # -- writing ---------------------------------------------------------------------------------

    def _chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        if self._switch is not None and not self._switch.on:
            return self._main().chat(messages, **kwargs)
        asking = _Asking(self, messages, kwargs)
        try:
            reply = self.writer.write(asking.call, main=asking.fallback())
        except WriteError as error:
            asking.note(error)
            raise
        return asking.result(reply)

    async def _achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        if self._switch is not None and not self._switch.on:
            return await self._main().achat(messages, **kwargs)
        asking = _Asking(self, messages, kwargs)
        try:
            reply = await self.writer.awrite(asking.call, main=asking.afallback())
        except WriteError as error:
            asking.note(error)
            raise
        return asking.result(reply)

    def _main(self) -> Any:
        if self.main_llm is None:
            raise NoMainModel(
                "this block was made without an LLM while hymem was enabled, which it is no longer: give it "
                "one of its own"
            )
        return self.main_llm

    def _stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Iterator[ChatResponse]:
        """One checked reply, in one piece: nothing of a reply that is refused may get out before."""

        def pieces() -> Iterator[ChatResponse]:
            yield _with_delta(self._chat(messages, **kwargs))

        return pieces()

    async def _astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> AsyncIterator[ChatResponse]:
        async def pieces() -> AsyncIterator[ChatResponse]:
            yield _with_delta(await self._achat(messages, **kwargs))

        return pieces()


_FIXED = frozenset(
    {"model", "api_base", "api_key", "max_tokens", "temperature", "timeout", "default_headers"}
)
_NOT_OURS = frozenset(
    {"logprobs", "top_logprobs", "is_function_calling_model", "strict", "async_http_client"}
)
"""Of the parent: they are about calls and clients that are not made here."""
_OURS = ("extra_body", "on_failure", "structured_output", "reasoning_effort", "main_llm")


def _settings(model: str | None, given: Mapping[str, Any]) -> WriterSettings:
    known = {"model": model, **given}
    wanted = {}
    for name in WriterSettings.model_fields:
        value = known.get(_SETTINGS.get(name, name))
        if value is not None or (name == "reasoning_effort" and name in given):
            wanted[name] = value
    more = dict(given.get("additional_kwargs") or {})
    if more:  # where LlamaIndex's own classes have what they send beside the rest
        wanted["extra_body"] = {**more.pop("extra_body", {}), **more, **(wanted.get("extra_body") or {})}
    return load_settings(wanted, framework="llama-index", where=HERE)


def _make_known() -> None:
    """Have the scopes in force in what is imported: without them what a failed write was to keep is gone."""
    from .seams import INTEGRATION

    try:
        INTEGRATION.register(parts=False)
    except HymemError as error:
        INTEGRATION.log.warning("a write that fails may go unnoticed: %s", error)


class _Asking:
    """One request: which call site it is, what the writer is asked, what LlamaIndex is given."""

    def __init__(self, llm: HyMemoryLLM, messages: Sequence[ChatMessage], kwargs: dict[str, Any]) -> None:
        self.llm, self.messages, self.kwargs = llm, messages, kwargs
        opened = scope.current()  # of another framework, where that one asks LlamaIndex for its model
        self.opened = opened if opened is not None and opened.site in BY_ID else None
        self.site = self._site()
        body = kwargs.get("extra_body") or {}
        self.call: WriteCall[Any] = WriteCall(
            messages=_as_sent(messages),
            contract=self.site.contract,  # type: ignore[arg-type]  # every write has one
            site=self.site.id,
            facts=self._facts(),
            max_tokens=kwargs.get("max_completion_tokens") or kwargs.get("max_tokens"),
            max_tokens_asked="max_tokens" in kwargs or "max_completion_tokens" in kwargs,
            response_format=kwargs.get("response_format"),
            fields={
                **{name: value for name, value in kwargs.items() if name not in _SENT_BY_HYMEM},
                **body,
            },
        )

    def _site(self) -> CallSite:
        """A block that has extracted facts asks a second time to have them condensed."""
        if self.opened is None:
            return ASKED
        if self.opened.site == EXTRACT.id:
            again, self.opened.facts.asked = self.opened.facts.asked, True
            return CONDENSE if again else EXTRACT
        return BY_ID[self.opened.site]

    def _facts(self) -> Any:
        known: Known | None = None if self.opened is None else self.opened.facts
        if known is None or not known.calls:
            return NO_FACTS
        made = known.calls.pop(0)
        return made() if callable(made) else made

    def note(self, error: WriteError) -> None:
        if self.opened is not None:
            self.opened.failures.append(error)

    def fallback(self) -> Callable[[], RawReply] | None:
        main = self.llm.main_llm
        if main is None:
            return None

        def ask() -> RawReply:
            with scope.writing(ASKED.id):  # or a main model that is ours would take it for the block's own
                return _raw(main.chat(self.messages, **self.kwargs))

        return ask

    def afallback(self) -> Callable[[], Awaitable[RawReply]] | None:
        main = self.llm.main_llm
        if main is None:
            return None

        async def ask() -> RawReply:
            with scope.writing(ASKED.id):
                return _raw(await main.achat(self.messages, **self.kwargs))

        return ask

    def result(self, reply: Reply[Any]) -> ChatResponse:
        if self.opened is not None:
            if reply.skipped and self.site is not CONDENSE:
                self.opened.facts.skipped = reply.error
            self.opened.facts.extracted |= self.site is EXTRACT and not reply.skipped
        counts = {
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "total_tokens": reply.prompt_tokens + reply.completion_tokens,
        }
        message = ChatMessage(role=MessageRole.ASSISTANT, content=reply.text)
        raw = {"model": self.llm.model, "finish_reason": reply.finish_reason, "usage": counts}
        return ChatResponse(message=message, raw=raw, additional_kwargs=counts)


def _as_sent(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """As OpenAI has them, without what LlamaIndex keeps in them for itself (`session_id`), without turns
    that say nothing, and with words for what is no text."""
    sent = []
    for made in to_openai_message_dicts([_of_text(each) for each in messages], model="hy-memory"):
        message = {name: value for name, value in dict(made).items() if name in _FIELDS}
        content = message.get("content")
        if isinstance(content, list):
            message["content"] = "\n".join(str(part.get("text", "")) for part in content)
        if message.get("content") or message.get("tool_calls"):
            sent.append(message)
    return sent


def _of_text(message: ChatMessage) -> ChatMessage:
    """A message with words for what is no text, before anything is fetched, opened or refused for it."""
    blocks = [block for each in message.blocks if (block := _text_or_call(each)) is not None]
    return message.model_copy(update={"blocks": blocks})


def _text_or_call(block: Any) -> Any:
    kind = str(getattr(block, "block_type", "attachment"))
    if kind in ("text", "tool_call", "thinking"):
        return block
    inner = getattr(block, "content", None) if kind in ("citable", "citation") else None
    texts = [text for each in inner or () if isinstance(text := getattr(each, "text", None), str)]
    if kind == "cache":  # a mark for another provider, of which there is nothing to tell
        return None
    return TextBlock(text="\n" + ("\n".join(texts) or f"[{kind}]"))


def _raw(answer: Any) -> RawReply:
    """What a main model answers, as a server would have sent it."""
    said = answer.raw if isinstance(answer.raw, Mapping) else getattr(answer.raw, "__dict__", {})
    choice = next(iter(said.get("choices") or ()), said)
    reason = (
        choice.get("finish_reason") if isinstance(choice, Mapping) else getattr(choice, "finish_reason", None)
    )
    return RawReply(answer.message.content or "", (), reason)


def _with_delta(response: ChatResponse) -> ChatResponse:
    response.delta = response.message.content
    return response
