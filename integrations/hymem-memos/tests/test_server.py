"""MemOS's REST server, by its environment: an add, and a search."""

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

import pytest
from memos_bank import USERS_KEY, is_about_memories, memory_list
from memos_postgres import postgres

from hymem_testing.embeddings import DIMENSIONS

OSLO = "Ann lives in Oslo by the sea"
SERVER = """
import sys
import chonkie
import uvicorn

# The tokenizer of its chunker cannot be chosen, and would be downloaded: in its place, letters are counted.
init = chonkie.SentenceChunker.__init__

def counting_letters(self, *args, **given):
    init(self, *args, **{name: "character" if value == "gpt2" else value for name, value in given.items()})

chonkie.SentenceChunker.__init__ = counting_letters
uvicorn.run("memos.api.server_api:app", host="127.0.0.1", port=int(sys.argv[1]))
"""


@pytest.fixture
def server(tmp_path, hymem_writer, hymem_main):
    """Its address; started by `hymem run`, with the user's own provider in the environment."""
    with postgres() as database, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        program = tmp_path / "server.py"
        program.write_text(SERVER)
        environment = {
            **os.environ,
            "MEMOS_BASE_PATH": str(tmp_path),
            "FILE_LOCAL_PATH": str(tmp_path),
            "HF_HUB_OFFLINE": "1",
            "GRAPH_DB_BACKEND": "postgres",
            "POSTGRES_HOST": database,
            "POSTGRES_USER": "postgres",
            "POSTGRES_DB": "postgres",
            "POSTGRES_PASSWORD": "none",
            "EMBEDDING_DIMENSION": str(DIMENSIONS),
            "MOS_EMBEDDER_BACKEND": "universal_api",
            "MOS_EMBEDDER_API_BASE": hymem_main.base_url,
            "MOS_EMBEDDER_API_KEY": USERS_KEY,
            "MOS_RERANKER_BACKEND": "cosine_local",
            "ENABLE_INTERNET": "false",
            "OPENAI_API_KEY": USERS_KEY,
            "OPENAI_API_BASE": hymem_main.base_url,
            "MOS_CHAT_MODEL": hymem_main.model,
            "MEMRADER_MODEL": hymem_main.model,
            "MEMRADER_API_KEY": USERS_KEY,
            "MEMRADER_API_BASE": hymem_main.base_url,
            "HYMEM_ENABLE": "memos",
            "HYMEM_BASE_URL": hymem_writer.base_url,
        }
        command = [sys.executable, "-m", "hymem", "run", str(program), str(port)]
        with (tmp_path / "server.log").open("w") as log:
            running = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log)
        try:
            yield _waited_for(f"http://127.0.0.1:{port}", running, tmp_path / "server.log")
        finally:
            running.send_signal(signal.SIGTERM)
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def _waited_for(address, running, log):
    until = time.monotonic() + 120
    while time.monotonic() < until and running.poll() is None:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5)
            return address
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


def post(address, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def add(server, text):
    said = {"role": "user", "content": text}
    given = {"user_id": "ann", "writable_cube_ids": ["ann"], "messages": [said], "async_mode": "sync"}
    return post(f"{server}/product/add", given)


def search(server, **more):
    given = {"user_id": "ann", "readable_cube_ids": ["ann"], "query": "Where does Ann live?", "mode": "fast"}
    _, found = post(f"{server}/product/search", {**given, **more})
    return [each["memory"] for group in found["data"]["text_mem"] for each in group["memories"]]


def test_the_stock_server_by_its_environment(server, hymem_writer, hymem_main):
    hymem_writer.reply(None, "[]")
    hymem_writer.reply(is_about_memories, memory_list(OSLO))
    status, added = add(server, "I live in Oslo by the sea.")
    assert status == 200
    assert [each["memory"] for each in added["data"]] == [OSLO]
    assert search(server, dedup="no") == [OSLO]
    assert search(server) == []  # upstream: with its default, vectors that are text
    assert hymem_main.chats == []
    for sent in hymem_writer.chats:
        assert sent.json["temperature"] == 0.0
        assert sent.json["chat_template_kwargs"] == {"reasoning_effort": "no_think"}
        assert USERS_KEY not in str(sent.headers)
    hymem_writer.clear()
    hymem_writer.reply(None, None, status=500, body={})
    status, added = add(server, "I have a cat.")
    texts = [each["memory"] for each in added["data"]]
    assert status == 200
    assert "I have a cat." in texts[0]  # upstream's own way out: the raw text
