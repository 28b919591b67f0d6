"""The cells of matrix.toml, their locks, and what is on record of their runs."""

from __future__ import annotations

import concurrent.futures
import datetime
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "compat_tests" / "locks"
RESULTS = ROOT / "compat_tests" / "results" / "cells"
TOOLS = ("pytest>=9", "pytest-asyncio>=1.2", "pytest-socket>=0.7", "hypothesis>=6.140")


@dataclass(frozen=True, eq=False)
class Cell:
    """A set of exact pins on one Python. `group` is `core` or a framework, `version` its row there."""

    name: str
    group: str
    version: str
    python: str
    pins: tuple[str, ...]
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()

    @property
    def distributions(self) -> list[str]:
        return [Path(each).name for each in self.packages]

    # -- what is installed -----------------------------------------------------------------------

    @property
    def lock(self) -> Path:
        return LOCKS / f"{self.name}.txt"

    def inputs(self) -> str:
        """What is locked, as requirement lines: pins, tools, and what our packages depend on."""
        ours = set(self.distributions)
        lines = [*self.pins, *TOOLS, *self.tools]
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

    def locked(self) -> dict[str, str]:
        """Name → version of everything that the lock installs on this Python and system."""
        from packaging.requirements import Requirement

        here = {"python_version": self.python, "python_full_version": f"{self.python}.0"}
        lines = [line for line in self.lock.read_text().splitlines() if line and not line.startswith("#")]
        wanted = [Requirement(line) for line in lines]
        return {
            each.name: str(each.specifier).removeprefix("==")
            for each in wanted
            if each.marker is None or each.marker.evaluate(here)
        }

    def unpinned(self) -> list[str]:
        """The same names in any version, and what our packages depend on."""
        names = [pin.partition("==")[0] for pin in self.pins]
        return [*names, *self.inputs().splitlines()[len(self.pins) + len(TOOLS) :]]

    # -- what is on record -----------------------------------------------------------------------

    @property
    def record(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def recorded(self) -> dict[str, Any] | None:
        """Its last run; None where it has not been run since its sources or its lock changed."""
        if not self.record.is_file():
            return None
        found: dict[str, Any] = json.loads(self.record.read_text(encoding="utf-8"))
        current = found["sources"] == self.sources() and found["lock"] == _sha(self.lock.read_bytes())
        return found if current else None

    def write_record(self, counts: Mapping[str, int], *, passed: bool) -> None:
        """Keep a run: rewritten only where something but its date is new."""
        made = {
            "outcome": "passed" if passed else "failed",
            "passed": counts["passed"],
            "skipped": counts["skipped"],
            "python": self.python,
            "versions": {name: self.locked()[name] for name in self._shown() if name in self.locked()},
            "hymem": _version("packages/hymem"),
            "sources": self.sources(),
            "lock": _sha(self.lock.read_bytes()),
        }
        before = json.loads(self.record.read_text(encoding="utf-8")) if self.record.is_file() else {}
        if {**made, "date": before.get("date")} != before:
            made["date"] = datetime.date.today().isoformat()
            RESULTS.mkdir(parents=True, exist_ok=True)
            self.record.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")

    def _shown(self) -> list[str]:
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

        pinned = (canonicalize_name(Requirement(pin).name) for pin in self.pins)
        return sorted({*pinned, "openai", "pydantic"})

    def sources(self) -> str:
        """Of the code that is installed from here, the test kit aside."""
        kept = [each for each in self.packages if not each.endswith("hymem-testing")]
        return _sha("".join(_sources_of(each) for each in kept).encode())


def packages() -> tuple[str, ...]:
    """The folder of every package of ours, the core first."""
    found = [path.parent for path in ROOT.glob("*/*/pyproject.toml") if path.parts[-3] in _KEPT_IN]
    return tuple(str(path.relative_to(ROOT)) for path in sorted(found, key=_core_first))


_KEPT_IN = ("packages", "integrations")


def module_of(package: str) -> str:
    """What it is imported as."""
    (found,) = (path.parent.name for path in (ROOT / package / "src").glob("*/__init__.py"))
    return found


def _core_first(package: Path) -> tuple[bool, str]:
    return package.parent.name != "packages", package.name


def cells() -> list[Cell]:
    """Every cell, in the order of the file."""
    made = []
    for group, table in _toml(ROOT / "compat_tests" / "matrix.toml").items():
        packages, environment = tuple(table["packages"]), table.get("environment", {})
        more, only = table.get("more_tests", {}), table.get("only", {})
        for version, pins in table["versions"].items():
            upstream = [f"{table['upstream']}=={version}"] if "upstream" in table else []
            for python in only.get(version, table["pythons"]):
                name = f"{group}-{version}-py{python.replace('.', '')}"
                tests = (*table["tests"], *more.get(name, ()))
                made.append(
                    Cell(
                        name=name,
                        group=group,
                        version=version,
                        python=python,
                        pins=(*upstream, *pins),
                        packages=packages,
                        tests=tests,
                        # The hook is switched on in the processes that are about it.
                        environment={"HYMEM_AUTOLOAD": "0", **environment},
                        tools=tuple(table.get("tools", ())),
                    )
                )
    return made


def of_no_cell() -> list[Path]:
    """Locks and results of cells that are in the matrix no more."""
    names = {cell.name for cell in cells()}
    return [path for path in (*LOCKS.glob("*.txt"), *RESULTS.glob("*.json")) if path.stem not in names]


def for_every_test() -> dict[Cell, bool]:
    """The cells of `./dev test`, the longest first, and whether in short form: of the core the lowest
    Python with the lowest versions and the highest with the highest, of a framework its newest version
    in full and its oldest in short."""
    chosen: dict[Cell, bool] = {}
    groups: dict[str, list[Cell]] = {}
    for cell in cells():
        groups.setdefault(cell.group, []).append(cell)
    for group, members in groups.items():
        chosen |= {members[0]: group != "core", members[-1]: False}
    return dict(sorted(chosen.items(), key=lambda each: (each[1], each[0].group == "core")))


def newest() -> list[Cell]:
    """Of each framework the newest version, on the highest Python."""
    last = {cell.group: cell for cell in cells() if cell.group != "core"}
    return list(last.values())


# -- running -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """A cell that was run. `minutes` are of its own time, not of the whole run's."""

    cell: Cell
    passed: bool
    minutes: float
    log: Path


def run(
    chosen: Mapping[Cell, Sequence[str]], tox: Sequence[str], work: Path, environ: Mapping[str, str]
) -> list[Ran]:
    """Run cells on the double, as many at once as there are cores, each with further arguments for
    pytest, and tell each as it ends. What a cell prints goes to a log of its own."""
    logs, reports = work / "logs", work / "reports"
    logs.mkdir(parents=True, exist_ok=True)

    def one(cell: Cell) -> Ran:
        started = time.monotonic()
        (reports / f"{cell.name}.xml").unlink(missing_ok=True)
        command = [*tox, "-e", cell.name, "--", "--hymem-server=double", *chosen[cell]]
        path = logs / f"{cell.name}.log"
        with path.open("w") as log:
            options: Any = {"stdout": log, "stderr": log, "env": environ, "cwd": ROOT, "timeout": 30 * 60}
            try:
                passed = subprocess.run(command, check=False, **options).returncode == 0
            except subprocess.TimeoutExpired:
                passed = False
        return Ran(cell, passed, (time.monotonic() - started) / 60, path)

    done = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = [pool.submit(one, cell) for cell in chosen]
        for each in concurrent.futures.as_completed(running):
            ran = each.result()
            done.append(ran)
            counted = counts([reports / f"{ran.cell.name}.xml"])
            told = f"{'passed' if ran.passed else 'FAILED'}, {counted['passed']} tests, {ran.minutes:.1f} min"
            print(f"[{len(done)}/{len(chosen)}] {ran.cell.name}: {told}", file=sys.stderr, flush=True)
    return done


def counts(reports: Iterable[Path]) -> Counter[str]:
    """What pytest's reports say: passed, failed, skipped."""
    found: Counter[str] = Counter(passed=0, failed=0, skipped=0)
    for report in reports:
        if not report.exists():
            continue
        for suite in ET.parse(report).getroot().iter("testsuite"):
            number = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
            broken = number["failures"] + number["errors"]
            found["failed"] += broken
            found["skipped"] += number["skipped"]
            found["passed"] += number["tests"] - broken - number["skipped"]
    return found


def build_wheels(into: Path) -> None:
    """The wheels that every cell installs."""
    shutil.rmtree(into, ignore_errors=True)
    for package in packages():
        command = ["uv", "build", "--quiet", "--wheel", "--out-dir", str(into), package]
        subprocess.run(command, cwd=ROOT, check=True)


@functools.cache
def _sources_of(package: str) -> str:
    folder = ROOT / package
    files = sorted([*(folder / "src").rglob("*.py"), *folder.glob("*.pth"), *folder.glob("*.start")])
    return _sha(b"".join(str(path.relative_to(ROOT)).encode() + path.read_bytes() for path in files))


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _version(package: str) -> str:
    text = (ROOT / package / "src" / module_of(package) / "__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return found[1] if found else "unknown"


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    build_wheels(Path(sys.argv[1]))
