"""The operator's file of alerts.

It is named by its variable, else ``/app/config/alerts.toml``, if that exists. It is read at the start, by ``claudeops
doctor``, and again by the running daemon.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.domain.alerts.rules import NO_RULES, AlertSource, Rules
from claudeops.formats.alerts import read_rules
from claudeops.settings.files import read_toml, toml_file
from claudeops.settings.reader import VariableReader
from claudeops.settings.where import ALERTS, MAX_TIER

VARIABLE: Final = ALERTS.name

_ROOT: Final = Path("/")
_KNOWN: Final = {each.name: each for each in (ALERTS, MAX_TIER)}


def alerts_file(named: Path | None, *, root: Path) -> Path | None:
    """Return the file of alerts: the named one, else the one in ``/app/config`` if it is there."""
    return toml_file(named, "alerts.toml", root=root)


def load_alerts(path: Path | None, *, highest_tier: int) -> Rules:
    """Return what a file of alerts says. Raises `ConfigurationError` with file, line and remedy."""
    if path is None:
        return NO_RULES
    read = partial(read_rules, highest_tier=highest_tier, file=path.name)
    return read_toml(path, read, variable=VARIABLE, what="file of alerts")


def declared_sources(environ: Mapping[str, str], *, cwd: Path, root: Path = _ROOT) -> tuple[AlertSource, ...]:
    """Return who may send alerts as the settings have it."""
    reader = VariableReader(environ, _KNOWN, cwd=cwd)
    path = alerts_file(reader.path(VARIABLE), root=root)
    return load_alerts(path, highest_tier=reader.whole(MAX_TIER.name)).sources


def signing_secrets(rules: Rules, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables by which senders sign, as far as they are set."""
    wanted = dict.fromkeys(name for source in rules.sources for name in source.secret_env)
    return {name: environ[name] for name in wanted if environ.get(name)}
