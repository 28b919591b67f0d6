"""What becomes of every bad reply, in LlamaIndex alone and with hymem.

The outcome of each row is kept per version, and the tables on LlamaIndex's page are made of it: `./dev
tables` measures anew, and this test says when that is due.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from replies import TABLES

import hymem_llama_index
from hymem_testing.replies import as_recorded


def measured(llm, proxy):
    return {
        f"{table}: {row.name}": outcome(llm, proxy, row)
        for table, (rows, outcome) in TABLES.items()
        for row in rows
    }


@pytest.fixture
def outcomes(events, main, hymem_writer, hymem_main):
    alone = measured(main, hymem_main)
    hymem_llama_index.enable(base_url=hymem_writer.base_url)
    with_hymem = measured(main, hymem_writer)
    return {name: {"alone": alone[name], "hymem": with_hymem[name]} for name in alone}


@pytest.mark.hymem_short
@pytest.mark.hymem_recorded
def test_every_row_ends_as_the_table_says(outcomes, events):
    ends = {name: row["hymem"] for name, row in outcomes.items()}
    bad = ("lost", "destroyed", "something else")
    assert {name: end for name, end in ends.items() if any(word in end for word in bad)} == {}
    assert len(events) >= len(outcomes)
    as_recorded(outcomes, Path(__file__), "llama-index", version("llama-index-core"))
