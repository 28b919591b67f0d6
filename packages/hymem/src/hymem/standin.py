"""A main model that is none: a server on loopback that answers anything and counts what it is asked.

`doctor --probe` gives it to a framework, to see which of its calls still come to the main model. It
answers embeddings as well, since frameworks cannot store a memory without one.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "a stand-in's answer"
DIMENSIONS = 8
KEY = "stand-in"
MODEL = "stand-in"


class StandIn:
    """A context manager. `chats` is how many chat requests have come so far."""

    def __init__(self) -> None:
        self.chats = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.stand_in = self  # type: ignore[attr-defined]  # for its handler

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> StandIn:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: Any) -> Any:
        if path.endswith("/embeddings"):
            texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
            vector = [1.0] + [0.0] * (DIMENSIONS - 1)
            found = [{"object": "embedding", "index": at, "embedding": vector} for at in range(len(texts))]
            return {"object": "list", "model": MODEL, "data": found, "usage": _USAGE}
        self.chats += 1
        message = {"role": "assistant", "content": ANSWER}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        whole = {"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": MODEL}
        return {**whole, "choices": [choice], "usage": _USAGE}


_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        stand_in: StandIn = self.server.stand_in  # type: ignore[attr-defined]  # see above
        data = json.dumps(stand_in.answer(self.path, body)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the doctor's report is on the screen."""
