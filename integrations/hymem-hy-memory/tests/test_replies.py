"""What becomes of every bad reply, in the SDK alone and with hymem.

The outcome of each row is kept per version, and the tables on the SDK's page are made of it: `./dev tables`
measures anew, and this test says when that is due.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import hy_memory_bank as bank
import pytest
from replies import TABLES

import hymem_hy_memory
from hymem_testing.replies import as_recorded


def measured(answering, main, place):
    """`answering`: the proxy in front of whoever writes."""
    found = {}
    for table, (rows, outcome, mode) in TABLES.items():
        (place / table).mkdir(parents=True)
        client = bank.client(bank.configuration(main, place / table), mode=mode)
        for row in rows:
            answering.clear()
            found[f"{table}: {row.name}"] = outcome(client, answering, row)
        client.close()
    return found


@pytest.fixture
def outcomes(hymem_writer, hymem_main, monkeypatch, tmp_path):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)  # 1.2.21's own, on HTTP 500
    alone = measured(hymem_main, hymem_main, tmp_path / "alone")
    hymem_hy_memory.enable(base_url=hymem_writer.base_url)
    with_hymem = measured(hymem_writer, hymem_main, tmp_path / "hymem")
    return {name: {"alone": alone[name], "hymem": with_hymem[name]} for name in alone}


@pytest.mark.hymem_short
@pytest.mark.hymem_recorded
def test_every_row_ends_as_the_table_says(outcomes):
    ends = {name: row["hymem"] for name, row in outcomes.items()}
    bad = ("lost", "destroyed", "something else")
    assert {name: end for name, end in ends.items() if any(word in end for word in bad)} == {}
    as_recorded(outcomes, Path(__file__), "hy-memory", version("hy-memory"))
