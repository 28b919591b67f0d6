"""`python -m hymem doctor`: why it does not do what you expect, and what to do about it.

Looks at the start-up hook, at the writer's server and at each framework, and reports facts and
findings. It prints no key, and nothing of anybody's memory.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hymem import __version__
from hymem.errors import SettingsError
from hymem.frameworks import KNOWN, discover, enabled_by

from .framework import Subject, installed, settings_of
from .report import LEVELS, Finding, Report
from .server import Prompt, Server

__all__ = ["LEVELS", "Finding", "Report", "examine", "hook_state"]


def examine(
    framework: str | None = None,
    *,
    probe: bool = False,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Look at everything, or at what concerns one framework.

    `overrides` are settings of the writer from a place that cannot be seen from here, a framework's
    own configuration say. With `probe` each framework writes a sentence, and asks one question that
    is no write. For a process that does nothing else: frameworks are imported, and kept from the
    user's own files by environment variables. `progress` is told what is being done. Raises
    `SettingsError` for a framework that is none.
    """
    report = Report()
    python = f"Python {platform.python_version()}"
    report.fact("hymem", f"{__version__}, {python}, openai {importlib.metadata.version('openai')}")
    chosen = _look_at_hook(report, None if framework is None else _id_of(framework))
    # Stores are still open when it goes away, and may write to the last.
    with tempfile.TemporaryDirectory(prefix="hymem-doctor-", ignore_cleanup_errors=True) as place:
        subjects = [Subject(report, each, Path(place), overrides or {}) for each in chosen]
        progress("asking the writer's server")
        _look_at_servers(report, subjects, overrides or {})
        for subject in subjects:
            progress(f"importing {subject.id}")
            subject.look()
            if probe and subject.is_sound:
                progress(f"having {subject.id} write a sentence; its prompt is long, this can take a minute")
                subject.probe()
    return report


def _id_of(framework: str) -> str:
    name = framework.lower().replace("_", "-")
    if name not in {*KNOWN, *discover()}:
        raise SettingsError(f"there is no framework {framework!r}; known: {', '.join(KNOWN)}")
    return name


def _look_at_servers(report: Report, subjects: list[Subject], overrides: Mapping[str, Any]) -> None:
    """Each server once, with the longest of the prompts that are meant for it."""
    if not subjects:
        settings = settings_of(report, None, overrides)
        if settings is not None:
            Server(report, settings).look([])
    servers: list[tuple[Server, list[Prompt]]] = []
    for subject in subjects:
        if subject.settings is None:
            continue
        for server, prompts in servers:
            if server.settings == subject.settings:
                prompts.extend(subject.longest_prompt())
                break
        else:
            servers.append((Server(report, subject.settings), subject.longest_prompt()))
    for server, prompts in servers:
        server.look(prompts)


# -- the start-up hook ---------------------------------------------------------------------------


def hook_state() -> str:
    """`running`, `off` (by `HYMEM_AUTOLOAD=0`), `not run` or `not installed`, in this interpreter."""
    module = sys.modules.get("_hymem_autoload")
    if module is not None and module.is_watching():
        return "running"
    if importlib.util.find_spec("_hymem_autoload") is None:
        return "not installed"
    return "off" if os.environ.get("HYMEM_AUTOLOAD") == "0" else "not run"


def _look_at_hook(report: Report, framework: str | None) -> list[str]:
    """What is to be looked at: one framework, or all whose integration is installed or that are named."""
    state, named = hook_state(), set[str]()
    given = os.environ.get("HYMEM_ENABLE", "")
    report.fact("hook", f"hymem-autoload is {state}; HYMEM_ENABLE is {given or 'not set'}")
    try:
        named = enabled_by(os.environ)
    except SettingsError as error:
        report.find("bad-setting", "hook", str(error), "correct HYMEM_ENABLE")
    if given and state == "not installed":
        todo = "pip install hymem-autoload, or call enable() in the program"
        report.find("hook-missing", "hook", "HYMEM_ENABLE is set, and nothing reads it", todo)
    if state == "off":
        todo = "unset it, or call register() or enable() in the program"
        report.find("hook-off", "hook", "HYMEM_AUTOLOAD=0 switches the start-up hook off", todo)
    if state == "not run":
        found = "hymem-autoload is installed, and this Python has not read its start-up file"
        todo = (
            "install it into the site-packages of this Python; with -S, --target or in a bundle there are "
            "no start-up files: call register() or enable() in the program"
        )
        report.find("hook-not-run", "hook", found, todo)
    if state == "running":
        sys.modules["_hymem_autoload"].unwatch()  # frameworks are looked at as they are without us
    chosen = [framework] if framework else sorted({*discover(), *(named - {"all"})})
    if not chosen:
        here = [known.title for known in KNOWN.values() if installed(known.distribution)]
        found = f"no integration is installed; frameworks here: {', '.join(here) or 'none'}"
        report.find("no-integration", "hook", found, 'pip install "hymem-mem0[mem0]", say')
    return chosen
