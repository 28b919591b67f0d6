"""The pytest plugin: which server the tests speak to, and the proxies in front of it.

`--hymem-server=double` (the default) is the protocol double, `vllm` a real vLLM on the CPU,
`external` the server at `HYMEM_TEST_BASE_URL`. Naming one that is not there is an error, never a
silent fall back. A test marked `hymem_model("hyv3-dummy")` is given that model; all others
*smollm2*.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .backends import Backend, Backends
    from .double import Double
    from .proxy import Proxy

KINDS = ("double", "vllm", "external")
DEFAULT_MODEL = "smollm2"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("hymem").addoption(
        "--hymem-server", choices=KINDS, default="double", help="the server that tests speak to (double)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "hymem_model(name): the model this test needs: smollm2, hyv3-dummy")
    config.addinivalue_line(
        "markers", "hymem_short: of the few that are run where the whole would be too long"
    )
    config.addinivalue_line("markers", "hymem_real: reads what a server itself says, so run it on a real one")
    config.addinivalue_line("markers", "hymem_recorded: keeps what it measures, if HYMEM_TEST_RECORD says so")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One model after the other; of a server that is running already, only the tests of its model."""
    items.sort(key=lambda item: model_of(item) != DEFAULT_MODEL)
    if config.getoption("--hymem-server") != "vllm":
        return
    from .vllm import server

    running = server.read_address()
    if running is None:
        return
    others = [item for item in items if _marked(item) and model_of(item) != running.model]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


def model_of(item: pytest.Item) -> str:
    """The model a test is marked with, or the default."""
    marker = _marked(item)
    return str(marker.args[0]) if marker else DEFAULT_MODEL


def _marked(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("hymem_model")


@pytest.fixture(scope="session")
def _hymem_backends(pytestconfig: pytest.Config) -> Iterator[Backends]:
    from .backends import Backends

    backends = Backends(pytestconfig.getoption("--hymem-server"), os.environ)
    yield backends
    backends.close()


@pytest.fixture
def hymem_server(request: pytest.FixtureRequest, _hymem_backends: Backends) -> Backend:
    """The server with the model this test is for."""
    return _hymem_backends.get(model_of(request.node))


@pytest.fixture
def hymem_double() -> Iterator[Double]:
    """The protocol double, whatever the other tests speak to: its replies are made of the words it
    was sent, so that a test can tell whose they are."""
    from .double import Double

    with Double() as double:
        yield double


@pytest.fixture
def hymem_writer(hymem_server: Backend) -> Iterator[Proxy]:
    """What the framework under test is given as hy-memory's server."""
    from .proxy import Proxy

    with Proxy(hymem_server.url, served_model=hymem_server.served_model) as proxy:
        yield proxy


@pytest.fixture
def hymem_main(hymem_server: Backend) -> Iterator[Proxy]:
    """What the framework under test is given as the user's own provider, under another name."""
    from .proxy import Proxy

    with Proxy(
        hymem_server.url,
        model="users-own-model",
        served_model=hymem_server.served_model,
        embed=hymem_server.embed,
    ) as proxy:
        yield proxy
