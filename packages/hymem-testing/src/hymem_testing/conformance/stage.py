"""What a test of the suite is given: a framework, its two servers, and what has been written."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hymem_testing.guard import guarded, refused
from hymem_testing.proxy import Proxy

from . import child
from .adapter import USERS_KEY, Adapter, Configuration

if TYPE_CHECKING:
    from hymem.events import WriteEvent

WRITERS_KEY = "sk-writers-key"


def renamed(module: str, name: str, into: Path) -> Path:
    """A copy of the package that has this module, in which `name` is called otherwise throughout."""
    top = module.partition(".")[0]
    origin = sys.modules[top].__file__ or next(iter(sys.modules[top].__path__))
    source = Path(origin)
    if source.name == "__init__.py":
        source = source.parent
    into.mkdir()
    if source.is_dir():
        shutil.copytree(source, into / top, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, into)
    for path in into.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(rf"\b{name}\b", f"{name}_as_it_is_called_now", text), encoding="utf-8")
    return into


@dataclass
class Stage:
    """`writer` is the server of hy-memory, `main` that of the user's own provider."""

    adapter: type[Adapter]
    place: Path
    writer: Proxy
    main: Proxy
    events: list[WriteEvent] = field(default_factory=list)

    def at(self, name: str) -> Adapter:
        """The framework, with stores of its own under this name."""
        (self.place / name).mkdir(exist_ok=True)
        return self.adapter(self.place / name)

    @cached_property
    def framework(self) -> Adapter:
        return self.at("one")

    @property
    def sites(self) -> list[str]:
        return list(self.framework.sites)

    @property
    def settings(self) -> dict[str, Any]:
        """Of the writer."""
        return {"base_url": self.writer.base_url, "api_key": WRITERS_KEY}

    def before(self) -> Configuration:
        return self.framework.before(self.main)

    def after(self, **settings: Any) -> Configuration:
        return self.framework.after(self.main, {**self.settings, **settings})

    def opened(self, way: str, **settings: Any) -> Any:
        """A memory object after the swap; the name is registered."""
        self.framework.module.register()
        return self.framework.open(self.after(**settings), way)

    def opened_before(self, way: str) -> Any:
        """A memory object of the configuration before."""
        return self.framework.open(self.before(), way)

    @property
    def id(self) -> str:
        """The framework's."""
        return str(self.framework.switches.framework.id)

    @property
    def watched(self) -> dict[str, str]:
        """What the start-up hook has to know of the framework."""
        return {self.framework.switches.framework.anchor: self.id}

    @property
    def environ(self) -> dict[str, str]:
        """The settings of the writer as environment variables."""
        return {f"HYMEM_{name.upper()}": str(value) for name, value in self.settings.items()}

    def run(self, scenario: str, first_on_path: Path | None = None, **given: Any) -> tuple[Any, str]:
        """What a scenario of `child` finds in a fresh process, and what it says on stderr."""
        given["place"] = str(self.framework.place)
        command: Sequence[str] = (
            *(sys.executable, "-m", child.__name__, child.named(self.adapter)),
            *(scenario, json.dumps(given)),
        )
        log = self.place / "network.log"
        environ = guarded(log)
        if first_on_path is not None:
            environ["PYTHONPATH"] = f"{first_on_path}{os.pathsep}{environ['PYTHONPATH']}"
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environ)
        assert refused(log) == [], "it tried to reach other machines"
        last = done.stdout.strip().rpartition("\n")[2]
        assert last.startswith("result: "), done.stdout + done.stderr
        return json.loads(last.removeprefix("result: ")), done.stderr

    def check_keys(self) -> None:
        """Neither server sees the other's key."""
        for sent in self.writer.requests:
            assert sent.headers["authorization"] == f"Bearer {WRITERS_KEY}"
            assert USERS_KEY not in str(dict(sent.headers)) + sent.raw.decode()
        for sent in self.main.requests:
            assert sent.headers["authorization"] == f"Bearer {USERS_KEY}"
            assert WRITERS_KEY not in str(dict(sent.headers)) + sent.raw.decode()
