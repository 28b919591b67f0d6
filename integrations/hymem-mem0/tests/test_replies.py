"""What becomes of every bad reply, in Mem0 alone and with hymem.

The outcome of each row is kept per version of Mem0, and the table on Mem0's page is made of it:
`./dev tables` measures anew, and this test says when that is due.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from mem0_bank import ADDITIVE, add_all, facts_reply, is_decision
from replies import BERGEN, DECISION, EXTRACTION, OSLO

import hymem_mem0
from hymem_testing.replies import as_recorded

TABLES = {"extraction": EXTRACTION} if ADDITIVE else {"extraction": EXTRACTION, "decision": DECISION}


def scripted(proxy, table, row):
    """Have the server answer so, however often it is asked; a bank's first memory comes first."""
    proxy.clear()
    bad = is_decision if table == "decision" else (lambda body: not is_decision(body))
    proxy.reply(None, facts_reply(OSLO) if table == "decision" else facts_reply(BERGEN))
    if not ADDITIVE:
        proxy.reply(is_decision, add_all)
    proxy.reply(bad, row.said, **row.proxy)


def outcome(made, proxy, table, row, user):
    """In one word, what became of a row's reply."""
    if table == "decision":
        proxy.clear()
        proxy.reply(None, facts_reply(BERGEN))
        proxy.reply(is_decision, add_all)
        made.add("I live in Bergen.", user=user)
    before = made.all(user)
    scripted(proxy, table, row)
    try:
        made.add("I live in Oslo and have a cat.", user=user)
        failed = False
    except Exception:  # of whatever kind, Mem0's own among them: that the caller sees one is the outcome
        failed = True
    after = made.all(user)
    if lost := (before - row.gone) - after:
        return f"destroyed {len(lost)}"
    if after - before - row.meant:
        return "stored something else"
    if row.meant <= after and not row.gone & after and not failed:
        return "stored" if row.meant or row.gone else "nothing, without a word"
    if failed:
        return "error" if after == before else "partly stored, error"
    return "lost without a word" if after == before else "partly lost without a word"


def measured(bank, proxy, config, kind):
    made = bank(config)
    found = {}
    for table, rows in TABLES.items():
        for at, row in enumerate(rows):
            found[f"{table}: {row.name}"] = outcome(made, proxy, table, row, f"{kind}-{table}-{at}")
    return found


@pytest.fixture
def outcomes(events, bank, config, swapped, hymem_writer, hymem_main, tmp_path, monkeypatch):
    monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
    alone = measured(bank, hymem_main, config, "alone")
    swapped["vector_store"]["config"]["path"] = str(tmp_path / "swapped")
    hymem_mem0.register()
    with_hymem = measured(bank, hymem_writer, swapped, "hymem")
    return {name: {"alone": alone[name], "hymem": with_hymem[name]} for name in alone}


@pytest.mark.hymem_short
@pytest.mark.hymem_recorded
def test_every_row_ends_as_the_table_says(outcomes, events):
    ends = {name: row["hymem"] for name, row in outcomes.items()}
    silent = {name: end for name, end in ends.items() if "word" in end or "destroyed" in end}
    assert silent == {}
    assert len(events) >= len(outcomes)
    as_recorded(outcomes, Path(__file__), "mem0", version("mem0ai"))
