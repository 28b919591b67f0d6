"""This environment once more, such that it can be damaged: for tests of what hymem says then.

A virtual environment of its own, whose packages are links to those that are installed here. What is
to be changed is copied first. Its start-up files are run as they are here.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from .guard import guarded, refused

_NOT_OURS = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")


class Environment:
    """Made in an empty directory. `site` is where its packages are."""

    def __init__(self, place: Path) -> None:
        self.place = place
        venv.EnvBuilder(symlinks=True).create(place)
        self.python = place / "bin" / "python"
        scheme = {"base": str(place), "platbase": str(place)}
        self.site = Path(sysconfig.get_path("purelib", vars=scheme))
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not (self.site / entry.name).exists() and entry.name != "__pycache__":
                (self.site / entry.name).symlink_to(entry)
        self._log = place / "network.log"

    def remove(self, distribution: str) -> None:
        """As `pip uninstall` does, for what it has at the top of site-packages."""
        found = importlib.metadata.distribution(distribution)
        for name in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (self.site / name).unlink(missing_ok=True)

    def copy(self, name: str) -> Path:
        """A top-level package, or its metadata, that may be changed."""
        path = self.site / name
        if path.is_symlink() or not path.exists():
            source = path.resolve() if path.is_symlink() else _source_of(name)
            path.unlink(missing_ok=True)
            shutil.copytree(source, path, ignore=shutil.ignore_patterns("__pycache__"))
        return path

    def replace(self, package: str, pattern: str, by: str, *, file: str = "**/*.py") -> None:
        """Change the sources of a package; that nothing fits the pattern is an error."""
        count = 0
        for path in self.copy(package).glob(file):
            text, times = re.subn(pattern, by, path.read_text(encoding="utf-8"))
            count += times
            if times:
                path.write_text(text, encoding="utf-8")
        if not count:
            raise LookupError(f"nothing in {package} fits {pattern!r}")

    def set_version(self, distribution: str, version: str) -> None:
        """What its metadata says."""
        (name,) = (
            path.name
            for path in self.site.glob("*.dist-info")
            if re.fullmatch(rf"{re.escape(distribution).replace('-', '_')}-[^-]+\.dist-info", path.name)
        )
        metadata = self.copy(name) / "METADATA"
        text = re.sub(r"(?m)^Version: .*$", f"Version: {version}", metadata.read_text(encoding="utf-8"))
        metadata.write_text(text, encoding="utf-8")

    def environ(self, **more: str) -> dict[str, str]:
        """That of its processes: with no hymem setting but these, and loopback only."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HYMEM_") and name not in _NOT_OURS
        }
        path = os.pathsep.join(filter(None, (str(self.site), os.environ.get("PYTHONPATH"))))
        commands = os.pathsep.join(filter(None, (str(self.python.parent), inherited.get("PATH"))))
        return guarded(self._log, {**inherited, "PYTHONPATH": path, "PATH": commands, **more})

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Its Python, with these arguments."""
        done = subprocess.run(
            [str(self.python), *arguments],
            env=self.environ(**environ),
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if refused(self._log):
            raise AssertionError(f"it tried to reach other machines: {refused(self._log)}")
        return done


def _source_of(name: str) -> Path:
    """Where a package is that is not in site-packages (one on `PYTHONPATH`, or installed editable)."""
    for folder in sys.path:
        if (found := Path(folder, name)).is_dir():
            return found
    raise LookupError(f"there is no package {name!r} here")
