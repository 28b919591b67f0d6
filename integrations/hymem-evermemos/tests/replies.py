"""Bad replies, as models and servers make them, and what EverMemOS makes of each: the rows of the tables on
its page. Measured alone and with hymem, by the same code, on its own extractors."""

from __future__ import annotations

import asyncio
import json

import evermemos_bank as bank

from hymem_testing.replies import ELSE, ERROR, LOST, STORED, Row

OSLO, CAT = "Lives in Oslo.", "Has a cat."
DOWN = {"status": 500, "body": {"error": {"message": "no"}}}
BRACES = "Writes {name} } in her code."


def _broken(good, inside):
    """The same reply, in every way that a model or a server spoils one. `inside`: some text of it."""
    return [
        Row("as the prompt has it", good, good),
        Row("in a fence", f"```json\n{good}\n```", good),
        Row("prose around it", f"Here it is:\n{good}\nDone.", good),
        Row("after a think block", f"<think>hm</think>{good}", good),
        Row("after a think block with braces", f"<think>use {{a}}</think>{good}", good),
        Row("a list around it", f"[{good}]", good),
        Row("braces in a text", good.replace(inside, BRACES), good.replace(inside, BRACES)),
        Row("`}` in a text", good.replace(inside, "of } it"), good.replace(inside, "of } it")),
        Row("a raw line break in a text", good.replace(inside, "of\nit"), good.replace(inside, "of\\nit")),
        Row("a trailing comma", good[:-1] + ",}", good),
        Row("single quotes", good.replace('"', "'"), good),
        Row("prose alone", "Sure, noted."),
        Row("an empty object", "{}"),
        Row("nothing at all", ""),
        Row("HTTP 500", None, proxy=DOWN),
    ]


_BOUNDARY = '{"reasoning": "why", "boundaries": [1], "should_wait": false}'
_EPISODE = json.dumps({"title": "Home", "content": OSLO, "summary": "s"})
_FACTS = json.dumps({"atomic_facts": {"time": "today", "atomic_fact": [OSLO]}})
_PROFILE = json.dumps({"explicit_info": [{"category": "home", "description": OSLO}], "implicit_traits": []})
BOUNDARY = [
    *_broken(_BOUNDARY, "why"),
    Row("numbers as text", _BOUNDARY.replace("[1]", '["1"]'), _BOUNDARY),
    Row("no `should_wait`", '{"boundaries": [1]}', _BOUNDARY),
]
EPISODE = [
    *_broken(_EPISODE, OSLO),
    Row("no title", json.dumps({"content": OSLO}), _EPISODE),
    Row("`episode` for `content`", json.dumps({"title": "Home", "episode": OSLO}), _EPISODE),
    Row("cut in the text", _EPISODE[: _EPISODE.index("Oslo")], None, {"finish_reason": "length"}),
]
FACTS = [
    *_broken(_FACTS, OSLO),
    Row("no time", json.dumps({"atomic_facts": {"atomic_fact": [OSLO]}}), _FACTS),
    Row("a list of texts", json.dumps([OSLO]), _FACTS),
    Row("`memories`, of text", json.dumps({"memories": [OSLO]}), _FACTS),
    Row(
        "objects for texts",
        json.dumps({"atomic_facts": {"time": "t", "atomic_fact": [{"fact": OSLO}]}}),
        _FACTS,
    ),
    Row("no facts", '{"atomic_facts": {"time": "today", "atomic_fact": []}}', "nothing"),
]
PROFILE = [
    *_broken(_PROFILE, OSLO),
    Row("one list missing", json.dumps({"explicit_info": [{"description": OSLO}]}), _PROFILE),
    Row("texts for entries", json.dumps({"explicit_info": [OSLO], "implicit_traits": []}), _PROFILE),
]
_OLD = ("in Bergen", "by a lake", "with a dog")


def _operations(*given):
    return json.dumps({"operations": list(given), "update_note": ""})


def _update(at, text=OSLO):
    return {"action": "update", "type": "explicit_info", "index": at, "data": {"description": text}}


_DELETE = {"action": "delete", "type": "explicit_info", "index": 0}
UPDATE = [
    Row("an update", _operations(_update(1)), ["in Bergen", OSLO, "with a dog"]),
    Row("its number as text", _operations(_update("1")), ["in Bergen", OSLO, "with a dog"]),
    Row("of an entry that is not there", _operations(_update(9)), [*_OLD, OSLO]),
    Row("after a deletion", _operations(_DELETE, _update(2)), ["by a lake", OSLO]),
    Row("in capitals", _operations({**_update(1), "action": "UPDATE"}), ["in Bergen", OSLO, "with a dog"]),
    Row(
        "`explicit` for a type",
        _operations({**_update(1), "type": "explicit"}),
        ["in Bergen", OSLO, "with a dog"],
    ),
    Row("a deletion of what is not there", _operations({**_DELETE, "index": 7}), "no change"),
    Row("nothing to do", _operations({"action": "none"}), list(_OLD)),
    Row("prose", "Sure, noted."),
    Row("HTTP 500", None, proxy=DOWN),
]


def _meant(row, key):
    """What is to be found of a reply that says `row.meant`, where that is one."""
    is_reply = isinstance(row.meant, str) and row.meant.startswith("{")
    return key(json.loads(row.meant, strict=False)) if is_reply else row.meant


def _ended(row, found, meant):
    if found == meant:
        return STORED
    return LOST if not found else ELSE


def _outcome(key, make):
    def outcome(proxy, row):
        try:
            found = asyncio.run(make(bank.client(proxy.model, proxy.base_url)))
        except Exception:  # of whatever kind: EverMemOS tries again, and answers with HTTP 500
            return ERROR
        meant = _meant(row, key)
        if meant == "nothing":
            return STORED if not found else ELSE
        if meant == "no change":
            return ERROR if found != list(_OLD) else "left as it was"
        return _ended(row, found, meant)

    return outcome


async def _boundary(llm):
    from everalgo.boundary import detect_boundaries
    from everalgo.types import ChatMessage

    said = [
        ChatMessage(id=f"m{at}", role="user", sender_id="ann", content="x", timestamp=bank.AT + at)
        for at in range(3)
    ]
    return [len(cell.items) for cell in (await detect_boundaries(said, llm=llm)).cells]


async def _episode(llm):
    from everalgo.user_memory import EpisodeExtractor

    return (await EpisodeExtractor(llm=llm).aextract(bank.memcell("x"), sender_id=None)).episode


async def _facts(llm):
    from everalgo.user_memory import AtomicFactExtractor

    return [
        each.content
        for each in await AtomicFactExtractor(llm=llm).aextract(bank.memcell("x"), sender_id="ann")
    ]


async def _profile(llm, old=None):
    from everalgo.user_memory import ProfileExtractor

    found = await ProfileExtractor(llm=llm).aextract([bank.memcell("x")], sender_id="ann", old_profile=old)
    return [each["description"] if isinstance(each, dict) else each for each in found.explicit_info]


async def _updated(llm):
    from everalgo.types import Profile

    entries = [{"category": "home", "description": text} for text in _OLD]
    given = {"owner_id": "ann", "summary": "", "timestamp": bank.AT, "explicit_info": entries}
    return await _profile(llm, Profile.model_validate({**given, "implicit_traits": []}))


TABLES = {
    "boundary": (BOUNDARY, _outcome(lambda said: said["boundaries"], _boundary)),
    "episode": (EPISODE, _outcome(lambda said: said["content"], _episode)),
    "facts": (FACTS, _outcome(lambda said: said["atomic_facts"]["atomic_fact"], _facts)),
    "profile": (
        PROFILE,
        _outcome(lambda said: [each["description"] for each in said["explicit_info"]], _profile),
    ),
    "update": (UPDATE, _outcome(lambda said: said, _updated)),
}
"""Table → its rows, and what says how one ended."""
