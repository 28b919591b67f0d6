"""The test kit of hymem: a protocol double of vLLM, recording proxies, and a real vLLM on the CPU.

As a pytest plugin it brings the fixtures `hymem_server`, `hymem_writer` and `hymem_main`.
Nothing but pytest is imported at collection.
"""

__version__ = "0.1.0"
