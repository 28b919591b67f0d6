"""The small server below the double and the proxies."""

from __future__ import annotations

import http.client

import pytest

from hymem_testing.http import Body, LocalServer


class Hello(LocalServer):
    def answer(self, method, path, headers, raw):
        return Body({"hello": path})


def asked(connection, path):
    connection.request("GET", path)
    return connection.getresponse().read()


def test_a_server_that_is_stopped_hangs_up_and_comes_back_on_its_port():
    """As one that is killed: a connection that a client keeps is not served on."""
    server = Hello()
    server.start()
    address = server.url
    kept = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    try:
        assert asked(kept, "/a") == b'{"hello": "/a"}'
        server.stop()
        with pytest.raises((http.client.HTTPException, OSError)):
            asked(kept, "/b")
        server.start()
        assert server.url == address
        kept.close()
        assert asked(kept, "/c") == b'{"hello": "/c"}'
    finally:
        kept.close()
        server.stop()
