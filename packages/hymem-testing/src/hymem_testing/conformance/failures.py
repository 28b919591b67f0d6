"""The ways in which a write fails, and the error each has to end in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hymem_testing.http import Answer, Body
from hymem_testing.proxy import Cut, Dropped, Endless, Proxy

SAID = "I live in Oslo."
"""What the user said in these tests; a server's errors quote it, and nothing of ours may."""
RUBBISH = f"no JSON but: {SAID}"
NOWHERE = "http://127.0.0.1:1/v1"


@dataclass(frozen=True)
class Failure:
    """`error` is the name of hymem's error, `kind` its `kind` where it has one. `reply` are arguments
    of `Proxy.reply`, `settings` of the writer."""

    error: str
    kind: str | None = None
    reply: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def befall(self, proxy: Proxy, rubbish: str) -> None:
        """Have every chat request to `proxy` fail so."""
        if self.reply:
            content = {"content": rubbish} if self.reply.get("content") == RUBBISH else {}
            proxy.reply(None, **{**self.reply, **content})


def _status(status: int, **more: Any) -> Failure:
    body = {"error": {"message": f"about: {SAID}", "type": "X", "param": None, "code": status}}
    return Failure("WriterUnavailable", "status", {"status": status, "body": body, **more})


def _answer(kind: str, answer: Callable[[], Answer], **settings: Any) -> Failure:
    return Failure("WriterUnavailable", kind, {"answer": answer}, settings)


_TOO_LONG = {"error": {"message": "max_model_len=8192", "param": "input_text"}}

FAILURES: dict[str, Failure] = {
    "refused": Failure("WriterUnavailable", "connect", settings={"base_url": NOWHERE}),
    **{str(status): _status(status) for status in (400, 401, 404, 429, 500)},
    "redirect": _status(307, headers={"location": "/v1/elsewhere"}),
    "timeout": Failure("WriterUnavailable", "timeout", {"content": "{}", "delay": 1.0}, {"timeout": 0.3}),
    "dropped": _answer("broken", Dropped),
    "cut body": _answer("broken", Cut),
    "slow drip": _answer("timeout", lambda: Endless(1 << 20, b" ", pause=0.05), timeout=0.5),
    "body of 1 GB": _answer("too_large", lambda: Endless(1 << 30)),
    "not JSON": _answer("not_a_reply", lambda: Body("<html>", 200, "text/html")),
    "rubbish": Failure("ReplyRejected", None, {"content": RUBBISH}),
    "prompt too long": Failure("PromptTooLong", None, {"status": 400, "body": _TOO_LONG}),
}


def cause_of(error: BaseException | None) -> Any:
    """hymem's error, whether the framework lets it through or puts its own around it."""
    from hymem import HymemError

    while error is not None and not isinstance(error, HymemError):
        error = error.__cause__ or error.__context__
    assert error is not None, "the error is not hymem's, nor caused by one of hymem's"
    return error
