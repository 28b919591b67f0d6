"""Bad replies, as models and servers make them, and what LangChain's memory makes of each: the rows of the
tables on LangChain's page. Measured alone and with hymem, by the same code."""

from __future__ import annotations

import json
from dataclasses import dataclass

from langchain_memory import HAS_LANGMEM, HAS_MIDDLEWARE, memory_class, middleware

from hymem_testing import replies
from hymem_testing.replies import DESTROYED, ELSE, ERROR, LOST, STORED

OSLO, TEA = "Lives in Oslo.", "Likes tea."


@dataclass(frozen=True)
class Row(replies.Row):
    called: tuple = ()
    """For langmem: the calls, as name and arguments, that a server with tools parses out of the reply."""

    def script(self, proxy, *, native):
        proxy.clear()
        if not self.called:
            proxy.reply(None, self.said, **self.proxy)
            return
        made = [{"name": name, "arguments": arguments} for name, arguments in self.called]
        cut = -6 if self.proxy.get("finish_reason") == "length" else None
        if not native:
            proxy.reply(None, json.dumps({"calls": made})[:cut], **self.proxy)
            return
        functions = [{**each, "arguments": json.dumps(each["arguments"])[:cut]} for each in made]
        parsed = [
            {"id": f"call_{at}", "type": "function", "function": function}
            for at, function in enumerate(functions)
        ]
        proxy.reply(None, "", tool_calls=parsed, **self.proxy)


def ended(do, *, before, meant):
    """What became of it: `do` gives what there is afterwards."""
    try:
        after = do()
    except Exception:  # of whatever kind: that the caller sees one is the outcome
        return ERROR
    if after == meant:
        return STORED
    if after == before:
        return LOST
    return DESTROYED if not after or (before and before not in str(after) and meant is None) else ELSE


# -- summaries -----------------------------------------------------------------------------------

_TEXTS = [
    Row("plain text", OSLO, OSLO),
    Row("after a think block", f"<think>hm</think>{OSLO}", OSLO),
    Row("after the end of a think block", f"hm</think>{OSLO}", OSLO),
    Row("a think block that is not closed", "<think>He moved"),
    Row("a thought only", "<think>He moved</think>"),
    Row("nothing at all", ""),
    Row("`content: null`", None),
    Row("white space", " \n"),
    Row("HTTP 500", None, proxy={"status": 500, "body": {"error": {"message": "no"}}}),
    Row("HTTP 400", None, proxy={"status": 400, "body": {"error": {"message": "no"}}}),
]


def summary(model, row):
    memory = memory_class("ConversationSummaryMemory")(llm=model, buffer=TEA)

    def do():
        memory.save_context({"input": "I live in Oslo."}, {"output": "I see."})
        return memory.buffer

    end = ended(do, before=TEA, meant=row.meant)
    return end if end != ERROR or memory.buffer == TEA else DESTROYED


def history(model, row):
    from langchain_core.messages import AIMessage, HumanMessage

    said = [HumanMessage("I live in Oslo. " * 20), AIMessage("I see."), HumanMessage("And now?")]
    made = middleware(model)

    def do():
        update = made.before_model({"messages": list(said)}, None)
        return "" if update is None else update["messages"][1].content.rpartition("\n\n")[2]

    end = ended(do, before=None, meant=row.meant)
    return DESTROYED if end == ELSE else end  # the messages are gone


# -- entities and triples ------------------------------------------------------------------------

_BOTH = ["Alex", "Oslo"]
_ENTITIES = [
    Row("names between commas", "Alex, Oslo", _BOTH),
    Row("`NONE`", "NONE", []),
    Row("`None`", "None", []),
    Row("`NONE.`", "NONE.", []),
    Row("a list in JSON", '["Alex", "Oslo"]', _BOTH),
    Row("with a label", "Output: Alex, Oslo", _BOTH),
    Row("in a fence", '```json\n["Alex", "Oslo"]\n```', _BOTH),
    Row("by line, with bullets", "- Alex\n- Oslo", _BOTH),
    Row("a name twice", "Alex, Oslo, Alex", _BOTH),
    Row("after a think block", "<think>hm, ok</think>Alex, Oslo", _BOTH),
    Row("nothing at all", ""),
    Row(
        "a sentence",
        "The user speaks of a person of the name of Alex who has come to live in a town by the sea",
    ),
]


def entities(model, row):
    memory = memory_class("ConversationEntityMemory")(llm=model)

    def do():
        memory.load_memory_variables({"input": "Alex is in Oslo."})
        return memory.entity_cache

    return ended(do, before=None, meant=row.meant)


_TRIPLE = [("Alex", "lives in", "Oslo")]
_TRIPLES = [
    Row("in brackets", "(Alex, lives in, Oslo)", _TRIPLE),
    Row("two", "(Alex, lives in, Oslo)<|>(Alex, has, a cat)", [*_TRIPLE, ("Alex", "has", "a cat")]),
    Row("`NONE`", "NONE", []),
    Row("`none.`", "none.", []),
    Row("by line", "(Alex, lives in, Oslo)\n(Alex, has, a cat)", [*_TRIPLE, ("Alex", "has", "a cat")]),
    Row("in quotes", "('Alex', 'lives in', 'Oslo')", _TRIPLE),
    Row("in a fence", "```\n(Alex, lives in, Oslo)\n```", _TRIPLE),
    Row("a comma more", "(Alex, likes, tea, and rain)", [("Alex", "likes", "tea; and rain")]),
    Row("of two parts", "(Alex, Oslo)"),
    Row("nothing at all", ""),
    Row("prose", "Alex lives in Oslo."),
]


def triples(model, row):
    from langchain_community.memory.kg import ConversationKGMemory

    memory = ConversationKGMemory(llm=model)

    def do():
        memory.save_context({"input": "Alex is in Oslo."}, {"output": "I see."})
        return [(subject, predicate, thing) for subject, thing, predicate in memory.kg.get_triples()]

    return ended(do, before=[] if row.meant != [] else None, meant=row.meant)


# -- langmem -------------------------------------------------------------------------------------

_LONG = "Lives in Oslo, in a house by the sea"
_MEMORIES = [
    Row("a call", meant=["Lives in Oslo"], called=(("Memory", {"content": "Lives in Oslo"}),)),
    Row("prose in the place of a call", "He lives in Oslo."),
    Row(
        "cut in the middle of the second call",
        meant=["Lives in Oslo"],
        called=(("Memory", {"content": "Lives in Oslo"}), ("Memory", {"content": _LONG})),
        proxy={"finish_reason": "length"},
    ),
    Row("a function that is not there", called=(("Memorise", {"content": "Lives in Oslo"}),)),
    Row("arguments of another name", called=(("Memory", {"text": "Lives in Oslo"}),)),
    Row("nothing at all", ""),
    Row("a think block that is not closed", "<think>He lives"),
    Row("HTTP 500", proxy={"status": 500, "body": {"error": {"message": "no"}}}),
]


def _patch(document, path="/content", **more):
    patches = [{"op": "replace", "path": path, "value": "Lives in Oslo"}]
    return (("PatchDoc", {"json_doc_id": document, "planned_edits": "-", "patches": patches, **more}),)


_CHANGES = [
    Row("a patch", meant=["Lives in Oslo"], called=_patch("1")),
    Row(
        "its list as a string",
        meant=["Lives in Oslo"],
        called=_patch("1", patches='[{"op": "replace", "path": "/content", "value": "Lives in Oslo"}]'),
    ),
    Row("a number for an id", meant=["Lives in Oslo"], called=_patch(1)),
    Row("an id that is not there", called=_patch("9")),
    Row("no id", called=(("PatchDoc", {"planned_edits": "-", "patches": []}),)),
    Row("a place that is not there", called=_patch("1", path="/no/such")),
    Row("prose in the place of a call", "He lives in Oslo."),
    Row("HTTP 500", proxy={"status": 500, "body": {"error": {"message": "no"}}}),
    Row("HTTP 400", proxy={"status": 400, "body": {"error": {"message": "no"}}}),
]


def memories(model, row, existing=None):
    from langchain_core.messages import HumanMessage
    from langmem import create_memory_manager

    def do():
        given = {"messages": [HumanMessage("I live in Oslo.")]}
        found = create_memory_manager(model).invoke({**given, "existing": existing} if existing else given)
        return sorted(
            each.content["content"] if isinstance(each.content, dict) else each.content.content
            for each in found
        )

    before = [each[2]["content"] for each in existing or ()]
    return ended(do, before=before, meant=row.meant)


def changes(model, row):
    return memories(model, row, [("1", "Memory", {"content": "Lives in Bergen"})])


TABLES = {"summary": (_TEXTS, summary), "entities": (_ENTITIES, entities), "triples": (_TRIPLES, triples)}
if HAS_MIDDLEWARE:
    TABLES["history"] = (_TEXTS, history)
if HAS_LANGMEM:
    TABLES |= {"memories": (_MEMORIES, memories), "changes": (_CHANGES, changes)}
