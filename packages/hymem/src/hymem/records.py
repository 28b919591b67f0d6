"""Objects with fields, for contracts: what a model calls them, and what the parser needs.

A default is only for a field that carries neither memory text nor a decision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .contract import AS_IT_IS, MAX_TEXT, Item, to_json
from .decode import JSON

Object = dict[str, Any]


@dataclass(frozen=True)
class Field:
    """One field of an object.

    `kind`: `text`, `texts`, `flag`, `whole` (a number), `number`, `any`, or the words it may be. `others`:
    how else models call it. `default`: what it is where it is missing; None: then the object cannot be used.
    """

    name: str
    kind: str | tuple[str, ...] = "text"
    others: tuple[str, ...] = ()
    default: Any = None
    may_be_empty: bool = False

    def of(self, item: Mapping[str, JSON]) -> JSON:
        """The value as the parser needs it; None if there is none."""
        value = next((item[name] for name in (self.name, *self.others) if item.get(name) is not None), None)
        made = self._made(value)
        return self.default if made is None else made

    def _made(self, value: JSON) -> JSON:
        if isinstance(self.kind, tuple):
            return next((word for word in self.kind if folded(value) == word.casefold()), None)
        if self.kind == "flag":
            return value if isinstance(value, bool) else {"true": True, "false": False}.get(folded(value))
        if self.kind in ("whole", "number"):
            return _number(value, whole=self.kind == "whole")
        if self.kind == "texts":
            found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            texts = [each if isinstance(each, str) else to_json(each) for each in found if each is not None]
            return texts if value is not None else None
        if self.kind == "any":
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)
        return value if isinstance(value, str) and (value.strip() or self.may_be_empty) else None

    def schema(self) -> Object:
        if isinstance(self.kind, tuple):
            return {"type": "string", "enum": list(self.kind)}
        return _SCHEMAS[self.kind]


_SCHEMAS: Mapping[str, Object] = {
    "text": {"type": "string", "maxLength": MAX_TEXT},
    "flag": {"type": "boolean"},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "texts": {"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 16},
    "any": {},
}


def folded(value: JSON) -> str:
    """A word without its case and the space around it; of anything else nothing."""
    return value.strip().casefold() if isinstance(value, str) else ""


def _number(value: JSON, *, whole: bool) -> JSON:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    if not whole:
        return value
    return int(value) if isinstance(value, int) or value.is_integer() else None


@dataclass(frozen=True)
class Record:
    """An object with these fields, and whatever else a model says beside them."""

    fields: tuple[Field, ...]

    def item(self, value: JSON) -> Item[Object] | None:
        if not isinstance(value, dict):
            return None
        made = {**value, **{each.name: each.of(value) for each in self.fields}}
        if any(made[each.name] is None for each in self.fields):
            return None
        # Python holds 1, 1.0 and true to be equal, and parsers do not.
        as_it_is = made == value and all(
            type(made[each.name]) is type(value[each.name]) for each in self.fields
        )
        return AS_IT_IS if as_it_is else Item(made, changed=True)

    def schema(self) -> Object:
        return {
            "type": "object",
            "properties": {each.name: each.schema() for each in self.fields},
            "required": [each.name for each in self.fields],
            "additionalProperties": False,
        }
