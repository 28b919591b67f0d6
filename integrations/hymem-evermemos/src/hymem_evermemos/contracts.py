"""What EverMemOS's parsers accept, and what of a reply is made into it.

Most take the first `{...}` whose braces are balanced, and count braces inside texts as well; two take the
first `{...}` that has no brace inside at all. What is rendered here has its texts' braces written as
`\\u007b` and `\\u007d`, which says the same and which no parser trips over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hymem.contract import (
    AS_IT_IS,
    MAX_ITEMS,
    MAX_TEXT,
    CallFacts,
    Contract,
    Item,
    Parsed,
    Violation,
    checked_items,
    list_schema,
    shape_of,
    text_item,
    to_json,
)
from hymem.decode import JSON
from hymem.records import Field, Object, Record, folded

MAX_NARRATIVE = 16000
"""Characters of a text that tells a whole conversation."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def _dumps(value: JSON) -> str:
    return _STRING.sub(
        lambda found: found[0].replace("{", "\\u007b").replace("}", "\\u007d"),
        json.dumps(value, ensure_ascii=False),
    )


def _braces_are_structure(text: str) -> bool:
    """Whether no text inside has a brace: then the first balanced block is the reply."""
    return not any("{" in string or "}" in string for string in _STRING.findall(text))


def _is_flat(text: str) -> bool:
    return text.count("{") == text.count("}") == 1


Check = Callable[[JSON, CallFacts], Parsed[Any] | Violation]


def _contract(
    name: str,
    check: Check,
    schema: Mapping[str, JSON],
    *keys: str,
    unchanged: JSON = None,
    flat: bool = False,
) -> Contract[Any]:
    return Contract(
        name=f"evermemos_{name}",
        schema=schema,
        keys=keys,
        check=check,
        render=_dumps,
        as_sent=_is_flat if flat else _braces_are_structure,
        unchanged=None if unchanged is None else lambda facts: _dumps(unchanged),
    )


def _object(
    name: str,
    record: Record,
    *keys: str,
    unchanged: JSON = None,
    flat: bool = False,
    writes: Callable[[Object], bool] = bool,
    overwrites: bool = False,
    schema: Mapping[str, JSON] | None = None,
) -> Contract[Object]:
    """One object with these fields. Of a flat one no others are kept: there may be an object in them."""

    def check(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
        value = reply[0] if isinstance(reply, list) and len(reply) == 1 else reply
        if not isinstance(value, dict):
            return Violation("$", "an object", shape_of(value))
        item = record.item(value)
        if item is None:
            missing = next(each for each in record.fields if each.of(value) is None)
            return Violation(missing.name, _WANTED[_kind(missing)], shape_of(value.get(missing.name)))
        made = value if item is AS_IT_IS else item.value
        if flat:
            made = {each.name: made[each.name] for each in record.fields}
        changed = item.changed or made != reply
        return Parsed(made, int(writes(made)), changed=changed, overwrites=overwrites)

    required = keys or tuple(each.name for each in record.fields if each.default is None)
    return _contract(name, check, schema or record.schema(), *required, unchanged=unchanged, flat=flat)


def _kind(field: Field) -> str:
    return field.kind if isinstance(field.kind, str) else "one of some words"


_WANTED = {
    "text": "a text",
    "texts": "texts",
    "flag": "true or false",
    "whole": "a number",
    "number": "a number",
    "any": "a value",
    "one of some words": "one of the words it may be",
}


def _listed(key: str, keys: Sequence[str], item: Callable[[JSON], Item[Any] | None]) -> Check:
    """A list under its name, and whatever is said beside it."""

    def check(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
        parsed = checked_items(value, (key, *keys), item)
        if isinstance(parsed, Violation):
            return parsed
        beside = (
            {name: each for name, each in value.items() if name not in keys}
            if isinstance(value, dict)
            else {}
        )
        made = {**beside, key: parsed.value}
        changed = parsed.changed or made != value
        return Parsed(made, parsed.kept, parsed.dropped, changed, parsed.overwrites)

    return check


# -- where an episode ends -------------------------------------------------------------------------

_REASON = Field("reasoning", default="", others=("reason",), may_be_empty=True)


def _boundaries(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Numbers of messages. A model that says only whether to wait has found none."""
    value = reply
    if isinstance(reply, list) and all(isinstance(each, (int, str)) for each in reply):
        value = {"boundaries": reply}
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    wait = Field("should_wait", "flag").of(value)
    given = value.get("boundaries", [] if wait is not None else None)
    if isinstance(given, (int, str)) and not isinstance(given, bool):
        given = [given]
    if not isinstance(given, list):
        return Violation("boundaries", "a list of numbers", shape_of(given))
    numbers = [Field("at", "whole").of({"at": each}) for each in given]
    kept = [each for each in numbers if each is not None]
    if given and not kept:
        return Violation("boundaries[0]", "a number", shape_of(given[0]))
    made = {"reasoning": _REASON.of(value), "boundaries": kept, "should_wait": bool(wait)}
    changed = made != reply or [type(each) for each in given] != [int] * len(kept)
    return Parsed(made, len(kept), len(given) - len(kept), changed)


BOUNDARIES = _contract(
    "boundaries",
    _boundaries,
    {
        "type": "object",
        "properties": {
            "reasoning": {"type": "string", "maxLength": 400},
            "boundaries": {"type": "array", "items": {"type": "integer"}, "maxItems": MAX_ITEMS},
            "should_wait": {"type": "boolean"},
        },
        "required": ["reasoning", "boundaries", "should_wait"],
        "additionalProperties": False,
    },
    *("boundaries", "should_wait"),
    unchanged={"reasoning": "", "boundaries": [], "should_wait": True},
    flat=True,
)
"""`{"reasoning", "boundaries": [int], "should_wait": bool}`. With none, messages stay where they are."""

BOUNDARY_STEP = _object(
    "boundary_step",
    Record(
        (
            _REASON,
            Field("should_end", "flag"),
            Field("confidence", "number", default=1.0),
            Field("topic_summary", default="", may_be_empty=True),
        )
    ),
    unchanged={"reasoning": "", "should_end": False, "confidence": 0.0, "topic_summary": ""},
    flat=True,
    writes=lambda made: bool(made["should_end"]),
)
"""`{"should_end": bool, "reasoning", "confidence", "topic_summary"}`."""


# -- what a conversation was about -------------------------------------------------------------------

_CONTENT = Field("content", others=("episode", "narrative", "text"))
_TITLE = Field("title", others=("subject",), default="", may_be_empty=True)
_NARRATIVE = {"type": "string", "minLength": 1, "maxLength": MAX_NARRATIVE}


def _narrative(name: str, *, overwrites: bool = False, **more: JSON) -> Contract[Object]:
    """A title and a text. Of a text in pieces, the pieces."""
    record = Record((_TITLE, _CONTENT))
    fields = {"title": {"type": "string", "maxLength": 200}, "content": _NARRATIVE, **more}
    schema = {
        "type": "object", "properties": fields, "required": list(fields), "additionalProperties": False,
    }  # fmt: skip
    whole = _object(name, record, "content", "episode", overwrites=overwrites, schema=schema)

    def check(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
        pieces = value.get("content") if isinstance(value, dict) else None
        if not (isinstance(pieces, list) and pieces and all(isinstance(each, str) for each in pieces)):
            return whole.check(value, facts)
        parsed = whole.check({**value, "content": "\n".join(pieces)}, facts)
        if isinstance(parsed, Parsed):
            parsed.changed = True
        return parsed

    return _contract(name, check, schema, *whole.keys)


EPISODE = _narrative("episode", summary={"type": "string", "maxLength": MAX_TEXT})
"""`{"title", "content", "summary"?}`. Without a summary EverMemOS takes the content's first 200 letters."""
REFLECTION = _narrative("reflection", overwrites=True)
"""`{"title", "content"}`: several episodes in one, which takes their place."""


# -- facts -----------------------------------------------------------------------------------------

_FACTS = ("atomic_fact", "atomic_facts", "facts", "event_log", "memories")
_NO_TIME = "unknown"
"""The parser wants some text there, and reads no more of it: each fact has the time of its episode."""


def _facts(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Texts, under the two names that the prompts give the block, or without it."""
    block = value
    if isinstance(value, dict):
        block = next((value[key] for key in ("atomic_facts", "event_log") if key in value), value)
    parsed = checked_items(block, _FACTS, text_item)
    if isinstance(parsed, Violation):
        return parsed
    time = Field("time", default=_NO_TIME).of(block) if isinstance(block, dict) else _NO_TIME
    made = {"atomic_facts": {"time": time, "atomic_fact": parsed.value}}
    as_it_was = made == value or {"event_log": made["atomic_facts"]} == value
    return Parsed(value if as_it_was else made, parsed.kept, parsed.dropped, not as_it_was)


FACTS = _contract(
    "facts",
    _facts,
    {
        "type": "object",
        "properties": {
            "atomic_facts": {
                "type": "object",
                "properties": {
                    "time": {"type": "string", "minLength": 1, "maxLength": 80},
                    "atomic_fact": {
                        "type": "array",
                        "items": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT},
                        "maxItems": MAX_ITEMS,
                    },
                },
                "required": ["time", "atomic_fact"],
                "additionalProperties": False,
            }
        },
        "required": ["atomic_facts"],
        "additionalProperties": False,
    },
    *_FACTS,
    unchanged={"atomic_facts": {"time": _NO_TIME, "atomic_fact": []}},
)
"""`{"atomic_facts": {"time", "atomic_fact": [str]}}`."""


# -- foresight -------------------------------------------------------------------------------------

_FORESIGHT = Record((Field("content", others=("foresight", "prediction", "text")),))


def _foresight(value: JSON) -> Item[Object] | None:
    """The parser passes over a length that is text."""
    given = {"content": value} if isinstance(value, str) else value
    if isinstance(given, dict) and isinstance(given.get("duration_days"), str):
        given = {**given, "duration_days": Field("duration_days", "number").of(given)}
    item = _FORESIGHT.item(given)
    return Item(given, changed=True) if item is AS_IT_IS and given is not value else item


_FORESIGHT_FIELDS: Object = {
    "content": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT},
    "evidence": {"type": "string", "maxLength": MAX_TEXT},
    "start_time": {"type": "string", "maxLength": 10},
    "end_time": {"type": "string", "maxLength": 10},
    "duration_days": {"type": "integer"},
}
FORESIGHT = _contract(
    "foresight",
    _listed("foresights", ("foresight", "predictions"), _foresight),
    list_schema(
        "foresights",
        {
            "type": "object",
            "properties": _FORESIGHT_FIELDS,
            "required": list(_FORESIGHT_FIELDS),
            "additionalProperties": False,
        },
    ),
    *("foresights", "foresight", "predictions"),
    unchanged={"foresights": []},
)
"""`{"foresights": [{"content", "evidence", "start_time", "end_time", "duration_days"}]}`."""


# -- a user's profile ------------------------------------------------------------------------------

EXPLICIT, IMPLICIT = "explicit_info", "implicit_traits"
_ENTRY = Record((Field("description", others=("content", "value", "text", "info")),))


def _entry(value: JSON) -> Item[Object] | None:
    """What is known, in words. Of a trait without a description, what it rests on, or its name."""
    given = {"description": value} if isinstance(value, str) else value
    if isinstance(given, dict) and _ENTRY.item(given) is None:
        given = {**given, "description": given.get("basis") or given.get("trait")}
    item = _ENTRY.item(given)
    return Item(given, changed=True) if item is AS_IT_IS and given is not value else item


def _profile(*, whole: bool) -> Check:
    """Both lists. `whole`: they take the place of a profile, so that one that is missing or empty would
    delete what is there."""

    def check(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
        value = reply[0] if isinstance(reply, list) and len(reply) == 1 else reply
        if not isinstance(value, dict):
            return Violation("$", "an object", shape_of(value))
        if not any(key in value for key in (EXPLICIT, IMPLICIT)):
            return Violation("$", f"the keys {EXPLICIT!r} and {IMPLICIT!r}", f"{len(value)} other keys")
        made = dict(value)
        kept = dropped = 0
        for kind in (EXPLICIT, IMPLICIT):
            if whole and kind not in value:
                return Violation(kind, "a list", "nothing")
            parsed = checked_items({kind: value.get(kind) or []}, (kind,), _entry)
            if isinstance(parsed, Violation):
                return parsed
            made[kind] = parsed.value
            kept, dropped = kept + parsed.kept, dropped + parsed.dropped
        if whole and (not kept or dropped):
            return Violation("$", "a whole profile", "one with nothing in it, or with entries of no use")
        return Parsed(made, kept, dropped, made != reply, overwrites=whole)

    return check


def _entry_schema(kind: str) -> Object:
    names = {
        EXPLICIT: ("category", "description", "evidence"),
        IMPLICIT: ("trait", "description", "basis", "evidence"),
    }
    fields = {name: {"type": "string", "maxLength": MAX_TEXT} for name in names[kind]}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


_PROFILE_SCHEMA: Object = {
    "type": "object",
    "properties": {
        kind: {"type": "array", "items": _entry_schema(kind), "maxItems": MAX_ITEMS}
        for kind in (EXPLICIT, IMPLICIT)
    },
    "required": [EXPLICIT, IMPLICIT],
    "additionalProperties": False,
}
PROFILE = _contract(
    "profile",
    _profile(whole=False),
    _PROFILE_SCHEMA,
)
"""`{"explicit_info": [...], "implicit_traits": [...]}`. No list is named, or of a reply that is cut one of
the two would be taken for the whole."""
PROFILE_COMPACT = _contract("profile_compact", _profile(whole=True), _PROFILE_SCHEMA)
"""The same, in the place of a profile that has grown too long."""


def offered(**lists: Sequence[Any]) -> CallFacts:
    """What operations may name, by `LIST[NUMBER]`. An empty name says that this is all, be it nothing."""
    named = {f"{name}[{at}]": str(each) for name, found in lists.items() for at, each in enumerate(found)}
    return CallFacts({"": "", **named})


def _is_offered(name: str, at: JSON, facts: CallFacts) -> bool:
    """Where it is not known what was offered, EverMemOS has the last word: it passes over what is not
    there."""
    return isinstance(at, int) and at >= 0 and (not facts.offered or f"{name}[{at}]" in facts.offered)


_ACTION = Field("action", ("add", "update", "delete", "none"), others=("op", "operation", "event"))
_DATA_OF = {"trait": IMPLICIT, "basis": IMPLICIT, "category": EXPLICIT}


def _list_of(operation: Object, data: JSON) -> str:
    """Which list is meant. EverMemOS takes whatever is not `explicit_info` for a trait."""
    word = folded(operation.get("type"))
    for kind in (EXPLICIT, IMPLICIT):
        if word and word[:8] == kind[:8]:
            return kind
    if word or not isinstance(data, dict):
        return ""
    kinds = {kind for name, kind in _DATA_OF.items() if name in data}
    if len(kinds) == 1:
        return kinds.pop()
    return EXPLICIT if _ACTION.of(operation) == "add" and "description" in data else ""


def _profile_operation(value: JSON, facts: CallFacts) -> Object | None:
    """As it is meant, or None. An update of an entry that was not offered is kept as an addition, if it says
    enough for one; a deletion of one is not done."""
    if not isinstance(value, dict):
        return None
    action = _ACTION.of(value)
    if action == "none":
        return {**value, "action": action}
    data = value.get("data")
    if data is None and action in ("add", "update"):
        rest = {
            name: each for name, each in value.items() if name not in ("action", "type", "index", "reason")
        }
        data = rest or None
    kind = _list_of(value, data)
    at = Field("index", "whole").of(value)
    if action is None or not kind:
        return None
    if action == "delete":
        return (
            {**value, "action": action, "type": kind, "index": at} if _is_offered(kind, at, facts) else None
        )
    if not isinstance(data, dict) or not data:
        return None
    made = {**value, "action": action, "type": kind, "data": data}
    if action == "update" and _is_offered(kind, at, facts):
        # What is empty would take the place of what is known.
        filled = {name: each for name, each in data.items() if each not in (None, "", [])}
        return {**made, "index": at, "data": filled} if filled else None
    entry = _entry(data)
    if entry is None:
        return None
    added = {name: each for name, each in made.items() if name != "index"}
    return {**added, "action": "add", "data": data if entry is AS_IT_IS else entry.value}


def _profile_update(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Operations, in an order in which their numbers stay right: EverMemOS does one after the other, and a
    deletion moves what is behind it. Of a deletion and an update of the same entry, the update is done."""
    found = checked_items(
        value, ("operations", "ops"), lambda each: AS_IT_IS if isinstance(each, dict) else None
    )
    if isinstance(found, Violation):
        return found
    read = [_profile_operation(each, facts) for each in found.value]
    wanted = [each for each in read if each is not None]
    updated = {(each["type"], each["index"]) for each in wanted if each["action"] == "update"}
    kept: list[Object] = []
    for each in wanted:
        if each["action"] == "delete":
            named = (each["type"], each["index"])
            if named in updated:  # or deleted by now: what has moved into its place is another
                continue
            updated.add(named)
        kept.append(each)
    if found.value and not kept:
        if any(_ACTION.of(each) != "delete" for each in found.value):
            return Violation("operations[0]", "an operation that can be done", shape_of(found.value[0]))
        kept = [{"action": "none"}]  # it deletes what is not there
    order = {"update": 0, "delete": 1, "add": 2, "none": 3}
    kept.sort(key=lambda each: (order[each["action"]], -each["index"] if each["action"] == "delete" else 0))
    made = {**(value if isinstance(value, dict) else {}), "operations": kept}
    made.pop("ops", None)
    writes = sum(each["action"] != "none" for each in kept)
    dropped = len(found.value) + found.dropped - (len(kept) if wanted else 0)
    overwrites = any(each["action"] in ("update", "delete") for each in kept)
    return Parsed(made, writes, dropped, made != value, overwrites)


PROFILE_UPDATE = _contract(
    "profile_update",
    _profile_update,
    list_schema(
        "operations",
        {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["add", "update", "delete", "none"]},
                "type": {"type": "string", "enum": [EXPLICIT, IMPLICIT]},
                "index": {"type": "integer"},
                "data": {
                    "type": "object",
                    "properties": {
                        name: {"type": "string", "maxLength": MAX_TEXT}
                        for name in ("category", "trait", "description", "basis", "evidence")
                    },
                    "additionalProperties": False,
                },
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    ),
    *("operations", "ops"),
)
"""`{"operations": [{"action", "type", "index"?, "data"?}], "update_note"}`. No contract of a profile has a
reply that changes nothing: EverMemOS takes what was said up to then for profiled."""


# -- an agent's cases and skills ---------------------------------------------------------------------


def signature(message: Any) -> str:
    """Of a message that is to be made shorter: its role, and the ids of its calls."""
    calls = getattr(message, "tool_calls", None)
    if calls:
        return "assistant:" + ",".join(each.id for each in calls)
    answered = getattr(message, "tool_call_id", None)
    return f"tool:{answered}" if answered else str(getattr(message, "role", ""))


def _tools(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """As many messages as were given, each of its kind: EverMemOS puts them in the places of those."""
    parsed = checked_items(
        value, ("compressed_messages", "messages"), lambda each: AS_IT_IS if isinstance(each, dict) else None
    )
    if isinstance(parsed, Violation):
        return parsed
    wanted = [text for name, text in facts.offered.items() if name] if facts.offered else None
    if parsed.dropped or (wanted is not None and len(parsed.value) != len(wanted)):
        found = f"{len(parsed.value)}, and {parsed.dropped} of no use"
        return Violation("compressed_messages", f"{len(wanted or ())} messages", found)
    made = [
        _message(each, wanted[at] if wanted is not None else None) for at, each in enumerate(parsed.value)
    ]
    if None in made:
        return Violation(f"compressed_messages[{made.index(None)}]", "the same kind of message", "another")
    whole = {"compressed_messages": made}
    return Parsed(whole, parsed.kept, 0, whole != value)


def _message(value: Object, wanted: str | None) -> Object | None:
    """A message of that role, with those calls. Arguments have to be text, and so has what a tool said."""
    made = dict(value)
    role, _, ids = (wanted or "").partition(":")
    if isinstance(made.get("content"), list):
        parts = [each.get("text") if isinstance(each, dict) else each for each in made["content"]]
        texts = [each for each in parts if isinstance(each, str)]
        made["content"] = "\n".join(texts) if len(texts) == len(parts) else None
    if isinstance(made.get("tool_calls"), list):
        made["tool_calls"] = [_call(each) for each in made["tool_calls"]]
        if None in made["tool_calls"]:
            return None
    if wanted is None:
        role = str(made.get("role"))
    elif made.get("role") != role:
        return None
    if role == "tool":
        made["tool_call_id"] = ids or made.get("tool_call_id")
        fits = isinstance(made["tool_call_id"], str) and isinstance(made.get("content"), str)
    elif ids:
        fits = [each["id"] for each in made.get("tool_calls") or ()] == ids.split(",")
    else:
        fits = role in ("user", "assistant") and bool(made.get("content") or made.get("tool_calls"))
    return made if fits else None


def _call(value: JSON) -> Object | None:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return None
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else to_json(arguments if arguments is not None else {})
    return {"type": "function", **value, "function": {**function, "arguments": text}}


TOOLS = _contract(
    "tool_calls",
    _tools,
    list_schema(
        "compressed_messages",
        {
            "type": "object",
            "properties": {
                "role": {"type": "string", "enum": ["assistant", "tool", "user"]},
                "content": {"type": ["string", "null"], "maxLength": MAX_TEXT},
                "tool_call_id": {"type": "string", "maxLength": 200},
                "tool_calls": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string", "maxLength": 200},
                            "function": {
                                "type": "object",
                                "properties": {
                                    "name": {"type": "string", "maxLength": 200},
                                    "arguments": {"type": "string", "maxLength": MAX_TEXT},
                                },
                                "required": ["name", "arguments"],
                            },
                        },
                        "required": ["id", "function"],
                    },
                    "maxItems": MAX_ITEMS,
                },
            },
            "required": ["role", "content"],
        },
    ),
    *("compressed_messages", "messages"),
)
"""`{"compressed_messages": [...]}`, as many as there were."""


def _worth(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Two yes or no. EverMemOS takes one that is not there for a no, and a text for one, too."""
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    names = ("has_exploration", "has_user_correction")
    said = {name: Field(name, "flag").of(value) for name in names}
    if all(each is None for each in said.values()):
        return Violation(names[0], "true or false", shape_of(value.get(names[0])))
    made = {**value, **{name: bool(each) for name, each in said.items()}}
    same = all(made[name] is value.get(name) for name in names)
    return Parsed(made, int(any(made[name] for name in names)), changed=not same)


WORTH = _contract(
    "case_worth",
    _worth,
    Record(
        (Field("has_exploration", "flag"), Field("has_user_correction", "flag"), Field("reason"))
    ).schema(),
    *("has_exploration", "has_user_correction"),
    unchanged={"has_exploration": False, "has_user_correction": False, "reason": ""},
)
"""`{"has_exploration": bool, "has_user_correction": bool, "reason"}`: whether there is a case at all."""

_STEPS = {"type": "string", "maxLength": MAX_NARRATIVE}


def _case(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """A task and how it was done. Both empty: there is no case in it. Of one without the other, nothing would
    be stored, without a word."""
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    made = dict(value)
    for name in ("approach", "key_insight"):
        if isinstance(made.get(name), list) and all(isinstance(each, str) for each in made[name]):
            made[name] = "\n".join(made[name])
    said = {name: Field(name).of(made) for name in ("task_intent", "approach")}
    if all(name in made and not made[name] for name in said):
        return Parsed(made, 0, changed=made != value)
    if missing := [name for name, text in said.items() if text is None]:
        return Violation(missing[0], "a text", shape_of(made.get(missing[0])))
    made.update(said)
    return Parsed(made, 1, changed=made != value)


CASE = _contract(
    "case",
    _case,
    {
        "type": "object",
        "properties": {
            "task_intent": {"type": "string", "maxLength": MAX_TEXT},
            "approach": _STEPS,
            "quality_score": {"type": "number"},
            "key_insight": {"type": "string", "maxLength": MAX_TEXT},
        },
        "required": ["task_intent", "approach", "quality_score", "key_insight"],
        "additionalProperties": False,
    },
    *("task_intent", "approach"),
    unchanged={"task_intent": "", "approach": "", "quality_score": 0.0, "key_insight": ""},
)
"""`{"task_intent", "approach", "quality_score", "key_insight"}`."""

SKILL_LIST = "skills"


def _skill_operation(value: JSON, facts: CallFacts) -> Item[Object] | None:
    """An update of a skill that was not offered is kept as an addition, if there is one in it."""
    if not isinstance(value, dict):
        return None
    action = Field("action", ("add", "update", "none"), others=("op", "operation")).of(value)
    if action is None:
        return None
    if action == "none":
        return Item({**value, "action": action}, changed=value.get("action") != action, writes=False)
    data = value.get("data")
    if data is None:
        data = {name: each for name, each in value.items() if name not in ("action", "index")}
    if not isinstance(data, dict) or not data:
        return None
    at = Field("index", "whole").of(value)
    made = {**value, "action": action, "data": data}
    if action == "update" and _is_offered(SKILL_LIST, at, facts):
        made["index"] = at
        return Item(made, changed=made != value, overwrites=True)
    named = any(isinstance(data.get(name), str) and data[name] for name in ("name", "description"))
    if not (isinstance(data.get("content"), str) and data["content"] and named):
        return None
    added = {name: each for name, each in made.items() if name != "index" or action == "add"}
    return Item({**added, "action": "add"}, changed={**added, "action": "add"} != value)


def _skills(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    return _listed("operations", ("ops",), lambda each: _skill_operation(each, facts))(value, facts)


SKILLS = _contract(
    "skills",
    _skills,
    list_schema(
        "operations",
        {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["add", "update", "none"]},
                "index": {"type": "integer"},
                "data": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "maxLength": 200},
                        "description": {"type": "string", "maxLength": MAX_TEXT},
                        "content": _STEPS,
                        "confidence": {"type": "number"},
                    },
                    "additionalProperties": False,
                },
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    ),
    *("operations", "ops"),
    unchanged={"operations": [{"action": "none"}], "update_note": ""},
)
"""`{"operations": [{"action", "index"?, "data"?}], "update_note"}`."""

MATURITY = _object(
    "skill_maturity",
    Record(tuple(Field(name, "whole") for name in ("completeness", "executability", "evidence", "clarity"))),
)
"""Four numbers from 0 to 5."""


def _cluster(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """A number, of which -1 says that there is none."""
    if isinstance(value, dict) and folded(value.get("idx")) in ("new", "none"):
        value = {**value, "idx": -1}
    return _CLUSTER.check(value, facts)


_CLUSTER = _object(
    "cluster",
    Record(
        (Field("idx", "whole", others=("index", "cluster")), Field("reason", default="", may_be_empty=True))
    ),
    flat=True,
)
CLUSTER = _contract("cluster", _cluster, _CLUSTER.schema or {}, "idx", flat=True)
"""`{"idx": int, "reason"}`."""


def _candidate(value: JSON) -> Item[Object] | None:
    return AS_IT_IS if isinstance(value, dict) and folded(value.get("signal")) else None


AGENT_PROFILE = _contract(
    "agent_profile",
    _listed("candidates", (), _candidate),
    list_schema("candidates", {"type": "object"}),
    "candidates",
    unchanged={"candidates": []},
)
"""`{"candidates": [{"signal", ...}]}`, each of which EverMemOS looks at itself."""


# -- documents -------------------------------------------------------------------------------------


def _ranges(value: JSON) -> JSON:
    """Numbers of blocks as EverMemOS reads them: `1-3,5`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, (int, str)) for each in value):
        return ",".join(str(each) for each in value)
    return value if isinstance(value, str) else ""


def _topic(value: JSON, lost: list[JSON]) -> Item[Object] | None:
    """A topic and those below it; what of those cannot be used goes to `lost`."""
    if not isinstance(value, dict):
        return None
    made = {**value, "topic": Field("topic", others=("name", "title")).of(value)}
    if made["topic"] is None:
        return None
    if "summary" in value and not isinstance(value["summary"], str):
        made["summary"] = ""
    if "block_refs" in value:
        made["block_refs"] = _ranges(value["block_refs"])
    if "children" in value:
        made["children"] = _below(value["children"], lost)
    return Item(made, changed=made != value)


def _below(value: JSON, lost: list[JSON]) -> list[Object]:
    given = value if isinstance(value, list) else [value] if value else []
    found = [(each, _topic(each, lost)) for each in given]
    lost += [each for each, item in found if item is None]
    return [item.value for _, item in found if item is not None]


def _counting(key: str, keys: Sequence[str], item: Callable[[JSON, list[JSON]], Item[Any] | None]) -> Check:
    """A list whose items have parts that may be lost."""

    def check(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
        lost: list[JSON] = []
        parsed = _listed(key, keys, lambda each: item(each, lost))(value, facts)
        if isinstance(parsed, Parsed):
            parsed.dropped += len(lost)
        return parsed

    return check


_TOPIC_SCHEMA: Object = {
    "type": "object",
    "properties": {
        "topic": {"type": "string", "minLength": 1, "maxLength": 200},
        "summary": {"type": "string", "maxLength": MAX_TEXT},
        "block_refs": {"type": "string", "maxLength": 400},
    },
    "required": ["topic", "summary", "block_refs"],
    "additionalProperties": False,
}
TOPICS = _contract(
    "topics",
    _counting("topics", ("sections",), _topic),
    {
        **list_schema("topics", _TOPIC_SCHEMA),
        "properties": {
            "summary": {"type": "string", "maxLength": MAX_TEXT},
            "topics": {"type": "array", "items": _TOPIC_SCHEMA, "maxItems": MAX_ITEMS},
        },
        "required": ["summary", "topics"],
    },
    *("topics", "sections"),
)
"""`{"summary", "topics": [{"topic", "summary", "block_refs", "children"?}]}`."""

SUMMARY = _object(
    "document_summary",
    Record((Field("summary", may_be_empty=True),)),
    unchanged={"summary": ""},
    writes=lambda made: bool(made["summary"]),
)
"""`{"summary", ...}`; on an empty one EverMemOS keeps that of the document's beginning."""


def _merges(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Groups of two topics or more. One that is in two groups could be merged into either: into the first."""
    taken: set[int] = set()

    def group(each: JSON) -> Item[Object] | None:
        given = each.get("indices") if isinstance(each, dict) else None
        numbers = [Field("at", "whole").of({"at": one}) for one in given] if isinstance(given, list) else []
        if len(set(numbers)) < 2 or None in numbers or taken & set(numbers):
            return None
        taken.update(numbers)
        made = {**each, "indices": numbers}
        return Item(made, changed=made != each, overwrites=True)

    return _listed("merges", ("groups",), group)(value, facts)


MERGES = _contract(
    "topic_merges",
    _merges,
    list_schema(
        "merges",
        {
            "type": "object",
            "properties": {
                "indices": {"type": "array", "items": {"type": "integer"}, "maxItems": MAX_ITEMS},
                "topic": {"type": "string", "maxLength": 200},
                "summary": {"type": "string", "maxLength": MAX_TEXT},
            },
            "required": ["indices", "topic", "summary"],
            "additionalProperties": False,
        },
    ),
    *("merges", "groups"),
    unchanged={"merges": []},
)
"""`{"merges": [{"indices": [int], "topic", "summary"}]}`."""


def _split(value: JSON, lost: list[JSON]) -> Item[Object] | None:
    """Whether a topic is to be split, and into what."""
    wanted = Field("should_split", "flag").of(value) if isinstance(value, dict) else None
    name = Field("original_topic", others=("topic",)).of(value) if isinstance(value, dict) else None
    if wanted is None or name is None:
        return None
    made = {**value, "should_split": wanted, "original_topic": name}
    if not wanted:
        return Item(made, changed=made != value, writes=False)
    made["children"] = _below(value.get("children"), lost)
    if "block_refs" in value:
        made["block_refs"] = _ranges(value["block_refs"])
    return Item(made, changed=made != value, overwrites=True) if made["children"] else None


SPLITS = _contract(
    "topic_splits",
    _counting("results", (), _split),
    list_schema(
        "results",
        {
            "type": "object",
            "properties": {
                "original_topic": {"type": "string", "maxLength": 200},
                "should_split": {"type": "boolean"},
                "block_refs": {"type": "string", "maxLength": 400},
                "children": {"type": "array", "items": _TOPIC_SCHEMA, "maxItems": MAX_ITEMS},
            },
            "required": ["original_topic", "should_split"],
            "additionalProperties": False,
        },
    ),
    "results",
    unchanged={"results": []},
)
"""`{"results": [{"original_topic", "should_split": bool, "block_refs"?, "children"?}]}`."""

_ASSIGNMENT = Record((Field("block_id", "whole"), Field("topic_index", "whole")))
ASSIGNMENTS = _contract(
    "block_assignments",
    _listed("assignments", (), _ASSIGNMENT.item),
    list_schema("assignments", _ASSIGNMENT.schema()),
    "assignments",
    unchanged={"assignments": []},
)
"""`{"assignments": [{"block_id": int, "topic_index": int}]}`."""

CATEGORY = _object(
    "category",
    Record((Field("category_id", others=("category", "id"), may_be_empty=True),)),
    unchanged={"category_id": ""},
    writes=lambda made: bool(made["category_id"]),
)
"""`{"category_id"}`; an empty one says that none fits."""
