"""What becomes of every bad reply, in LlamaIndex alone and with hymem.

The outcome of each row is kept per version, and the tables on LlamaIndex's page are made of it: `./dev
tables` measures anew, and this test says when that is due.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest
from replies import TABLES

import hymem_llama_index

RESULTS = Path(__file__).parents[3] / "compat_tests" / "results" / "llama-index"
FILE = RESULTS / f"replies-{version('llama-index-core')}.json"


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
    record = os.environ.get("HYMEM_TEST_RECORD")  # "all", or "new": where there is none yet
    if record == "all" or (record == "new" and not FILE.is_file()):
        RESULTS.mkdir(parents=True, exist_ok=True)
        FILE.write_text(json.dumps(outcomes, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if not RESULTS.is_dir():
        pytest.skip("not in a checkout: there is no table to compare with")
    assert outcomes == json.loads(FILE.read_text(encoding="utf-8")), "run ./dev tables"
