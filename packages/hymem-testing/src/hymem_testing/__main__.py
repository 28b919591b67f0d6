"""`python -m hymem_testing vllm build` and `... vllm serve MODEL`: the real server, by hand."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from .vllm import environment, server


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hymem_testing", description=__doc__)
    command = parser.add_subparsers(required=True, dest="command").add_parser(
        "vllm", help="the real vLLM on the CPU"
    )
    actions = command.add_subparsers(required=True, dest="action")
    actions.add_parser("build", help="make its environment and models, once")
    serve = actions.add_parser("serve", help="start it and keep it until interrupted")
    serve.add_argument("model", choices=environment.MODELS)
    serve.add_argument("--address", type=Path, help="write its address to this file")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.action == "build":
            print(environment.build())
            return 0
        with server.serving(chosen.model, chosen.address) as running:
            print(f"{running.model} at {running.base_url} as hy-memory; Ctrl-C ends it", flush=True)
            signal.pause()
    except environment.Unavailable as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
