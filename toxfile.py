"""Adds one environment per cell of compat_tests/matrix.toml, so that nothing is generated."""

from __future__ import annotations

import sys
from pathlib import Path

from tox.config.loader.memory import MemoryLoader
from tox.config.sets import ConfigSet
from tox.config.types import Command, EnvList
from tox.plugin import impl
from tox.session.state import State

sys.path.insert(0, str(Path(__file__).parent / "compat_tests"))
import matrix

CELLS = {cell.name: cell for cell in matrix.cells()}


@impl  # type: ignore[untyped-decorator]  # tox is not looked into
def tox_extend_envs() -> tuple[str, ...]:
    return tuple(CELLS)


@impl  # type: ignore[untyped-decorator]  # tox is not looked into
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:
    work = Path(core_conf["work_dir"])
    for cell in CELLS.values():
        # Not our sources: a cell tests the wheels, as a user gets them.
        python = work / cell.name / "bin" / "python"
        install = ["uv", "pip", "install", "-q", "--python", str(python), "--no-deps", "--no-index"]
        install += ["--reinstall", "--find-links", str(work / "wheels"), *cell.distributions]
        report = f"--junitxml={work / 'reports'}/{cell.name}.xml"
        pytest = ["python", "-m", "pytest", "-q", report, *cell.tests, *(state.conf.pos_args(None) or ())]
        state.conf.memory_seed_loaders[cell.name].append(
            MemoryLoader(
                description=f"{', '.join(cell.pins)} on Python {cell.python}",
                base_python=["py" + cell.python.replace(".", "")],
                deps=[f"-r {cell.lock}"],
                allowlist_externals=["uv"],
                commands_pre=[Command(install)],
                commands=[Command(pytest)],
                depends=EnvList(["wheels"]),
                set_env={**cell.environment, "PYTHONHASHSEED": "0"},
            )
        )
