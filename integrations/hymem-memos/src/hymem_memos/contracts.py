"""What MemOS's parsers accept, and what of a reply is made into it.

Every consumer has a parser of its own. Some look for a fence anywhere in the reply, some take the letters
`json` and every fence out of it, memory text included: what is rendered here has neither, and says the same.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hymem.contract import (
    AS_IT_IS,
    FREE_TEXT,
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
    list_schema,
    shape_of,
)
from hymem.decode import JSON, Decoded, Undecodable, decode, without_thoughts
from hymem.records import Field, Object, Record, folded


def _harmless(text: str) -> bool:
    """Whether a parser that takes out fences and the letters `json` leaves this valid JSON as it is."""
    return "```" not in text and "json" not in text


def _dumps(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("```", "\\u0060\\u0060\\u0060").replace("json", "\\u006ason")


# -- of which kinds they are ----------------------------------------------------------------------


def _of_items(
    name: str,
    keys: Sequence[str],
    item: Callable[[JSON], Item[Any] | None],
    schema: Mapping[str, JSON],
    *,
    empty: JSON = None,
) -> Contract[list[Any]]:
    """A list at the top of the reply. A server is asked for an object that holds it, since that can be
    bounded; and models put one around it by themselves."""

    def check(value: JSON, facts: CallFacts) -> Parsed[list[Any]] | Violation:
        if isinstance(value, list):
            return checked_items({keys[0]: value}, keys, item)
        alone = isinstance(value, dict) and not any(key in value for key in keys)
        parsed = checked_items({keys[0]: [value]} if alone else value, keys, item)
        if isinstance(parsed, Parsed):
            parsed.changed = True
        return parsed

    return Contract(
        name=f"memos_{name}",
        schema=list_schema(keys[0], schema),
        keys=tuple(keys),
        check=check,
        render=_dumps,
        as_sent=_harmless,
        unchanged=lambda facts: _dumps([] if empty is None else empty),
    )


def _of_object(
    name: str, record: Record, *, unchanged: JSON = None, writes: Callable[[Object], bool] = bool
) -> Contract[Object]:
    """One object. `unchanged`: what makes MemOS leave everything as it is."""

    def check(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict):
            return Violation("$", "an object", shape_of(value))
        made = record.item(value)
        if made is None:
            missing = next(each.name for each in record.fields if each.of(value) is None)
            return Violation(missing, "a value that can be used", shape_of(value.get(missing)))
        found = value if made is AS_IT_IS else made.value
        return Parsed(found, int(writes(found)), changed=found != value)

    return Contract(
        name=f"memos_{name}",
        schema=record.schema(),
        keys=tuple(each.name for each in record.fields if each.default is None),
        check=check,
        render=_dumps,
        as_sent=_harmless,
        unchanged=None if unchanged is None else lambda facts: _dumps(unchanged),
    )


# -- what the mem reader extracts ------------------------------------------------------------------

_KINDS = {
    "longtermmemory": "LongTermMemory",
    "长期记忆": "LongTermMemory",
    "usermemory": "UserMemory",
    "用户记忆": "UserMemory",
}
_VALUE = Field("value", others=("text", "memory", "content", "fact"))
_KEY = Field("key", others=("title", "name"), default="", may_be_empty=True)
_TAGS = Field("tags", "texts", default=[])
_SUMMARY = Field("summary", default="", may_be_empty=True)
_LIST = ("memory list", "memory_list", "memories", "memoryList")
_TYPED = Field("memory_type", ("LongTermMemory", "UserMemory"), default="LongTermMemory")
_MEMORY = Record((_KEY, _TYPED, _VALUE, _TAGS))


def _memory(value: JSON) -> Item[Object] | None:
    """A memory; of an unknown type it is what MemOS itself takes in the place of one, long-term."""
    if isinstance(value, str):
        value = {"value": value}
    if not isinstance(value, dict):
        return None
    kind = _KINDS.get(folded(value.get("memory_type")))
    typed = value if kind is None else {**value, "memory_type": kind}
    made = _MEMORY.item(typed)
    if made is None or typed == value:
        return made
    return Item(typed if made is AS_IT_IS else made.value, changed=True)


def _memories(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Memories and the summary they come with. A single memory may stand in the place of the list."""
    if isinstance(value, dict) and not any(key in value for key in _LIST) and _VALUE.of(value):
        value = [value]
    parsed = checked_items(value, _LIST, _memory)
    if isinstance(parsed, Violation):
        return parsed
    summary = value.get("summary") if isinstance(value, dict) else None
    changed = parsed.changed or not isinstance(value, dict) or not isinstance(summary, str)
    made = {"memory list": parsed.value, "summary": summary if isinstance(summary, str) else ""}
    return Parsed(made, parsed.kept, parsed.dropped, changed)


def _memories_or_one(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """As above; and a memory by itself, which the prompts for documents ask for, stays by itself."""
    if not isinstance(value, dict) or any(key in value for key in _LIST) or not _VALUE.of(value):
        return _memories(value, facts)
    one = _memory({**value, "key": _KEY.of(value) or (_VALUE.of(value) or "")[:80]})
    if one is None:
        return Violation("value", "a memory", "none")
    made = {**(value if one is AS_IT_IS else one.value), "summary": _SUMMARY.of(value)}
    return Parsed(made, 1, changed=made != value)


_WITH_SUMMARY = list_schema("memory list", _MEMORY.schema())
_MEMORIES_SCHEMA = {
    **_WITH_SUMMARY,
    "properties": {**_WITH_SUMMARY["properties"], "summary": {"type": "string", "maxLength": MAX_TEXT}},
    "required": ["memory list", "summary"],
}
_NO_MEMORIES = {"memory list": [], "summary": ""}


def _reader(name: str, check: Callable[[JSON, CallFacts], Parsed[Object] | Violation]) -> Contract[Object]:
    return Contract(
        name=f"memos_{name}",
        schema=_MEMORIES_SCHEMA,
        keys=(*_LIST, "value"),
        check=check,
        render=_dumps,
        as_sent=_harmless,
        unchanged=lambda facts: _dumps(_NO_MEMORIES),
    )


MEMORIES = _reader("memories", _memories)
"""`{"memory list": [{"key", "memory_type", "value", "tags"}, ...], "summary"}`."""
MEMORIES_OR_ONE = _reader("memories_or_one", _memories_or_one)
"""That, or one `{"key", "value", "tags", "summary"}`."""


def _document(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """One memory of one piece of a document. A list of them is one too many for its parser."""
    found = next((value[key] for key in _LIST if key in value), value) if isinstance(value, dict) else value
    listed = found if isinstance(found, list) else [found]
    items = [(each, _memory(each)) for each in listed]
    made = [each if item is AS_IT_IS else item.value for each, item in items if item is not None]
    if not made:
        return Violation("value", "a memory", shape_of(value))
    if len(made) > 1:
        text = "\n".join(each["value"] for each in made)
        tags = list(dict.fromkeys(tag for each in made for tag in each["tags"]))
        made[0] = {**made[0], "value": text, "tags": tags}
    return Parsed(made[0], 1, len(listed) - len(made), changed=made[0] != value)


DOCUMENT: Contract[Object] = Contract(
    name="memos_document",
    schema=_MEMORY.schema(),
    keys=("value", *_LIST, "text", "content"),
    check=_document,
    render=_dumps,
    as_sent=_harmless,
    unchanged=lambda facts: _dumps({}),
)
"""`{"key", "value", "tags", "memory_type"}`. Of several, the texts one after the other."""


def _naive(value: JSON) -> Item[Object] | None:
    """A memory and its metadata. The prompt asks for a type beside the text, and shows it inside."""
    if isinstance(value, str):
        value = {"memory": value}
    text = (
        Field("memory", others=("value", "text", "content", "fact")).of(value)
        if isinstance(value, dict)
        else None
    )
    if text is None:
        return None
    metadata = value.get("metadata") if isinstance(value.get("metadata"), dict) else {}
    kind = value.get("type", metadata.get("type"))
    made = {"memory": text, "metadata": {"type": kind} if isinstance(kind, str) and kind else {}}
    return AS_IT_IS if made == value else Item(made, changed=True)


NAIVE = _of_items(
    "naive",
    ("memories", "memory list"),
    _naive,
    Record((Field("memory"), Field("type"))).schema(),
)
"""`[{"memory", "metadata": {"type"}}, ...]`."""


# -- preferences -----------------------------------------------------------------------------------


def _preferences(name: str) -> Contract[list[Any]]:
    own = f"{name}_preference"
    record = Record(
        (
            Field(own, others=("preference", f"{name}_preferences")),
            Field("context_summary", others=("context", "summary")),
            Field("reasoning", default="", may_be_empty=True),
            Field("topic", default="", may_be_empty=True),
        )
    )
    return _of_items(f"{name}_preferences", ("preferences", f"{own}s"), record.item, record.schema())


EXPLICIT = _preferences("explicit")
"""`[{"explicit_preference", "context_summary", "reasoning", "topic"}, ...]`."""
IMPLICIT = _preferences("implicit")
"""The same with `implicit_preference`."""


@dataclass(frozen=True)
class _OneOrNone(Contract[Any]):
    """One preference, or `null`, on which MemOS stores nothing: its prompt has the field left empty then."""

    def _read_json(
        self, decoded: Decoded | Undecodable, reply: RawReply, facts: CallFacts
    ) -> Reading[Any] | Violation:
        found = decoded.value if isinstance(decoded, Decoded) else None
        if isinstance(found, dict) and found.get("implicit_preference", "-") in ("", None):
            return Reading(None, "null", 0, 0, frozenset({"normalised"}))
        return super()._read_json(decoded, reply, facts)


_IMPLICIT_ONE = _of_object(
    "implicit_preference",
    Record(
        (
            Field("implicit_preference", others=("preference",)),
            Field("context_summary", others=("context", "summary")),
            Field("reasoning", default="", may_be_empty=True),
            Field("topic", default="", may_be_empty=True),
        )
    ),
)
IMPLICIT_ONE: Contract[Any] = _OneOrNone(
    **{each.name: getattr(_IMPLICIT_ONE, each.name) for each in dataclasses.fields(_IMPLICIT_ONE)}
)
"""`{"implicit_preference", "context_summary", "reasoning", "topic"}`, of 1.1."""

SAME = _of_object("same", Record((Field("is_same", "flag"),)), writes=lambda made: False)
"""`{"is_same": bool}`: whether a new preference says what an old one does."""
DUPLICATE = _of_object(
    "duplicate", Record((Field("exists", "flag"),)), unchanged={"exists": False}, writes=lambda made: False
)
"""`{"exists": bool}`: whether a textual memory holds a preference already."""


def _preference_update(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """An update names what it overwrites and with what; one that does not is none."""
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    wanted = Field("need_update", "flag").of(value)
    if wanted is None:
        return Violation("need_update", "true or false", shape_of(value.get("need_update")))
    names = ("id", "new_memory", "new_preference")
    if wanted and any(Field(name).of(value) is None for name in names):
        return Violation("need_update", "an id and new texts with it", "not all of them")
    made = {**value, "need_update": wanted}
    return Parsed(made, int(wanted), changed=made != value, overwrites=wanted)


PREFERENCE_UPDATE: Contract[Object] = Contract(
    name="memos_preference_update",
    schema=Record(
        (Field("need_update", "flag"), Field("id"), Field("new_memory"), Field("new_preference"))
    ).schema(),
    keys=("need_update",),
    check=_preference_update,
    render=_dumps,
    as_sent=_harmless,
    unchanged=lambda facts: _dumps({"need_update": False}),
)
"""`{"need_update": bool, "id"?, "new_memory"?, "new_preference"?}`; MemOS looks the id up."""


def _traced(value: JSON) -> Item[Object] | None:
    """One operation on preferences. MemOS looks up the ids of additions and updates; not those of deletions,
    whose id therefore has to be text at least."""
    if not isinstance(value, dict):
        return None
    kind = Field("type", ("add", "update", "delete"), others=("operation", "op")).of(value)
    needs = {"add": ("target_id",), "delete": ("target_id",)}.get(
        str(kind), ("target_id", "new_preference", "new_context_summary")
    )
    if kind is None or any(Field(name).of(value) is None for name in needs):
        return None
    made = {**value, "type": kind if folded(value.get("type")) != kind else value["type"]}
    return Item(made, changed=made != value, overwrites=kind != "add")


def _trace(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    parsed = checked_items(value, ("trace", "operations"), _traced)
    if isinstance(parsed, Violation):
        return parsed
    if parsed.dropped or not parsed.value:  # without a reply MemOS adds what is new; with a part of one, not
        return Violation("trace", "every operation", "some that cannot be used, or none")
    whole = {**(value if isinstance(value, dict) else {}), "trace": parsed.value}
    return Parsed(whole, parsed.kept, parsed.dropped, parsed.changed, parsed.overwrites)


TRACE: Contract[Object] = Contract(
    name="memos_preference_operations",
    schema=list_schema(
        "trace",
        Record(
            (
                Field("type", ("add", "update", "delete")),
                Field("target_id"),
                Field("new_preference"),
                Field("new_context_summary"),
            )
        ).schema(),
    ),
    keys=("trace", "operations"),
    check=_trace,
    render=_dumps,
    as_sent=_harmless,
)
"""`{"trace": [{"type", "target_id", "new_preference"?, "new_context_summary"?}, ...]}`. There is no
reply that changes nothing: on an empty one MemOS dies, and on none it adds what is new."""


# -- tools and skills ------------------------------------------------------------------------------

_TRAJECTORY = Record(
    (
        Field("trajectory"),
        Field("correctness", default="", may_be_empty=True),
        Field("experience", default="", may_be_empty=True),
        Field("tool_used_status", "any", default=[]),
    )
)


def _trajectory(value: JSON) -> Item[Object] | None:
    made = _TRAJECTORY.item(value)
    if made is None:
        return None
    found = value if made is AS_IT_IS else made.value
    listed = found["tool_used_status"]
    tools = [each for each in (listed if isinstance(listed, list) else [listed]) if isinstance(each, dict)]
    return made if tools == listed else Item({**found, "tool_used_status": tools}, changed=True)


_USED_TOOL = Record(
    tuple(Field(name) for name in ("used_tool", "success_rate", "error_type", "tool_experience"))
).schema()
TRAJECTORIES = _of_items(
    "trajectories",
    ("trajectories", "memories", "trajectory_list"),
    _trajectory,
    {
        **_TRAJECTORY.schema(),
        "properties": {
            **_TRAJECTORY.schema()["properties"],
            "tool_used_status": {"type": "array", "items": _USED_TOOL, "maxItems": 16},
        },
    },
)
"""`[{"trajectory", "correctness", "experience", "tool_used_status"}, ...]`."""


def _task(value: JSON) -> Item[Object] | None:
    """A task and its messages: numbers, or pairs of the first and the last."""
    if not isinstance(value, dict):
        return None
    name = Field("task_name", others=("name", "task")).of(value)
    listed = value.get("message_indices", value.get("indices"))
    if name is None or not isinstance(listed, list):
        return None
    found = [each for each in map(_range, listed) if each is not None]
    if not found:
        return None
    made = {**value, "task_name": name, "message_indices": found}
    return Item(made, changed=made != value)


def _range(value: JSON) -> JSON:
    numbers = value if isinstance(value, list) else [value]
    good = len(numbers) in (1, 2) and all(isinstance(each, int) and each >= 0 for each in numbers)
    return value if good else None


TASKS = _of_items(
    "tasks",
    ("tasks", "task_list"),
    _task,
    {
        "type": "object",
        "properties": {
            "task_name": {"type": "string", "maxLength": 200},
            "message_indices": {
                "type": "array",
                "maxItems": MAX_ITEMS,
                "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            },
        },
        "required": ["task_name", "message_indices"],
        "additionalProperties": False,
    },
)
"""`[{"task_name", "message_indices": [[first, last], ...]}, ...]`."""

_SKILL = Record(
    (
        Field("name", others=("skill_name",)),
        Field("description"),
        Field("procedure", "any", default=""),
        Field("experience", "texts", default=[]),
        Field("preference", "texts", default=[]),
        Field("examples", "texts", default=[]),
        Field("tags", "texts", default=[]),
        Field("update", "flag", default=False),
        Field("old_memory_id", default="", may_be_empty=True),
    )
)
_NO_SKILL = {"null", "none"}


@dataclass(frozen=True)
class _Skill(Contract[Any]):
    """A skill, or `null`: there is none. An update names the skill that it replaces."""

    def read(self, reply: RawReply, facts: CallFacts) -> Reading[Any] | Violation:
        text = without_thoughts(reply.text)[0].strip().strip("`").removeprefix("json").strip()
        if text.casefold() in _NO_SKILL:
            steps = frozenset() if reply.text.strip() == "null" else frozenset({"normalised"})
            return Reading(None, "null", 0, 0, steps)
        return super().read(reply, facts)


def _skill(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    made = _SKILL.item(value)
    if made is None:
        return Violation("name", "a skill with name and description", shape_of(value))
    found = value if made is AS_IT_IS else made.value
    overwrites = found["update"]
    if overwrites and not found["old_memory_id"]:
        found, overwrites = {**found, "update": False}, False
    return Parsed(found, 1, changed=found != value, overwrites=overwrites)


SKILL: Contract[Any] = _Skill(
    name="memos_skill",
    schema=_SKILL.schema(),
    keys=("name", "skill_name"),
    check=_skill,
    render=_dumps,
    as_sent=_harmless,
    unchanged=lambda facts: "null",
)
"""`{"name", "description", "procedure", ..., "update", "old_memory_id"}`, or `null`."""


def _json_or_text(value: JSON, facts: CallFacts) -> Parsed[str] | Violation:
    """JSON as JSON, without what stands around it; else the text, in a fence or without one."""
    stripped = value.strip()
    fenced = re.fullmatch(r"```\w*\s*\n(.*?)\n?\s*```", stripped, re.DOTALL)
    inner = fenced[1].strip() if fenced else stripped
    if inner[:1] in ("{", "["):
        decoded = decode(inner)
        if isinstance(decoded, Undecodable):
            return Violation("$", "JSON", decoded.reason)
        inner = inner if decoded.as_sent and _harmless(inner) else _dumps(decoded.value)
    return Parsed(inner, kept=1, changed=inner != value)


SKILL_PART: Contract[str] = Contract(
    name="memos_skill_part", schema=None, keys=(), check=_json_or_text, render=str
)
"""A script, a tool or a document that belongs to a skill: JSON for some of its prompts, text for others."""


# -- filters ---------------------------------------------------------------------------------------


def _by_index(
    name: str, record: Record, *, acting: Callable[[Object], bool], whole: bool = False
) -> Contract[Object]:
    """`{"0": {...}, "1": {...}}`: a verdict on each memory, by its place. MemOS passes over what it was not
    asked about. `whole`: it drops a memory without a verdict. A server is asked for a list, since none can
    be held to keys that are numbers."""
    plain = record.schema()
    numbered = {
        **plain,
        "properties": {"index": {"type": "integer"}, **plain["properties"]},
        "required": ["index", *plain["required"]],
    }

    def check(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
        found = value.get("verdicts", value) if isinstance(value, dict) else value
        if isinstance(found, list):
            numbered = [each.get("index") if isinstance(each, dict) else None for each in found]
            if None in numbered:  # to count them would be to guess whose verdict it is
                return Violation("verdicts[0].index", "the number of a memory", "none")
            if len(set(map(str, numbered))) != len(found):
                return Violation("verdicts", "one verdict on each memory", "several")
            found = dict(zip(map(str, numbered), found, strict=True))
        if not isinstance(found, dict):
            return Violation("$", "an object with a verdict by number", shape_of(value))
        made = {}
        for number, verdict in found.items():
            item = record.item(verdict) if number.strip().isdigit() else None
            if item is not None:
                made[number.strip()] = verdict if item is AS_IT_IS else item.value
        if found and not made:
            return Violation("0", "a verdict", shape_of(next(iter(found.values()))))
        if whole and len(made) != len(found):
            return Violation("$", "a verdict on each", "some that cannot be used")
        acts = sum(map(acting, made.values()))
        return Parsed(made, acts, len(found) - len(made), changed=made != value, overwrites=bool(acts))

    return Contract(
        name=f"memos_{name}",
        schema=list_schema("verdicts", numbered),
        keys=("verdicts", "0"),
        check=check,
        render=_dumps,
        as_sent=_harmless,
        unchanged=lambda facts: _dumps({}),
    )


_REASON = Field("reason", default="", may_be_empty=True)
KEPT = _by_index("kept", Record((Field("keep", "flag"), _REASON)), acting=lambda verdict: not verdict["keep"])
"""`{"0": {"keep": bool, "reason"}, ...}`: which of some memories are dropped."""
REWRITTEN = _by_index(
    "rewritten",
    Record((Field("need_rewrite", "flag"), Field("rewritten", default="", may_be_empty=True), _REASON)),
    acting=lambda verdict: bool(verdict["need_rewrite"]),
    whole=True,
)
"""`{"0": {"need_rewrite": bool, "rewritten", "reason"}, ...}`."""


# -- merging and reorganising ----------------------------------------------------------------------


def _merge(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """Nothing is merged without its text, nor without the ids it is made of: MemOS would take all."""
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    wanted = Field("should_merge", "flag").of(value)
    if wanted is None:
        return Violation("should_merge", "true or false", shape_of(value.get("should_merge")))
    merged = Field("merged_from", "texts").of(value)
    if wanted and (Field("value").of(value) is None or not merged):
        return Violation("merged_from", "a text and the ids it is made of", "not both")
    made = {**value, "should_merge": wanted} | ({"merged_from": merged} if wanted else {})
    return Parsed(made, int(wanted), changed=made != value, overwrites=wanted)


MERGE: Contract[Object] = Contract(
    name="memos_merge",
    schema=Record((Field("should_merge", "flag"), Field("value"), Field("merged_from", "texts"))).schema(),
    keys=("should_merge",),
    check=_merge,
    render=_dumps,
    as_sent=_harmless,
    unchanged=lambda facts: _dumps({"should_merge": False}),
)
"""`{"should_merge": bool, "value", "merged_from": [id, ...]}`."""


def _cluster(value: JSON) -> Item[Object] | None:
    ids = value.get("ids", value.get("members")) if isinstance(value, dict) else value
    found = [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else []
    if not found:
        return None
    made = {**(value if isinstance(value, dict) else {}), "ids": found}
    return Item(made, changed=made != value)


def _clusters(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    parsed = checked_items(value, ("clusters", "groups"), _cluster)
    if isinstance(parsed, Violation):
        return parsed
    return Parsed({"clusters": parsed.value}, parsed.kept, parsed.dropped, parsed.changed)


CLUSTERS: Contract[Object] = Contract(
    name="memos_clusters",
    schema=list_schema("clusters", Record((Field("ids", "texts"), Field("theme"))).schema()),
    keys=("clusters", "groups"),
    check=_clusters,
    render=_dumps,
    as_sent=_harmless,
    unchanged=lambda facts: _dumps({"clusters": []}),
)
"""`{"clusters": [{"ids": [id, ...]}, ...]}`; MemOS looks ids up."""

TOPIC = _of_object("topic", Record((_KEY, _VALUE, _TAGS, _SUMMARY)))
"""`{"key", "value", "tags", "summary"}`: the memory that stands over a cluster. One without a text would be
an empty memory."""


# -- words -----------------------------------------------------------------------------------------


_AROUND = frozenset(
    ["the", "these", "two", "both", "statements", "memories", "are", "is", "they", "relation"]
)
_AROUND |= {"relationship", "answer", "result", "so", "it", "clearly"}
"""What may stand around the one word. Anything else may turn its meaning about."""


def _word(
    name: str, words: Mapping[str, str], *, unchanged: str | None, writes: str = "", leading: bool = False
) -> Contract[str]:
    """One of some words by itself; MemOS compares it to the letter. `leading`: it may be followed by why."""

    def check(value: JSON, facts: CallFacts) -> Parsed[str] | Violation:
        said = re.sub(r"[^\w]+", " ", value).strip().casefold().split()
        inside = [words[each] for each in said if each in words]
        plain = all(each in words or each in _AROUND for each in said) or (leading and said[:1] == inside)
        if len(inside) != 1 or not plain:
            return Violation("$", f"one of {', '.join(dict.fromkeys(words.values()))}", "something else")
        return Parsed(inside[0], int(inside[0] in writes.split()), changed=inside[0] != value)

    return Contract(
        name=f"memos_{name}",
        schema=None,
        keys=(),
        check=check,
        render=str,
        unchanged=None if unchanged is None else lambda facts: unchanged,
    )


RELATION = _word(
    "relation",
    {word: word for word in ("contradictory", "redundant", "independent")},
    unchanged="independent",
    writes="contradictory redundant",
)
"""`contradictory`, `redundant` or `independent`."""
YES_OR_NO = _word("yes_or_no", {"yes": "yes", "no": "no"}, unchanged="no", writes="yes", leading=True)
"""`yes` or `no`: MemOS looks for a yes in whatever is said."""


def _answer(value: JSON, facts: CallFacts) -> Parsed[str] | Violation:
    """One memory in the place of two. `No` has MemOS delete the older: it is taken if it is plainly said."""
    found = re.findall(r"<answer>(.*?)</answer>", value, re.DOTALL | re.IGNORECASE)
    texts = {each.strip() for each in found}
    if len(texts) != 1:
        return Violation("<answer>", "one answer", f"{len(texts)}")
    text = texts.pop()
    if not text:
        return Violation("<answer>", "a memory", "an empty text")
    refused = text.strip(" .").casefold() == "no"
    if not refused and len(text) <= 10 and "no" in text.casefold():
        # A short memory with these letters in it, which MemOS would take for a no and delete by.
        return Violation("<answer>", "a memory, or No", "a text that is taken for a No")
    made = f"<answer>{'No' if refused else text}</answer>"
    return Parsed(made, 1, changed=made != value.strip(), overwrites=True)


ANSWER: Contract[str] = Contract(name="memos_answer", schema=None, keys=(), check=_answer, render=str)
"""`<answer>...</answer>`. It replaces two memories by one, so nothing stands for "nothing changed"."""

_PAIRS = ("CAUSE", "CONDITION", "RELATE", "CONFLICT", "NONE")


def _reasoned(value: JSON, facts: CallFacts) -> Parsed[str] | Violation:
    """A relation, which is compared to the letter, an object, or a fact as it is."""
    word = value.strip(" \n\t.\"'*`").upper()
    if word in _PAIRS:
        return Parsed(word, int(word != "NONE"), changed=word != value)
    return _json_or_text(value, facts)


REASONED: Contract[str] = Contract(
    name="memos_reasoned", schema=None, keys=(), check=_reasoned, render=str, unchanged=lambda facts: "NONE"
)
TEXT = FREE_TEXT


# -- feedback --------------------------------------------------------------------------------------


def _keyword(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    """`true` and `false` are text here. A replacement needs both words."""
    if not isinstance(value, dict):
        return Violation("$", "an object", shape_of(value))
    wanted = Field("if_keyword_replace", "flag").of(value)
    if wanted is None:
        return Violation("if_keyword_replace", "true or false", shape_of(value.get("if_keyword_replace")))
    words = {name: Field(name).of(value) for name in ("original", "target")}
    if wanted and not all(words.values()):
        return Violation("original", "the word and what it is replaced with", "not both")
    made = {**value, "if_keyword_replace": str(wanted).lower()}
    if wanted:
        made |= {"doc_scope": value.get("doc_scope") or "NONE", **words}
    return Parsed(made, int(wanted), changed=made != value, overwrites=wanted)


KEYWORD: Contract[Object] = Contract(
    name="memos_keyword",
    schema=Record(
        (
            Field("if_keyword_replace", ("true", "false")),
            Field("doc_scope"),
            Field("original"),
            Field("target"),
        )
    ).schema(),
    keys=("if_keyword_replace",),
    check=_keyword,
    render=_dumps,
    as_sent=_harmless,
    unchanged=lambda facts: _dumps({"if_keyword_replace": "false"}),
)
"""`{"if_keyword_replace": "true" | "false", "doc_scope", "original", "target"}`."""

_JUDGED = Record(
    (
        Field("validity", ("true", "false")),
        Field("user_attitude", ("dissatisfied", "satisfied", "irrelevant")),
        Field("corrected_info", default="", may_be_empty=True),
        Field("key", default="", may_be_empty=True),
        Field("tags", "texts", default=[]),
    )
)


def _judged(value: JSON) -> Item[Object] | None:
    if not isinstance(value, dict) or not isinstance(value.get("validity"), bool):
        return _JUDGED.item(value)
    worded = {**value, "validity": str(value["validity"]).lower()}
    made = _JUDGED.item(worded)
    return Item(worded, changed=True) if made is AS_IT_IS else made


JUDGED = _of_items(
    "judged",
    ("judgements", "feedback"),
    _judged,
    _JUDGED.schema(),
    empty=[{"validity": "false", "user_attitude": "satisfied", "corrected_info": "", "key": "", "tags": []}],
)
"""`[{"validity": "true" | "false", "user_attitude", "corrected_info", "key", "tags"}, ...]`."""


def _operation(value: JSON) -> Item[Object] | None:
    """MemOS looks up ids, and mends those that are nearly right."""
    if not isinstance(value, dict):
        return None
    kind = Field("operation", ("ADD", "UPDATE", "NONE"), others=("event", "action")).of(value)
    if kind is None or (kind == "ADD" and Field("text").of(value) is None):
        return None
    whole = all(Field(name).of(value) is not None for name in ("id", "text", "old_memory"))
    if kind == "UPDATE" and not whole:
        if Field("text").of(value) is None:
            return None
        kind = "ADD"
    made = {**value, "operation": kind}
    if "id" in value and isinstance(value["id"], int):
        made["id"] = str(value["id"])
    return Item(made, changed=made != value, overwrites=kind == "UPDATE", writes=kind != "NONE")


def _operations(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    parsed = checked_items(value, ("operations", "operation"), _operation)
    if isinstance(parsed, Violation):
        return parsed
    return Parsed(
        {"operations": parsed.value}, parsed.kept, parsed.dropped, parsed.changed, parsed.overwrites
    )


def _listed(name: str, record: Record, key: str, **rest: Any) -> Contract[Object]:
    return Contract(
        name=f"memos_{name}",
        schema=list_schema(key, record.schema()),
        render=_dumps,
        as_sent=_harmless,
        unchanged=lambda facts: _dumps({key: []}),
        **rest,
    )


OPERATIONS = _listed(
    "operations",
    Record((Field("id"), Field("text"), Field("operation", ("ADD", "UPDATE", "NONE")), Field("old_memory"))),
    "operations",
    keys=("operations", "operation"),
    check=_operations,
)
"""`{"operations": [{"id", "text", "operation": "ADD" | "UPDATE" | "NONE", "old_memory"?}, ...]}`."""

_APPROVED = Record(
    (Field("id"), Field("judgement", ("UPDATE_APPROVED", "INVALID", "NONE"), ("judgment",)), _REASON)
)


def _approved(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    parsed = checked_items(value, ("operations_judgement", "judgements", "operations"), _APPROVED.item)
    if isinstance(parsed, Violation):
        return parsed
    kept = sum(each["judgement"] == "UPDATE_APPROVED" for each in parsed.value)
    made = {"operations_judgement": parsed.value}
    return Parsed(made, kept, parsed.dropped, parsed.changed, overwrites=bool(kept))


APPROVED = _listed(
    "approved",
    _APPROVED,
    "operations_judgement",
    keys=("operations_judgement", "judgements", "operations"),
    check=_approved,
)
"""`{"operations_judgement": [{"id", "judgement", "reason"}, ...]}`; what is not approved is not updated."""


# -- dreams ----------------------------------------------------------------------------------------

MOTIVES = _of_items(
    "motives",
    ("motives",),
    Record((Field("description"), Field("memory_ids", "texts"))).item,
    Record((Field("motive_id"), Field("description"), Field("memory_ids", "texts"))).schema(),
)
"""`[{"motive_id"?, "description", "memory_ids"}, ...]`."""
INSIGHT = _of_object(
    "insight",
    Record(
        (
            Field("dream_content", others=("content",), default="", may_be_empty=True),
            Field("hypothetical_question", default="", may_be_empty=True),
        )
    ),
    unchanged={"dream_content": ""},
    writes=lambda made: bool(made["dream_content"]),
)
"""`{"dream_content", "hypothetical_question"}`; without content there is no dream."""


def _binding(value: JSON) -> Item[Object] | None:
    ids = value.get("ids", value.get("memory_ids")) if isinstance(value, dict) else None
    return AS_IT_IS if isinstance(ids, list) and ids else None


def _bindings(value: JSON, facts: CallFacts) -> Parsed[Object] | Violation:
    parsed = checked_items(value, ("contexts",), _binding)
    if isinstance(parsed, Violation):
        return parsed
    return Parsed({"contexts": parsed.value}, parsed.kept, parsed.dropped, parsed.changed)


BINDING = _listed(
    "binding",
    Record((Field("ids", "texts"), Field("confidence", "any"))),
    "contexts",
    keys=("contexts",),
    check=_bindings,
)
"""`{"contexts": [{"ids", "confidence"}, ...]}`."""
CONTEXT = _of_object(
    "context", Record((Field("key"), Field("memory"), Field("confidence", "any", default=0.5)))
)
"""`{"key", "memory", "confidence"}`."""
