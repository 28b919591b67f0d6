"""A network guard for the processes that tests start: loopback, and no other address.

pytest-socket guards the test process alone. `sitecustomize.py` beside this file, on a process's path,
refuses and keeps every other connection and name look-up from its first line on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
LOG = "HYMEM_TEST_NETWORK_LOG"


def guarded(log: Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that is guarded, and that keeps what it refused in `log`."""
    environ = os.environ if environ is None else environ
    path = os.pathsep.join(filter(None, (str(HERE), environ.get("PYTHONPATH"))))
    return {**environ, "PYTHONPATH": path, LOG: str(log)}


def refused(log: Path) -> list[str]:
    """What was refused so far, one line each."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []
