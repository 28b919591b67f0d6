"""Starting and stopping the real server, and the file through which others find it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from . import environment

START_SECONDS = 600
ADDRESS_FILE = "HYMEM_TEST_SERVER_FILE"
"""The variable that names the file in which a running server is described."""

_FLAGS = {
    "smollm2": ["--max-model-len", "12288"],
    "hyv3-dummy": [
        *("--max-model-len", "8192", "--load-format", "dummy", "--seed", "0"),
        *("--reasoning-parser", "hy_v3", "--enable-auto-tool-choice", "--tool-call-parser", "hy_v3"),
    ],
}
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB: 46,592 tokens of smollm2
}


@dataclass(frozen=True)
class Running:
    """A running server: `model` as in `environment.MODELS`, `url` without `/v1`, the process ids
    of server and embedder."""

    model: str
    url: str
    embedder_url: str
    pid: int
    embedder_pid: int

    @property
    def base_url(self) -> str:
        return self.url + "/v1"


def start(model: str, *, log: Path | None = None, quiet: bool = False) -> Running:
    """Start vLLM with `model`, and the embedder, in process groups of their own. Half a minute.

    Raises `environment.Unavailable` with the end of the log if it does not come up.
    """
    if model not in _FLAGS:
        raise environment.Unavailable(f"unknown model {model!r}; known: {', '.join(_FLAGS)}")
    python = environment.build()
    log = log or environment.cache() / f"{model}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        embedder_port, port = _free_port(), _free_port()
        embedder = _spawn([str(python), str(environment.HERE / "embedder.py"), str(embedder_port)], output)
        server = _spawn(_command(python, model, port), output)
    running = Running(
        model, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{embedder_port}", server.pid, embedder.pid
    )
    try:
        _wait(running, server, log, quiet=quiet)
    except BaseException:
        stop(running)
        raise
    return running


def stop(running: Running) -> None:
    """End both, with all their children. Safe to call twice."""
    for pid in (running.pid, running.embedder_pid):
        _end_group(pid)
        if (child := _children.pop(pid, None)) is not None:
            child.wait()


def _command(python: Path, model: str, port: int) -> list[str]:
    guided = json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})
    return [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(environment.model_directory(model)), "--served-model-name", "hy-memory"),
        *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager"),
        *("--structured-outputs-config", guided, *_FLAGS[model]),
    ]


_children: dict[int, subprocess.Popen[bytes]] = {}
"""What this process has started. Python warns of one that nobody has waited for."""


def _spawn(command: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    # Proxies and other people's Python settings are nothing to this process.
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    kept.pop("PYTHONPATH", None)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**kept, **_ENVIRONMENT},
        start_new_session=True,
    )
    _children[child.pid] = child
    return child


def _wait(running: Running, server: subprocess.Popen[bytes], log: Path, *, quiet: bool) -> None:
    started = time.monotonic()
    deadline = started + START_SECONDS
    waiting = {running.url + "/health", running.embedder_url + "/health"}
    while waiting:
        if server.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
            raise environment.Unavailable(
                f"vLLM with {running.model} did not come up; the end of {log}:\n{tail}"
            )
        waiting = {url for url in waiting if not _answers(url)}
        if not quiet and sys.stderr.isatty():
            _say(running, started, end="\r")
        time.sleep(0.5)
    if not quiet:
        _say(running, started, end="\n")


def _say(running: Running, started: float, *, end: str) -> None:
    seconds = time.monotonic() - started
    print(f"starting vLLM with {running.model} ... {seconds:.0f} s", end=end, file=sys.stderr, flush=True)


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGTERM)
        for _ in range(200):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            os.killpg(pid, 0)  # raises when the last of the group is gone
            time.sleep(0.1)
        os.killpg(pid, signal.SIGKILL)


def write_address(path: Path, running: Running) -> None:
    path.write_text(json.dumps(asdict(running)), encoding="utf-8")


def read_address() -> Running | None:
    """The server that `HYMEM_TEST_SERVER_FILE` describes, if the variable is set."""
    named = os.environ.get(ADDRESS_FILE)
    return Running(**json.loads(Path(named).read_text(encoding="utf-8"))) if named else None


@contextlib.contextmanager
def serving(model: str, address: Path | None = None) -> Iterator[Running]:
    """A server from here to the end of the block, described in `address`. SIGTERM ends the block,
    too: nothing is left running by a program that is asked to end."""
    with _sigterm_as_exit():
        running = start(model)
        try:
            if address is not None:
                write_address(address, running)
            yield running
        finally:
            stop(running)
            if address is not None:
                address.unlink(missing_ok=True)


@contextlib.contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
