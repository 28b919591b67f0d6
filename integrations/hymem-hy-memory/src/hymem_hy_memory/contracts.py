"""What the SDK's parsers accept, and what of a reply is made into it.

All of them cut a reply at triple backticks, be they in a text; most take what is between the first `{` and
the last `}`, a thought included. What is rendered here is JSON alone, with backticks written as `\\u0060`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hymem.contract import (
    AS_IT_IS,
    MAX_ITEMS,
    MAX_TEXT,
    CallFacts,
    Contract,
    Item,
    Parsed,
    RawReply,
    Reading,
    Violation,
    checked_items,
    items_of,
    list_schema,
    shape_of,
    to_json,
)
from hymem.decode import JSON, Decoded, decode, salvage, without_thoughts
from hymem.records import Field, Object, folded


def _dumps(value: JSON) -> str:
    return to_json(value).replace("`", "\\u0060")


def _has_no_fence(text: str) -> bool:
    return "```" not in text


Check = Callable[[JSON, CallFacts], "Parsed[Any] | Violation"]


def _contract(
    name: str, check: Check, schema: Mapping[str, JSON], *keys: str, unchanged: JSON = None
) -> Contract[Any]:
    return Contract(
        name=f"hy_memory_{name}",
        schema=schema,
        keys=keys,
        check=check,
        render=_dumps,
        as_sent=_has_no_fence,
        unchanged=None if unchanged is None else lambda facts: _dumps(unchanged),
    )


def _object(fields: Mapping[str, JSON], *optional: str) -> Object:
    """The schema of an object with these fields."""
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def _array(item: JSON, count: int = MAX_ITEMS) -> Object:
    return {"type": "array", "items": item, "maxItems": count}


def _text(longest: int = MAX_TEXT) -> Object:
    return {"type": "string", "maxLength": longest}


_TAGS = _array(_text(80), 3)
_OWNER: Object = {"type": "string", "enum": ["user", "agent"]}


class _Whole(Contract[Any]):
    """Of a reply that is cut nothing is taken: what is missing would be held to be settled. The SDK keeps
    what is new as it is then, or asks again another time."""

    def salvage(self, reply: RawReply, facts: CallFacts) -> Reading[Any] | Violation:
        reading = super().salvage(reply, facts)
        if reply.cut or (isinstance(reading, Reading) and reading.dropped):
            return Violation("$", "a finished reply", "one that was cut")
        return reading


def _whole(
    name: str, check: Check, schema: Mapping[str, JSON], *keys: str, unchanged: JSON = None
) -> Contract[Any]:
    return _Whole(
        name=f"hy_memory_{name}",
        schema=schema,
        keys=keys,
        check=check,
        render=_dumps,
        as_sent=_has_no_fence,
        unchanged=None if unchanged is None else lambda facts: _dumps(unchanged),
    )


# -- what a conversation says ------------------------------------------------------------------------

NO_INTENTIONS = "no intentions"
"""Among what is offered: intentions are switched off, and the SDK would drop what is called one."""
_LISTS = ("memory", "facts", "memories", "identity")
"""Under these the SDK, older versions of it and the model card have memories; none excludes another."""
_CONTENT = Field("content", others=("text", "memory", "fact"))
_BASIC = ("name", "age", "location", "occupation", "employer")


def _memory(value: JSON) -> Item[Object] | None:
    given = {"content": value} if isinstance(value, str) else value
    content = _CONTENT.of(given) if isinstance(given, dict) else None
    if content is None:
        return None
    made = {**given, "content": content}
    if "tags" in made:
        made["tags"] = Field("tags", "texts", default=[]).of(made)
    return AS_IT_IS if made == value else Item(made, changed=True)


def _extracted(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Memories under whichever of their names, intentions, and what is known of the user."""
    value = reply
    if isinstance(value, list):
        value = value[0] if len(value) == 1 and _is_extraction(value[0]) else {"memory": value}
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    if not _is_extraction(value):
        return Violation("$", "the key 'memory'", f"{len(value)} other keys")
    made = {name: each for name, each in value.items() if name not in _LISTS}
    found: dict[str, list[Object]] = {"memory": [], "intentions": []}
    kept = dropped = 0
    for name in (*_LISTS, "intentions"):
        into = "intentions" if name == "intentions" and NO_INTENTIONS not in facts.offered else "memory"
        for each in _listed(value.get(name)):
            item = _memory(each)
            if item is None:
                dropped += 1
                continue
            memory = each if item is AS_IT_IS else item.value
            if memory not in found[into]:
                found[into].append(memory)
                kept += 1
    made["memory"] = found["memory"]
    if found["intentions"] or "intentions" in value:
        made["intentions"] = found["intentions"]
    basic = value.get("basic_info") or {}
    if not isinstance(basic, dict):
        dropped += 1
    made["basic_info"] = basic if isinstance(basic, dict) else {}
    kept += sum(1 for each in made["basic_info"].values() if each not in (None, "", "null", "none"))
    kept += len(value["profile"]) if isinstance(value.get("profile"), dict) else 0  # of older prompts
    if dropped and not kept:
        return Violation("memory[0]", "a memory with a text", "none")
    if "basic_info" not in value and not made["basic_info"]:
        del made["basic_info"]
    return Parsed(made, kept, dropped, made != reply)


def _is_extraction(value: JSON) -> bool:
    known = (*_LISTS, "intentions", "basic_info", "profile")
    return isinstance(value, dict) and any(name in value for name in known)


_NO_WORDS = ("", "none", "null", "n/a", "nothing", "无", "没有")


def _listed(value: JSON) -> list[JSON]:
    """A list; a single item in its place; nothing for a word that says so."""
    if isinstance(value, list):
        return value
    return [] if value in (None, {}) or (isinstance(value, str) and folded(value) in _NO_WORDS) else [value]


class _InParts(Contract[Any]):
    """Of a broken reply, all that can be mended; where that cannot be, the list that is whole. What else
    there was is missing then."""

    def salvage(self, reply: RawReply, facts: CallFacts) -> Reading[Any] | Violation:
        if not reply.cut:
            for found in (salvage(reply.text), decode(reply.text.rstrip("` \n") + "}")):
                mended = self._read_json(found, reply, facts)
                if isinstance(mended, Reading):
                    return mended
        reading = super().salvage(reply, facts)
        if isinstance(reading, Reading):
            if not reading.kept:
                return Violation("$", "a reply that is not broken", "one of which nothing can be had")
            reading.dropped = max(reading.dropped, 1)
        return reading


_MEMORY = _object({"content": _text(), "tags": _TAGS, "owner": _OWNER})
EXTRACT: Contract[Any] = _InParts(
    name="hy_memory_extract",
    schema=_object(
        {
            "memory": _array(_MEMORY),
            "intentions": _array(
                _object(
                    {
                        "content": _text(),
                        "tags": _TAGS,
                        "valid_until": {"type": ["string", "null"], "maxLength": 10},
                        "owner": _OWNER,
                    }
                )
            ),
            "basic_info": _object({name: _text(200) for name in _BASIC}, *_BASIC),
        }
    ),
    keys=_LISTS,
    check=_extracted,
    render=_dumps,
    as_sent=_has_no_fence,
    unchanged=lambda facts: _dumps({"memory": [], "intentions": [], "basic_info": {}}),
)
"""`{"memory": [{"content", "tags", "owner"}], "intentions": [{..., "valid_until"}], "basic_info": {}}`."""


# -- new memories and those there are ----------------------------------------------------------------

_OP = Field("op", others=("action", "operation", "event"))
_NEW = Field("content", others=("text", "memory", "new_content"))
_ID = Field("memory_id", others=("id", "target_id", "node_id"))
_NOTHING = ("none", "noop", "no_op", "skip")


def _ids(operation: Object) -> list[str]:
    """Of an operation, oldest first: the last one is what the new memory takes the place of."""
    several = operation.get("memory_ids")
    found = [str(each).strip() for each in several if each] if isinstance(several, list) else []
    one = _ID.of(operation)
    if one is not None and one.strip() not in found:
        found.append(one.strip())
    return [each for each in found if each]


def _operation(value: JSON, facts: CallFacts, taken: set[str]) -> Item[Object] | None:
    """As it is meant. What names no memory that was offered, or one that another operation has changed
    already, is kept as an addition: the SDK would drop its text, or store it unlinked."""
    given = {"op": "ADD", "content": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        return None
    word, content = folded(_OP.of(given)), _NEW.of(given)
    ids = [each for each in _ids(given) if each not in taken and (not facts.offered or each in facts.offered)]
    rest = {
        name: each
        for name, each in given.items()
        if name not in ("op", "memory_id", "memory_ids", *_OP.others, *_ID.others, "content", *_NEW.others)
    }
    if "tags" in rest:
        rest["tags"] = Field("tags", "texts", default=[]).of(rest)
    if word == "delete":
        if not ids:
            return None
        taken.update(ids[-1:])
        made = {"op": "DELETE", "memory_id": ids[-1], **rest}
        return _as_item(made, value, overwrites=True)
    if content is None:
        return None
    if word in ("update", "supersede") and ids:
        taken.update(ids)
        several = word == "supersede" and len(ids) > 1
        named: Object = {"memory_ids": ids} if several else {"memory_id": ids[-1]}
        return _as_item({"op": word.upper(), **named, "content": content, **rest}, value, overwrites=True)
    rest.pop("supersede_reason", None)
    return _as_item({"op": "ADD", "content": content, **rest}, value)


def _as_item(made: Object, value: JSON, *, overwrites: bool = False) -> Item[Object]:
    return Item(made, changed=made != value, overwrites=overwrites)


def _flat(found: Iterable[JSON]) -> list[JSON]:
    """Groups of operations, as older prompts have them, are what is in them."""
    flat: list[JSON] = []
    for each in found:
        grouped = isinstance(each, dict) and isinstance(each.get("ops"), list)
        flat += each["ops"] if grouped else [each]
    return flat


def _reconciled(reply: JSON, facts: CallFacts) -> Parsed[list[Object]] | Violation:
    """A reply with an operation of which nothing can be had is refused: all that is new is added then."""
    value = reply
    keys = ("ops", "operations", "memory", "memories")
    alone = isinstance(value, dict) and _OP.of(value) is not None and not any(key in value for key in keys)
    found = items_of([value] if alone else value, keys)
    if isinstance(found, Violation):
        return found
    if isinstance(value, dict) and not alone and any(isinstance(value.get(key), str) for key in keys):
        return Violation("ops", "a list", "a string")
    taken: set[str] = set()
    made: list[Item[Object]] = []
    dropped = 0
    for each in _flat(found[0]):
        if isinstance(each, dict) and _is_no_operation(each, facts):
            continue
        item = _operation(each, facts, taken)
        if item is not None:
            made.append(item)
        elif isinstance(each, dict) and folded(_OP.of(each)) == "delete":
            dropped += 1
        else:  # a memory may be behind it
            return Violation("ops[0].content", "a text", shape_of(each))
    operations = [item.value for item in made]
    overwrites = any(item.overwrites for item in made)
    return Parsed(operations, len(made), dropped, operations != reply, overwrites)


def _is_no_operation(operation: Object, facts: CallFacts) -> bool:
    """Whether it says that there is nothing to do. To keep what is not there yet is an addition."""
    word = folded(_OP.of(operation))
    kept = any(each in facts.offered for each in _ids(operation)) or _NEW.of(operation) is None
    return word in _NOTHING or (word == "keep" and kept)


_OPERATION = _object(
    {
        "op": {"type": "string", "enum": ["ADD", "UPDATE", "SUPERSEDE"]},
        "memory_id": _text(80),
        "memory_ids": _array(_text(80), 8),
        "content": _text(),
        "supersede_reason": _text(400),
        "owner": _OWNER,
        "tags": _TAGS,
        "related": _array(
            _object(
                {
                    "memory_id": _text(80),
                    "relation": {
                        "type": "string",
                        "enum": ["causes", "elaborates", "contrasts", "same_series"],
                    },
                }
            ),
            8,
        ),
    },
    *("memory_id", "memory_ids", "supersede_reason", "related"),
)
RECONCILE = _whole("reconcile", _reconciled, list_schema("ops", _OPERATION), *("ops", "operations"))
"""`[{"op": "ADD" | "UPDATE" | "SUPERSEDE", "memory_id"?, "memory_ids"?, "content", ...}]`. There is no reply
that changes nothing: an empty list drops what was extracted."""


def add_all(memories: Sequence[JSON]) -> str:
    """What the SDK itself makes of a failed reconciliation from 2.0 on: all that is new, as it is."""
    return _dumps(
        [
            {"op": "ADD", **{name: each for name, each in memory.items() if name != "layer"}}
            if isinstance(memory, dict)
            else {"op": "ADD", "content": memory}
            for memory in memories
        ]
    )


def _queries(value: JSON, facts: CallFacts) -> Parsed[list[str]] | Violation:
    parsed = checked_items(
        value,
        ("queries",),
        lambda each: AS_IT_IS if isinstance(each, str) and each.strip() else None,
    )
    if isinstance(parsed, Parsed):
        parsed.changed = parsed.value != value
    return parsed


QUERIES = _contract("search_queries", _queries, list_schema("queries", _text(200)), "queries", unchanged=[])
"""`[str]`: what memories there are is looked for with; off unless `MEMORY_ENABLE_SEARCH_QUERY` is set."""


# -- what was done with tools --------------------------------------------------------------------------


def _lines(value: JSON) -> str | None:
    """A text, or texts in one; the SDK dies of anything else."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = "\n".join(value)
    return Field("text").of({"text": value}) if not isinstance(value, (list, dict)) else None


def _experience(value: JSON) -> Item[Object] | None:
    if not isinstance(value, dict):
        return None
    made = {**value, "task": _lines(value.get("task")), "solution": _lines(value.get("solution"))}
    if made["task"] is None or made["solution"] is None:
        return None
    if "search_keys" in made:
        made["search_keys"] = Field("search_keys", "texts", default=[]).of(made)
    if made.get("boundary_envs") is not None and not isinstance(made["boundary_envs"], str):
        envs = made["boundary_envs"]
        made["boundary_envs"] = _lines(envs) or to_json(envs)
    return AS_IT_IS if made == value else Item(made, changed=True)


def _statement(value: JSON) -> Object | None:
    """What a session has come to know, as the SDK takes it: one text."""
    given = {"statement": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        return None
    text = _lines(
        next((given[name] for name in ("statement", *_CONTENT.others, "content") if given.get(name)), None)
    )
    if text is None:
        return None
    made = {**given, "statement": text}
    if "files" in made:
        made["files"] = Field("files", "texts", default=[]).of(made)
    return made


def _worked(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Experiences, and one fact: of several, one that says all of them. A memory that is a mere text, as the
    model card has them, is a fact."""
    value = reply
    if isinstance(value, list):
        value = value[0] if len(value) == 1 and _is_work(value[0]) else {"experiences": value}
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    if not _is_work(value):
        return Violation("$", "the key 'experiences'", f"{len(value)} other keys")
    listed = [each for name in ("experiences", "memories") for each in _listed(value.get(name))]
    told = [each for each in listed if isinstance(each, str)]
    found = checked_items(
        {"experiences": [each for each in listed if not isinstance(each, str)]}, ("experiences",), _experience
    )
    if isinstance(found, Violation):
        return found
    given = [*_listed(value.get("fact")), *_listed(value.get("facts")), *told]
    statements = [each for each in map(_statement, given) if each is not None]
    if given and not statements and not found.value:
        return Violation("fact.statement", "a text", shape_of(given[0]))
    made = {name: each for name, each in value.items() if name not in ("memories", "facts")}
    made["experiences"], made["fact"] = found.value, _joined(statements)
    dropped = found.dropped + len(given) - len(statements)
    return Parsed(made, found.kept + len(statements), dropped, made != reply)


def _is_work(value: JSON) -> bool:
    return isinstance(value, dict) and any(
        name in value for name in ("experiences", "memories", "fact", "facts")
    )


def _as_list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else [] if value in (None, "", {}) else [value]


def _joined(statements: Sequence[Object]) -> Object | None:
    if len(statements) < 2:
        return statements[0] if statements else None
    texts = dict.fromkeys(each["statement"] for each in statements)
    files = dict.fromkeys(name for each in statements for name in each.get("files") or [])
    return {**statements[0], "statement": "\n".join(texts), "files": list(files)}


_EXPERIENCE: Mapping[str, JSON] = {
    "task": _text(),
    "search_keys": _array(_text(200), 5),
    "solution": _text(),
    "boundary_envs": _text(400),
    "confidence": {"type": "number"},
}
_FACT = _object({"subject": _text(80), "statement": _text(), "files": _array(_text(200), 16)})
WORK: Contract[Any] = _InParts(
    name="hy_memory_work",
    schema=_object(
        {"experiences": _array(_object(_EXPERIENCE), 16), "fact": {"anyOf": [_FACT, {"type": "null"}]}}
    ),
    keys=("experiences", "memories"),
    check=_worked,
    render=_dumps,
    as_sent=_has_no_fence,
    unchanged=lambda facts: _dumps({"experiences": [], "fact": None}),
)
"""`{"experiences": [{"task", "search_keys", "solution", "boundary_envs", "confidence"}], "fact":
{"statement", "subject", "files"} | null}`."""

WORKSPACE, BRANCH = "workspace", "branch"
"""Among what is offered to 1.x: the call has one, so that a memory can be bound to it."""


def _bound(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Before 2.0. What is bound to a workspace or branch that the call does not have would be dropped: it is
    the user's, then."""

    def item(each: JSON) -> Item[Object] | None:
        found = _experience(each)
        if found is None:
            return None
        made = dict(each if found is AS_IT_IS else found.value)
        scope = folded(made.get("boundary_scope"))
        needed = {"strict": (WORKSPACE, BRANCH), "user": (), "global": ()}.get(scope, (WORKSPACE,))
        if any(name not in facts.offered for name in needed):
            made["boundary_scope"] = "user"
        return AS_IT_IS if made == each else Item(made, changed=True)

    parsed = checked_items(value, ("memories", "experiences"), item)
    if isinstance(parsed, Violation):
        return parsed
    made = {"memories": parsed.value}
    return Parsed(made, parsed.kept, parsed.dropped, made != value)


_SCOPES: Object = {"type": "string", "enum": ["strict", "project", "user", "global"]}
WORK_1 = _contract(
    "work_1",
    _bound,
    list_schema("memories", _object({**_EXPERIENCE, "boundary_scope": _SCOPES})),
    *("memories", "experiences"),
    unchanged={"memories": []},
)
"""`{"memories": [{..., "boundary_scope"}]}`."""

_SCENE = Field("scene", ("chat", "working", "coding"), others=("label", "category"))


_YES, _NO = ("1", "true", "yes", "y"), ("0", "false", "no", "n")


def _scene(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """One of three words, or whether there is any work in it."""
    given = value if isinstance(value, dict) else {"scene": value}
    word = next(
        (given[name] for name in ("scene", *_SCENE.others, "is_coding") if given.get(name) is not None), ""
    )
    text = str(word).strip(" \t\n\"'`.,。\uff0c").casefold()
    scene = "working" if text in _YES else "chat" if text in _NO else _SCENE.of({"scene": text})
    if scene is None:
        return Violation("scene", "chat, working or coding", shape_of(word))
    made = {**(value if isinstance(value, dict) else {}), "scene": scene}
    return Parsed(made, 1, changed=made != value)


class _Label(Contract[Any]):
    """The word alone is taken, too, in the first line of a reply."""

    def read(self, reply: RawReply, facts: CallFacts) -> Reading[Any] | Violation:
        reading = super().read(reply, facts)
        if isinstance(reading, Reading):
            return reading
        lines = [line for line in without_thoughts(reply.text)[0].splitlines() if line.strip("` \t")]
        parsed = _scene(lines[0], facts) if lines else reading
        if isinstance(parsed, Violation):
            return reading
        return Reading(parsed.value, _dumps(parsed.value), 1, 0, frozenset({"normalised"}))


SCENE: Contract[Any] = _Label(
    name="hy_memory_scene",
    schema=_object(
        {"scene": {"type": "string", "enum": ["chat", "working", "coding"]}, "reason": _text(200)}
    ),
    keys=("scene", "is_coding"),
    check=_scene,
    render=_dumps,
    as_sent=_has_no_fence,
    unchanged=lambda facts: _dumps({"scene": "chat"}),
)
"""`{"scene": "chat" | "working" | "coding", "reason"}`: which store a conversation with tools belongs to."""


def _is_coding(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    given = value if isinstance(value, dict) else {"is_coding": value}
    scene, flag = _SCENE.of(given), Field("is_coding", "flag").of(given)
    flag = flag if flag is not None or scene is None else scene != "chat"
    if flag is None:
        return Violation("is_coding", "true or false", shape_of(given.get("is_coding")))
    made = {**given, "is_coding": flag}
    return Parsed(made, 1, changed=made != value or made["is_coding"] is not given.get("is_coding"))


IS_CODING = _contract(
    "is_coding",
    _is_coding,
    _object({"is_coding": {"type": "boolean"}, "reason": _text(200)}),
    *("is_coding", "scene"),
    unchanged={"is_coding": False},
)
"""`{"is_coding": bool, "reason"}`: the same before 2.0."""


def offered_to_drafts(candidates: Sequence[Sequence[Any]], *names: str) -> CallFacts:
    """What operations on a draft may name, by `NUMBER ID`. An empty name says that this is all."""
    named = {
        f"{at} {next(getattr(each, name) for name in names if hasattr(each, name))}": ""
        for at, found in enumerate(candidates)
        for each in found
    }
    return CallFacts({"": "", **named})


def _draft_of(operation: Object, target: str | None, facts: CallFacts) -> int | None:
    """Which draft an operation is about; where it does not say, the only one its target was offered to."""
    number = Field("draft_idx", "whole", others=("draft", "index"))
    if target is None or any(operation.get(name) is not None for name in (number.name, *number.others)):
        at: int | None = number.of(operation)
        return at
    fits = [each for each in facts.offered if each and each.partition(" ")[2] == target]
    return int(fits[0].partition(" ")[0]) if len(fits) == 1 else None


def _draft_operation(value: JSON, facts: CallFacts, taken: set[str], target_name: str) -> Item[Object] | None:
    """What the SDK does not do, or does to what was not offered, is left out; it adds the draft then."""
    if not isinstance(value, dict):
        return None
    action = Field("action", ("add", "update", "delete", "skip"), others=("op", "operation")).of(value)
    target = Field(
        "target", others=(target_name, "target_experience_id", "target_memory_id", "memory_id")
    ).of(value)
    at = _draft_of(value, target, facts)
    if action is None or at is None:
        return None
    made = {**value, "draft_idx": at, "action": action.upper()}
    if action in ("add", "skip"):
        return Item(made, changed=made != value, writes=action == "add")
    if target is None or target in taken or (facts.offered and f"{at} {target}" not in facts.offered):
        return None
    taken.add(target)
    made[target_name] = target
    return Item(made, changed=made != value, overwrites=True)


def _draft_operations(target_name: str) -> Check:
    def check(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
        found = items_of(value, ("ops", "operations"))
        if isinstance(found, Violation):
            return found
        taken: set[str] = set()
        items = [_draft_operation(each, facts, taken, target_name) for each in found[0]]
        kept = [each for each in items if each is not None]
        if not kept and any(not isinstance(each, dict) for each in found[0]):
            return Violation("ops[0]", "an operation", shape_of(found[0][0]))
        made = {"ops": [each.value for each in kept]}
        return Parsed(
            made,
            sum(each.writes for each in kept),
            len(items) - len(kept),
            made != value,
            any(each.overwrites for each in kept),
        )

    return check


def _draft_contract(name: str, target_name: str) -> Contract[Any]:
    operation = _object(
        {
            "draft_idx": {"type": "integer"},
            "action": {"type": "string", "enum": ["ADD", "UPDATE", "DELETE", "SKIP"]},
            target_name: _text(80),
            "reason": _text(200),
        },
        *(target_name, "reason"),
    )
    return _contract(
        name, _draft_operations(target_name), list_schema("ops", operation), *("ops", "operations")
    )


DRAFTS = _draft_contract("drafts", "target_experience_id")
"""`{"ops": [{"draft_idx", "action": "ADD" | "UPDATE" | "DELETE" | "SKIP", "target_experience_id"?}]}`. A
draft that no operation is about is added."""
DRAFTS_1 = _draft_contract("drafts_1", "target_memory_id")
"""The same before 2.0."""


def _superseding(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Which facts a new one takes the place of. It is stored in any case."""
    lost = 0

    def item(each: JSON) -> Item[Object] | None:
        if not isinstance(each, dict):
            return None
        given = each.get("supersedes")
        named = [str(one) for one in _as_list(given) if isinstance(one, (str, int))]
        at = _draft_of(each, named[0] if named else None, facts)
        if at is None:
            return None
        kept = [one for one in named if not facts.offered or f"{at} {one}" in facts.offered]
        nonlocal lost
        lost += len(_as_list(given)) - len(kept)
        made = {**each, "draft_idx": at, "supersedes": kept}
        return Item(made, changed=made != each, overwrites=bool(kept), writes=bool(kept))

    parsed = checked_items(value, ("ops", "operations"), item)
    if isinstance(parsed, Violation):
        return parsed
    made = {"ops": parsed.value}
    return Parsed(made, parsed.kept, parsed.dropped + lost, made != value, parsed.overwrites)


SUPERSEDES = _contract(
    "supersedes",
    _superseding,
    list_schema(
        "ops",
        _object(
            {"draft_idx": {"type": "integer"}, "supersedes": _array(_text(80), 5), "reason": _text(200)},
            "reason",
        ),
    ),
    *("ops", "operations"),
    unchanged={"ops": []},
)
"""`{"ops": [{"draft_idx", "supersedes": [fact id]}]}`."""


# -- sessions and what they were about -----------------------------------------------------------------

MESSAGES = "messages"
"""Among what is offered: how many messages or lines there are."""


def counted(count: int) -> CallFacts:
    return CallFacts({MESSAGES: str(count)})


def _numbers(value: JSON, first: int, last: int | None) -> tuple[list[int], int]:
    """Whole numbers in that range, each once, and how many there were that are none."""
    given = value if isinstance(value, list) else [] if value is None else [value]
    found = [Field("at", "whole").of({"at": each}) for each in given]
    good = [each for each in found if each is not None and first <= each and (last is None or each <= last)]
    return list(dict.fromkeys(good)), len(found) - len(good)


def _boundaries(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """After which messages a new event begins. How many events there are has to be one more: of what the
    reply names, or of that which the SDK would take."""
    value = reply
    if isinstance(value, list):
        value = {"boundaries": value}
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    if "boundaries" not in value:
        return Violation("boundaries", "a list of numbers", "nothing")
    given = value["boundaries"]
    last = int(facts.offered[MESSAGES]) - 1 if MESSAGES in facts.offered else None
    cuts, dropped = _numbers(given, 1, last)
    if given and not cuts and not isinstance(given, (int, list)):
        return Violation("boundaries", "a list of numbers", shape_of(given))
    said = Field("event_count", "whole").of(value)
    whole = [Field("at", "whole").of({"at": each}) for each in (given if isinstance(given, list) else cuts)]
    named = sum(each is not None for each in whole) + 1
    if said is not None and said not in (len(cuts) + 1, named):
        return Violation(
            "event_count", f"{len(cuts) + 1}, one more than there are boundaries", "another number"
        )
    made = {**value, "event_count": len(cuts) + 1, "boundaries": sorted(cuts)}
    same = made == reply and [type(each) for each in given] == [int] * len(cuts)
    return Parsed(made, len(cuts) + 1, dropped, not same)


BOUNDARIES = _whole(
    "boundaries",
    _boundaries,
    _object(
        {
            "reasoning": _text(400),
            "event_count": {"type": "integer"},
            "boundaries": _array({"type": "integer"}),
        }
    ),
    "boundaries",
    unchanged={"event_count": 1, "boundaries": []},
)
"""`{"reasoning", "event_count": len + 1, "boundaries": [int]}`. Without any, a session is one event."""


def _capsule(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    value = reply
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    summary = _lines(next((value[name] for name in ("summary", "content", "text") if value.get(name)), None))
    if summary is None:
        return Violation("summary", "a text", shape_of(value.get("summary")))
    made = {**value, "title": _lines(value.get("title")) or "", "summary": summary}
    return Parsed(made, 1, changed=made != reply)


CAPSULE = _whole("capsule", _capsule, _object({"title": _text(200), "summary": _text(8000)}), "summary")
"""`{"title", "summary"}`."""


def _rolled(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Before 2.0. A line that the reply does not speak of, or speaks of twice, or for a summary without text,
    is kept for the next one: it would be gone for good."""
    if not isinstance(value, dict) or not ("summary_list" in value or "keep_line_ids" in value):
        return Violation("$", "the keys 'summary_list' and 'keep_line_ids'", shape_of(value))
    last = int(facts.offered[MESSAGES]) - 1 if MESSAGES in facts.offered else None
    seen: set[int] = set()
    summaries: list[Object] = []
    given = _as_list(value.get("summary_list"))
    for each in given:
        content = _lines(each.get("content")) if isinstance(each, dict) else None
        lines, _ = _numbers(each.get("line_ids") if isinstance(each, dict) else None, 0, last)
        fresh = [line for line in lines if line not in seen]
        if content is None or not fresh:
            continue
        seen.update(fresh)
        topic = _lines(each.get("topic")) or ""
        summaries.append({**each, "content": content, "topic": topic, "line_ids": fresh})
    kept, _ = _numbers(value.get("keep_line_ids"), 0, last)
    known = range(last + 1) if last is not None else kept
    made = {"summary_list": summaries, "keep_line_ids": [line for line in known if line not in seen]}
    return Parsed(made, len(summaries), len(given) - len(summaries), made != value)


ROLLED: Contract[Any] = _Whole(
    name="hy_memory_rolled",
    schema=_object(
        {
            "summary_list": _array(
                _object(
                    {
                        "content": _text(),
                        "topic": _text(80),
                        "line_ids": _array({"type": "integer"}),
                        "is_continuation": {"type": "boolean"},
                    }
                ),
                16,
            ),
            "keep_line_ids": _array({"type": "integer"}),
        }
    ),
    keys=("summary_list", "keep_line_ids"),
    check=_rolled,
    render=_dumps,
    as_sent=_has_no_fence,
    unchanged=lambda facts: _dumps(
        {"summary_list": [], "keep_line_ids": list(range(int(facts.offered.get(MESSAGES, 0))))}
    ),
)
"""`{"summary_list": [{"content", "topic", "line_ids", "is_continuation"}], "keep_line_ids": [int]}`."""


# -- System 2 ------------------------------------------------------------------------------------------

FACT, SCHEMA, COVER = "fact ", "schema ", "cover "
"""How what is offered to System 2 begins: facts, schemas, and facts each of which has to be decided on."""


def materials(given: Mapping[str, Any]) -> CallFacts:
    """What System 2's operations may name. An empty name says that this is all."""
    offered = {"": ""}
    for cluster in given.get("clusters") or []:
        for fact in cluster.get("facts") or []:
            offered[f"{FACT}{fact.get('node_id')}"] = ""
            if cluster.get("group_type") == "source_context_review":
                offered[f"{COVER}{fact.get('node_id')}"] = ""
    for fact in given.get("unprocessed_facts") or []:
        offered[f"{FACT}{fact.get('node_id')}"] = ""
    for name, key in (
        ("graph_forward", "node_id"),
        ("graph_reverse", "schema_id"),
        ("graph_reverse", "node_id"),
    ):
        for schema in given.get(name) or []:
            offered[f"{SCHEMA}{schema.get(key)}"] = ""
    return CallFacts(offered)


def _known(kind: str, value: JSON, facts: CallFacts) -> str | None:
    text = Field("id").of({"id": value})
    return text if text is not None and (not facts.offered or kind + text in facts.offered) else None


def _evidence(operation: Object, facts: CallFacts) -> list[str]:
    given = _as_list(operation.get("evidence_list"))
    found = [_known(FACT, each, facts) for each in given]
    return list(dict.fromkeys(each for each in found if each is not None))


_SCHEMA_FIELDS = (
    Field("retrieval_text", default="", may_be_empty=True),
    Field("confidence", "number", default=0.8),
    Field("tags", "texts", default=[]),
)


def _thought(value: JSON, facts: CallFacts) -> Object | Violation | None:
    """An operation as it is meant; None for one that may be left out. The SDK checks next to nothing, and
    holds every fact to be settled, named or not, where it takes the operations at all."""
    if not isinstance(value, dict):
        return Violation("[0]", "an operation", shape_of(value))
    word = folded(_OP.of(value))
    if word in ("create_schema", "revise_schema"):
        content, evidence = _NEW.of(value), _evidence(value, facts)
        if content is None or not evidence:
            return Violation(f"[{word}]", "a content, and facts that were offered for evidence", "none")
        fixed = {each.name: each.of(value) for each in _SCHEMA_FIELDS if each.name in value}
        schema = _known(SCHEMA, _NODE.of(value), facts) if word == "revise_schema" else None
        rest = {
            name: each
            for name, each in value.items()
            if name not in ("node_id", "schema_id", "op", *_OP.others)
        }
        named: Object = {"op": "create_schema"} if schema is None else {"op": word, "node_id": schema}
        kind = Field("schema_kind", default="behavior_pattern").of(value)
        kinds = {"schema_kind": kind} if "schema_kind" in value else {}
        return {**named, **rest, **fixed, **kinds, "content": content, "evidence_list": evidence}
    if word == "add_evidence":
        schema, evidence = _known(SCHEMA, _NODE.of(value), facts), _evidence(value, facts)
        if schema is None or not evidence:
            return Violation("[add_evidence]", "a schema and facts that were offered", "others")
        return {**value, "op": word, "node_id": schema, "evidence_list": evidence}
    if word == "add_edge":
        ends = [_known(SCHEMA, value.get(name), facts) for name in ("source_id", "target_id")]
        return None if None in ends else {**value, "op": word, "source_id": ends[0], "target_id": ends[1]}
    if word == "skip_fact":
        fact = _known(FACT, Field("node_id", others=("fact_id", "id")).of(value), facts)
        return None if fact is None else {**value, "op": word, "node_id": fact}
    return None if word in _NOTHING else Violation("[0].op", "an operation that there is", "another")


_NODE = Field("node_id", others=("schema_id", "id"))


def _thoughts(value: JSON, facts: CallFacts) -> Parsed[list[Object]] | Violation:
    alone = isinstance(value, dict) and _OP.of(value) is not None
    found = items_of([value] if alone else value, ("operations", "ops"))
    if isinstance(found, Violation):
        return found
    operations: list[Object] = []
    for each in found[0]:
        made = _thought(each, facts)
        if isinstance(made, Violation):
            return made
        if made is not None:
            operations.append(made)
    covered = {
        each
        for made in operations
        for each in (*made.get("evidence_list", ()), made.get("node_id") if made["op"] == "skip_fact" else "")
    }
    left = sum(1 for each in facts.offered if each.startswith(COVER) and each[len(COVER) :] not in covered)
    meant = [each for each in found[0] if folded(_OP.of(each)) not in _NOTHING]
    if meant and not operations:
        return Violation("[0]", "an operation on what was offered", "others")
    if meant and left:
        return Violation("$", "a decision on each of the facts", f"none on {left} of them")
    writes = sum(made["op"] != "skip_fact" for made in operations)
    revises = any(made["op"] == "revise_schema" for made in operations)
    return Parsed(operations, writes, len(found[0]) - len(operations), operations != value, revises)


_EVIDENCE = _array(_text(80))
THOUGHTS = _whole(
    "thoughts",
    _thoughts,
    list_schema(
        "operations",
        _object(
            {
                "op": {
                    "type": "string",
                    "enum": ["create_schema", "add_evidence", "revise_schema", "add_edge", "skip_fact"],
                },
                "node_id": _text(80),
                "source_id": _text(80),
                "target_id": _text(80),
                "schema_kind": _text(80),
                "content": _text(),
                "retrieval_text": _text(),
                "evidence_list": _EVIDENCE,
                "tags": _TAGS,
                "confidence": {"type": "number"},
                "reason": _text(400),
            },
            *("node_id", "source_id", "target_id", "schema_kind", "content", "retrieval_text"),
            *("evidence_list", "tags", "confidence", "reason"),
        ),
    ),
    *("operations", "ops"),
)
"""`[{"op": "create_schema" | "add_evidence" | "revise_schema" | "add_edge" | "skip_fact", ...}]`. No reply
changes nothing: after an empty list the SDK holds the facts to have been thought about."""


def offered(nodes: Iterable[Any]) -> CallFacts:
    """Ids that may be named, of objects with a `node_id` or of those ids themselves."""
    return CallFacts({"": "", **{str(getattr(each, "node_id", each)): "" for each in nodes}})


def _chosen(value: JSON, facts: CallFacts) -> tuple[list[Object], int]:
    """Ids with the reason for each, and how many there were that were not offered."""
    found: dict[str, Object] = {}
    given = _as_list(value)
    for each in given:
        item = each if isinstance(each, dict) else {"node_id": each}
        node = _NODE.of(item)
        if node is not None and (not facts.offered or node in facts.offered):
            reason = Field("reason", default="", may_be_empty=True).of(item)
            found.setdefault(node, {**item, "node_id": node, "reason": reason})
    return list(found.values()), len(given) - len(found)


def _promoted(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    if not isinstance(value, dict) or not ("selected" in value or "demote" in value):
        return Violation("$", "the keys 'selected' and 'demote'", shape_of(value))
    (selected, lost), (demoted, lost_too) = (
        _chosen(value.get(name), facts) for name in ("selected", "demote")
    )
    if lost + lost_too and not selected and not demoted:
        return Violation("selected[0].node_id", "a fact that was offered", "another")
    made = {**value, "selected": selected, "demote": demoted}
    return Parsed(made, len(selected) + len(demoted), lost + lost_too, made != value)


_CHOICES = _array(_object({"node_id": _text(80), "reason": _text(200)}))
PROMOTED = _whole(
    "promoted", _promoted, _object({"selected": _CHOICES, "demote": _CHOICES}), *("selected", "demote")
)
"""`{"selected": [{"node_id", "reason"}], "demote": [...]}`."""


def _retired(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    value = reply
    if isinstance(value, list):
        value = {"retire_schema_ids": value}
    if not isinstance(value, dict) or "retire_schema_ids" not in value:
        return Violation("$", "the key 'retire_schema_ids'", shape_of(value))
    found, lost = _chosen(value["retire_schema_ids"], facts)
    ids = [each["node_id"] for each in found]
    if lost and not ids:
        return Violation("retire_schema_ids[0]", "a schema that was offered", "another")
    reasons = value.get("reason_by_id")
    told = {name: str(each) for name, each in reasons.items()} if isinstance(reasons, dict) else {}
    made = {**value, "retire_schema_ids": ids, "reason_by_id": told}
    return Parsed(made, len(ids), lost, made != reply, bool(ids))


RETIRED = _whole(
    "retired", _retired, _object({"retire_schema_ids": _array(_text(80), 8)}), "retire_schema_ids"
)
"""`{"retire_schema_ids": [id], "reason_by_id": {id: str}}`."""


def _abstracted(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    value = reply
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    text = _lines(value.get("abstraction_for_embedding")) if isinstance(value, dict) else None
    if text is None:
        return Violation("abstraction_for_embedding", "a text", shape_of(value))
    made = {**value, "abstraction_for_embedding": text}
    return Parsed(made, 1, changed=made != reply)


ABSTRACTED = _whole(
    "abstracted", _abstracted, _object({"abstraction_for_embedding": _text()}), "abstraction_for_embedding"
)
"""`{"abstraction_for_embedding"}`: what a schema says of how its user behaves."""


def _induced(reply: JSON, facts: CallFacts) -> Parsed[Object | None] | Violation:
    """A pattern; null says that there is none."""
    value = reply
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return Parsed(None, 0, changed=reply is not None)
    if not isinstance(value, dict) or "core_pattern" not in value:
        return Violation("core_pattern", "a text, or null for the whole", shape_of(value))
    if value["core_pattern"] in (None, "", "null"):
        return Parsed(None, 0, changed=True)
    text = _lines(value["core_pattern"])
    if text is None:
        return Violation("core_pattern", "a text", shape_of(value["core_pattern"]))
    made = {**value, "core_pattern": text}
    if "confidence" in made:
        made["confidence"] = Field("confidence", "number", default=0.85).of(made)
    return Parsed(made, 1, changed=made != reply)


INDUCED = _whole(
    "induced",
    _induced,
    _object({"core_pattern": _text(), "reasoning": _text(), "confidence": {"type": "number"}}, "confidence"),
    "core_pattern",
    unchanged={"core_pattern": ""},
)
"""`{"core_pattern", "reasoning", "confidence"}`, or `null`."""

DOMAINS = (
    *("identity_relationships", "health_accessibility", "preferences_collections", "habits_items"),
    *("work_education", "culture_creative_experience", "values_coping", "current_constraints_goals"),
)
_PER_DOMAIN = _array({"type": "integer"}, 8)


def _sorted_out(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Numbers of facts, by domain."""
    domains = value.get("domains", value) if isinstance(value, dict) else None
    if not isinstance(domains, dict) or not any(name in domains for name in DOMAINS):
        return Violation("domains", "an object with domains", shape_of(domains))
    last = int(facts.offered[MESSAGES]) if MESSAGES in facts.offered else None
    found = {name: _numbers(each, 1, last) for name, each in domains.items() if name in DOMAINS}
    made = {"domains": {name: numbers for name, (numbers, _) in found.items()}}
    kept = sum(len(numbers) for numbers, _ in found.values())
    lost = sum(lost for _, lost in found.values())
    lost += sum(len(_as_list(each)) for name, each in domains.items() if name not in DOMAINS)
    if lost and not kept:
        return Violation("domains", "numbers that were shown", "others")
    return Parsed(made, kept, lost, made != value)


CATALOG = _whole(
    "catalog", _sorted_out, _object({"domains": _object(dict.fromkeys(DOMAINS, _PER_DOMAIN))}), "domains"
)
"""`{"domains": {domain: [int]}}`."""


def _clauses(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    def item(each: JSON) -> Item[Object] | None:
        parent = Field("parent", "whole").of(_unlettered(each)) if isinstance(each, dict) else None
        if parent is None:
            return None
        numbers, _ = _numbers(
            [_unlettered({"at": one})["at"] for one in _as_list(each.get("candidates"))], 1, None
        )
        made = {**each, "parent": parent, "candidates": numbers}
        return Item(made, changed=made != each)

    parsed = checked_items(value, ("selected",), item)
    if isinstance(parsed, Violation):
        return parsed
    made = {"selected": parsed.value}
    return Parsed(made, parsed.kept, parsed.dropped, made != value)


def _unlettered(item: Object) -> Object:
    """`P1` and `P1C2` as the prompt names them are 1 and 2."""
    return {
        name: each.upper().rpartition("C")[2].removeprefix("P") if isinstance(each, str) else each
        for name, each in item.items()
    }


CLAUSES = _whole(
    "clauses",
    _clauses,
    list_schema("selected", _object({"parent": {"type": "integer"}, "candidates": _PER_DOMAIN})),
    "selected",
    unchanged={"selected": []},
)
"""`{"selected": [{"parent": int, "candidates": [int]}]}`."""


def _removed(reply: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    value = reply
    if isinstance(value, list):
        value = {"remove": value}
    if not isinstance(value, dict) or "remove" not in value:
        return Violation("$", "the key 'remove'", shape_of(value))
    last = int(facts.offered[MESSAGES]) if MESSAGES in facts.offered else None
    numbers, lost = _numbers(value["remove"], 1, last)
    if lost and not numbers:
        return Violation("remove[0]", "a number that was shown", "another")
    made = {**value, "remove": numbers}
    return Parsed(made, len(numbers), lost, made != reply, bool(numbers))


REMOVED = _whole("removed", _removed, _object({"remove": _array({"type": "integer"})}), "remove")
"""`{"remove": [int]}`."""


# -- texts ---------------------------------------------------------------------------------------------


def _plain(value: JSON, facts: CallFacts) -> Parsed[str]:
    """A text, without the fence, or the object with one text, that a model puts around it."""
    text: str = value.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text.partition("\n")[2].removesuffix("```").strip()
    if text.startswith("{"):
        found = decode(text)
        inside = found.value if isinstance(found, Decoded) else None
        if isinstance(inside, dict) and len(inside) == 1:
            (only,) = inside.values()
            text = only if isinstance(only, str) and only.strip() else text
    return Parsed(text, 1, changed=text != value)


SUMMARY: Contract[str] = Contract(name="hy_memory_summary", schema=None, keys=(), check=_plain, render=str)
"""A summary in plain text."""
