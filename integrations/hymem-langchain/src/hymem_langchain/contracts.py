"""What LangChain's parsers accept, and what of a reply is made into it.

All of them read plain text. Classic memory stores whatever comes back: an empty reply wipes a summary,
a label or a fence becomes an entity, and a triple that is written otherwise is dropped without a word.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hymem.contract import (
    FREE_TEXT,
    MAX_ITEMS,
    CallFacts,
    Contract,
    Item,
    Parsed,
    RawReply,
    Reading,
    Violation,
    checked_items,
    list_schema,
)
from hymem.decode import JSON, Undecodable, decode, salvage, without_thoughts
from hymem.errors import WriteError
from hymem.plan import NO_FACTS

NONE = "NONE"
TRIPLE_DELIMITER = "<|>"
SUMMARY_NOW = "summary"
"""The key in `CallFacts.offered` under which the text stands that a new one is to replace."""

MAX_ENTITY = 80
"""Characters. Longer is a sentence, not a name."""


def _unchanged_text(facts: CallFacts) -> str:
    return facts.offered.get(SUMMARY_NOW, "")


def _whole(text: JSON, facts: CallFacts) -> Parsed[str]:
    """A summary replaces the one before, and an echo of it writes nothing."""
    same = text.strip() == _unchanged_text(facts).strip()
    return Parsed(text, kept=0 if same else 1)


SUMMARY: Contract[str] = Contract(
    name="summary", schema=None, keys=(), check=_whole, render=str, unchanged=_unchanged_text
)
"""A conversation's summary, or an entity's: text that is not empty, not cut and no thought."""

HISTORY: Contract[str] = Contract(
    name="history", schema=None, keys=(), check=_whole, render=str, unchanged=lambda facts: ""
)
"""The summary that an agent's history is replaced with. Empty: the history stays, see `seams`."""


@dataclass
class Known:
    """What stands in a scope's `facts`: one for each call inside, in their order, then `others`; and
    why a write among them was skipped, if one was."""

    calls: list[CallFacts] = field(default_factory=list)
    others: CallFacts = field(default_factory=CallFacts)
    skipped: WriteError | None = None
    skips: bool = True
    """Whether an answer without a call changes nothing."""


# -- lists of names ------------------------------------------------------------------------------

_LABEL = re.compile(r"^\s*(?:output|entities|answer|result)\s*:\s*", re.IGNORECASE)
_FENCE = re.compile(r"^```\w*\n(.*?)\n?```\s*$", re.DOTALL)
_BULLET = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s+")
_NO_NAME = frozenset({"", "none", "n/a", "null", "nothing", "no entities"})


def _bare(text: str) -> str:
    """Without a fence around it, or a label before it."""
    text = text.strip()
    fenced = _FENCE.match(text)
    return _LABEL.sub("", fenced[1] if fenced else text).strip()


def _named(text: str) -> Iterable[str]:
    """The names, out of a list in JSON or of what stands between commas and line ends."""
    decoded = decode(text, ("entities",)) if text[:1] in "[{" else Undecodable("text")
    if not isinstance(decoded, Undecodable):
        found = decoded.value.get("entities") if isinstance(decoded.value, dict) else decoded.value
        if isinstance(found, list):
            return [str(each) for each in found if isinstance(each, (str, int))]
    return [part for line in text.splitlines() for part in _BULLET.sub("", line).split(",")]


def _entities(text: JSON, facts: CallFacts) -> Parsed[list[str]] | Violation:
    names: list[str] = []
    for each in _named(_bare(text)):
        name = each.strip().strip("\"'`[]").strip().replace(",", "")
        if name.rstrip(".").lower() in _NO_NAME:
            continue
        if len(name) > MAX_ENTITY or "\n" in name:
            return Violation("$", "names between commas", "a sentence")
        if name not in names:
            names.append(name)
    return Parsed(names, kept=len(names), changed=_join(names) != text.strip())


def _join(names: list[str]) -> str:
    return ", ".join(names) or NONE


ENTITIES: Contract[list[str]] = Contract(
    name="entities", schema=None, keys=(), check=_entities, render=_join, unchanged=lambda facts: NONE
)
"""Names between commas, or `NONE`."""

# -- triples of knowledge ------------------------------------------------------------------------

Triple = tuple[str, str, str]
_TRIPLE = re.compile(r"\(([^()]{1,600})\)")
_PARTS = ("subject", "predicate", "object")


def _triples(text: JSON, facts: CallFacts) -> Parsed[list[Triple]] | Violation:
    bare = _bare(text)
    if bare.rstrip(".").lower() in _NO_NAME - {""}:
        return Parsed([], kept=0, changed=bare != NONE)
    found, dropped = _triples_in(bare) if bare[:1] in "[{" else ([], 0)
    if not found:
        made = [_triple_of(each) for each in _in_brackets(bare)]
        found, dropped = [each for each in made if each is not None], made.count(None)
    if not found:
        return Violation("$", "triples in brackets", "none that can be used")
    return Parsed(found, kept=len(found), dropped=dropped, changed=_to_triples(found) != text.strip())


def _in_brackets(text: str) -> Iterable[str]:
    """What stands in brackets, of which there may be more inside."""
    for piece in re.split(r"<\|>|\n", text):
        inner = piece.strip()
        if inner[:1] == "(" and inner[-1:] == ")" and not re.search(r"\)\s*,?\s*\(", inner):
            yield inner[1:-1]
        else:
            yield from _TRIPLE.findall(inner)


def _triples_in(text: str) -> tuple[list[Triple], int]:
    decoded = decode(text, ("triples", "knowledge"))
    value = None if isinstance(decoded, Undecodable) else decoded.value
    if isinstance(value, dict):
        value = next((value[key] for key in ("triples", "knowledge") if key in value), [value])
    rows = value if isinstance(value, list) else []
    made = [_triple_in(row) for row in rows]
    return [each for each in made if each is not None], made.count(None)


def _triple_in(row: JSON) -> Triple | None:
    parts: Any = [row.get(name) for name in _PARTS] if isinstance(row, dict) else row
    if not isinstance(parts, list) or len(parts) != 3 or not all(isinstance(each, str) for each in parts):
        return None
    return _clean(parts)


def _triple_of(text: str) -> Triple | None:
    """Of what stands in brackets. A comma more belongs to the object: the parser would drop it all."""
    parts = [each.strip() for each in text.split(",", 2)]
    return _clean(parts) if len(parts) == 3 else None


def _clean(parts: list[str]) -> Triple | None:
    subject, predicate, thing = (
        re.sub(r"\s*,\s*", "; ", each.strip().strip("\"'").replace("(", "").replace(")", ""))
        for each in parts
    )
    return (subject, predicate, thing) if subject and predicate and thing else None


def _to_triples(triples: list[Triple]) -> str:
    return TRIPLE_DELIMITER.join(f"({', '.join(triple)})" for triple in triples) or NONE


TRIPLES: Contract[list[Triple]] = Contract(
    name="triples", schema=None, keys=(), check=_triples, render=_to_triples, unchanged=lambda facts: NONE
)
"""`(subject, predicate, object)<|>...`, or `NONE`."""

# -- what a caller wants in a shape of its own ---------------------------------------------------


def structured(schema: JSON) -> Contract[JSON]:
    """JSON of the schema that `with_structured_output` was given."""
    properties = schema.get("properties") if isinstance(schema, dict) else None

    def check(value: JSON, facts: CallFacts) -> Parsed[JSON] | Violation:
        if not isinstance(value, dict):
            return Violation("$", "an object", type(value).__name__)
        return Parsed(value, kept=1)

    return Contract(
        name="structured",
        schema=schema,
        keys=tuple(properties or ()),
        check=check,
        render=lambda value: json.dumps(value, ensure_ascii=False),
    )


# -- calls of functions --------------------------------------------------------------------------

Call = dict[str, Any]
"""`{"name": str, "arguments": dict}`."""
PATCH, REMOVE, DONE = "PatchDoc", "RemoveDoc", "Done"
"""trustcall's own functions, which change and delete what `CallFacts.offered` has, and langmem's, which
ends a write of several steps."""
REPAIR = "PatchFunctionErrors"
"""What trustcall has a call repaired with that is not of its schema."""


_CALLS = ("calls", "tool_calls", "function_calls")


@dataclass(frozen=True)
class Calls(Contract[list[Call]]):
    """Calls of the functions that `bind_tools` was given: as the server parsed them, or in JSON."""

    def read(self, reply: RawReply, facts: CallFacts) -> Reading[list[Call]] | Violation:
        if reply.tool_calls:
            if reply.cut:
                return Violation("$", "a finished reply", "one that was cut")
            reply = _in_json(reply)
        found = self._read_json(decode(reply.text, self.keys), reply, facts)
        if isinstance(found, Reading) or reply.cut or not self.may_call_nothing:
            return found
        said, _ = without_thoughts(reply.text)
        if not said.strip() or self._speaks_of_a_call(said):
            return found
        return Reading([], said, kept=0)

    def salvage(self, reply: RawReply, facts: CallFacts) -> Reading[list[Call]] | Violation:
        reply = _in_json(reply) if reply.tool_calls else reply
        return self._read_json(salvage(reply.text, self.keys), reply, facts)


def _in_json(reply: RawReply) -> RawReply:
    made = {"calls": [call.get("function") for call in reply.tool_calls]}
    return RawReply(json.dumps(made), (), reply.finish_reason)


def calls(
    tools: Sequence[Mapping[str, Any]],
    *,
    required: bool = False,
    native: bool = False,
    skips: bool = True,
    most: int = MAX_ITEMS,
) -> Calls:
    """Of `tools`, as the OpenAI API has them, at least one if `required`, and `most` at most. `native`:
    the server parses them, and text instead of a call is an answer. `skips`: none at all changes nothing."""
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}

    def check(value: JSON, facts: CallFacts) -> Parsed[list[Call]] | Violation:
        alone = isinstance(value, dict) and not any(key in value for key in _CALLS)
        listed = [_named_call(value, functions)] if alone else value
        parsed = checked_items(listed, _CALLS, lambda each: _call(each, functions, facts))
        if isinstance(parsed, Parsed) and facts.offered and PATCH in functions:
            parsed.value, dropped = _one_patch_each(parsed.value, facts)
            parsed.kept -= dropped
            parsed.dropped += dropped
        if isinstance(parsed, Parsed) and required and not parsed.value:
            return Violation("$", f"a call of {' or '.join(functions)}", "none")
        return parsed

    return Calls(
        name="calls",
        schema=None if native else _calls_schema(functions, least=int(required), most=most),
        keys=_CALLS,
        check=check,
        render=lambda made: "",
        as_sent=lambda text: False,
        unchanged=(lambda facts: "") if skips else None,
        tools=tuple(functions) if native else (),
        may_call_nothing=native and not required,
    )


def _named_call(value: JSON, functions: Mapping[str, Any]) -> JSON:
    """A lone object: a call, or the arguments of the only function there is."""
    if len(functions) == 1 and "arguments" not in value:
        ((name, function),) = functions.items()
        properties = (function.get("parameters") or {}).get("properties") or {}
        if value and set(value) <= set(properties):
            return {"name": name, "arguments": value}
    return value


def _call(value: JSON, functions: Mapping[str, Any], facts: CallFacts) -> Item[Call] | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):  # as the OpenAI API has it
        value = inner
    name = value.get("name") or value.get("function") or value.get("tool")
    given: JSON = next((value[key] for key in ("arguments", "args", "parameters") if key in value), {})
    if isinstance(given, str):
        decoded = decode(given, ()) if given.strip() else None
        given = {} if decoded is None else None if isinstance(decoded, Undecodable) else decoded.value
    if name not in functions or not isinstance(given, dict):
        return None
    changed = value.keys() != {"name", "arguments"}
    changes = name in (PATCH, REMOVE) and facts is not NO_FACTS
    if changes:
        document = str(given.get("json_doc_id")).strip()
        changed |= document != given.get("json_doc_id")
        given = {**given, "json_doc_id": document}
        if document not in facts.offered:
            return None
        if name == PATCH and not _can_be_patched(facts.offered[document], given):
            return None
    writes = name != DONE and not (name == PATCH and not given.get("patches"))
    return Item({"name": name, "arguments": given}, changed, overwrites=changes, writes=writes)


def _can_be_patched(document: str, arguments: JSON) -> bool:
    """Judged by trustcall itself, which writes one that cannot be to its log, and forgets it; and forgets
    every one of a document in which there is nothing."""
    from trustcall import _base

    now = json.loads(document)
    try:
        patches = _base._ensure_patches(arguments)
        _base._apply_patch(now, patches)
    except Exception:  # whatever its JSON patches raise
        return False
    return bool(now) and (bool(patches) or arguments.get("patches") == [])


def _one_patch_each(made: list[Call], facts: CallFacts) -> tuple[list[Call], int]:
    """Patches of one document as one, since trustcall applies each to what was there before, and langmem
    keeps the last; and how many had to be left out."""
    from trustcall import _base

    merged: list[Call] = []
    first: dict[str, Call] = {}
    dropped = 0
    for call in made:
        given = call["arguments"]
        document = given.get("json_doc_id")
        if call["name"] != PATCH or document not in first:
            merged.append(call)
            if call["name"] == PATCH:
                first[document] = call
            continue
        known = first[document]["arguments"]
        both = {**known, "patches": [*_base._ensure_patches(known), *_base._ensure_patches(given)]}
        if _can_be_patched(facts.offered[document], both):
            first[document]["arguments"] = both
        else:
            dropped += 1
    return merged, dropped


def in_words(tools: Sequence[Mapping[str, Any]], *, required: bool) -> str:
    """What a model is told of functions where the server does not tell it."""
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    least = "at least one call" if required else 'or {"calls": []} if nothing is to be done'
    return (
        'Answer with one JSON object, {"calls": [{"name": ..., "arguments": {...}}, ...]}, and nothing '
        f"else: {least}. These functions can be called:\n{functions}"
    )


def _calls_schema(functions: Mapping[str, Any], *, least: int, most: int) -> dict[str, JSON]:
    """Of the whole reply. Without `strict` arguments this is what a server can hold it to."""
    definitions: dict[str, JSON] = {}
    kinds = []
    for name, function in functions.items():
        parameters = dict(function.get("parameters") or {"type": "object"})
        for key in ("$defs", "definitions"):
            for inner, schema in parameters.pop(key, {}).items():
                definitions[f"{name}.{inner}"] = _placed(schema, name)
        properties = {"name": {"const": name}, "arguments": _placed(parameters, name)}
        kinds.append(
            {
                "type": "object",
                "properties": properties,
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema = list_schema("calls", {"anyOf": kinds})
    schema["properties"]["calls"] |= {"minItems": least, "maxItems": most}
    return {**schema, "$defs": definitions} if definitions else schema


_REFERENCE = re.compile(r"^#/(?:\$defs|definitions)/")


def _placed(schema: JSON, function: str) -> JSON:
    """A function's schema inside that of the reply: what it refers to is at the top there, under the
    function's name."""
    if isinstance(schema, list):
        return [_placed(each, function) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):  # whose keys are names
            made[key] = {name: _placed(each, function) for name, each in value.items()}
        else:
            made[key] = value if key in ("default", "examples", "enum", "const") else _placed(value, function)
    if isinstance(made.get("$ref"), str):
        made["$ref"] = _REFERENCE.sub(f"#/$defs/{function}.", made["$ref"])
    return made


MEMORIES = calls([])
"""What langmem's managers are answered; which functions there are stands in each request."""


def never_skipped(contract: Contract[Any]) -> Contract[Any]:
    """For an asker of whom nothing is known: an answer that changes nothing might be kept as it is."""
    return dataclasses.replace(contract, unchanged=None)


TEXT = FREE_TEXT
"""What is asked of the model by a caller that no catalogue knows: text that is whole."""
