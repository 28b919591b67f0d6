"""`python -m hymem status` and `call-sites`: what there is, without asking anybody.

No server is spoken to and no framework is imported. What `status` says of settings holds for a
process that starts now, here, with this environment.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence

from . import __version__
from .doctor import hook_state
from .errors import HymemError, SettingsError
from .frameworks import discover, enabled_by
from .integration import CallSite, Integration
from .settings import NO_KEY, WriterSettings, load_settings

Rows = Sequence[Sequence[str]]


def status() -> dict[str, Rows]:
    """Heading → rows: what is installed, what will be switched on, and each setting that is not its
    default with the place it comes from. Raises `SettingsError`."""
    named = enabled_by(os.environ)
    asks = f"HYMEM_ENABLE is {os.environ.get('HYMEM_ENABLE') or 'not set'}"
    here = [
        ("hymem", __version__, f"Python {platform.python_version()}"),
        ("hymem-autoload", hook_state(), asks),
    ]
    parts: dict[str, Rows] = {"installed": here}
    for framework, integration in _installed(None).items():
        on = "enabled" if named & {"all", framework} else "registered"
        by_hook = f"{on} at its import" if hook_state() == "running" else "by register() or enable() in code"
        try:
            version = str(integration.framework.version() or "of unknown version")
        except HymemError:
            version = "not supported, or not there: see doctor"
        name = integration.framework.distribution
        here.append((integration.framework.integration, f"{name} {version}", by_hook))
        parts[f"settings of {framework}"] = _settings(integration.settings())
        if integration.kept is not None:
            waiting = f"{integration.kept.count()} write(s) that failed wait to be written"
            parts[f"kept for {framework}"] = [(waiting, f"python -m hymem replay {framework}")]
    if len(parts) == 1:
        parts["settings"] = _settings(load_settings())
    return parts


def _settings(settings: WriterSettings) -> Rows:
    shown = []
    for name in WriterSettings.model_fields:
        source = settings.source(name)
        if source != "default" or name in ("base_url", "model", "api_key"):
            shown.append((name, _value(settings, name), source))
    return shown


def _value(settings: WriterSettings, name: str) -> str:
    """A setting, or where there may be a key in it, whether it is there."""
    if name == "api_key":
        return "none" if settings.api_key.get_secret_value() in ("", NO_KEY) else "set"
    if name in ("headers", "extra_body"):
        return ", ".join(sorted(getattr(settings, name))) or "none"
    return str(getattr(settings, name))


def call_sites(framework: str | None = None) -> dict[str, Rows]:
    """Framework → its call sites: id, side, versions, and where it is asked.

    Raises `SettingsError` for a framework whose integration is not installed.
    """
    found: dict[str, Rows] = {}
    for name, integration in _installed(framework).items():
        ordered = sorted(integration.call_sites, key=lambda site: site.side, reverse=True)
        found[f"{name} ({integration.framework.distribution})"] = [_row(site) for site in ordered]
    return found


def _row(site: CallSite) -> tuple[str, str, str, str]:
    to = "writer" if site.side == "write" else "main model"
    if site.opt_in:
        to += f" if {site.opt_in}"
    more = f" (+{len(site.where) - 1})" if len(site.where) > 1 else ""
    return site.id, to, site.versions or "all", site.where[0] + more


def replay(framework: str, progress: Callable[[str], None]) -> int:
    """Write what a framework's integration has kept; how many are left. Raises `SettingsError` where it
    keeps nothing, and what stands in its way."""
    (integration,) = _installed(framework).values()
    if integration.kept is None:
        raise SettingsError(f"{framework} keeps its input when a write fails; there is nothing to replay")
    if integration.kept.count() == 0:
        return 0
    with integration.enable({}):
        return integration.kept.replay(progress)


def _installed(framework: str | None) -> dict[str, Integration]:
    modules = discover()
    name = None if framework is None else framework.lower().replace("_", "-")
    if name is not None and name not in modules:
        here = ", ".join(sorted(modules)) or "none"
        raise SettingsError(f"there is no integration for {framework!r} here; installed: {here}")
    chosen = sorted(modules) if name is None else [name]
    return {each: importlib.import_module(f"{modules[each]}.seams").INTEGRATION for each in chosen}
