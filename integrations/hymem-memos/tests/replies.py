"""Bad replies, as models and servers make them, and what MemOS makes of each: the rows of the tables on
MemOS's page. Measured alone and with hymem, by the same code."""

from __future__ import annotations

import json
import tempfile

from memos_bank import general_text, installed, memory_list, openai, reader, said
from packaging.version import Version

from hymem_testing.replies import ELSE, ERROR, LOST, STORED, Row

OSLO, CAT = "Lives in Oslo", "Has a cat"
SPOKEN = "I live in Oslo and have a cat."
DOWN = {"status": 500, "body": {"error": {"message": "no"}}}
BOTH = frozenset({OSLO, CAT})
_GOOD = memory_list(OSLO, CAT)
_ITEM = {"key": "home", "memory_type": "LongTermMemory", "value": OSLO, "tags": ["home"]}


def _listed(*items, key="memory list", **more):
    return json.dumps({key: list(items), "summary": "", **more}, ensure_ascii=False)


EXTRACTION = [
    Row("as the prompt has it", _GOOD, BOTH),
    Row("in a fence", f"```json\n{_GOOD}\n```", BOTH),
    Row("prose, fence, prose", f"Here:\n```json\n{_GOOD}\n```\nDone.", BOTH),
    Row("after a think block", f"<think>hm</think>{_GOOD}", BOTH),
    Row("after a think block with braces", f"<think>use {{a}}</think>{_GOOD}", BOTH),
    Row("`think>` without its beginning", f"hm {{a}}</think>\n{_GOOD}", BOTH),
    Row("then prose with braces", f"{_GOOD} That is {{all}}.", BOTH),
    Row("a trailing comma", _GOOD.replace('"tags": []}]', '"tags": []},]'), BOTH),
    Row(
        "a raw line break in a text",
        _listed(_ITEM).replace("Lives in", "Lives\nin"),
        frozenset({"Lives\nin Oslo"}),
    ),
    Row("single quotes", _GOOD.replace('"', "'"), BOTH),
    Row("`memory_list`", _listed(_ITEM, key="memory_list"), frozenset({OSLO})),
    Row("`memories`, of text", json.dumps({"memories": [OSLO, CAT]}), BOTH),
    Row("the list alone", json.dumps([_ITEM]), frozenset({OSLO})),
    Row(
        "a fence in a text",
        _listed({**_ITEM, "value": "Writes ```x``` a lot"}),
        frozenset({"Writes ```x``` a lot"}),
    ),
    Row("an unknown type", _listed({**_ITEM, "memory_type": "Fact"}), frozenset({OSLO})),
    Row("a Chinese type", _listed({**_ITEM, "memory_type": "长期记忆"}), frozenset({OSLO})),
    Row("no tags, no key", _listed({"memory_type": "UserMemory", "value": OSLO}), frozenset({OSLO})),
    Row(
        "cut in the second memory",
        _GOOD[: _GOOD.index(CAT) + 4],
        frozenset({OSLO}),
        {"finish_reason": "length"},
    ),
    Row("`memory list: null`", '{"memory list": null, "summary": ""}'),
    Row("nothing to remember", _listed(), frozenset()),
    Row("prose", "Sure, noted."),
    Row("nothing at all", ""),
    Row("`content: null`", None),
    Row("HTTP 500", None, proxy=DOWN),
]
NAIVE = [
    Row(
        "as the prompt shows it",
        json.dumps([{"memory": OSLO, "metadata": {"type": "fact"}}]),
        frozenset({OSLO}),
    ),
    Row("as the prompt says it", json.dumps([{"memory": OSLO, "type": "fact"}]), frozenset({OSLO})),
    Row("in a fence", f"```json\n{json.dumps([{'memory': OSLO, 'metadata': {}}])}\n```", frozenset({OSLO})),
    Row(
        "the trailing comma of the prompt",
        f'[{{"memory": "{OSLO}", "metadata": {{}}}},\n]',
        frozenset({OSLO}),
    ),
    Row("an object around the list", json.dumps({"memories": [{"memory": OSLO}]}), frozenset({OSLO})),
    Row("texts alone", json.dumps([OSLO, CAT]), BOTH),
    Row("nothing to remember", "[]", frozenset()),
    Row("prose", "Sure, noted."),
    Row("nothing at all", ""),
    Row("HTTP 500", None, proxy=DOWN),
]


def _ended(do, row):
    """What became of it: `do` gives the texts that there are afterwards."""
    try:
        found = set(do())
    except Exception:  # of whatever kind: that the caller sees one is the outcome
        return ERROR
    if row.meant is not None and found == row.meant:
        return STORED
    if any(SPOKEN in text for text in found):
        return "raw text stored"
    if not found:
        return LOST
    return "partly stored" if row.meant and found < row.meant else ELSE


def extraction(proxy, row, kind="simple"):
    import memos.configs.mem_reader as configs

    if kind == "simple":
        from memos.mem_reader.simple_struct import SimpleStructMemReader as Reader

        configuration = configs.SimpleStructMemReaderConfig
    else:
        from memos.mem_reader.multi_modal_struct import MultiModalStructMemReader as Reader

        configuration = configs.MultiModalStructMemReaderConfig
    made = Reader(configuration(**reader(proxy, openai(proxy))))

    def do():
        info = {"user_id": "ann", "session_id": "one"}
        found = made.get_memory([said(SPOKEN)], type="chat", info=info)
        return [item.memory for group in found for item in group]

    return _ended(do, row)


def multimodal(proxy, row):
    return extraction(proxy, row, "multimodal")


def general(proxy, row):
    from memos.configs.memory import GeneralTextMemoryConfig
    from memos.memories.textual.general import GeneralTextMemory

    given = general_text(proxy, openai(proxy), tempfile.mkdtemp(prefix="qdrant-"))
    made = GeneralTextMemory(GeneralTextMemoryConfig(**given))
    try:
        return _ended(lambda: [item.memory for item in made.extract(said(SPOKEN))], row)
    finally:
        made.vector_db.client.close()


def naive(proxy, row):
    from memos.configs.memory import NaiveTextMemoryConfig
    from memos.memories.textual.naive import NaiveTextMemory

    made = NaiveTextMemory(NaiveTextMemoryConfig(extractor_llm=openai(proxy)))
    return _ended(lambda: [item.memory for item in made.extract(said(SPOKEN))], row)


TABLES = {"extraction": (EXTRACTION, extraction), "general": (EXTRACTION, general), "naive": (NAIVE, naive)}
if installed >= Version("2"):
    TABLES["multimodal"] = (EXTRACTION, multimodal)
