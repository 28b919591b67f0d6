"""Embeddings for tests: of the real small model where it runs, of hashed words elsewhere."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from .http import Answer, Body

Embed = Callable[[Sequence[str]], list[list[float]]]

DIMENSIONS = 384
"""Of all-MiniLM-L6-v2, and of the stand-in for it."""


def embed_words(texts: Sequence[str]) -> list[list[float]]:
    """Texts as unit vectors of hashed words. Texts that share words are near each other: enough
    to find a memory by its own words, and no more."""
    return [_words(text) for text in texts]


def _words(text: str) -> list[float]:
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1.0
    length = math.sqrt(sum(each * each for each in vector)) or 1.0
    return [each / length for each in vector]


def embed_at(url: str) -> Embed:
    """Embeddings of the kit's own server (`hymem_testing.vllm.embedder`) at `url`."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        data = json.dumps({"input": list(texts)}).encode()
        request = urllib.request.Request(url + "/v1/embeddings", data, {"content-type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            return [each["embedding"] for each in json.load(answer)["data"]]

    return embed


def embeddings_answer(embed: Embed, body: Any) -> Answer:
    """The answer to a request of `/v1/embeddings`, in either encoding the openai client asks for."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = embed(texts)
    encode = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": at, "embedding": _base64(vector) if encode else vector}
        for at, vector in enumerate(vectors)
    ]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Body({"object": "list", "data": data, "model": body.get("model"), "usage": usage})


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
