"""Conversations in the shape that every chat template takes.

A prompt's text is never edited. But templates differ in the roles they know, and one that refuses
a message refuses the write: so tool turns become text, `developer` becomes `system`, and there is
one system message at most, in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]

_PLAIN = frozenset({"user", "assistant"})
_SYSTEM = frozenset({"system", "developer"})


def plain(messages: Sequence[Message]) -> Sequence[Message]:
    """`messages` themselves if they are plain already, else a new list that is.

    What is not text (images) is left where it is, for the server to judge.
    """
    if all(_is_plain(message, first=at == 0) for at, message in enumerate(messages)):
        return messages
    leading = 0
    while leading < len(messages) and messages[leading].get("role") in _SYSTEM:
        leading += 1
    made: list[Message] = []
    if leading:
        texts = [_text(message.get("content")) for message in messages[:leading]]
        made.append({"role": "system", "content": "\n\n".join(map(str, texts))})
    return made + [_as_turn(message) for message in messages[leading:]]


def _is_plain(message: Message, *, first: bool) -> bool:
    role = message.get("role")
    if role not in _PLAIN and not (first and role == "system"):
        return False
    return isinstance(message.get("content"), str) and not message.get("tool_calls")


def _as_turn(message: Message) -> Message:
    role, text = message.get("role"), _text(message.get("content"))
    if not isinstance(text, str):
        return message
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call
        called = f"[called {function.get('name')}: {function.get('arguments')}]"
        text = f"{text}\n{called}" if text else called
    if role in ("tool", "function"):
        name = message.get("name") or message.get("tool_call_id")
        text = f"[result of {name}: {text}]" if name else f"[result: {text}]"
    return {"role": "assistant" if role == "assistant" else "user", "content": text}


def _text(content: Any) -> Any:
    """Content as a string: null, or a list of text parts, is one in another form."""
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "\n".join(texts)
    return content
