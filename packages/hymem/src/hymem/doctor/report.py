"""What the doctor found: facts, and findings that say what to do."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from hymem import __version__

LEVELS = {
    "bad-setting": "error",
    "key-unencrypted": "warning",
    "proxy": "warning",
    "server-down": "error",
    "bad-environment": "error",
    "server-not-ready": "error",
    "everos-there": "error",
    "not-an-api": "error",
    "key-refused": "error",
    "wrong-model": "error",
    "window-unknown": "note",
    "window-small": "error",
    "window-tight": "warning",
    "untested-server": "note",
    "chat-refused": "error",
    "kwargs-refused": "error",
    "kwargs-dropped": "error",
    "thinking-on": "error",
    "no-structured-output": "warning",
    "hook-missing": "error",
    "hook-off": "warning",
    "hook-not-run": "warning",
    "no-integration": "error",
    "integration-missing": "error",
    "integration-broken": "error",
    "core-mismatch": "error",
    "framework-missing": "error",
    "other-project": "error",
    "too-old": "error",
    "framework-untested": "note",
    "framework-broken": "error",
    "framework-fault": "warning",
    "writes-kept": "warning",
    "seam-missing": "error",
    "probe-failed": "error",
    "write-failed": "error",
    "write-not-routed": "error",
    "read-astray": "error",
}
"""Every finding there is, and how bad it is: an error is why nothing works, a warning may be."""


@dataclass(frozen=True)
class Finding:
    """`code` is a key of `LEVELS`; `about` is `writer`, `hook` or a framework; `todo` what to do."""

    code: str
    about: str
    found: str
    todo: str

    @property
    def level(self) -> str:
        return LEVELS[self.code]


@dataclass
class Report:
    """`facts`: what is there, by subject, one line each. `findings`: what is not as it should be."""

    facts: dict[str, list[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def fact(self, about: str, *lines: str) -> None:
        self.facts.setdefault(about, []).extend(lines)

    def find(self, code: str, about: str, found: str, todo: str) -> None:
        finding = Finding(code, about, found, todo)
        if finding not in self.findings:
            self.findings.append(finding)

    @property
    def exit_code(self) -> int:
        """0: all is well. 1: there are warnings. 2: there are errors."""
        levels = {finding.level for finding in self.findings}
        return 2 if "error" in levels else 1 if "warning" in levels else 0

    def as_json(self) -> str:
        found = [{**dataclasses.asdict(each), "level": each.level} for each in self.findings]
        whole = {"hymem": __version__, "facts": self.facts, "findings": found, "exit": self.exit_code}
        return json.dumps(whole, indent=1)

    def as_text(self) -> str:
        width = max(map(len, self.facts), default=0)
        lines = []
        for about, facts in self.facts.items():
            lines += [f"{about if at == 0 else '':{width}}  {fact}" for at, fact in enumerate(facts)]
        lines.append("")
        for each in self.findings:
            lines += [f"{each.level}: {each.found} [{each.about}: {each.code}]", f"    {each.todo}"]
        counts = [
            f"{n} {level}{'s' * (n != 1)}" for level in ("error", "warning") if (n := self._count(level))
        ]
        lines.append(" and ".join(counts) or "nothing is wrong that could be seen from here")
        return "\n".join(lines)

    def _count(self, level: str) -> int:
        return sum(each.level == level for each in self.findings)
