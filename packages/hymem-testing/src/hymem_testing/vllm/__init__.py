"""A real vLLM 0.31.0 on the CPU, from packages alone: its environment, two small models, an embedder.

The server lives in a virtual environment of its own, since vLLM's pins clash with those of most
frameworks, and is only ever spoken to over HTTP. The scripts `make_*.py` and `embedder.py` run
with that environment's Python; nothing of them is imported elsewhere.
"""
