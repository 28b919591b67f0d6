"""What a framework's parser must be given, and how a reply is made into it.

A contract renames, reshapes and drops what cannot be used, and counts what it dropped. It never
invents memory text or a decision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .decode import JSON, Decoded, Undecodable, cleaned, decode, salvage, without_thoughts

T = TypeVar("T")


# What is made anew for every write is not frozen: that would cost five times as much.


@dataclass(slots=True)
class RawReply:
    """A reply as the server sent it."""

    text: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None

    @property
    def cut(self) -> bool:
        return self.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What the framework knows about the call beside its messages.

    `offered`: id → text of the memories the prompt shows and an operation may name.
    """

    offered: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """Where a reply is not what the parser needs. Names path and shape, never text."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"expected {self.expected} at {self.path}, found {self.found}"


@dataclass(slots=True)
class Parsed(Generic[T]):
    """A value the framework can be given.

    `kept` counts the items that write something, `dropped` those that had to be left out.
    `changed`: not what the reply said literally. `overwrites`: handing it on deletes or replaces
    a memory.
    """

    value: T
    kept: int
    dropped: int = 0
    changed: bool = False
    overwrites: bool = False


@dataclass(slots=True)
class Reading(Generic[T]):
    """A reply read through a contract: the value, and the text to hand to the framework."""

    value: T
    text: str
    kept: int
    dropped: int = 0
    steps: frozenset[str] = frozenset()


def _anything(text: str) -> bool:
    return True


@dataclass(frozen=True)
class Contract(Generic[T]):
    """What one parser of one framework takes.

    schema       bounded JSON Schema to ask the server for; None: the reply is free text
    keys         names under which the reply's list may stand; the first is the parser's own
    check        decoded JSON → a value, or a violation
    render       the value → text for the parser
    as_sent      would the parser take this valid text unharmed? If not, it is rendered
    unchanged    the reply that makes the framework change nothing; None: there is none
    tools        the reply is calls of these functions: `check` is given, and the integration hands
                 on as the reply's `value`, a list of `{"name": str, "arguments": object}`
    may_call_nothing
                 no call at all is an answer, and means that there is nothing to do
    whole        a text that was cut is refused whatever happens: it would replace a whole one
    """

    name: str
    schema: Mapping[str, JSON] | None
    keys: tuple[str, ...]
    check: Callable[[JSON, CallFacts], Parsed[T] | Violation]
    render: Callable[[T], str]
    as_sent: Callable[[str], bool] = _anything
    unchanged: Callable[[CallFacts], str] | None = None
    tools: tuple[str, ...] = ()
    may_call_nothing: bool = False
    whole: bool = True

    @property
    def is_text(self) -> bool:
        """Whether the reply is prose, which may be as long as the framework says."""
        return self.schema is None and not self.tools

    def read(self, reply: RawReply, facts: CallFacts) -> Reading[T] | Violation:
        """The reply as it is meant, or why it cannot be taken."""
        if self.tools:
            return self._read_calls(reply, facts, last_resort=False)
        if self.schema is None:
            return self._read_text(reply, facts, last_resort=False)
        return self._read_json(decode(reply.text, self.keys), reply, facts)

    def salvage(self, reply: RawReply, facts: CallFacts) -> Reading[T] | Violation:
        """What can be had of a reply that `read` refused and nothing better came for."""
        if self.tools:
            return self._read_calls(reply, facts, last_resort=True)
        if self.schema is None:
            return self._read_text(reply, facts, last_resort=True)
        return self._read_json(salvage(reply.text, self.keys), reply, facts)

    def _read_json(
        self, decoded: Decoded | Undecodable, reply: RawReply, facts: CallFacts
    ) -> Reading[T] | Violation:
        if isinstance(decoded, Undecodable):
            found = decoded.reason if reply.text.strip() else "an empty reply"
            return Violation("$", "a JSON object", found)
        parsed = self.check(decoded.value, facts)
        if isinstance(parsed, Violation):
            return parsed
        if parsed.overwrites and decoded.guessed:
            return Violation("$", "one plain reading of the reply", "an operation that only a guess finds")
        steps = {"repaired"} if decoded.repaired else set()
        if decoded.as_sent and not parsed.changed and self.as_sent(reply.text):
            text = reply.text
        else:
            text = self.render(parsed.value)
            if not decoded.as_sent or parsed.changed:
                steps.add("normalised")
        dropped = parsed.dropped + decoded.cut
        return Reading(parsed.value, text, parsed.kept, dropped, frozenset(steps))

    def _read_calls(self, reply: RawReply, facts: CallFacts, *, last_resort: bool) -> Reading[T] | Violation:
        """The calls; where there is one function and it has to be called, also from the text."""
        if reply.cut and not last_resort:
            return Violation("$", "a finished reply", "one that was cut")
        read = salvage if last_resort else decode
        wanted = f"a call of {' or '.join(self.tools)}"
        found = [_call_of(each) for each in reply.tool_calls]
        in_text = not found and not self.may_call_nothing
        if in_text:
            if not reply.text.strip() or len(self.tools) != 1:
                return Violation("$", wanted, "none")
            found = [(self.tools[0], reply.text)]
        lost = not found and self._speaks_of_a_call(reply.text)
        calls: list[JSON] = []
        guessed, steps = in_text, set()
        for name, text in found:
            decoded = read(text, self.keys)
            if name not in self.tools or isinstance(decoded, Undecodable):
                continue
            calls.append({"name": name, "arguments": decoded.value})
            guessed |= decoded.guessed
            steps |= {"repaired"} if decoded.repaired else set()
            steps |= {"normalised"} if in_text or not decoded.as_sent else set()
        if found and not calls:
            return Violation("tool_calls[0]", wanted, "one that cannot be used")
        parsed = self.check(calls, facts)
        if isinstance(parsed, Violation):
            return parsed
        if parsed.overwrites and (guessed or last_resort):
            return Violation("$", "one plain reading of the reply", "an operation that only a guess finds")
        if parsed.changed:
            steps.add("normalised")
        dropped = parsed.dropped + len(found) - len(calls) + reply.cut + lost
        return Reading(parsed.value, self.render(parsed.value), parsed.kept, dropped, frozenset(steps))

    def _speaks_of_a_call(self, text: str) -> bool:
        """Whether a text in the place of calls looks like one: of a server whose tool parser is another
        model's, say."""
        decoded = decode(text, self.keys) if text.strip() else None
        value = decoded.value if isinstance(decoded, Decoded) else None
        named = any(tool in text for tool in self.tools) and ("{" in text or "<" in text)
        return named or (isinstance(value, dict) and any(key in value for key in self.keys))

    def _read_text(self, reply: RawReply, facts: CallFacts, *, last_resort: bool) -> Reading[T] | Violation:
        text, unclosed = without_thoughts(reply.text)
        clean = cleaned(text)
        if not clean.strip():
            return Violation(
                "$", "text", "a think block that is not closed" if unclosed else "an empty reply"
            )
        if reply.cut and (self.whole or not last_resort):
            return Violation("$", "a finished reply", "one that was cut")
        parsed = self.check(clean, facts)
        if isinstance(parsed, Violation):
            return parsed
        steps = {"repaired"} if clean != text else set()
        if text != reply.text or parsed.changed:
            steps.add("normalised")
        return Reading(
            parsed.value, self.render(parsed.value), parsed.kept, parsed.dropped + reply.cut, frozenset(steps)
        )


def _call_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """Name and arguments of a tool call as the OpenAI API has it."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return "", ""
    return str(function.get("name") or ""), str(function.get("arguments") or "")


def _whole_text(value: JSON, facts: CallFacts) -> Parsed[str]:
    return Parsed(value, kept=1)


FREE_TEXT: Contract[str] = Contract(name="free_text", schema=None, keys=(), check=_whole_text, render=str)
"""Any text that is not empty and not cut. What a call of an unknown kind is held to."""


# -- lists, which most memory replies are --------------------------------------------------------


@dataclass(slots=True)
class Item(Generic[T]):
    """One item of a list as the parser needs it. `writes`: something is stored, changed or
    deleted on account of it."""

    value: T
    changed: bool = False
    overwrites: bool = False
    writes: bool = True


AS_IT_IS: Item[Any] = Item(None)
"""What stands for `Item(each)`, without making one for each."""


def shape_of(value: JSON) -> str:
    """The JSON type of `value`, for messages."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def items_of(value: JSON, keys: Sequence[str]) -> tuple[list[JSON], bool] | Violation:
    """The reply's list, and whether it stood where and as it should.

    Taken as well: the list alone, a single item in its place, lists inside the list, and the
    names of `keys` after the first. Under two names with different lists, neither is taken.
    """
    if isinstance(value, dict):
        present = [key for key in keys if key in value]
        if not present:
            return Violation("$", f"the key {keys[0]!r}", f"{len(value)} other keys")
        key = present[0]
        if any(value[other] != value[key] for other in present[1:]):
            return Violation("$", "one list", f"{len(present)} different ones")
        found = value[key]
        changed = key != keys[0]
    else:
        found, changed, key = value, True, "$"
    if isinstance(found, (dict, str)) and key != "$":
        found, changed = [found], True
    if not isinstance(found, list):
        return Violation(key, "a list", shape_of(found))
    for each in found:
        if isinstance(each, list):
            flat = [inner for each in found for inner in (each if isinstance(each, list) else [each])]
            return flat, True
    return found, changed


def checked_items(
    value: JSON, keys: Sequence[str], item: Callable[[JSON], Item[T] | None]
) -> Parsed[list[T]] | Violation:
    """Each item through `item`, which returns None for one that cannot be used, and `AS_IT_IS` for
    one that is written as it stands.

    A reply that had items and none that can be used is a violation, not an empty reply.
    """
    found = items_of(value, keys)
    if isinstance(found, Violation):
        return found
    raw, changed = found
    values: list[T] = []
    kept, overwrites = 0, False
    for each in raw:
        made = item(each)
        if made is AS_IT_IS:
            values.append(each)
            kept += 1
            continue
        if made is None:
            changed = True
            continue
        values.append(made.value)
        kept += made.writes
        changed |= made.changed
        overwrites |= made.overwrites
    if raw and not values:
        return Violation(f"{keys[0]}[0]", "a usable item", shape_of(raw[0]))
    return Parsed(values, kept, len(raw) - len(values), changed, overwrites)


TEXT_NAMES = ("text", "memory", "fact", "content")
"""Under which of these an item keeps its memory text, where it is an object."""


def text_item(value: JSON) -> Item[str] | None:
    """A memory as a plain string, out of a string or an object that holds one."""
    if isinstance(value, str):
        return Item(value) if value.strip() else None
    if isinstance(value, dict):
        for name in TEXT_NAMES:
            if isinstance(value.get(name), str) and value[name].strip():
                return Item(value[name], changed=True)
    return None


def _plain_text(value: JSON) -> Item[str] | None:
    return AS_IT_IS if isinstance(value, str) and value.strip() else text_item(value)


def text_list(
    name: str,
    key: str,
    *aliases: str,
    as_sent: Callable[[str], bool] = _anything,
    dumps: Callable[[JSON], str] | None = None,
) -> Contract[list[str]]:
    """The contract of `{key: [str, ...]}`, the commonest reply there is."""
    keys = (key, *aliases)
    write = dumps or to_json

    def check(value: JSON, facts: CallFacts) -> Parsed[list[str]] | Violation:
        return checked_items(value, keys, _plain_text)

    return Contract(
        name=name,
        schema=list_schema(key, {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}),
        keys=keys,
        check=check,
        render=lambda texts: write({key: texts}),
        as_sent=as_sent,
        unchanged=lambda facts: write({key: []}),
    )


MAX_TEXT = 2000
MAX_ITEMS = 64
"""Well past any memory and any reply: a guided server closes a string or list that reaches its
bound, and what it closed looks whole."""


def list_schema(key: str, item: Mapping[str, JSON]) -> dict[str, JSON]:
    """A bounded schema of `{key: [item, ...]}`. Without bounds a guided model may never stop."""
    return {
        "type": "object",
        "properties": {key: {"type": "array", "items": item, "maxItems": MAX_ITEMS}},
        "required": [key],
        "additionalProperties": False,
    }


def to_json(value: JSON) -> str:
    """Compact JSON with text in its own script, as the frameworks embed it."""
    return json.dumps(value, ensure_ascii=False)


MEMORIES: Contract[list[str]] = text_list("memories", "memories", "facts", "memory")
"""`{"memories": [str, ...]}`, the reply of the model card's quickstart."""
