"""The operator's file of alerts.

It is named by its variable, else ``/app/config/alerts.toml``, if that exists. It is read at the start, by ``claudeops
doctor``, and again by the running daemon.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from claudeops.domain.alerts.rules import NO_RULES, Rules
from claudeops.errors import ConfigurationError
from claudeops.files import is_file
from claudeops.formats.alerts import AlertsFault, read_rules
from claudeops.settings.files import read_text

VARIABLE: Final = "CLAUDEOPS_ALERTS_PATH"
_FILE: Final = Path("app") / "config" / "alerts.toml"
_MOST_BYTES: Final = 1024 * 1024


def alerts_file(named: Path | None, *, root: Path) -> Path | None:
    """Return the file of alerts: the named one, else the one in ``/app/config`` if it is there."""
    placed = root / _FILE
    return placed if named is None and is_file(placed) else named


def load_alerts(path: Path | None, *, highest_tier: int) -> Rules:
    """Return what a file of alerts says. Raises `ConfigurationError` with file, line and remedy."""
    if path is None:
        return NO_RULES
    text = read_text(path, origin=VARIABLE, what="file of alerts", limit=_MOST_BYTES)
    try:
        return read_rules(text, highest_tier=highest_tier, file=path.name)
    except AlertsFault as fault:
        raise ConfigurationError(f"{VARIABLE}: {path}, line {fault.line}: {fault}.") from None


def signing_secrets(rules: Rules, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables by which senders sign, as far as they are set."""
    wanted = dict.fromkeys(name for source in rules.sources for name in source.secret_env)
    return {name: environ[name] for name in wanted if environ.get(name)}
