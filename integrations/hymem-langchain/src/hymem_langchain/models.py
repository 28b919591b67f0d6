"""`ChatHyMemory`: the writer as a chat model of LangChain.

Its requests are built by the parent's code, and sent, checked and counted by hymem's writer.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import logging
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from langchain_core.caches import BaseCache
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import BaseLanguageModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding, RunnableWithFallbacks
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_openai.chat_models.base import BaseChatOpenAI
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, model_validator
from typing_extensions import Self

from hymem import scope
from hymem.contract import CallFacts, RawReply
from hymem.errors import HymemError, ReplyRejected, SettingsError, WriteError
from hymem.integration import CallSite
from hymem.patching import Switch
from hymem.plan import NO_FACTS, Reply, WriteCall, schema_format
from hymem.settings import WriterSettings, load_settings
from hymem.writer import Writer

from . import contracts
from .call_sites import ASKED, BY_ID, CALL_SITES, MEMORIES

HERE = "ChatHyMemory"
NO_STREAM = ["nostream", "langsmith:nostream"]
"""Tags by which LangGraph, the newer and the older, leaves a model's messages out of a user's stream."""

_SENT_BY_HYMEM = frozenset(
    {"model", "messages", "stream", "stream_options", "temperature", "max_tokens", "max_completion_tokens"}
    | {"tools", "tool_choice", "parallel_tool_calls", "response_format", "extra_body", "reasoning_effort"}
    | {"extra_headers", "extra_query", "timeout"}
)
_FLAGS = (
    "vLLM parses calls only with both --enable-auto-tool-choice and --tool-call-parser; "
    'tool_mode="json_schema" needs neither'
)
_OF_TOOLS = ("tools", "tool_choice", "parallel_tool_calls", "ls_structured_output_format")
_PARENTS = {
    "model": "model_name",
    "base_url": "openai_api_base",
    "api_key": "openai_api_key",
    "timeout": "request_timeout",
    "headers": "default_headers",
}
"""Setting of the writer → field of the parent class, where it is called otherwise."""


class ChatHyMemory(BaseChatOpenAI):  # type: ignore[misc]  # it is not looked into
    """Hy-Memory as a chat model: give it to a memory class, a middleware or a manager that writes.

    >>> memory = ConversationSummaryMemory(llm=ChatHyMemory(base_url="http://127.0.0.1:8000/v1"))

    What is not given comes from `HYMEM_LANGCHAIN_*`, `HYMEM_*` and the file named by `HYMEM_CONFIG`.
    A reply that is empty, cut or a mere thought raises instead of overwriting a memory: `ReplyRejected`;
    a server that cannot be reached `WriterUnavailable`. It never streams: a stream is one chunk, and
    LangGraph leaves it out of the user's. `main_llm` writes where `on_failure="fallback"` says so.
    """

    model_config = ConfigDict(hide_input_in_errors=True)  # the key is among it

    model_name: str = Field(default="hy-memory", alias="model")
    openai_api_base: str | None = Field(default=None, alias="base_url")
    openai_api_key: SecretStr | None = Field(default=None, alias="api_key")
    disable_streaming: bool = True
    cache: BaseCache | bool | None = Field(default=False, exclude=True)
    """Off: LangChain's cache would keep the answer of a write that was skipped, and give it again."""
    use_responses_api: bool | None = False
    tags: list[str] | None = Field(default_factory=NO_STREAM.copy, exclude=True)
    on_failure: Literal["raise", "skip", "fallback"] | None = None
    structured_output: Literal["never", "on_violation", "always"] | None = None
    reasoning_effort: str | None = None
    tool_mode: Literal["json_schema", "native"] = "json_schema"
    """How the functions of `bind_tools` are called: in JSON that the server holds to their schema, for
    which it needs no flags; or natively, with --enable-auto-tool-choice and --tool-call-parser."""
    main_llm: Any = Field(default=None, exclude=True, repr=False)
    default_headers: Mapping[str, str] | None = Field(default=None, exclude=True, repr=False)

    _writer: Writer = PrivateAttr()
    _switch: Switch | None = PrivateAttr(default=None)

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except _Refused as refused:
            error = refused.error
        else:
            return
        raise error

    @model_validator(mode="after")
    def validate_environment(self) -> Self:
        """In the place of the parent's, which makes clients of its own with all that the user's
        environment has for them."""
        given = {}
        for name in WriterSettings.model_fields:
            own = _PARENTS.get(name, name)
            if own in self.model_fields_set and (value := getattr(self, own)) is not None:
                given[name] = value
        try:
            for name in self.model_kwargs:
                if near := difflib.get_close_matches(
                    name, [*_PARENTS, *type(self).model_fields], n=1, cutoff=0.8
                ):
                    raise SettingsError(f"unknown argument {name!r} ({HERE}); did you mean {near[0]!r}?")
            settings = load_settings(given, framework="langchain", where=HERE)
            if settings.on_failure == "fallback" and self.main_llm is None:
                raise SettingsError('on_failure="fallback" needs a main model: set main_llm')
        except SettingsError as error:
            raise _Refused(error) from None
        self._writer = Writer(settings, framework="langchain")
        _make_known()
        for name in ("model", "base_url", "api_key", "temperature"):
            object.__setattr__(self, _PARENTS.get(name, name), getattr(settings, name))
        object.__setattr__(self, "openai_organization", None)
        return self

    @classmethod
    def around(cls, main: BaseLanguageModel[Any], writer: Writer, switch: Switch) -> ChatHyMemory:
        """One that writes with `writer`, and is `main` when `switch` is off."""
        settings = writer.settings
        made: ChatHyMemory = cls.model_construct(
            model_name=settings.model, main_llm=main, tags=NO_STREAM.copy()
        )
        made._writer, made._switch = writer, switch
        return made

    @property
    def writer(self) -> Writer:
        """Its counters, settings and endpoint."""
        return self._writer

    @property
    def _llm_type(self) -> str:
        return "hy-memory"

    @property
    def lc_secrets(self) -> dict[str, str]:
        return {"openai_api_key": "HYMEM_API_KEY"}

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        return ["hymem_langchain", "models"]

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(stop=stop, **kwargs), "ls_provider": "hy-memory"}

    # -- counting, which upstream does with a file from the network ------------------------------

    def get_token_ids(self, text: str) -> list[int]:
        """Stand-ins for ids: as many as there are tokens, about."""
        return list(range(-(-len(text) // 4)))

    def get_num_tokens_from_messages(self, messages: Sequence[Any], *args: Any, **kwargs: Any) -> int:
        """About; LangChain's own estimate, without a tokenizer."""
        return int(count_tokens_approximately(messages))

    # -- writing ---------------------------------------------------------------------------------

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if self._switch is not None and not self._switch.on:
            return _as_result(self.ask_main(messages, stop, kwargs))
        asking = _Asking(self, messages, stop, kwargs)
        try:
            reply = self._writer.write(asking.call, main=asking.fallback())
        except WriteError as error:
            asking.note(error)
            raise
        return asking.result(reply)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if self._switch is not None and not self._switch.on:
            return _as_result(await self.aask_main(messages, stop, kwargs))
        asking = _Asking(self, messages, stop, kwargs)
        try:
            reply = await self._writer.awrite(asking.call, main=asking.afallback())
        except WriteError as error:
            asking.note(error)
            raise
        return asking.result(reply)

    def ask_main(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> Any:
        main, more = _with_tools(self.main_llm, kwargs)
        return main.invoke(messages, stop=stop, **more)

    async def aask_main(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> Any:
        main, more = _with_tools(self.main_llm, kwargs)
        return await main.ainvoke(messages, stop=stop, **more)

    def with_retry(self, **_: Any) -> ChatHyMemory:
        """Itself: the writer has tries of its own, within one time budget, and one event for all."""
        return self

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[AIMessageChunk]:
        for message in super().stream(*args, **kwargs):  # which it gives whole, not being streamed
            yield _chunk_of(message)

    async def astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[AIMessageChunk]:
        async for message in super().astream(*args, **kwargs):
            yield _chunk_of(message)

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        """One checked reply, in one piece: nothing of a reply that is refused may get out before."""
        yield _as_chunk(self._generate(*args, **kwargs))

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        yield _as_chunk(await self._agenerate(*args, **kwargs))

    def with_structured_output(
        self, schema: Any = None, *, method: str = "json_schema", **kwargs: Any
    ) -> Any:
        """As the parent's; by `json_schema`, for which the server needs no flags."""
        return super().with_structured_output(schema, method=method, **kwargs)


def _make_known() -> None:
    """Have the scopes in force in what is imported: without them LangChain swallows errors of this model,
    and what it was to keep is gone."""
    from .seams import INTEGRATION

    try:
        INTEGRATION.register(parts=False)
    except HymemError as error:
        INTEGRATION.log.warning("a write that fails may go unnoticed: %s", error)


def bound_of(model: Any) -> Any:
    """The model that something is bound to, or that others stand behind."""
    while isinstance(model, (RunnableBinding, RunnableWithFallbacks)):
        model = model.bound if isinstance(model, RunnableBinding) else model.runnable
    return model


class Extractor(Runnable[Any, Any]):  # type: ignore[misc]  # it is not looked into
    """trustcall's extractor, made with the model that writes at the time it is asked.

    trustcall swallows every error of a model: it asks again until its graph's limit, or gives back what
    it has. Here the error is raised, and so is a call that it could not store.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        llm: Any,
        given: dict[str, Any],
        choose: Callable[[Extractor, Any], Any],
    ) -> None:
        if isinstance(llm, str):
            from langchain.chat_models import init_chat_model

            llm = init_chat_model(llm)
        self._make, self._llm, self._given, self._choose = make, llm, given, choose
        self._made: dict[Writer | None, Any] = {}
        self._chosen()  # raises what trustcall has to say of model and functions

    def _chosen(self) -> tuple[Any, Writer | None]:
        model = self._choose(self, self._llm)
        writer = model.writer if isinstance(model, ChatHyMemory) else None
        if writer not in self._made:
            self._made[writer] = self._make(model, **self._given)
        return self._made[writer], writer

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        extractor, writer = self._chosen()
        if writer is None:
            return extractor.invoke(input, config, **kwargs)
        with self._writing(input, writer) as check:
            return check(extractor.invoke(input, _limited(config), **kwargs))

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        extractor, writer = self._chosen()
        if writer is None:
            return await extractor.ainvoke(input, config, **kwargs)
        with self._writing(input, writer) as check:
            return check(await extractor.ainvoke(input, _limited(config), **kwargs))

    @contextlib.contextmanager
    def _writing(self, input: Any, writer: Writer) -> Iterator[Callable[[Any], Any]]:
        failure: WriteError | None = None
        with scope.writing(MEMORIES.id, self) as opened:
            skips = "tool_choice" not in self._given  # a thread's extractor has to have one
            opened.facts = contracts.Known(others=CallFacts(_documents(input)), skips=skips)
            skips_all = writer.settings.on_failure == "skip" and skips
            try:
                yield functools.partial(self._checked, opened, skips_all)
            except Exception as error:
                if not opened.failures and type(error).__name__ != "GraphRecursionError":
                    raise
                failure = opened.failures[0] if opened.failures else _not_stored("after its repairs")
        if failure is not None:
            raise failure

    @staticmethod
    def _checked(opened: scope.Scope, skips: bool, result: Any) -> Any:
        """Where writes are skipped, the calls that are as they should be are kept without the others."""
        asked = result["messages"][-1].tool_calls if result["messages"] else []
        lost = len(asked) - len(result["responses"])
        failure: WriteError | None = opened.failures[0] if opened.failures else None
        if failure is None and lost > 0:
            failure = _not_stored(f"of {len(asked)} calls {lost} are not of their schema")
        if failure is not None and not skips:
            raise failure
        if failure is not None:
            log.error("%s", failure)
        return result


log = logging.getLogger("hymem.langchain")


def _limited(config: Any) -> dict[str, Any]:
    """trustcall's graph as long as its attempts are: two steps for a request, three for each repair."""
    given = dict(config or {})
    attempts = (given.get("configurable") or {}).get("max_attempts", 3)
    most = 1 + 3 * int(attempts)
    return {**given, "recursion_limit": min(given.get("recursion_limit", most), most)}


def _documents(input: Any) -> dict[str, str]:
    """What is there to be changed, of all that trustcall takes as `existing`."""
    existing = (input.get("existing") if isinstance(input, Mapping) else None) or ()
    rows = existing.items() if isinstance(existing, Mapping) else existing
    found = {}
    for row in rows:
        if isinstance(row, (tuple, list)) and isinstance(row[0], str):  # it compares with what a model writes
            document = row[-1].model_dump(mode="json") if isinstance(row[-1], BaseModel) else row[-1]
            found[row[0]] = json.dumps(document, default=str)
    return found


def _not_stored(why: str) -> ReplyRejected:
    error = ReplyRejected(
        f"the reply for {MEMORIES.id} cannot be stored: {why}. Look whether the manager has the schema of "
        "what it is to change, and whether the model can fill it",
        path="calls",
        expected="calls of their schemas",
    )
    error.site = MEMORIES.id
    return error


class _Refused(Exception):
    """Carries an error through pydantic, which would make its own of it."""

    def __init__(self, error: SettingsError) -> None:
        super().__init__(str(error))
        self.error = error


class _Asking:
    """One request: which call site it is, what the writer is asked, what LangChain is given."""

    def __init__(
        self, model: ChatHyMemory, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> None:
        self.model, self.messages, self.stop, self.kwargs = model, messages, stop, kwargs
        opened = scope.current()  # of another framework, where that one asks LangChain for its model
        self.opened = opened if opened is not None and opened.site in BY_ID else None
        self.site = self._site()
        if self.site is MEMORIES and self.opened is not None and self.opened.failures:
            raise self.opened.failures[0]  # trustcall swallows it, and asks again until its graph's limit
        self.required = False
        payload = self.payload = model._get_request_payload(messages, stop=stop, **kwargs)
        response_format = _as_json(payload.get("response_format"))
        self.structured = _schema_of(response_format)
        contract = self._contract()
        tools, messages = payload.get("tools") or None, payload["messages"]
        if tools and isinstance(contract, contracts.Calls) and not contract.tools:
            if model.writer.settings.structured_output != "never":
                response_format = schema_format(contract)
            words = contracts.in_words(tools, required=self.required)
            tools, messages = None, _with_system(messages, words)
        body = payload.get("extra_body") or {}
        self.call: WriteCall[Any] = WriteCall(
            messages=messages,
            contract=contract,
            site=self.site.id,
            facts=self._facts(),
            max_tokens=payload.get("max_completion_tokens") or payload.get("max_tokens"),
            max_tokens_asked="max_tokens" in kwargs or "max_completion_tokens" in kwargs,
            response_format=response_format,
            tools=tools,
            tool_choice=payload.get("tool_choice"),
            fields={
                **{name: value for name, value in payload.items() if name not in _SENT_BY_HYMEM},
                **body,
            },
        )

    def _site(self) -> CallSite:
        """By the scope that is open; else by the function that asks, of a memory that was given a
        `ChatHyMemory` where nothing of ours is registered."""
        if self.opened is not None:
            return BY_ID[self.opened.site]
        return _site_of_caller() or ASKED

    def _contract(self) -> Any:
        if self.structured is not None:
            return contracts.structured(self.structured)
        tools, choice = self.payload.get("tools"), self.payload.get("tool_choice")
        if isinstance(choice, Mapping):
            named = _named(choice)
            found = [each for each in tools or () if each["function"]["name"] == named]
            tools = self.payload["tools"] = found or tools
        elif choice == "none":
            tools = self.payload["tools"] = None
        if not tools:
            contract = self.site.contract
            return (
                contract if self.opened is not None or contract is None else contracts.never_skipped(contract)
            )
        self.required = choice not in (None, "auto")
        one = isinstance(choice, Mapping) or self.payload.get("parallel_tool_calls") is False
        return contracts.calls(
            tools,
            required=self.required,
            native=self.model.tool_mode == "native",
            skips=self._may_be_skipped(tools),
            **({"most": 1} if one else {}),
        )

    def _may_be_skipped(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether an answer without a call changes nothing. Of a repair trustcall has to be told that
        there is none; it then keeps the other calls."""
        if any(each["function"]["name"] == contracts.REPAIR for each in tools):
            return False
        return not self.required or (self.opened is not None and self.opened.facts.skips)

    def _facts(self) -> CallFacts:
        known: contracts.Known | None = None if self.opened is None else self.opened.facts
        if known is None:
            return NO_FACTS
        return known.calls.pop(0) if known.calls else known.others

    def note(self, error: WriteError) -> None:
        if self.call.tools and (isinstance(error, ReplyRejected) or getattr(error, "status", None) == 400):
            error.args = (f"{error}; {_FLAGS}",)
        if self.opened is not None:
            self.opened.failures.append(error)

    def fallback(self) -> Callable[[], RawReply] | None:
        if self.model.main_llm is None:
            return None
        return lambda: _raw(self.model.ask_main(self.messages, self.stop, self.kwargs))

    def afallback(self) -> Callable[[], Awaitable[RawReply]] | None:
        if self.model.main_llm is None:
            return None

        async def ask() -> RawReply:
            return _raw(await self.model.aask_main(self.messages, self.stop, self.kwargs))

        return ask

    def result(self, reply: Reply[Any]) -> ChatResult:
        if reply.skipped and self.opened is not None:
            self.opened.facts.skipped = reply.error
        message: dict[str, Any] = {"role": "assistant", "content": reply.text}
        finish_reason = reply.finish_reason or "stop"
        if isinstance(self.call.contract, contracts.Calls) and reply.value:
            message["tool_calls"] = [_as_tool_call(each) for each in reply.value]
            finish_reason = "tool_calls"
        counts = {
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "total_tokens": reply.prompt_tokens + reply.completion_tokens,
        }
        choice = {"message": message, "finish_reason": finish_reason}
        made: ChatResult = self.model._create_chat_result(
            {"choices": [choice], "usage": counts, "model": self.model._writer.settings.model}
        )
        if self.structured is not None:
            made.generations[0].message.additional_kwargs["parsed"] = reply.value
        return made


def _named(choice: Mapping[str, Any]) -> Any:
    """The function that a `tool_choice` names, in OpenAI's form or Anthropic's."""
    function = choice.get("function")
    return function.get("name") if isinstance(function, Mapping) else choice.get("name")


def _with_tools(main: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A main model that is told of functions in its own way, not in OpenAI's; and what else it is told."""
    tools, choice = kwargs.get("tools"), kwargs.get("tool_choice")
    if not tools:
        return main, kwargs
    if isinstance(choice, Mapping):
        choice = _named(choice) or "any"
    more = {name: value for name, value in kwargs.items() if name not in _OF_TOOLS}
    return main.bind_tools(tools, tool_choice="any" if choice == "required" else choice), more


def _with_system(messages: list[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    first = messages[0] if messages else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{words}"}, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]


def _as_tool_call(call: contracts.Call) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)}
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


def _as_json(response_format: Any) -> Any:
    """What `with_structured_output` binds may be a class, which the SDK would make this of."""
    if not isinstance(response_format, type):
        return response_format
    schema = convert_to_json_schema(response_format, strict=True)
    named = {"name": schema.get("title", "answer"), "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": named}


def _schema_of(response_format: Any) -> Any:
    if isinstance(response_format, Mapping) and response_format.get("type") == "json_schema":
        return response_format["json_schema"].get("schema")
    return None


_CALLERS = {
    (module, qualname.rpartition(".")[2]): site
    for site in CALL_SITES
    if site.side == "write" and site is not ASKED
    for module, _, qualname in (place.partition(":") for place in site.where)
}
_FRAMES = 40


def _site_of_caller() -> CallSite | None:
    frame = sys._getframe(2)
    for _ in range(_FRAMES):
        key = (frame.f_globals.get("__name__", ""), frame.f_code.co_name)
        if key in _CALLERS:
            return _CALLERS[key]
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def _raw(answer: Any) -> RawReply:
    """What a main model answers, as a server would have sent it."""
    if not isinstance(answer, BaseMessage):
        return RawReply(str(answer))
    content = answer.content
    if isinstance(content, list):
        content = "".join(part if isinstance(part, str) else part.get("text", "") for part in content)
    made = [{"name": each["name"], "arguments": each["args"]} for each in getattr(answer, "tool_calls", ())]
    finish_reason = answer.response_metadata.get("finish_reason")
    return RawReply(content, tuple({"function": each} for each in made), finish_reason)


def _as_result(answer: Any) -> ChatResult:
    message = answer if isinstance(answer, BaseMessage) else AIMessage(content=str(answer))
    return ChatResult(generations=[ChatGeneration(message=message)])


def _as_chunk(result: ChatResult) -> ChatGenerationChunk:
    generation = result.generations[0]
    return ChatGenerationChunk(
        message=_chunk_of(generation.message), generation_info=generation.generation_info
    )


def _chunk_of(message: AIMessage) -> AIMessageChunk:
    if isinstance(message, AIMessageChunk):
        return message
    known = {name: getattr(message, name) for name in ("id", "usage_metadata", "response_metadata")}
    calls = [
        {"name": each["name"], "args": json.dumps(each["args"]), "id": each["id"], "index": at}
        for at, each in enumerate(message.tool_calls)
    ]
    return AIMessageChunk(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        tool_call_chunks=calls,
        **known,
        **({"chunk_position": "last"} if "chunk_position" in AIMessageChunk.model_fields else {}),
    )
