"""What a person runs, as `./dev NAME`. Each session says what it does and how long it took."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT / "compat_tests"), str(ROOT / "packages/hymem-testing/src")]
import matrix

from hymem_testing.vllm import environment, server

PACKAGES = ("packages/hymem", "packages/hymem-testing", "integrations/hymem-mem0")
CHECKERS = (
    *("ruff==0.17.6", "mypy==2.4.1"),
    *("openai==3.57.0", "pydantic==2.14.4", "packaging", "pytest==9.2.0", "tomli", "nox==2026.10.20"),
    "json-repair==0.64.6",
)
SOURCES = {"PYTHONPATH": os.pathsep.join(str(ROOT / package / "src") for package in PACKAGES)}
TOX = ("tox==4.67.15", "tox-uv==1.37.1")
WORK = ROOT / ".tox"

nox.options.default_venv_backend = "uv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True


@nox.session
def test(session: nox.Session) -> None:
    """Everything: checks, packages, the cells, the real vLLM. --hymem-server=double leaves that out."""
    kind = _server_kind(session)
    minutes: dict[str, float] = {}
    _clear_reports()
    failed = []
    parts = [("checks", lambda: _check(session)), ("packages", lambda: _packages(session))]
    for name, part in parts:
        with _timed(minutes, name):
            failed += _attempt(name, part)
    names = [cell.name for cell in matrix.cells()]
    session.install(*TOX)
    if kind != "vllm":
        failed += _cells(session, names, minutes, [f"--hymem-server={kind}"])
    else:
        with _timed(minutes, "vllm build"):
            environment.build()
        for model, marked in (("smollm2", []), ("hyv3-dummy", ["-m", "hymem_model"])):
            with _serving(model, minutes):
                failed += _cells(
                    session, names, minutes, ["--hymem-server=vllm", *marked], suffix=f" {model}"
                )
                if model == "smollm2":
                    with _timed(minutes, "demo"):
                        failed += _attempt("demo", lambda: _demos(session))
    _summary(session, minutes, failed)


@nox.session(name="matrix")
def matrix_cells(session: nox.Session) -> None:
    """All cells on the double, or those whose names contain the words given."""
    words = session.posargs
    names = [cell.name for cell in matrix.cells() if all(word in cell.name for word in words)]
    minutes: dict[str, float] = {}
    _clear_reports()
    session.install(*TOX)
    failed = _cells(session, names, minutes, ["--hymem-server=double"])
    _summary(session, minutes, failed)


@nox.session
def lint(session: nox.Session) -> None:
    """Format what can be formatted, then check style and types."""
    session.install(*CHECKERS)
    session.run("ruff", "format", ".")
    session.run("ruff", "check", "--fix", ".")
    session.run("mypy")


@nox.session
def lock(session: nox.Session) -> None:
    """Make the locks of cells that changed; --all makes every one anew."""
    for cell in matrix.cells():
        if cell.is_fresh() and "--all" not in session.posargs:
            continue
        session.log(f"locking {cell.name}")
        command = ["uv", "pip", "compile", "--quiet", "--universal", "--no-header", "--no-annotate"]
        command += ["--python-version", cell.python, "-"]
        done = subprocess.run(command, input=cell.inputs(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            session.error(done.stderr)
        cell.lock.write_text(f"# made from {cell.digest}\n{done.stdout}", encoding="utf-8")


@nox.session
def bench(session: nox.Session) -> None:
    """What hymem costs, beside the raw client and others; written to benchmarks/RESULTS.md."""
    session.install("-r", "benchmarks/requirements.txt", *(f"./{package}" for package in PACKAGES))
    session.run("python", "benchmarks/bench.py", *session.posargs)


@nox.session
def tables(session: nox.Session) -> None:
    """Measure anew what the tables in the docs show, and write them."""
    session.install(*TOX)
    session.run("tox", "run", "--quiet", "-e", "wheels")
    for name in [cell.name for cell in matrix.cells() if cell.name.startswith("mem0-")]:
        command = ("tox", "run", "--quiet", "-e", name, "--", "-k", "test_every_row_ends_as_the_table_says")
        session.run(*command, env={"HYMEM_TEST_RECORD": "1"})
    session.install(*CHECKERS)
    session.run("python", "compat_tests/tables.py", env=SOURCES)


@nox.session(python=False)
def vllm(session: nox.Session) -> None:
    """Build the environment and models of the real vLLM; with a model's name, serve it."""
    environment.build()
    if session.posargs:
        command = [sys.executable, "-m", "hymem_testing", "vllm", "serve", *session.posargs]
        session.run(*command, env={"PYTHONPATH": str(ROOT / "packages/hymem-testing/src")}, external=True)


@nox.session
def demo(session: nox.Session) -> None:
    """Mem0, written by the model under the name hy-memory, from a real server: see the README."""
    _install_demo(session)
    session.run("python", "examples/demo.py", *session.posargs)


# -- parts ---------------------------------------------------------------------------------------


def _check(session: nox.Session) -> None:
    stale = [cell.name for cell in matrix.cells() if not cell.is_fresh()]
    if stale:
        raise RuntimeError(f"these locks are stale: {', '.join(stale)}; run ./dev lock")
    session.install(*CHECKERS)
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("python", "compat_tests/tables.py", "--check", env=SOURCES)


def _packages(session: nox.Session) -> None:
    """Each builds, is described well, and installs alone into an empty environment."""
    session.install("twine==7.0.0")
    with tempfile.TemporaryDirectory() as directory:
        for package in PACKAGES:
            session.run("uv", "build", "--quiet", "--out-dir", directory, package, external=True)
        built = sorted(str(each) for each in Path(directory).iterdir() if each.suffix in (".whl", ".gz"))
        session.run("twine", "check", "--strict", *built)
        for package in PACKAGES:
            name = Path(package).name
            alone = Path(directory) / f"env-{name}"
            session.run("uv", "venv", "--quiet", str(alone), external=True)
            python = str(alone / "bin" / "python")
            install = ("uv", "pip", "install", "--quiet", "--python", python, "--find-links", directory, name)
            session.run(*install, external=True)
            session.run(python, "-W", "error", "-c", f"import {name.replace('-', '_')}", external=True)


def _demos(session: nox.Session) -> None:
    """The demo as the README has it, and where LoCoMo's file is, on a real conversation."""
    _install_demo(session)
    session.run("python", "examples/demo.py")
    locomo = ROOT.parent / "shared/data/locomo/locomo10.json"
    named = os.environ.get("HYMEM_TEST_LOCOMO", str(locomo))
    if Path(named).is_file():
        session.run("python", "examples/demo.py", "--conversation", named)
    else:
        session.log("skipped the demo on a real conversation: LoCoMo's locomo10.json is not here")


def _install_demo(session: nox.Session) -> None:
    session.install("mem0ai==2.2.1", *(f"./{package}" for package in PACKAGES))


def _cells(
    session: nox.Session, names: list[str], minutes: dict[str, float], posargs: list[str], suffix: str = ""
) -> list[str]:
    """Run cells one after the other, from wheels built now; the names of those that failed."""
    with _timed(minutes, "wheels" + suffix):
        session.run("tox", "run", "--quiet", "-e", "wheels")
    failed = []
    for name in names:
        with _timed(minutes, name + suffix):
            command = ("tox", "run", "--quiet", "-e", name, "--", *posargs)
            # 5: no test of this cell is for the model that is being served.
            run = functools.partial(session.run, *command, success_codes=[0, 5])
            failed += _attempt(name + suffix, run)
    for report in (WORK / "reports").glob("*.xml"):
        report.rename(report.with_suffix(f".{suffix.strip() or 'double'}.done"))
    return failed


def _attempt(name: str, part: Callable[[], object]) -> list[str]:
    """Run a part; a failure is told at the end, so that one does not hide the others."""
    try:
        part()
    except Exception as error:
        print(f"FAILED: {name}: {error}", file=sys.stderr)
        return [name]
    return []


@contextlib.contextmanager
def _serving(model: str, minutes: dict[str, float]) -> Iterator[None]:
    address = WORK / f"{model}.json"
    WORK.mkdir(exist_ok=True)
    started = time.monotonic()
    with server.serving(model, address):
        minutes[f"starting {model}"] = (time.monotonic() - started) / 60
        os.environ[server.ADDRESS_FILE] = str(address)
        try:
            yield
        finally:
            del os.environ[server.ADDRESS_FILE]


@contextlib.contextmanager
def _timed(minutes: dict[str, float], name: str) -> Iterator[None]:
    print(f"== {name}", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        yield
    finally:
        minutes[name] = (time.monotonic() - started) / 60


def _server_kind(session: nox.Session) -> str:
    for argument in session.posargs:
        if argument.startswith("--hymem-server="):
            return argument.partition("=")[2]
        session.error(f"unknown argument {argument!r}; known: --hymem-server=double|vllm|external")
    return "vllm"


def _clear_reports() -> None:
    for report in (WORK / "reports").glob("*"):
        report.unlink()


def _summary(session: nox.Session, minutes: dict[str, float], failed: list[str]) -> None:
    print("\nminutes of each part")
    for name, spent in minutes.items():
        print(f"  {spent:5.1f}  {name}")
    print(f"  {sum(minutes.values()):5.1f}  together")
    counts: Counter[str] = Counter()
    for report in (WORK / "reports").glob("*.done"):
        for suite in ET.parse(report).getroot().iter("testsuite"):
            counts.update({key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")})
    broken = counts["failures"] + counts["errors"]
    passed = counts["tests"] - broken - counts["skipped"]
    if failed and not broken:
        broken = len(failed)  # a check, or a cell that came to no test
    print(f"{passed} passed, {broken} failed, {counts['skipped']} skipped", flush=True)
    if failed:
        session.error(f"failed: {', '.join(failed)}")
