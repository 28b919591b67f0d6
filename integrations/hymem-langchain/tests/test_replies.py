"""What becomes of every bad reply, in LangChain and langmem alone and with hymem.

The outcome of each row is kept per version, and the tables on LangChain's page are made of it: `./dev
tables` measures anew, and this test says when that is due.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from adapter import USERS_KEY
from langchain_openai import ChatOpenAI
from replies import DESTROYED, ELSE, LOST, TABLES

import hymem_langchain
from hymem_testing.replies import as_recorded


def measured(model, proxy, *, native):
    """Row → how it ended, and after how many requests if that is more than the table of retries has."""
    found = {}
    for table, (rows, outcome) in TABLES.items():
        for row in rows:
            row.script(proxy, native=native)
            end = outcome(model, row)
            many = len(proxy.chats) > 3
            found[f"{table}: {row.name}"] = f"{end} after {len(proxy.chats)} requests" if many else end
    return found


@pytest.fixture
def outcomes(events, hymem_writer, hymem_main, monkeypatch):
    monkeypatch.setattr("hymem.plan.FIRST_PAUSE", 0.001)
    given = {"model": hymem_main.model, "base_url": hymem_main.base_url, "api_key": USERS_KEY}
    main = ChatOpenAI(**given, max_retries=0)
    alone = measured(main, hymem_main, native=True)
    hymem_langchain.enable(base_url=hymem_writer.base_url)
    with_hymem = measured(main, hymem_writer, native=False)
    return {name: {"alone": alone[name], "hymem": with_hymem[name]} for name in alone}


@pytest.mark.hymem_short
@pytest.mark.hymem_recorded
def test_every_row_ends_as_the_table_says(outcomes, events):
    ends = {name: row["hymem"] for name, row in outcomes.items()}
    assert {name: end for name, end in ends.items() if end in (LOST, DESTROYED, ELSE)} == {}
    assert len(events) >= len(outcomes)
    as_recorded(outcomes, Path(__file__), "langchain", version("langchain"))
