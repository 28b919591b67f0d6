"""Imported by `site` at the start of a process that has this folder on its path."""

from __future__ import annotations

import os
import sys


def _is_here(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if not host:
        return True
    return isinstance(host, str) and (host in ("localhost", "::1") or host.startswith("127."))


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # a path: a Unix socket
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if not _is_here(host):
        log = os.environ.get("HYMEM_TEST_NETWORK_LOG")
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"{event} {host!r}\n")
        raise PermissionError(f"{event} {host!r}: tests speak to this machine alone")


sys.addaudithook(_refuse)
