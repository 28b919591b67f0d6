"""What becomes of every bad reply, in EverMemOS alone and with hymem.

The outcome of each row is kept per version, and the tables on EverMemOS's page are made of it: `./dev tables`
measures anew, and this test says when that is due.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from replies import TABLES

import hymem_evermemos
from hymem_testing.replies import as_recorded


def measured(answering, main):
    """`answering`: the proxy in front of whoever writes."""
    found = {}
    for table, (rows, outcome) in TABLES.items():
        for row in rows:
            answering.clear()
            answering.reply(None, row.said, **row.proxy)
            found[f"{table}: {row.name}"] = outcome(main, row)
    return found


@pytest.fixture
def outcomes(events, hymem_writer, hymem_main, monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)  # its own, three times on HTTP 500
    alone = measured(hymem_main, hymem_main)
    hymem_evermemos.enable(base_url=hymem_writer.base_url)
    with_hymem = measured(hymem_writer, hymem_main)
    return {name: {"alone": alone[name], "hymem": with_hymem[name]} for name in alone}


@pytest.mark.hymem_short
@pytest.mark.hymem_recorded
def test_every_row_ends_as_the_table_says(outcomes, events):
    ends = {name: row["hymem"] for name, row in outcomes.items()}
    bad = ("lost", "destroyed", "something else")
    assert {name: end for name, end in ends.items() if any(word in end for word in bad)} == {}
    assert len(events) == len(outcomes)
    as_recorded(outcomes, Path(__file__), "evermemos", version("everos"))
