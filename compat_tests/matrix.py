"""The cells of matrix.toml, and their locks. Read by toxfile.py and by noxfile.py."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "compat_tests" / "locks"
TOOLS = ("pytest>=9", "pytest-asyncio>=1.2", "pytest-socket>=0.7", "hypothesis>=6.140")


@dataclass(frozen=True)
class Cell:
    """One row: a set of exact pins on one Python."""

    name: str
    python: str
    pins: tuple[str, ...]
    packages: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def lock(self) -> Path:
        return LOCKS / f"{self.name}.txt"

    @property
    def distributions(self) -> list[str]:
        return [Path(each).name for each in self.packages]

    def inputs(self) -> str:
        """What is locked, as requirement lines: pins, tools, and what our packages depend on."""
        ours = set(self.distributions)
        lines = [*self.pins, *TOOLS]
        for package in self.packages:
            project = _toml(ROOT / package / "pyproject.toml")["project"]
            lines += [each for each in project["dependencies"] if each.split(">")[0] not in ours]
        return "\n".join(lines) + "\n"

    @property
    def digest(self) -> str:
        """Of what the lock was made from; stands in its first line."""
        return hashlib.sha256(f"{self.python}\n{self.inputs()}".encode()).hexdigest()[:16]

    def is_fresh(self) -> bool:
        return self.lock.exists() and self.lock.read_text().startswith(f"# made from {self.digest}\n")


def cells() -> list[Cell]:
    """Every cell, in the order of the file."""
    table = _toml(ROOT / "compat_tests" / "matrix.toml")["cells"]
    return [
        Cell(name, row["python"], *(tuple(row[key]) for key in ("pins", "packages", "tests")))
        for name, row in table.items()
    ]


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
