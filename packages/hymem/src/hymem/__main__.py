"""The command line: `python -m hymem run`, `doctor`, `status`, `call-sites`, `replay`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence

from .errors import HymemError
from .frameworks import KNOWN


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: of `doctor` 0, 1 or 2; of `replay` 1 where something is left; of the others 0, or 2 where
    they could not do it."""
    arguments = sys.argv[1:] if arguments is None else arguments
    given = _given_to_run(arguments) or _parser().parse_args(arguments)
    try:
        outcome: int | Callable[[], object] = given.do(given)
    except (HymemError, ImportError) as error:
        print(f"hymem: {error}", file=sys.stderr)
        return 2
    if callable(outcome):
        outcome()  # somebody's program: its errors are its own
        return 0
    return outcome


def _given_to_run(arguments: Sequence[str]) -> argparse.Namespace | None:
    """`run` and all that follows its target, which is the program's own: argparse would take a `--`
    out of it."""
    if arguments[:1] != ["run"]:
        return None
    as_module = arguments[1:2] == ["-m"]
    target, *rest = arguments[1 + as_module :] or [""]
    if not target or target.startswith("-"):
        return None
    return argparse.Namespace(do=_run, target=target, arguments=rest, as_module=as_module)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hymem", description="Hy-Memory as the writer of memory.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a program with its memory writes routed",
        description="Enables what HYMEM_ENABLE names, or every integration that is installed, and "
        "runs a script, a module or a command of this environment.",
    )
    run.add_argument("-m", action="store_true", dest="as_module", help="the target is a module")
    run.add_argument("target")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    run.set_defaults(do=_run)

    doctor = commands.add_parser(
        "doctor",
        help="why it does not do what you expect",
        description="Exit code 0: all is well; 1: there are warnings; 2: there are errors.",
    )
    doctor.add_argument("framework", nargs="?", help=f"one of {', '.join(KNOWN)}; else all that are here")
    doctor.add_argument("--probe", action="store_true", help="have the framework write a sentence")
    doctor.add_argument("--base-url", help="the writer's, where the framework's configuration has it")
    doctor.add_argument("--model", help="the same")
    doctor.set_defaults(do=_doctor)

    status = commands.add_parser(
        "status", help="what is installed, and the settings with where they are from"
    )
    status.set_defaults(do=_status)

    sites = commands.add_parser("call-sites", help="what a framework asks an LLM for, and who answers")
    sites.add_argument("framework", nargs="?", help="else all whose integration is installed")
    sites.set_defaults(do=_call_sites)

    replay = commands.add_parser(
        "replay",
        help="write what was kept of writes that failed",
        description="Exit code 0: nothing is left; 1: some could not be written yet.",
    )
    replay.add_argument("framework")
    replay.set_defaults(do=_replay)

    for command in (doctor, status, sites):
        command.add_argument("--json", action="store_true", dest="as_json", help="for programs")
    return parser


def _doctor(given: argparse.Namespace) -> int:
    from .doctor import examine

    overrides = {name: value for name in ("base_url", "model") if (value := getattr(given, name)) is not None}
    with contextlib.redirect_stdout(sys.stderr):  # frameworks print, and the report may be JSON
        report = examine(given.framework, probe=given.probe, overrides=overrides, progress=_progress)
    print(report.as_json() if given.as_json else report.as_text())
    return report.exit_code


def _progress(doing: str) -> None:
    if sys.stderr.isatty():
        print(f"... {doing}", file=sys.stderr, flush=True)


def _status(given: argparse.Namespace) -> int:
    from .status import status

    return _shown(status(), as_json=given.as_json)


def _call_sites(given: argparse.Namespace) -> int:
    from .status import call_sites

    return _shown(call_sites(given.framework), as_json=given.as_json)


def _replay(given: argparse.Namespace) -> int:
    from .status import replay

    def say(line: str) -> None:
        print(f"hymem: {line}", file=sys.stderr, flush=True)

    with contextlib.redirect_stdout(sys.stderr):  # frameworks print
        left = replay(given.framework, say)
    print(f"{left} write(s) left" if left else "nothing is left to write")
    return int(left > 0)


def _shown(table: Mapping[str, Sequence[Sequence[str]]], *, as_json: bool) -> int:
    """Rows under headings, in columns."""
    if as_json:
        print(json.dumps(table, indent=1))
        return 0
    for heading, rows in table.items():
        print(heading)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print(
                "  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            )
    return 0


def _run(given: argparse.Namespace) -> Callable[[], object]:
    from .run import prepare

    return prepare(given.target, given.arguments, as_module=given.as_module)


if __name__ == "__main__":
    sys.exit(main())
