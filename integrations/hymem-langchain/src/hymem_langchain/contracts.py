"""What LangChain's parsers accept, and what of a reply is made into it.

All of them read plain text. Classic memory stores whatever comes back: an empty reply wipes a summary,
a label or a fence becomes an entity, and a triple that is written otherwise is dropped without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hymem.contract import FREE_TEXT, CallFacts, Contract, Parsed, RawReply, Reading, Violation
from hymem.decode import JSON, Undecodable, decode

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
    """What stands in a scope's `facts`: one for each call inside, in their order; and whether a write
    among them failed and was skipped."""

    calls: list[CallFacts] = field(default_factory=list)
    skipped: bool = False


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
    found, dropped = _in_json(bare) if bare[:1] in "[{" else ([], 0)
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


def _in_json(text: str) -> tuple[list[Triple], int]:
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


@dataclass(frozen=True)
class NativeCalls(Contract[str]):
    """Calls of the caller's own functions, as the server has parsed them, or text instead of them."""

    def read(self, reply: RawReply, facts: CallFacts) -> Reading[str] | Violation:
        if not reply.tool_calls:
            return super().read(reply, facts)
        for at, call in enumerate(reply.tool_calls):
            arguments = decode(str((call.get("function") or {}).get("arguments") or ""), ())
            if isinstance(arguments, Undecodable) or not isinstance(arguments.value, dict):
                return Violation(f"tool_calls[{at}]", "arguments in JSON", "none that can be used")
        return Reading(reply.text, reply.text, kept=len(reply.tool_calls))


NATIVE_CALLS = NativeCalls(name="calls", schema=None, keys=(), check=_whole, render=str)

TEXT = FREE_TEXT
"""What is asked of the model by a caller that no catalogue knows: text that is whole."""
