"""The servers behind the proxies: started when first asked for, one real one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from .double import Double, Kind
from .embeddings import Embed, embed_at, embed_words
from .vllm import server


@dataclass(frozen=True)
class Backend:
    """A server that tests speak to. `url` is without `/v1`; `real`: a model writes its replies."""

    kind: Literal["double", "vllm", "external"]
    model: str
    url: str
    embed: Embed
    served_model: str = "hy-memory"

    @property
    def base_url(self) -> str:
        return self.url + "/v1"

    @property
    def real(self) -> bool:
        return self.kind != "double"


class Backends:
    """The backends of one test run, of the kind that was asked for."""

    def __init__(self, kind: str, environ: Mapping[str, str]) -> None:
        self.kind = kind
        self._environ = environ
        self._doubles: dict[str, Double] = {}
        self._own: server.Running | None = None

    def get(self, model: str) -> Backend:
        if self.kind == "double":
            return self._double(model)
        if self.kind == "external":
            return self._external(model)
        running = server.read_address()
        if running is None:
            running = self._started(model)
        elif running.model != model:
            raise RuntimeError(f"the running server has {running.model}, this test needs {model}")
        return Backend("vllm", model, running.url, embed_at(running.embedder_url))

    def close(self) -> None:
        for double in self._doubles.values():
            double.stop()
        if self._own is not None:
            server.stop(self._own)
            self._own = None

    def _double(self, model: str) -> Backend:
        if model not in self._doubles:
            self._doubles[model] = Double(cast(Kind, model))
            self._doubles[model].start()
        return Backend("double", model, self._doubles[model].url, embed_words)

    def _external(self, model: str) -> Backend:
        base_url = self._environ.get("HYMEM_TEST_BASE_URL", "").rstrip("/")
        if not base_url.endswith("/v1"):
            raise RuntimeError("--hymem-server=external needs HYMEM_TEST_BASE_URL, ending with /v1")
        served = self._environ.get("HYMEM_TEST_MODEL", "hy-memory")
        return Backend("external", model, base_url.removesuffix("/v1"), embed_words, served)

    def _started(self, model: str) -> server.Running:
        if self._own is not None and self._own.model != model:
            server.stop(self._own)
            self._own = None
        if self._own is None:
            self._own = server.start(model)
        return self._own
