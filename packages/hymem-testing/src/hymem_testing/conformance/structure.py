"""The rules that hold for an integration before there is anything to route."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

FILES = {"__init__.py", "call_sites.py", "contracts.py", "models.py", "py.typed", "seams.py"}


class Structure:
    """Inherit, and name the module of the `integration`."""

    integration: ClassVar[str]
    more_files: ClassVar[frozenset[str]] = frozenset()
    """Files of its own, for what no other framework needs."""

    @property
    def _module(self) -> ModuleType:
        """The integration; a suite with an adapter takes it from there."""
        return importlib.import_module(self.integration)

    @property
    def _switches(self) -> Any:
        return importlib.import_module(f"{self.integration}.seams").INTEGRATION

    @pytest.mark.hymem_short
    def test_importing_the_integration_does_nothing(self) -> None:
        """Its import loads itself and no more: not the framework, no client, no network."""
        code = f"import sys; before = set(sys.modules); import {self.integration}; "
        code += "print(*sorted(set(sys.modules) - before))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [self.integration]

    @pytest.mark.hymem_short
    def test_every_write_site_has_a_contract(self) -> None:
        """The catalogue: ids begin with the framework's, writes have contracts, reads have none."""
        sites = self._module.CALL_SITES
        assert len({site.id for site in sites}) == len(sites)
        for site in sites:
            assert site.where, f"{site.id} is asked nowhere"
            assert site.id.startswith(self._switches.framework.id + ".")
            assert (site.contract is not None) == (site.side == "write")
            assert site.side == "read" or site.after_failure

    def test_the_files_are_those_of_every_integration(self) -> None:
        """Who knows one integration finds the same things in the same places of the next."""
        file = self._module.__file__
        assert file is not None
        found = {path.name for path in Path(file).parent.iterdir() if path.is_file()}
        assert found == FILES | self.more_files

    def test_the_switches_are_those_of_every_integration(self) -> None:
        """`register`, `enable`, `attach`, `disable` and `CALL_SITES`, and what `dir()` shows is there."""
        names = {"register", "enable", "attach", "disable", "CALL_SITES"}
        assert names <= set(dir(self._module))
        with pytest.raises(AttributeError, match="no attribute 'nope'"):
            self._module.nope  # noqa: B018  # reading it is the test

    def test_without_the_framework_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the framework is not installed, the error is a command that brings it."""
        from hymem import UnsupportedVersion

        known = self._switches.framework
        real, find = importlib.metadata.version, importlib.util.find_spec

        def version(name: str) -> str:
            if name == known.distribution:
                raise importlib.metadata.PackageNotFoundError(name)
            return real(name)

        self._module.disable()
        monkeypatch.setattr("importlib.metadata.version", version)
        monkeypatch.setattr(
            "importlib.util.find_spec",
            lambda name, *more: None if name == known.module else find(name, *more),
        )
        for switch in (self._module.register, self._module.enable):
            with pytest.raises(UnsupportedVersion, match=rf'pip install "{known.integration}\['):
                switch()
