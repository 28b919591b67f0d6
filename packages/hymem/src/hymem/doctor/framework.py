"""A framework and its integration, as they are in this environment."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hymem import events
from hymem.errors import HymemError, SeamMissing, SettingsError, UnsupportedVersion
from hymem.frameworks import KNOWN, Framework, discover, is_importable
from hymem.integration import Integration
from hymem.patching import MISSING
from hymem.settings import WriterSettings, load_settings
from hymem.standin import StandIn

from .report import Report
from .server import Prompt


def installed(distribution: str) -> str | None:
    """Its version, if it is installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def settings_of(
    report: Report,
    framework: str | None,
    overrides: Mapping[str, Any],
    integration: Integration | None = None,
) -> WriterSettings | None:
    """The writer's, as they are found from here; None where they are wrong."""
    try:
        if integration is not None:
            return integration.settings(overrides, where="the command line")
        return load_settings(overrides, framework=framework, where="the command line")
    except SettingsError as error:
        report.find("bad-setting", framework or "writer", str(error), "correct it where it stands")
        return None


class Subject:
    """A framework and its integration, as they are in this environment."""

    def __init__(self, report: Report, framework: str, place: Path, overrides: Mapping[str, Any]) -> None:
        self.report = report
        self.id = framework
        self.place = place / framework
        self.place.mkdir()
        self.integration = self._integration()
        self.framework: Framework | None = KNOWN.get(framework)
        if self.integration is not None:
            self.framework = self.integration.framework
        self.is_sound = False
        self.settings = settings_of(report, framework, overrides, self.integration)

    def _find(self, code: str, found: str, todo: str) -> None:
        self.report.find(code, self.id, found, todo)

    def _integration(self) -> Integration | None:
        module = discover().get(self.id)
        if module is None:
            name = f"hymem-{self.id}"
            self._find("integration-missing", f"{name} is not installed", f"pip install {name}")
            return None
        try:
            found: Integration = importlib.import_module(f"{module}.seams").INTEGRATION
        except (Exception, SystemExit) as error:
            text = f"{module} cannot be imported: {_told(error)}"
            self._find("integration-broken", text, f"pip install --force-reinstall hymem-{self.id}")
            return None
        return found

    def longest_prompt(self) -> list[Prompt]:
        """Of the version that is here, if it is known."""
        if self.integration is None:
            return []
        try:
            version = self.integration.framework.version()
        except UnsupportedVersion:
            return []
        prompts = [
            Prompt(self.id, site.id, site.prompt_tokens)
            for site in self.integration.call_sites
            if site.prompt_tokens and site.is_in(version)
        ]
        return sorted(prompts, key=lambda each: each.tokens)[-1:]

    def look(self) -> None:
        """From the outside in: what is installed, whether it can be imported, whether the seams are there."""
        if self.framework is None or not self._is_the_one(self.framework) or self.integration is None:
            return
        for name, value in self.framework.quiet.items():
            os.environ[name] = value.format(place=self.place)
        try:
            self.integration.check_core()
            patches = self.integration.patches()
        except SeamMissing as error:
            self._seam_missing(str(error))
        except UnsupportedVersion as error:
            self._find("core-mismatch", str(error), "install matching versions of hymem's packages")
        except (Exception, SystemExit) as error:
            found = f"{self.framework.distribution} cannot be imported: {_told(error)}"
            self._find("framework-broken", found, "repair the framework's installation first")
        else:
            missing = [each.place.name for each in patches if each.needed and each.place.get() is MISSING]
            if missing:
                self._seam_missing(f"not there: {', '.join(missing)}")
            else:
                self.report.fact(self.id, f"all {len(patches)} seams are there")
                self.is_sound = True

    def _seam_missing(self, found: str) -> None:
        assert self.framework is not None
        newest = self.framework.newest
        todo = (
            f'pip install "{self.framework.distribution}=={newest}", the newest that is tested, and tell us'
        )
        self._find("seam-missing", found, todo)

    def _is_the_one(self, framework: Framework) -> bool:
        try:
            version = framework.version()
        except UnsupportedVersion as error:
            here = installed(framework.distribution)
            if here is not None:
                code = "too-old"
            elif not is_importable(framework.module):
                code = "framework-missing"
            else:
                code = "other-project"
            self._find(
                code, str(error), f"have {framework.title} itself in this environment, then look again"
            )
            return False
        tested = str(version) in framework.tested
        state = "tested" if tested else "not among the versions that are tested"
        ours = f"hymem-{self.id} {installed(framework.integration) or 'is not installed'}"
        self.report.fact(
            self.id, f"{framework.distribution} {version or '(version unknown)'}, {state}; {ours}"
        )
        if self.integration is not None and not tested:
            found = f"{framework.distribution} {version} is not in the matrix: {', '.join(framework.tested)}"
            self._find("framework-untested", found, "nothing, if its seams are there; see --probe")
        for fault in self.integration.faults(version) if self.integration and version else ():
            self._find("framework-fault", f"{framework.distribution} {version}: {fault.found}", fault.todo)
        waiting = self.integration.kept.count() if self.integration and self.integration.kept else 0
        if waiting:
            found = f"{waiting} write(s) that failed wait to be written"
            self._find("writes-kept", found, f"python -m hymem replay {self.id}")
        return True

    # -- the route -------------------------------------------------------------------------------

    def probe(self) -> None:
        """Have the framework write a sentence, and then ask something that is no write."""
        assert self.integration is not None
        if self.integration.probe is None or self.settings is None:
            self.report.fact(self.id, "route: there is no probe for it")
            return
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        seen: list[events.WriteEvent] = []
        _keep_proxies_from_this_machine()
        stop = events.observe(seen.append)
        try:
            with StandIn() as main, self.integration.enable({**given, "on_failure": "raise"}):
                route = self.integration.probe(main, self.place)
                for name, write in route.writes.items():
                    seen.clear()
                    asked = main.chats
                    self._judge_write(name, _attempt(write), seen, main.chats - asked)
                seen.clear()
                asked = main.chats
                self._judge_read(_attempt(route.read), len(seen), main.chats - asked)
        except Exception as error:
            found = f"{self.id} could not be made ready for it: {_told(error)}"
            self._find("probe-failed", found, "see what else is found; the rest of the report holds")
        finally:
            stop()

    def _judge_write(
        self, name: str, error: BaseException | None, seen: Sequence[events.WriteEvent], asked: int
    ) -> None:
        failed = [event for event in seen if event.outcome == "failed"]
        for event in failed:
            found = event.message or f"{event.site}: {event.error}"
            self._find("write-failed", f"{name}: {found}", "see what is found about the writer")
        if asked or not seen:
            where = "the main model" if asked else "nobody"
            found = (
                f"{name} asked {where} to write ({_told(error)}): the seams are there, and it goes past them"
            )
            self._find("write-not-routed", found, "tell us, with your versions; attach() may do until then")
        elif not failed:
            sites = ", ".join(f"{event.site}: {event.outcome}" for event in seen)
            self.report.fact(self.id, f"route: {name} reaches the writer ({sites})")

    def _judge_read(self, error: BaseException | None, written: int, asked: int) -> None:
        if written or not asked:
            where = "the writer" if written else f"nobody ({_told(error)})"
            found = f"a question that is no write was asked of {where}"
            self._find("read-astray", found, "tell us, with your versions")
        else:
            self.report.fact(self.id, "route: what is no write reaches the main model")


def _keep_proxies_from_this_machine() -> None:
    """The stand-in is on it, and the framework's own client asks the environment."""
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))


def _attempt(call: Any) -> BaseException | None:
    """Do it; what it raised. A framework may swallow, or wrap, what the events tell better."""
    try:
        result = call()
        if inspect.isawaitable(result):
            asyncio.run(_awaited(result))
    except Exception as error:
        return error
    return None


async def _awaited(result: Any) -> Any:
    return await result


def _told(error: BaseException | None) -> str:
    """Of errors that are not ours only the kind is known to be free of keys and text."""
    if error is None:
        return "no error"
    known = isinstance(error, (HymemError, ImportError, SyntaxError))
    return f"{type(error).__name__}: {error}" if known else type(error).__name__
