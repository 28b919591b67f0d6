"""Real Mem0 on its embedded store."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile

# Read by Mem0 when it is imported.
os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="mem0-")

sys.path.insert(0, os.path.dirname(__file__))

import mem0
import pytest
from mem0_bank import Bank

import hymem
import hymem_mem0

DIMENSIONS = 384


@pytest.fixture(autouse=True)
def _clean():
    yield
    hymem_mem0.disable()
    hymem.close()
    gc.collect()


@pytest.fixture
def events():
    seen = []
    stop = hymem.observe(seen.append)
    yield seen
    stop()


@pytest.fixture
def main_llm(hymem_main):
    """The `llm` of a configuration before the swap."""
    return {
        "provider": "openai",
        "config": {
            "model": hymem_main.model,
            "openai_base_url": hymem_main.base_url,
            "api_key": "sk-users-key",
        },
    }


@pytest.fixture
def config(hymem_main, main_llm, tmp_path):
    """A configuration before the swap: everything from the user's own provider."""
    embedder = {
        "provider": "openai",
        "config": {
            "model": "embedder",
            "openai_base_url": hymem_main.base_url,
            "api_key": "sk-users-key",
            "embedding_dims": DIMENSIONS,
        },
    }
    store = {
        "path": str(tmp_path / "qdrant"),
        "collection_name": "memories",
        "embedding_model_dims": DIMENSIONS,
    }
    return {
        "llm": main_llm,
        "embedder": embedder,
        "vector_store": {"provider": "qdrant", "config": store},
        "history_db_path": str(tmp_path / "history.db"),
    }


@pytest.fixture
def swapped(config, hymem_writer, main_llm):
    """The same after the swap, as it would stand in a JSON file."""
    llm = {
        "provider": "hy_memory",
        "config": {"writer": {"base_url": hymem_writer.base_url}, "main_llm": main_llm},
    }
    return json.loads(json.dumps({**config, "llm": llm}))


@pytest.fixture(params=["sync", "async"])
def bank(request):
    """Makes a bank of a configuration, of `Memory` and of `AsyncMemory`."""
    cls = mem0.Memory if request.param == "sync" else mem0.AsyncMemory
    return lambda config: Bank(cls, config)


def pytest_collection_modifyitems(items):
    """Mem0 leaves its own clients and databases open; what hymem opens is looked at in its own tests."""
    for item in items:
        for warning in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))
