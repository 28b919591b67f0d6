"""What Mem0's parsers accept, and what of a reply is made into it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from hymem.contract import (
    AS_IT_IS,
    FREE_TEXT,
    MAX_TEXT,
    TEXT_NAMES,
    CallFacts,
    Contract,
    Item,
    Parsed,
    Violation,
    checked_items,
    items_of,
    list_schema,
    text_item,
    text_list,
)
from hymem.decode import JSON

_TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}


def _harmless(text: str) -> bool:
    """Whether Mem0's `remove_code_blocks` leaves a text of valid JSON as it is: from 1.0.0 on it
    takes closed think blocks out of the whole reply, memory text included."""
    return "<think>" not in text


def _dumps(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("<think>", "\\u003cthink>")  # the same string to JSON, no tag to a pattern


# -- 0.1 and 1.0, step 1: facts ------------------------------------------------------------------

FACTS = text_list("mem0_facts", "facts", "memories", "memory", as_sent=_harmless, dumps=_dumps)
"""`{"facts": [str, ...]}`. 0.1 raises on an item that is an object, 1.0 flattens it."""


# -- 0.1 and 1.0, step 2: what to do with each ---------------------------------------------------

Operation = dict[str, Any]
EVENTS = ("ADD", "UPDATE", "DELETE", "NONE")
_SAME_EVENT = {"NOOP": "NONE", "NO_CHANGE": "NONE", "NO CHANGE": "NONE", "UNCHANGED": "NONE"}


def _operations(value: JSON, facts: CallFacts) -> Parsed[list[Operation]] | Violation:
    """Operations on the memories that this request offered, by the ids it offered them under.

    An UPDATE of an id that was not offered keeps its text, as an ADD; a DELETE of one is dropped.
    So does a second UPDATE of one memory. Where different decisions are made on one memory, or
    the old text an operation quotes is that of another, the whole reply is a violation: the model
    has mixed up ids, and nothing may be overwritten on a guess.
    """
    found = items_of(value, ("memory", "memories"))
    if isinstance(found, Violation):
        return found
    decided: dict[str, str] = {}
    for at, item in enumerate(found[0]):
        event = _event(item) if isinstance(item, dict) else None
        if event is None:
            continue
        if _quotes_another(item, facts):
            return Violation(f"memory[{at}]", "the old text of the id it names", "that of another id")
        if event != "ADD" and decided.setdefault(_id(item), event) != event and _id(item) in facts.offered:
            return Violation(f"memory[{at}]", "one decision on an id", "different ones")
    overwritten: dict[str, str] = {}

    def operation(item: JSON) -> Item[Operation] | None:
        return _operation(item, facts, overwritten)

    return checked_items(value, ("memory", "memories"), operation)


def _operation(item: JSON, facts: CallFacts, overwritten: dict[str, str]) -> Item[Operation] | None:
    if not isinstance(item, dict):
        return None
    event = _event(item)
    found = text_item({name: _inner(item.get(name)) for name in TEXT_NAMES})
    text = found.value if found else ""
    id_ = _id(item)
    known = id_ in facts.offered
    if event in ("UPDATE", "DELETE") and (not known or id_ in overwritten):
        event = "ADD" if event == "UPDATE" and overwritten.get(id_) != text else None
    if event in ("DELETE", "NONE") and not text:
        text = facts.offered.get(id_, "")  # Mem0 passes over an operation without text
    if event is None or (not text and event != "NONE"):
        return None
    overwrites = event in ("UPDATE", "DELETE")
    if overwrites:
        overwritten[id_] = text
    made = {**item, "id": id_, "text": text, "event": event}
    return Item(made, changed=made != item, overwrites=overwrites, writes=event != "NONE")


def _event(item: Operation) -> str | None:
    """The event as Mem0 compares it; None where there is none. A decision is never made up."""
    event = item.get("event")
    if not isinstance(event, str):
        return None
    event = event.strip().upper()
    event = _SAME_EVENT.get(event, event)
    return event if event in EVENTS else None


def _id(item: Operation) -> str:
    """The id as the key Mem0 looks up: it maps strings, and models write numbers."""
    id_ = item.get("id")
    return str(id_) if isinstance(id_, (str, int)) and not isinstance(id_, bool) else ""


def _inner(text: JSON) -> JSON:
    """The string inside a text that came as an object of one."""
    inner = text_item(text) if isinstance(text, dict) else None
    return inner.value if inner else text


def _quotes_another(item: Operation, facts: CallFacts) -> bool:
    event, id_ = _event(item), _id(item)
    if event not in ("UPDATE", "DELETE") or id_ not in facts.offered:
        return False
    quoted = [item.get("old_memory"), item.get("text") if event == "DELETE" else None]
    others = {text for other, text in facts.offered.items() if other != id_} - {facts.offered[id_]}
    return any(isinstance(text, str) and text in others for text in quoted)


DECISION: Contract[list[Operation]] = Contract(
    name="mem0_decision",
    schema=list_schema(
        "memory",
        {
            "type": "object",
            "properties": {
                "id": {"type": "string", "maxLength": 40},
                "text": _TEXT,
                "event": {"type": "string", "enum": list(EVENTS)},
                "old_memory": {"type": "string", "maxLength": MAX_TEXT},
            },
            "required": ["id", "text", "event"],
            "additionalProperties": False,
        },
    ),
    keys=("memory", "memories"),
    check=_operations,
    render=lambda operations: _dumps({"memory": operations}),
    as_sent=_harmless,
    unchanged=lambda facts: _dumps({"memory": []}),
)
"""`{"memory": [{"id", "text", "event", "old_memory"?}, ...]}`, ids as the request numbered them."""


# -- 2.x: one additive extraction ----------------------------------------------------------------


def _addition(item: JSON) -> Item[dict[str, Any]] | None:
    if isinstance(item, dict):
        text = item.get("text")
        if isinstance(text, str) and text.strip():
            return AS_IT_IS
    found = text_item(item)
    if found is None:
        return None
    made = {**item, "text": found.value} if isinstance(item, dict) else {"text": found.value}
    return Item(made, changed=True)


def _additions(value: JSON, facts: CallFacts) -> Parsed[list[dict[str, Any]]] | Violation:
    return checked_items(value, ("memory", "memories", "facts"), _addition)


ADDITIVE: Contract[list[dict[str, Any]]] = Contract(
    name="mem0_additive",
    schema=list_schema(
        "memory",
        {
            "type": "object",
            "properties": {
                "id": {"type": "string", "maxLength": 40},
                "text": _TEXT,
                "attributed_to": {"type": "string", "enum": ["user", "assistant"]},
                "linked_memory_ids": {
                    "type": "array",
                    "items": {"type": "string", "maxLength": 40},
                    "maxItems": 10,
                },
            },
            "required": ["id", "text", "attributed_to"],
            "additionalProperties": False,
        },
    ),
    keys=("memory", "memories", "facts"),
    check=_additions,
    render=lambda items: _dumps({"memory": items}),
    as_sent=_harmless,
    unchanged=lambda facts: _dumps({"memory": []}),
)
"""`{"memory": [{"text", "attributed_to"?, ...}, ...]}`. Mem0 2 reads these two names only, and
raises on an item that is a plain string."""

PROCEDURAL = dataclasses.replace(FREE_TEXT, whole=False)
"""The text of a procedural memory, stored as it comes: of one that was cut, what there is."""


# -- the graph, before 2 -------------------------------------------------------------------------


def _graph(
    tool: str, names: dict[str, tuple[str, ...]], *, deletes: bool = False
) -> Contract[list[dict[str, Any]]]:
    """A call `tool({"entities": [...]})`. `names`: field → how else models call it. `deletes`: Mem0
    deletes what it is told there."""

    def entity(item: JSON) -> Item[dict[str, str]] | None:
        if not isinstance(item, dict):
            return None
        made = {name: _first(item, (name, *others)) for name, others in names.items()}
        return Item(made, changed=made != item) if all(made.values()) else None

    def check(calls: JSON, facts: CallFacts) -> Parsed[list[dict[str, Any]]] | Violation:
        found = [items_of(call["arguments"], ("entities",)) for call in calls]
        lists = [each for each in found if not isinstance(each, Violation)]
        if not lists:
            return next(each for each in found if isinstance(each, Violation))
        # Mem0 looks at the first call only.
        items = [item for each, _ in lists for item in each]
        whole = checked_items({"entities": items}, ("entities",), entity)
        if isinstance(whole, Violation):
            return whole
        value = [{"name": tool, "arguments": {"entities": whole.value}}]
        changed = whole.changed or len(calls) != 1 or any(changed for _, changed in lists)
        overwrites = deletes and bool(whole.value)
        return Parsed(value, whole.kept, whole.dropped + len(found) - len(lists), changed, overwrites)

    return Contract(
        name=f"mem0_{tool}",
        schema=None,
        keys=("entities",),
        check=check,
        render=lambda calls: "",
        unchanged=lambda facts: "",
        tools=(tool,),
    )


def _first(item: dict[str, Any], names: tuple[str, ...]) -> str:
    texts = (item.get(name) for name in names)
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")


GRAPH_ENTITIES = _graph("extract_entities", {"entity": ("name",), "entity_type": ("type",)})
"""One call `extract_entities({"entities": [{"entity", "entity_type"}]})`."""

_RELATION = {"source": (), "relationship": ("relation",), "destination": ("target",)}
GRAPH_RELATIONS = _graph("establish_relationships", _RELATION)
"""One call `establish_relationships({"entities": [{"source", "relationship", "destination"}]})`."""
GRAPH_FORGET = _graph("establish_relationships", _RELATION, deletes=True)
"""The same, asked while a memory is deleted (1.0): Mem0 then deletes the relations it is told."""


def _deletions(calls: JSON, facts: CallFacts) -> Parsed[list[dict[str, Any]]] | Violation:
    def deletion(call: JSON) -> Item[dict[str, Any]] | None:
        arguments = call["arguments"]
        named = isinstance(arguments, dict) and all(_first(arguments, (name,)) for name in _RELATION)
        return Item(call, overwrites=True) if named else None

    return checked_items({"tool_calls": calls}, ("tool_calls",), deletion)


GRAPH_DELETIONS: Contract[list[dict[str, Any]]] = Contract(
    name="mem0_delete_graph_memory",
    schema=None,
    keys=("source", "destination"),
    check=_deletions,
    render=lambda calls: "",
    unchanged=lambda facts: "",
    tools=("delete_graph_memory",),
    may_call_nothing=True,
)
"""Any number of calls `delete_graph_memory({"source", "relationship", "destination"})`."""

__all__ = [
    "ADDITIVE", "DECISION", "FACTS", "GRAPH_DELETIONS", "GRAPH_ENTITIES", "GRAPH_FORGET", "GRAPH_RELATIONS",
    "PROCEDURAL",
]  # fmt: skip
