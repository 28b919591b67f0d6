"""Bad replies, as models and servers make them: the rows of the table on Mem0's page.

Each row is a way to say the same thing badly. What Mem0 makes of it is measured, alone and with
hymem, by the same code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mem0_bank import ADDITIVE

from hymem_testing import replies

OSLO, CAT = "Lives in Oslo", "Has a cat"
KEY = "memory" if ADDITIVE else "facts"


@dataclass(frozen=True)
class Row(replies.Row):
    """`meant`: what a bank should hold afterwards that it did not before; `gone`: what it should not any
    more."""

    meant: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


# -- the extraction ------------------------------------------------------------------------------


def _items(*texts):
    if ADDITIVE:
        return [{"id": str(at), "text": text, "attributed_to": "user"} for at, text in enumerate(texts)]
    return list(texts)


def _good(*texts):
    return json.dumps({KEY: _items(*texts)})


GOOD = _good(OSLO, CAT)
BOTH = frozenset({OSLO, CAT})
NO_RETRY = {"headers": {"x-should-retry": "false"}, "body": {"error": {"message": "no"}}}


def _extraction(name, said, meant=BOTH, **proxy):
    return Row(name, said, frozenset(meant), proxy=proxy)


EXTRACTION = [
    _extraction("plain JSON", GOOD),
    _extraction("in a fence, on its own lines", f"```json\n{GOOD}\n```"),
    _extraction("in a fence, on one line", f"```json {GOOD} ```"),
    _extraction("a fence inside prose", f"Here you are:\n```json\n{GOOD}\n```\nAnything else?"),
    _extraction("inside prose", f"Here you are: {GOOD} Anything else?"),
    _extraction("after a think block", f"<think>she moved</think>{GOOD}"),
    _extraction("after a think block, in a fence", f"<think>she moved</think>\n```json\n{GOOD}\n```"),
    _extraction("after a think block with braces, and prose", f"<think>a {{set}} of</think> So: {GOOD}"),
    _extraction("after a think block that is not closed", f"<think>she moved\n{GOOD}"),
    _extraction("after the end of a think block", f"she moved</think>{GOOD}"),
    _extraction("after the end of a think block with braces", f"a {{set}} of</think>{GOOD}"),
    _extraction("after prose with braces", f"Topic {{travel}}: {GOOD}"),
    _extraction("cut in the middle of an item", GOOD[: GOOD.index("a cat")], [OSLO], finish_reason="length"),
    _extraction("a comma too many", GOOD[:-2] + ",]}"),
    _extraction("single quotes", GOOD.replace('"', "'")),
    _extraction("two objects that differ", f"{_good(OSLO)}\n{_good(CAT)}"),
    _extraction("the list alone", json.dumps(_items(OSLO, CAT))),
    _extraction("the key of the model card, `memories`", json.dumps({"memories": [OSLO, CAT]})),
    _extraction("nothing at all", "", ()),
    _extraction("`content: null`", None, ()),
    _extraction("prose only", "The user lives in Oslo.", ()),
    _extraction("a newline inside a string", _good("Lives in#Oslo").replace("#", "\n"), ["Lives in\nOslo"]),
    _extraction("a byte order mark in front", "\ufeff" + GOOD),
    _extraction("`null` for the list", json.dumps({KEY: None}), ()),
    _extraction("items are objects with `fact`", json.dumps({KEY: [{"fact": OSLO}, {"fact": CAT}]})),
    _extraction("items are strings", json.dumps({KEY: [OSLO, CAT]})),
    _extraction("a string for the list", json.dumps({KEY: OSLO}), [OSLO]),
    _extraction("lists inside the list", json.dumps({KEY: [[OSLO], [CAT]]})),
    _extraction("numbers for items", json.dumps({KEY: [1, 2]}), ()),
    _extraction("HTTP 400", None, (), status=400, **NO_RETRY),
    _extraction("HTTP 500", None, (), status=500, **NO_RETRY),
]


# -- the decision, before 2: of a bank that holds BERGEN, on the new fact OSLO -------------------------

BERGEN = "Lives in Bergen"


def _operation(event="UPDATE", text=OSLO, id_="0", **more):
    return {"id": id_, "text": text, "event": event, **more}


def _decision(name, *operations, meant=(OSLO,), gone=(), said=None, **proxy):
    said = json.dumps({"memory": list(operations)}) if said is None else said
    return Row(name, said, frozenset(meant), proxy, frozenset(gone))


_UPDATE = json.dumps({"memory": [_operation()]})
_ADD = json.dumps({"memory": [_operation("ADD", id_="1")]})

DECISION = [
    _decision("UPDATE, as it should be", _operation(), gone=[BERGEN]),
    _decision("the id is a number", _operation(id_=0), gone=[BERGEN]),
    _decision("UPDATE of an id that was not offered", _operation(id_="12")),
    _decision("UPDATE of a UUID", _operation(id_="5f0cbd3e-6d25-4f7c-a4c5-2f8b6f3d1c11")),
    _decision("DELETE of an id that was not offered", _operation("DELETE", id_="12"), meant=()),
    _decision("the event in lower case", _operation("update"), gone=[BERGEN]),
    _decision("no event", {"id": "1", "text": OSLO}, meant=()),
    _decision("DELETE without a text", {"id": "0", "event": "DELETE"}, meant=(), gone=[BERGEN]),
    _decision("ADD of an empty text", _operation("ADD", ""), meant=()),
    _decision("the text is an object", _operation("ADD", {"text": OSLO}, "1")),
    _decision("an object for the list", said=json.dumps({"memory": _operation("ADD", id_="1")})),
    _decision("the list alone", said=json.dumps([_operation("ADD", id_="1")])),
    _decision("items are strings", OSLO, meant=()),
    _decision("cut after the first operation", said=_ADD[:-2] + ', {"id": "2", "te', finish_reason="length"),
    _decision("nothing at all", said="", meant=()),
    Row("`content: null`", None),
    _decision("prose only", said="I would keep it.", meant=()),
    _decision("two UPDATEs of one memory", _operation(), _operation(text=CAT), meant=BOTH, gone=[BERGEN]),
    _decision("after a think block", said=f"<think>she moved</think>{_UPDATE}", gone=[BERGEN]),
    _decision("inside prose", said=f"Here you are: {_UPDATE} Anything else?", gone=[BERGEN]),
    _decision("single quotes, ADD", said=_ADD.replace('"', "'")),
    _decision("HTTP 400", said="", meant=(), status=400, **NO_RETRY),
]  # fmt: skip
