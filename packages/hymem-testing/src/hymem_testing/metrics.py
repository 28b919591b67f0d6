"""What a vLLM server says of itself: proof from the other side that requests arrived."""

from __future__ import annotations

import urllib.request


def answered(url: str) -> int | None:
    """How many requests the server at `url` (without `/v1`) has answered, by its own count; None
    for a server that has no such metrics."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url + "/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return None
    counts = [
        float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:request_success_total{")
    ]
    return int(sum(counts)) if counts else None
