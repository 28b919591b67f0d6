"""`python -m hy_memory.server` as people run it, with nothing but the environment changed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import hy_memory_bank as bank
import pytest

from hymem_testing.guard import HERE, guarded, refused

WRITERS_KEY = "sk-writers-key"
OSLO = "The user lives in Oslo."
SITE = f"""
import runpy
runpy.run_path({str(HERE / "sitecustomize.py")!r})

import sys
sys.modules["tiktoken"] = None  # its tables would be downloaded
"""


class Server:
    """The SDK's own server, from `with` to its end, in a process that is guarded."""

    def __init__(self, place, main, command, environ):
        site = place / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(SITE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.log, self._network = f"http://127.0.0.1:{port}", place / "log", place / "network"
        kept = {
            name: value
            for name, value in os.environ.items()
            if name != "HYMEM_AUTOLOAD" and not name.startswith("MEMORY_")
        }
        self._environ = {
            **guarded(self._network, kept),
            "PYTHONPATH": str(site),
            "MEMORY_DATA_DIR": str(place / "data"),
            "MEMORY_EMBEDDING_DIMS": str(bank.DIMENSIONS),
            "HY_MEMORY_SERVER_PORT": str(port),
            **{
                f"MEMORY_{kind}_{name}": value
                for kind in ("LLM", "EMBEDDER")
                for name, value in (
                    ("BASE_URL", main.base_url),
                    ("API_KEY", bank.USERS_KEY),
                    ("MODEL", main.model),
                )
            },
            **environ,
        }
        self._command = [sys.executable, "-m", *command]

    def __enter__(self):
        with self.log.open("w") as log:
            self._running = subprocess.Popen(self._command, env=self._environ, stdout=log, stderr=log)
        end = time.monotonic() + 90
        while time.monotonic() < end and self._running.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/info", timeout=30)
                return self
            except urllib.error.HTTPError:
                return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise AssertionError(self.log.read_text()[-3000:])

    def __exit__(self, *_):
        self._running.send_signal(signal.SIGTERM)
        try:
            self._running.wait(30)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        assert refused(self._network) == []

    def post(self, path, **body):
        request = urllib.request.Request(
            f"{self.url}/api/v1/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)


COMMANDS = {
    "its own": (("hy_memory.server",), {"HYMEM_ENABLE": "hy-memory"}),
    "hymem run": (("hymem", "run", "-m", "hy_memory.server"), {"HYMEM_AUTOLOAD": "0"}),
}


@pytest.mark.hymem_short
@pytest.mark.parametrize("way", COMMANDS)
def test_a_server_whose_memory_is_written_by_the_writer(tmp_path, hymem_writer, hymem_main, way):
    command, environ = COMMANDS[way]
    settings = {"HYMEM_BASE_URL": hymem_writer.base_url, "HYMEM_API_KEY": WRITERS_KEY}
    bank.script(hymem_writer, OSLO)
    with Server(tmp_path, hymem_main, command, {**environ, **settings}) as server:
        added = server.post("add", data=[{"role": "user", "content": "I live in Oslo."}], user_id="ann")
        assert added["success"] is True, server.log.read_text()[-2000:]
        found = server.post(
            "search",
            query="Where does the user live? In Oslo?",
            user_ids=["ann"],
            user_id="ann",
            min_score=0.0,
        )
        assert OSLO in str(found)
        hymem_writer.reply(None, "Sure.")
        failed = server.post("add", data=[{"role": "user", "content": "I have a cat."}], user_id="ann")
        assert failed["success"] is False
        assert "hy-memory.extract" in failed["error_message"]
    assert hymem_main.chats == []
    assert any(sent.path == "/v1/embeddings" for sent in hymem_main.requests)
    for sent in hymem_writer.requests:
        assert sent.headers["authorization"] == f"Bearer {WRITERS_KEY}"
        assert bank.USERS_KEY not in str(sent.headers) + sent.raw.decode()
