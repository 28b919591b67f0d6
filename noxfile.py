"""What a person runs, as `./dev NAME`. Each session says what it does and how long it took."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT / "compat_tests"), str(ROOT / "packages/hymem-testing/src")]
import matrix

from hymem_testing.vllm import environment, server

PACKAGES = matrix.packages()
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
    session.install(*TOX)
    chosen = matrix.for_every_test()
    with _timed(minutes, "cells on the double"):
        failed += _on_the_double(session, chosen)
    if kind == "vllm":
        full = [cell.name for cell, short in chosen.items() if not short]
        with _timed(minutes, "vllm build"):
            environment.build()
        with _serving("smollm2", minutes):
            failed += _on_vllm(session, full, minutes, "smollm2", "hymem_real")
            with _timed(minutes, "demo"):
                failed += _attempt("demo", lambda: _demos(session))
        with _serving("hyv3-dummy", minutes):
            failed += _on_vllm(session, full, minutes, "hyv3-dummy", "hymem_model")
    _summary(session, minutes, failed)


@nox.session(name="matrix")
def matrix_cells(session: nox.Session) -> None:
    """The cells whose names contain the words given, on the double; results go on record. Those that are
    on record as passed, with the sources and lock there are now, are left out, unless --all."""
    words = [word for word in session.posargs if word != "--all"]
    named = [cell for cell in matrix.cells() if all(word in cell.name for word in words)]
    _lock(session, [cell for cell in named if not cell.is_fresh()])
    chosen = []
    for cell in named:
        known = cell.recorded()
        if "--all" in session.posargs or known is None or known["outcome"] != "passed":
            chosen.append(cell)
    session.log(f"{len(chosen)} of {len(named)} cells to run; the others are on record as passed")
    session.install(*TOX)
    for cell in chosen:
        cell.sources()  # as they are now, for the record: the wheels are built from them
    failed = []
    for ran in _run(session, dict.fromkeys(chosen, ()), HYMEM_TEST_RECORD="new"):
        counted = matrix.counts([WORK / "reports" / f"{ran.cell.name}.xml"])
        ran.cell.write_record(counted, passed=ran.passed)
        failed += [] if ran.passed else [ran.cell.name]
    session.install(*CHECKERS)
    session.run("python", "compat_tests/tables.py", env=SOURCES)
    if failed:
        session.error(f"failed: {', '.join(failed)}; see {WORK / 'logs'}")


@nox.session
def latest(session: nox.Session) -> None:
    """Each framework's newest version there is, unlocked: what users who install today get."""
    minutes: dict[str, float] = {}
    failed = []
    with tempfile.TemporaryDirectory() as directory:
        for cell in matrix.newest():
            for package in cell.packages:
                session.run(
                    "uv", "build", "--quiet", "--wheel", "--out-dir", directory, package, external=True
                )
            session.install("--upgrade", *cell.unpinned(), *matrix.TOOLS)
            session.install("--reinstall", "--no-deps", "--find-links", directory, *cell.distributions)
            tests = ("python", "-m", "pytest", "-q", *cell.tests, "--hymem-server=double")
            deselect = ("--deselect", "compat_tests/tests/test_drift.py") if not session.posargs else ()
            with _timed(minutes, cell.group):
                run = functools.partial(session.run, *tests, *deselect, env=dict(cell.environment))
                failed += _attempt(f"newest {cell.group}", run)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


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
    for path in matrix.of_no_cell():
        path.unlink()
    _lock(session, [cell for cell in matrix.cells() if "--all" in session.posargs or not cell.is_fresh()])


@nox.session
def bench(session: nox.Session) -> None:
    """What hymem costs, beside the raw client and others; written to benchmarks/RESULTS.md."""
    session.install("-r", "benchmarks/requirements.txt", *(f"./{package}" for package in PACKAGES))
    session.run("python", "benchmarks/bench.py", *session.posargs)


@nox.session(name="new-integration", python=False)
def new_integration(session: nox.Session) -> None:
    """Make the folder of a new integration: NAME --upstream DISTRIBUTION."""
    session.run(sys.executable, "compat_tests/new_integration.py", *session.posargs, external=True)


@nox.session
def tables(session: nox.Session) -> None:
    """Measure anew what the tables in the docs show, and write them."""
    session.install(*TOX)
    session.run("tox", "run", "--quiet", "-e", "wheels")
    one_python = {(cell.group, cell.version): cell for cell in matrix.cells() if cell.group != "core"}
    _lock(session, [cell for cell in one_python.values() if not cell.is_fresh()])
    for cell in one_python.values():
        command = ("tox", "run", "--quiet", "-e", cell.name, "--", "-m", "hymem_recorded")
        session.run(*command, env={"HYMEM_TEST_RECORD": "all"})
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


def _lock(session: nox.Session, cells: list[matrix.Cell]) -> None:
    for cell in cells:
        session.log(f"locking {cell.name}")
        command = ["uv", "pip", "compile", "--quiet", "--universal", "--no-header", "--no-annotate"]
        command += ["--python-version", cell.python, "-"]
        done = subprocess.run(command, input=cell.inputs(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            session.error(done.stderr)
        cell.lock.write_text(f"# made from {cell.digest}\n{done.stdout}", encoding="utf-8")


def _check(session: nox.Session) -> None:
    stale = [cell.name for cell in matrix.cells() if not cell.is_fresh()]
    stale += [path.name for path in matrix.of_no_cell()]
    if stale:
        raise RuntimeError(f"these locks and results are stale: {', '.join(stale)}; run ./dev lock")
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
            imported = f"import {matrix.module_of(package)}"
            session.run(python, "-W", "error", "-c", imported, external=True)
        for package in PACKAGES:
            if package.startswith("integrations"):
                _installs_with_its_hook(session, Path(package).name, directory)


def _installs_with_its_hook(session: nox.Session, name: str, directory: str) -> None:
    """The extra `autoload`, as the README has it: every Python of that environment runs the hook."""
    alone = Path(directory) / f"env-{name}"
    python = str(alone / "bin" / "python")
    install = ("uv", "pip", "install", "--quiet", "--python", python, "--find-links", directory)
    session.run(*install, f"{name}[autoload]", external=True)
    code = "import sys; sys.exit(not sys.modules['_hymem_autoload'].is_watching())"
    session.run(python, "-W", "error", "-c", code, external=True)
    session.run("uv", "pip", "uninstall", "--quiet", "--python", python, "hymem-autoload", external=True)
    session.run(python, "-c", "import sys; sys.exit('_hymem_autoload' in sys.modules)", external=True)
    left = [path.name for path in alone.rglob("*hymem_autoload*")]
    if left:
        session.error(f"uninstalling hymem-autoload has left {left}")


def _demos(session: nox.Session) -> None:
    """The demo as the README has it, and where LoCoMo's file is, on a real conversation."""
    _install_demo(session)
    session.run("python", "examples/demo.py")
    locomo = ROOT.parent / "shared/data/locomo/locomo10.json"
    named = os.environ.get("HYMEM_TEST_LOCOMO", str(locomo))
    if Path(named).is_file():
        session.run("python", "examples/demo.py", "--conversation", named, "--turns", "6")
    else:
        session.log("skipped the demo on a real conversation: LoCoMo's locomo10.json is not here")


def _install_demo(session: nox.Session) -> None:
    session.install("mem0ai==2.2.1", *(f"./{package}" for package in PACKAGES))


def _run(
    session: nox.Session, chosen: Mapping[matrix.Cell, Sequence[str]], **environ: str
) -> list[matrix.Ran]:
    """Run cells, from wheels built now."""
    session.run("tox", "run", "--quiet", "-e", "wheels")
    tox = [str(Path(session.bin) / "tox"), "run", "--quiet"]
    path = f"{session.bin}{os.pathsep}{os.environ['PATH']}"
    return matrix.run(chosen, tox, WORK, {**os.environ, "PATH": path, **environ})


def _on_the_double(session: nox.Session, chosen: Mapping[matrix.Cell, bool]) -> list[str]:
    """The names of those that failed, whose logs are shown."""
    short = ("-m", "hymem_short")
    done = _run(session, {cell: short if is_short else () for cell, is_short in chosen.items()})
    for ran in done:
        if not ran.passed:
            print(f"== {ran.cell.name}\n{ran.log.read_text()}", file=sys.stderr, flush=True)
    _keep_reports("double")
    return [ran.cell.name for ran in done if not ran.passed]


def _on_vllm(
    session: nox.Session, names: list[str], minutes: dict[str, float], model: str, marker: str
) -> list[str]:
    """The tests with a marker once more, on the model that is being served; the names of the cells that
    failed."""
    failed = []
    for name in names:
        with _timed(minutes, f"{name} on {model}"):
            command = ("tox", "run", "--quiet", "-e", name, "--", "--hymem-server=vllm", "-m", marker)
            # 5: no test of this cell is for the model that is being served.
            run = functools.partial(session.run, *command, success_codes=[0, 5])
            failed += _attempt(f"{name} on {model}", run)
    _keep_reports(model)
    return failed


def _keep_reports(of: str) -> None:
    for report in (WORK / "reports").glob("*.xml"):
        report.rename(report.with_suffix(f".{of}.done"))


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
    counts = matrix.counts((WORK / "reports").glob("*.done"))
    broken = counts["failed"]
    if failed and not broken:
        broken = len(failed)  # a check, or a cell that came to no test
    print(f"{counts['passed']} passed, {broken} failed, {counts['skipped']} skipped", flush=True)
    if failed:
        session.error(f"failed: {', '.join(failed)}")
