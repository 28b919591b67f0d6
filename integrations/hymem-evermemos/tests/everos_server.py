"""`everos server start`, in a process of its own and with a memory root of its own."""

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
from importlib.metadata import version
from pathlib import Path

from evermemos_bank import USERS_KEY
from packaging.version import Version

from hymem_testing.embeddings import DIMENSIONS, embed_words, embeddings_answer
from hymem_testing.guard import HERE, guarded, refused
from hymem_testing.http import LocalServer

VERSION = Version(version("everos"))
AT = 1_760_000_000_000
SITE = f"""
import runpy
runpy.run_path({str(HERE / "sitecustomize.py")!r})

import sys

class Letters:
    # In the place of an encoding that would be downloaded.
    def encode(self, text, **more):
        return [text[at : at + 4] for at in range(0, len(text), 4)]

    def decode(self, tokens):
        return "".join(tokens)

import tiktoken
tiktoken.get_encoding = lambda name: Letters()
"""


class Wide(LocalServer):
    """An embedder of 1024 numbers, which 1.0 wants at its start."""

    def answer(self, method, path, headers, raw):
        def embed(texts):
            return [[*each, *[0.0] * (1024 - DIMENSIONS)] for each in embed_words(texts)]

        return embeddings_answer(embed, json.loads(raw))


class EverOS:
    """The server, from `with` to its end. `main` has the user's own LLM, and with `embeds` embeds."""

    def __init__(
        self, root: Path, main, *, embeds=False, mode="chat", environ=None, table=None, ome=""
    ) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.log = root.parent / "server.log"
        self._network = root.parent / "network.log"
        site = root.parent / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(SITE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/api/v1/memory"
        kept = {name: value for name, value in os.environ.items() if name != "HYMEM_AUTOLOAD"}
        self.environ = {
            **guarded(self._network, kept),
            "PYTHONPATH": str(site),
            "EVEROS_ROOT": str(root),
            "EVEROS_MEMORY__ROOT": str(root),  # before 1.1
            "EVEROS_CONFIG_FILE": str(root / "config.toml"),
            "EVEROS_LLM__MODEL": main.model,
            "EVEROS_LLM__BASE_URL": main.base_url,
            "EVEROS_LLM__API_KEY": USERS_KEY,
            "EVEROS_MEMORIZE__MODE": mode,
            "EVEROS_API__PORT": str(port),
            "HOME": str(root.parent),
            **(environ or {}),
        }
        self._wide = Wide() if Version("1.1") > VERSION else None
        if embeds or self._wide is not None:
            if self._wide is not None:
                self._wide.start()
            self.environ |= {
                "EVEROS_EMBEDDING__MODEL": "embedder",
                "EVEROS_EMBEDDING__BASE_URL": (self._wide or main).base_url,
                "EVEROS_EMBEDDING__API_KEY": USERS_KEY,
                "EVEROS_EMBEDDING__DIM": str(DIMENSIONS),
            }
        self._command = [str(Path(sys.executable).with_name("everos")), "server", "start"]
        if Version("1.1") <= VERSION:
            self._run("everos", "init", "--root", str(root))
        if ome:
            (root / "ome.toml").write_text(ome)
        if table is not None:
            file = root / ("everos.toml" if Version("1.1") <= VERSION else "config.toml")
            lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
            with file.open("a") as out:
                out.write("\n[hy_memory]\n" + "\n".join(lines) + "\n")

    def _run(self, command: str, *arguments: str):
        path = str(Path(sys.executable).with_name(command))
        done = subprocess.run(
            [path, *arguments], env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def hymem(self, *arguments: str):
        """`python -m hymem` in its environment."""
        command = [sys.executable, "-m", "hymem", *arguments]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)

    def __enter__(self) -> EverOS:
        log = self.log.open("a")
        self._running = subprocess.Popen(
            self._command, env=self.environ, cwd=self.root.parent, stdout=log, stderr=log
        )
        log.close()
        until = time.monotonic() + 120
        while time.monotonic() < until and self._running.poll() is None:
            try:
                urllib.request.urlopen(self.url.replace("/api/v1/memory", "/health"), timeout=5)
                return self
            except urllib.error.HTTPError:
                return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise AssertionError(self.log.read_text()[-3000:])

    def __exit__(self, *_: object) -> None:
        self._running.send_signal(signal.SIGTERM)
        try:
            self._running.wait(40)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        assert refused(self._network) == []

    # -- what its users ask for ------------------------------------------------------------------

    def post(self, path: str, **body):
        request = urllib.request.Request(
            f"{self.url}/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=900) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def add(self, *texts: str, session="one", user="ann", at=AT):
        said = [
            {"sender_id": user, "role": "user", "timestamp": at + 1000 * number, "content": text}
            for number, text in enumerate(texts)
        ]
        return self.post("add", session_id=session, messages=said)

    def flush(self, session="one"):
        return self.post("flush", session_id=session)

    def search(self, query: str, user="ann", method="keyword", **more):
        status, found = self.post("search", user_id=user, query=query, method=method, top_k=5, **more)
        assert status == 200, found
        return found["data"]

    def markdown(self, folder: str) -> str:
        """All that stands in the files of a kind, `episodes` say."""
        return "\n".join(path.read_text() for path in sorted(self.root.glob(f"**/{folder}/**/*.md")))

    def until(self, holds, seconds=60):
        """What `holds` gives as soon as it gives something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := holds():
                return found
            time.sleep(0.1)
        raise AssertionError(f"it did not come about; the server's log:\n{self.log.read_text()[-4000:]}")
