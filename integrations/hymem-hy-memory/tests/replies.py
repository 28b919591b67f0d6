"""Bad replies, as models and servers make them, and what the SDK makes of each: the rows of the tables on its
page. Measured alone and with hymem, by the same code, on its own client with embedded stores."""

from __future__ import annotations

import itertools
import json
import re

import hy_memory_bank as bank
from hy_memory_bank import IS_2, extracted
from test_system2 import KNOWN, THINKING
from test_work import DECIDING, EXPERIENCE, EXTRACTING, LIST, TASK, TRACE

from hymem_testing.replies import DESTROYED, ELSE, ERROR, LOST, STORED, Row

OSLO, BERGEN, CAT = "The user lives in Oslo.", "The user lives in Bergen.", "The user has a cat."
FENCED = "The user writes ``` {a} in Oslo."
DOWN = {"status": 500, "body": {"error": {"message": "no"}}}
CUT = {"finish_reason": "length"}


def fenced(text):
    return f"```json\n{text}\n```"


_SAID = extracted(OSLO)
EXTRACT = [
    Row("as the prompt has it", fenced(_SAID), [OSLO]),
    Row("without a fence", _SAID, [OSLO]),
    Row("prose around it", f"Here it is:\n{_SAID}\nDone.", [OSLO]),
    Row("after a think block", f"<think>hm</think>{_SAID}", [OSLO]),
    Row("after a think block with braces", f'<think>use {{"memory": []}}</think>{_SAID}', [OSLO]),
    Row("after prose with a brace", f'plan: {{"a":\n{_SAID}', [OSLO]),
    Row("backticks in a text", fenced(extracted(FENCED)), [FENCED]),
    Row("`memories`, of text", json.dumps({"memories": [OSLO]}), [OSLO]),
    Row("texts for objects", json.dumps({"memory": [OSLO]}), [OSLO]),
    Row("a list of objects", json.dumps([{"content": OSLO}]), [OSLO]),
    Row("tags as text", json.dumps({"memory": [{"content": OSLO, "tags": "home"}]}), [OSLO]),
    Row("`basic_info` as a list", extracted(OSLO, basic_info=[]), [OSLO]),
    Row("`basic_info` as a text", extracted(OSLO, basic_info="Ann"), [OSLO]),
    Row("a trailing comma", _SAID[:-1] + ",}", [OSLO]),
    Row("cut in the second memory", extracted(OSLO, CAT).partition("a cat")[0], [OSLO], CUT),
    Row("no memories", extracted(), []),
    Row("prose alone", "Sure, noted."),
    Row("an empty object", "{}"),
    Row("nothing at all", ""),
    Row("HTTP 500", None, proxy=DOWN),
]


def op(word, content=BERGEN, **more):
    """`ID` stands for that of the memory there is."""
    return {"op": word, "memory_id": "ID", "content": content, "tags": ["home"], **more}


_NEW = {"op": "ADD", "content": BERGEN, "tags": ["home"]}
_BOTH = [BERGEN, OSLO]
RECONCILE = [
    Row("an addition", fenced(json.dumps([_NEW])), _BOTH),
    Row("a supersession", json.dumps([op("SUPERSEDE")]), [BERGEN]),
    Row("an update", json.dumps([op("UPDATE")]), [BERGEN]),
    Row("in lower case", json.dumps([op("update")]), [BERGEN]),
    Row('`{"ops": [...]}`', json.dumps({"ops": [op("UPDATE")]}), [BERGEN]),
    Row("an update of an unknown id", json.dumps([op("UPDATE", memory_id="0")]), _BOTH),
    Row("a supersession of an unknown id", json.dumps([op("SUPERSEDE", memory_id="0")]), _BOTH),
    Row("an update without a text", json.dumps([op("UPDATE", None)]), _BOTH),
    Row("two of one memory", json.dumps([op("UPDATE"), op("UPDATE", CAT)]), sorted([BERGEN, CAT])),
    Row("an unknown operation", json.dumps([op("MERGE")]), _BOTH),
    Row("nothing to do, `[]`", "[]", [OSLO]),
    Row("nothing to do, `NONE`", '[{"op": "NONE"}]', [OSLO]),
    Row("after a think block with brackets", f"<think>[x]</think>{json.dumps([op('UPDATE')])}", [BERGEN]),
    Row("backticks in a text", fenced(json.dumps([op("UPDATE", FENCED)])), [FENCED]),
    Row("cut", json.dumps([op("UPDATE", CAT), _NEW])[:-30], _BOTH, CUT),
    Row("prose", "Sure, noted.", _BOTH),
    Row("nothing at all", "", _BOTH),
    Row("HTTP 500", None, _BOTH, DOWN),
]


def _work(*experiences, **more):
    return json.dumps({LIST: list(experiences), **more})


EXPERIENCE = {**EXPERIENCE, "boundary_scope": "user"}  # for 1.x, which asks for one
_DONE = _work(EXPERIENCE)
WORK = [
    Row("as the prompt has it", fenced(_DONE), [TASK]),
    Row("after a think block with braces", f"<think>{{x}}</think>{_DONE}", [TASK]),
    Row("a list of objects", json.dumps([EXPERIENCE]), [TASK]),
    Row("a list for a text", _work({**EXPERIENCE, "solution": ["a", "b"]}), [TASK]),
    Row("an object for a text", _work({**EXPERIENCE, "boundary_envs": {"node": 20}}), [TASK]),
    Row("backticks in a text", fenced(_work({**EXPERIENCE, "solution": "run ```x```"})), [TASK]),
    Row("cut", _work(EXPERIENCE, EXPERIENCE)[:-30], [TASK], CUT),
    Row("nothing to learn", _work(), []),
    Row("prose alone", "Sure, noted."),
    Row("nothing at all", ""),
    Row("HTTP 500", None, proxy=DOWN),
]


def schema(text, **more):
    """`IDS` stands for those of the facts."""
    return {"op": "create_schema", "content": text, "evidence_list": "IDS", "tags": [], **more}


PATTERN, RULES = "When cooking, the user follows rules.", "The user follows ``` {a} rules."
SYSTEM2 = [
    Row("as the prompt has it", fenced(json.dumps([schema(PATTERN)])), [PATTERN]),
    Row("without a fence", json.dumps([schema(PATTERN)]), [PATTERN]),
    Row("one object", json.dumps(schema(PATTERN)), [PATTERN]),
    Row(
        "after a think block with brackets",
        f"<think>[{{}}]</think>{json.dumps([schema(PATTERN)])}",
        [PATTERN],
    ),
    Row("backticks in a text", fenced(json.dumps([schema(RULES)])), [RULES]),
    Row("a trailing comma", json.dumps([schema(PATTERN)])[:-1] + ",]", [PATTERN]),
    Row("unknown facts for evidence", json.dumps([schema(PATTERN, evidence_list=["nope"])])),
    Row("a schema without a text", json.dumps([schema("")])),
    Row("cut", json.dumps([schema(PATTERN), schema(RULES)])[:-30], None, CUT),
    Row("texts for operations", '["create a schema"]'),
    Row("nothing to do", "[]", []),
    Row("prose alone", "Sure, noted."),
    Row("HTTP 500", None, proxy=DOWN),
]


# -- how one ends ------------------------------------------------------------------------------------

_users = (f"ann{at}" for at in itertools.count())


def ended(row, result, found, before=()):
    if not isinstance(result, dict) or not result.get("success"):
        return ERROR
    if row.meant is None:
        return LOST if not set(found) - set(before) else ELSE
    if sorted(found) == sorted(row.meant):
        return STORED
    if set(before) - set(found) - {each for each in before if each not in row.meant}:
        return DESTROYED
    return LOST if not set(found) - set(before) else ELSE


def extract(client, proxy, row):
    user = next(_users)
    proxy.reply(None, row.said, **row.proxy)
    result = client.add([{"role": "user", "content": "x"}], user_id=user)
    return ended(row, result, bank.facts(client, user))


def reconcile(client, proxy, row):
    user = next(_users)
    bank.script(proxy, OSLO)
    client.add([{"role": "user", "content": "x"}], user_id=user)

    def decision(body):
        existing, _ = bank.shown(body)
        return row.said.replace('"ID"', json.dumps(existing[0]["memory_id"]))

    bank.script(proxy, BERGEN)
    proxy.reply(bank.is_reconciling, decision if row.said is not None else None, **row.proxy)
    result = client.add([{"role": "user", "content": "x"}], user_id=user)
    return ended(row, result, bank.facts(client, user), [OSLO])


def work(client, proxy, row):
    user = next(_users)
    proxy.reply("is_coding", '{"is_coding": true}')
    proxy.reply(DECIDING, '{"ops": [{"draft_idx": 0, "action": "ADD"}]}')
    proxy.reply(EXTRACTING, row.said, **row.proxy)
    asked = {"scene": "coding"} if IS_2 else {}
    try:
        result = client.add(TRACE, user_id=user, session_id=user, **asked)
    except Exception as error:  # of whatever kind
        return ended(row, error, [])
    if IS_2:
        listed = client.search(TASK, user_ids=[user], scene="coding")["experiences"]
    else:
        listed = client.search(TASK, user_ids=[user], scene="productivity", min_score=0.0)["coding_memories"]
    return ended(row, result, [each["task"] for each in listed])


def system2(client, proxy, row):
    user = next(_users)
    bank.script(proxy, *KNOWN)
    client.add([{"role": "user", "content": "x"}], user_id=user)
    proxy.reply("behavioral psychologist", '{"abstraction_for_embedding": "x"}')

    def said(body):
        ids = re.findall(r"\(id=([0-9a-f-]{8,})", body["messages"][-1]["content"])[:4]
        return row.said.replace('"IDS"', json.dumps(ids))

    proxy.reply(THINKING, said if row.said is not None else None, **row.proxy)
    try:
        result = client.evolve(user) if IS_2 else client.digest(user)
    except Exception as error:
        return ended(row, error, [])
    graph = client.list_memories(user_id=user)["graph"]
    nodes = graph.get("nodes") or graph.get("memories") if isinstance(graph, dict) else graph
    return ended(
        row, result, [each["content"] for each in nodes or [] if each["layer"].lower() == "l6_schema"]
    )


TABLES = {
    "extract": (EXTRACT, extract, "pro"),
    "reconcile": (RECONCILE, reconcile, "pro"),
    "work": (WORK, work, "pro"),
    "system2": (SYSTEM2, system2, "ultra"),
}
"""Table → its rows, what says how one ended, and the kind of client."""
