"""Bad replies, as models and servers make them, and what LlamaIndex's memory makes of each: the rows of the
tables on LlamaIndex's page. Measured alone and with hymem, by the same code."""

from __future__ import annotations

import asyncio

from llama_index_memory import fact_block, said

from hymem_testing.replies import DESTROYED, ELSE, ERROR, LOST, STORED, Row

OSLO, CAT, TEA = "Lives in Oslo", "Has a cat", "Likes tea"
DOWN = {"status": 500, "body": {"error": {"message": "no"}}}
_BOTH = [OSLO, CAT]
_XML = f"<facts>\n  <fact>{OSLO}</fact>\n  <fact>{CAT}</fact>\n</facts>"

FACTS = [
    Row("as the prompt has it", _XML, _BOTH),
    Row("in a fence", f"```xml\n{_XML}\n```", _BOTH),
    Row("with attributes", _XML.replace("<fact>", '<fact id="1">'), _BOTH),
    Row("in upper case", _XML.replace("<fact", "<FACT").replace("</fact", "</FACT"), _BOTH),
    Row("with entities", "<facts><fact>R&amp;D</fact></facts>", ["R&D"]),
    Row("nested", f"<fact>{OSLO}<fact>{CAT}</fact></fact>", _BOTH),
    Row("JSON, `facts`", f'{{"facts": ["{OSLO}", "{CAT}"]}}', _BOTH),
    Row("JSON, `memories`", f'{{"memories": ["{OSLO}", "{CAT}"]}}', _BOTH),
    Row("bullets", f"- {OSLO}\n- {CAT}", _BOTH),
    Row("after a think block with a fact", f"<think><fact>a guess</fact></think>{_XML}", _BOTH),
    Row("a comment with a fact", f"<!-- <fact>x</fact> -->{_XML}", _BOTH),
    Row("the prompt's example echoed", "<facts><fact>Specific fact 1</fact></facts>"),
    Row(
        "cut in the middle of a fact",
        f"<facts><fact>{OSLO}</fact><fact>Has a c",
        [OSLO],
        {"finish_reason": "length"},
    ),
    Row("`<facts></facts>`", "<facts></facts>", []),
    Row("prose", "He lives in Oslo and has a cat."),
    Row("nothing at all", ""),
    Row("`content: null`", None),
    Row("a think block that is not closed", "<think>He lives"),
    Row("HTTP 500", None, proxy=DOWN),
]
CONDENSED = [
    Row("as the prompt has it", f"<facts><fact>{OSLO}</fact><fact>{TEA}</fact></facts>", [OSLO, TEA]),
    Row("JSON", f'{{"facts": ["{OSLO}", "{TEA}"]}}', [OSLO, TEA]),
    Row("`<facts></facts>`", "<facts></facts>"),
    Row("prose", "All facts are concise."),
    Row("nothing at all", ""),
    Row("cut", f"<facts><fact>{OSLO}</fact><fact>Li", None, {"finish_reason": "length"}),
]
HISTORY = [
    Row("plain text", OSLO, OSLO),
    Row("after a think block", f"<think>hm</think>{OSLO}", OSLO),
    Row("nothing at all", ""),
    Row("`content: null`", None),
    Row("a think block that is not closed", "<think>He lives"),
    Row("HTTP 500", None, proxy=DOWN),
]


def facts(llm, proxy, row):
    """New facts; what is asked again afterwards tells whether the messages are lost."""
    proxy.clear()
    proxy.reply(None, row.said, **row.proxy)
    block = fact_block(llm)
    try:
        asyncio.run(block.aput([said("I live in Oslo and have a cat.")]))
        failed = False
    except Exception:  # of whatever kind: that the caller sees one is the outcome
        failed = True
    if block.facts == row.meant:
        return STORED
    if block.facts:
        return ELSE
    if not failed:
        return LOST
    proxy.clear()
    proxy.reply(lambda body: "Oslo and have a cat" in str(body["messages"]), _XML)
    proxy.reply(lambda body: "Oslo and have a cat" not in str(body["messages"]), "<facts></facts>")
    asyncio.run(block.aput([said("And now?")]))
    return "error, and offered again" if block.facts == _BOTH else "error, and lost"


def condensed(llm, proxy, row):
    proxy.clear()
    proxy.reply(None, f"<facts><fact>{TEA}</fact></facts>")
    proxy.reply(lambda body: "condens" in str(body["messages"][-1]["content"]), row.said, **row.proxy)
    before = [OSLO, CAT]
    block = fact_block(llm, facts=list(before), max_facts=2)
    asyncio.run(block.aput([said("I like tea.")]))
    if block.facts == row.meant:
        return STORED
    return "all facts kept" if block.facts == [*before, TEA] else f"destroyed {3 - len(block.facts)}"


def history(llm, proxy, row):
    from llama_index.core.memory import ChatSummaryMemoryBuffer

    proxy.clear()
    proxy.reply(None, row.said, **row.proxy)
    turns = [
        said(f"{text} " * 8, role) for text, role in (("Oslo", "user"), ("ah", "assistant"), ("cat", "user"))
    ]
    buffer = ChatSummaryMemoryBuffer.from_defaults(chat_history=list(turns), llm=llm, token_limit=20)
    try:
        first = buffer.get()[0]
    except Exception:  # of whatever kind
        return ERROR if buffer.get_all() == turns else "error, and turns lost"
    return STORED if row.meant is not None and first.content == row.meant else DESTROYED


TABLES = {"facts": (FACTS, facts), "condensed": (CONDENSED, condensed), "history": (HISTORY, history)}
