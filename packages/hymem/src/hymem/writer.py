"""`Writer`: drives a write plan over the transport and ends it in exactly one event."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeVar

from . import transport
from .contract import RawReply
from .errors import SettingsError, WriteError
from .events import Counters, Record, Stats, WriteEvent, count_unknown_site, publish
from .plan import (
    AskMain,
    CountTokens,
    ListModels,
    MainModelFailed,
    Reply,
    Send,
    Sleep,
    Step,
    Tally,
    TransportError,
    WriteCall,
    write_plan,
)
from .settings import NO_KEY, WriterSettings, load_settings

T = TypeVar("T")
Main = Callable[[], RawReply]
AsyncMain = Callable[[], Awaitable[RawReply]]

log = logging.getLogger("hymem")

_ERRORS = (TransportError, MainModelFailed)  # answers that are thrown into a plan


class Writer:
    """The model that writes memory: settings, an endpoint and counters.

    >>> writer = Writer(base_url="http://127.0.0.1:8000/v1")
    >>> reply = writer.write(WriteCall(messages, contract=MEMORIES))

    `settings`, or `arguments` for `load_settings`, not both. `framework` names the integration
    the writer works for. Nothing is connected until the first write. One writer may be used by
    many threads, event loops and forked children at once.
    """

    def __init__(
        self,
        settings: WriterSettings | None = None,
        *,
        framework: str | None = None,
        **arguments: Any,
    ) -> None:
        if settings is not None and arguments:
            raise TypeError("pass settings or single arguments, not both")
        self.settings = settings or load_settings(arguments, framework=framework)
        self.framework = framework
        self._endpoint = transport.Endpoint.of(self.settings)
        self._counters = Counters()
        self._record = Record(self.settings.record) if self.settings.record else None
        if self._shows_its_key():
            log.warning("%s: the writer's key goes there unencrypted (http)", self.settings.base_url)

    def __repr__(self) -> str:
        framework = f", framework={self.framework!r}" if self.framework else ""
        return f"Writer({self.settings.base_url!r}, model={self.settings.model!r}{framework})"

    def stats(self) -> Stats:
        """Sums over this writer's writes in this process."""
        return self._counters.read()

    def max_model_len(self, seconds: float = 5.0) -> int | None:
        """For how many tokens the server has room, prompt and reply together. None where it does not
        say, or not within `seconds`."""
        deadline = time.monotonic() + seconds
        found = transport.ask(self._endpoint, deadline, "get", "/models", self._window_in)
        return None if isinstance(found, TransportError) else found

    def _window_in(self, answer: Any) -> int | None:
        listed = answer.get("data") if isinstance(answer, Mapping) else None
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, Mapping) and each.get("id") == self.settings.model:
                window = each.get("max_model_len")
                return window if isinstance(window, int) else None
        return None

    def note_unknown_site(self) -> int:
        """Count a write whose call site the catalogue does not know; how many there were."""
        count_unknown_site()
        return self._counters.unknown_site()

    def write(
        self,
        call: WriteCall[T],
        *,
        main: Main | None = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Reply[T]:
        """Have memory written. `main` asks the main model instead, for `on_failure="fallback"`.

        `wanted` says whether anybody still waits: a thread cannot be cancelled, and what an async
        framework runs in one goes on when its caller has gone. Such a write is counted as
        cancelled, and ends in `concurrent.futures.CancelledError`.

        Raises `WriterUnavailable`, `PromptTooLong` or `ReplyRejected`, and `SettingsError` for a
        `fallback` without `main`.
        """
        self._check(main)
        tally, started = Tally(), time.monotonic()
        plan = write_plan(call, self.settings, tally)
        try:
            step = next(plan)
            while wanted():
                answer = self._do(step, main)
                step = plan.throw(answer) if isinstance(answer, _ERRORS) else plan.send(answer)
        except StopIteration as done:
            reply: Reply[T] = done.value
            if wanted():
                return reply
        except Exception as error:
            self._mark(tally, call, error)
            raise
        finally:
            if not wanted():
                tally.outcome = "cancelled"
            self._finish(plan, tally, call, started)
        raise concurrent.futures.CancelledError

    async def awrite(self, call: WriteCall[T], *, main: AsyncMain | None = None) -> Reply[T]:
        """`write` on the running event loop. A cancelled write is counted as one."""
        self._check(main)
        tally, started = Tally(), time.monotonic()
        plan = write_plan(call, self.settings, tally)
        try:
            if not transport.client_is_loaded():  # the loop would stand still for a second
                await asyncio.to_thread(transport.load_client)
            step = next(plan)
            while True:
                answer = await self._ado(step, main)
                step = plan.throw(answer) if isinstance(answer, _ERRORS) else plan.send(answer)
        except StopIteration as done:
            reply: Reply[T] = done.value
            return reply
        except Exception as error:
            self._mark(tally, call, error)
            raise
        finally:
            self._finish(plan, tally, call, started)

    def _do(self, step: Step, main: Main | None) -> Any:
        match step:
            case Send(request, deadline):
                return transport.send(self._endpoint, request, deadline)
            case CountTokens(request, deadline):
                return transport.count_tokens(self._endpoint, request, deadline)
            case ListModels(deadline):
                return transport.list_models(self._endpoint, deadline)
            case Sleep(seconds):
                time.sleep(seconds)
            case AskMain():
                assert main is not None  # or the write would not have begun
                try:
                    return main()
                except Exception as error:  # ours is the error that the caller has to see
                    return MainModelFailed(type(error).__name__)

    async def _ado(self, step: Step, main: AsyncMain | None) -> Any:
        match step:
            case Send(request, deadline):
                return await transport.asend(self._endpoint, request, deadline)
            case CountTokens(request, deadline):
                return await transport.acount_tokens(self._endpoint, request, deadline)
            case ListModels(deadline):
                return await transport.alist_models(self._endpoint, deadline)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
            case AskMain():
                assert main is not None
                try:
                    return await main()
                except Exception as error:
                    return MainModelFailed(type(error).__name__)

    def _check(self, main: object) -> None:
        if main is None and self.settings.on_failure == "fallback":
            raise SettingsError('on_failure="fallback" needs a main model to fall back on')

    @staticmethod
    def _mark(tally: Tally, call: WriteCall[Any], error: Exception) -> None:
        tally.outcome, tally.error = "failed", error
        if isinstance(error, WriteError):
            error.site = call.site

    def _finish(
        self, plan: Generator[Step, Any, Any], tally: Tally, call: WriteCall[Any], started: float
    ) -> None:
        plan.close()
        error = tally.error
        event = WriteEvent(
            site=call.site,
            outcome=tally.outcome,
            steps=tuple(sorted(tally.steps)),
            kept=tally.kept,
            dropped=tally.dropped,
            requests=tally.requests,
            prompt_tokens=tally.prompt_tokens,
            completion_tokens=tally.completion_tokens,
            seconds=time.monotonic() - started,
            base_url=self.settings.base_url,
            model=self.settings.model,
            framework=self.framework,
            error=None if error is None else type(error).__name__,
            # Only our own messages are known to be free of keys and text.
            message=str(error) if isinstance(error, WriteError) else None,
            at=time.time(),
        )
        tally.error = None
        publish(event, self._counters)
        if self._record is not None:
            content = {"messages": call.messages, "replies": tally.replies}
            self._record.add(event, content if self.settings.record_content else None)

    def _shows_its_key(self) -> bool:
        plain = self.settings.base_url.startswith("http://") and not self._endpoint.loopback
        return plain and self._endpoint.key not in ("", NO_KEY)
