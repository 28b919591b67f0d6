"""What importing costs, by what is loaded, and what is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hymem


def loaded_by(statement):
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_hymem_loads_nothing_else():
    assert loaded_by("import hymem") == ["hymem"]


def test_the_parts_that_do_no_io_load_no_client():
    modules = loaded_by("import hymem.plan, hymem.contract, hymem.decode, hymem.scope, hymem.patching")
    assert not {"openai", "httpx", "httpx2", "json_repair"} & set(modules)


def test_every_public_name_is_there():
    for name in hymem.__all__:
        assert getattr(hymem, name) is not None
    assert set(hymem.__all__) <= set(dir(hymem))


def test_in_a_cell_the_wheel_is_tested():
    if ".tox" in sys.prefix:
        assert "site-packages" in Path(hymem.__file__).parts
