"""Makes the tables in the docs from recorded results and from the catalogues of call sites.

A page holds `<!-- table: NAME -->` and `<!-- end -->`; what stands between them is written here.
`--check` changes nothing and fails where a page is stale.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matrix
from packaging.version import Version

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "compat_tests" / "results"
_PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# -- versions ------------------------------------------------------------------------------------


def compatibility() -> str:
    """Every cell, by framework: version and Python → what its last run came to."""
    parts = []
    groups = dict.fromkeys(cell.group for cell in matrix.cells())
    for group in groups:
        members = [cell for cell in matrix.cells() if cell.group == group]
        pythons = sorted({cell.python for cell in members}, key=Version)
        versions = dict.fromkeys(cell.version for cell in members)
        at = {(cell.version, cell.python): _run(cell) for cell in members}
        rows = [[version, *(at.get((version, python), "") for python in pythons)] for version in versions]
        head = [_TITLES.get(group, group), *(f"Python {python}" for python in pythons)]
        parts.append(table(head, rows))
    return "\n".join(parts)


_TITLES = {
    "core": "hymem, with openai",
    "mem0": "Mem0 (`mem0ai`)",
    "langchain": "LangChain (`langchain`)",
    "llama-index": "LlamaIndex (`llama-index-core`)",
    "memos": "MemOS (`MemoryOS`)",
    "evermemos": "EverMemOS (`everos`)",
    "hy-memory": "Hy-Memory SDK (`hy-memory`)",
}


def _run(cell: matrix.Cell) -> str:
    found = cell.recorded()
    if found is None:
        return "not run"
    return f"{found['outcome']}, {found['date']} ({found['passed']} tests)"


def versions(group: str, ways: str = ", sync and async") -> str:
    """The supported range, in a sentence."""
    members = [cell for cell in matrix.cells() if cell.group == group]
    pins = [cell.pins[0] for cell in members]
    named = list(dict.fromkeys(pin.partition("==")[2] for pin in pins))
    pythons = sorted({cell.python for cell in members}, key=Version)
    name = pins[0].partition("==")[0]
    text = f"`{name}` {', '.join(named[:-1])} and {named[-1]}{ways}"
    return f"Tested with {text}, on Python {pythons[0]} and {pythons[-1]}.\n"


# -- what becomes of bad replies -------------------------------------------------------------------

_SHORT = {
    "lost without a word": "lost",
    "partly lost without a word": "partly lost",
    "nothing, without a word": "nothing",
    "stored something else": "garbled",
}


def replies(framework: str, kind: str) -> str:
    """Row → outcome in the framework alone → with hymem, per version."""
    found = {
        path.stem.removeprefix("replies-"): json.loads(path.read_text(encoding="utf-8"))
        for path in (RESULTS / framework).glob("replies-*.json")
    }
    with_kind = [version for version in found if any(name.startswith(f"{kind}: ") for name in found[version])]
    versions = sorted(with_kind, key=Version)
    names = dict.fromkeys(name for version in versions for name in found[version])
    rows = []
    for name in (name for name in names if name.startswith(f"{kind}: ")):
        cells = [_outcome(found[version][name]) if name in found[version] else "" for version in versions]
        rows.append([name.partition(": ")[2], *cells])
    return table(["the reply", *versions], rows)


def _outcome(row: dict[str, str]) -> str:
    alone, ours = (_SHORT.get(row[key], row[key]) for key in ("alone", "hymem"))
    return alone if alone == ours else f"{alone} → **{ours}**"


def call_sites(module: str, title: str) -> str:
    """What moves and what stays."""
    rows = []
    for site in importlib.import_module(module).CALL_SITES:
        side = "the writer" if site.side == "write" else "the main model"
        if site.opt_in:
            side += f", if `{site.opt_in}` is set; else the main model"
        where = {each.partition(":")[2] for each in site.where}
        methods = {each.rpartition(".")[2] for each in where}
        asks = ", ".join(f"`{name}`" for name in sorted(where if len(where) == 1 else methods))
        rows.append([f"`{site.id}`", asks, site.versions or "all", side])
    return table(["call site", "asked in", title, "goes to"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "compatibility": compatibility,
    "mem0-versions": lambda: versions("mem0"),
    "mem0-call-sites": lambda: call_sites("hymem_mem0", "Mem0"),
    "memos-versions": lambda: versions("memos", ""),
    "memos-call-sites": lambda: call_sites("hymem_memos", "MemOS"),
    "evermemos-versions": lambda: versions("evermemos", ""),
    "evermemos-call-sites": lambda: call_sites("hymem_evermemos", "EverMemOS"),
    "hy-memory-versions": lambda: versions("hy-memory", ""),
    "hy-memory-call-sites": lambda: call_sites("hymem_hy_memory", "Hy-Memory SDK"),
    "llama-index-versions": lambda: versions("llama-index"),
    "llama-index-call-sites": lambda: call_sites("hymem_llama_index", "LlamaIndex"),
    "langchain-versions": lambda: versions("langchain"),
    "langchain-call-sites": lambda: call_sites("hymem_langchain", "LangChain"),
    **{
        f"{framework}-{kind}": functools.partial(replies, framework, kind)
        for framework, kinds in {
            "mem0": ("extraction", "decision"),
            "memos": ("extraction", "multimodal", "general", "naive"),
            "evermemos": ("boundary", "episode", "facts", "profile", "update"),
            "hy-memory": ("extract", "reconcile", "work", "system2"),
            "llama-index": ("facts", "condensed", "history"),
            "langchain": ("summary", "history", "entities", "triples", "memories", "changes"),
        }.items()
        for kind in kinds
    },
}


def main(arguments: Sequence[str]) -> int:
    stale = []
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/*/README.md")]
    for page in sorted(pages):
        text = page.read_text(encoding="utf-8")
        made = _PLACE.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], text)
        if made != text:
            stale.append(str(page.relative_to(ROOT)))
            if "--check" not in arguments:
                page.write_text(made, encoding="utf-8")
    print(f"tables: {', '.join(stale) or 'nothing'} {'stale' if '--check' in arguments else 'written'}")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
