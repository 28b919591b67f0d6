"""A small HTTP server on loopback, for the double and the proxies."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol


class Answer(Protocol):
    """Writes itself to the connection of a request."""

    def send(self, handler: Handler) -> None: ...


class Body:
    """A whole answer: `content` as JSON, or as it is where it is bytes or text."""

    def __init__(
        self,
        content: Any,
        status: int = 200,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status = status
        self.content_type = content_type
        self.headers = headers or {}
        if isinstance(content, bytes):
            self.data = content
        elif isinstance(content, str):
            self.data = content.encode()
        else:
            self.data = json.dumps(content).encode()

    def send(self, handler: Handler) -> None:
        handler.send_response(self.status)
        handler.send_header("content-type", self.content_type)
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(self.data)))
        handler.end_headers()
        handler.wfile.write(self.data)


class Handler(BaseHTTPRequestHandler):
    """One request; asks its `LocalServer` for the answer."""

    protocol_version = "HTTP/1.1"
    # Without these a reply of headers and body waits for the client's delayed acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Listening

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            self.server.owner.answer(self.command, self.path, headers, raw).send(self)
            self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests have their own record of the requests."""


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    # Connections that are kept alive by a client would hold up the end of a test.
    block_on_close = False
    request_queue_size = 128

    def __init__(self, owner: LocalServer, port: int) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Connections that are kept alive would be served on, each by its thread."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away in the middle is what some tests are about."""


class LocalServer:
    """A server on a free port of 127.0.0.1, from `start` to `stop`; started again, on the same. A context
    manager."""

    def __init__(self) -> None:
        self._listening: _Listening | None = None
        self._port = 0

    def answer(self, method: str, path: str, headers: dict[str, str], raw: bytes) -> Answer:
        raise NotImplementedError

    @property
    def url(self) -> str:
        if self._listening is None:
            raise RuntimeError(f"{type(self).__name__} is not started")
        return f"http://127.0.0.1:{self._listening.server_port}"

    @property
    def base_url(self) -> str:
        """Where the API is: `url` and `/v1`."""
        return self.url + "/v1"

    def start(self) -> None:
        self._listening = _Listening(self, self._port)
        self._port = self._listening.server_port
        threading.Thread(target=self._listening.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._listening is not None:
            self._listening.shutdown()
            self._listening.server_close()
            self._listening.hang_up()
            self._listening = None

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
