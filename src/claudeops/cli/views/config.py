"""``claudeops config``: the settings in effect, each with where it comes from; secrets are masked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.output import Exit, body_of
from claudeops.cli.text.layout import Cell, Column, Looks, Style, table
from claudeops.cli.views import Answer, Shape, missing, present
from claudeops.domain.redact import Redactor
from claudeops.domain.text.answers import plain
from claudeops.errors import ConfigurationError
from claudeops.settings import Settings, load_settings
from claudeops.settings.environ import without_user
from claudeops.settings.names import FILE_SUFFIX, KNOWN, Kind, Variable, prompt_variable

MASK: Final = "********"
"""Stands for every secret, whatever its length."""

_NAME: Final = "config"
_DATABASE: Final = "CLAUDEOPS_DATABASE_URL"
_OF_OURS: Final = frozenset({"computed", "default", "unset"})
"""Origins of what no operator has set."""

_TIER_MARK: Final = "CLAUDEOPS_TIER"
_USUAL_TIERS: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A variable with the value in effect."""

    name: str
    value: str | None  # None: it has none; secrets are masked
    origin: str  # ``environment``, ``file PATH``, ``default``, ``computed``, ``unset``
    default: str | None
    secret: bool
    used: bool  # False: nothing acts on it yet
    meaning: str


def print_config(names: Sequence[str], *, only_set: bool, shape: Shape) -> int:
    """Print the settings whose names hold one of ``names``; return the exit status."""

    def ask(_: datetime) -> Answer:
        found, fault = effective(os.environ, cwd=Path.cwd())
        shown = [
            setting
            for setting in found
            if _is_wanted(setting.name, names) and (not only_set or setting.origin not in _OF_OURS)
        ]
        if names and not any(_is_wanted(setting.name, names) for setting in found):
            return missing("setting_not_found", " ".join(names), f"no setting has {' or '.join(names)} in its name")
        body: dict[str, object] = {"settings_count": len(shown), "settings": plain(tuple(shown))}
        if fault is not None:
            body |= body_of(fault, operation=_NAME, target="environment")
        code = Exit.OK if fault is None else Exit.CONFIGURATION
        return Answer(body=body, draw=partial(_drawn, shown, fault), exit_code=code)

    return present(_NAME, ask, shape)


def effective(environ: Mapping[str, str], *, cwd: Path) -> tuple[Sequence[Setting], ConfigurationError | None]:
    """Return every setting with its value, and what is wrong with them, if anything.

    Where something is wrong, the values are shown as they were given: what the daemon would make of them is not known.
    """
    settings, fault = None, None
    try:
        settings = load_settings(environ, cwd=cwd).settings
    except ConfigurationError as error:
        fault = error
    computed = {} if settings is None else dict(_computed(settings))
    redact = Redactor(() if settings is None else settings.secrets).text
    highest = _USUAL_TIERS if settings is None else settings.max_tier
    found = [
        _setting(variable, environ, computed.get(name), redact(environ.get(name, "").strip()))
        for name, variable in KNOWN.items()
        if _is_of_a_tier(name, highest)
    ]
    return found, fault


def _setting(variable: Variable, environ: Mapping[str, str], computed: str | None, given: str) -> Setting:
    value, origin = _value(variable, environ, computed, given)
    if variable.name == _DATABASE and computed is not None:
        value = _without_password(computed)
    elif variable.secret and value is not None:
        value = MASK
    elif variable.kind is Kind.URL and value is not None:
        value = without_user(value)
    return Setting(
        name=variable.name,
        value=value,
        origin=origin,
        default=variable.default,
        secret=variable.secret,
        used=variable.used,
        meaning=variable.meaning,
    )


def _value(variable: Variable, environ: Mapping[str, str], computed: str | None, given: str) -> tuple[str | None, str]:
    """Return the value in effect and where it is from."""
    if given:
        return given if computed is None else computed, "environment"
    file = environ.get(variable.name + FILE_SUFFIX, "").strip() if variable.secret else ""
    if file:
        return MASK, f"file {file}"
    if computed is not None and not _same(computed, variable.default):
        return computed, "computed"
    if variable.default is not None:
        return variable.default, "default"
    return (None, "unset") if computed is None else (computed, "computed")


def _same(one: str, default: str | None) -> bool:
    """Tell whether a value is the default, however its number is written."""
    try:
        return default is not None and (one == default or float(one) == float(default))
    except ValueError:
        return False


def _without_password(url: str) -> str:
    """Return the address of the database without user, password and options."""
    return url if url.startswith("sqlite") else without_user(url).partition("?")[0]


def _computed(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield what the settings made of values that are absent, relative, or above a limit."""
    paths = {
        "CLAUDEOPS_STATE_DIR": settings.state_dir,
        "CLAUDEOPS_RESULTS_DIR": settings.results_dir,
        "CLAUDEOPS_REPOS_DIR": settings.repos_dir,
        "CLAUDEOPS_SCHEMA_PATH": settings.schema_path,
        "CLAUDEOPS_POLICY_PATH": settings.policy_path,
        "CLAUDEOPS_ALERTS_PATH": settings.alerts_path,
        "CLAUDEOPS_PROBES_PATH": settings.probes_path,
        "CLAUDEOPS_SCHEDULES_PATH": settings.schedules_path,
        "CLAUDEOPS_NOTIFY_PATH": settings.notify_path,
        "CLAUDEOPS_CLAUDE_BIN": settings.claude_bin,
        "CLAUDEOPS_CODEX_BIN": settings.codex_bin,
        "CLAUDEOPS_CALIBAN_BIN": settings.caliban_bin,
    }
    yield from ((name, str(path)) for name, path in paths.items() if path is not None)
    numbers = {
        "CLAUDEOPS_CHAIN_BUDGET_USD": settings.chain_budget_usd,
        "CLAUDEOPS_DAILY_BUDGET_USD": settings.daily_budget_usd,
        "CLAUDEOPS_STARTUP_TIMEOUT": settings.startup_timeout_seconds,
        "CLAUDEOPS_SILENCE_TIMEOUT": settings.silence_timeout_seconds,
    }
    yield from ((name, f"{number:g}") for name, number in numbers.items())
    yield "CLAUDEOPS_DATABASE_URL", settings.database_url
    for tier in settings.tiers:
        yield prompt_variable(tier.number), str(tier.prompt_path)
        yield f"{_TIER_MARK}{tier.number}_MODEL", tier.model
        if tier.harness != settings.harness:
            yield f"{_TIER_MARK}{tier.number}_HARNESS", tier.harness
        yield f"{_TIER_MARK}{tier.number}_MAX_TURNS", str(tier.max_turns)
        yield f"{_TIER_MARK}{tier.number}_MAX_BUDGET_USD", f"{tier.max_budget_usd:g}"


def _is_of_a_tier(name: str, highest: int) -> bool:
    """Return whether a variable is about all tiers, or about one that there is."""
    number = name.removeprefix(_TIER_MARK)[:1] if name.startswith(_TIER_MARK) else ""
    return not name.startswith(f"{_TIER_MARK}{number}_") or int(number) <= highest


def _is_wanted(name: str, parts: Sequence[str]) -> bool:
    return not parts or any(part.upper() in name for part in parts)


def _drawn(shown: Sequence[Setting], fault: ConfigurationError | None, looks: Looks) -> Sequence[str]:
    columns = [Column("SETTING"), Column("VALUE", shrinks=True), Column("FROM", shrinks=True)]
    rows = [
        (
            Cell(setting.name, Style.NAME if setting.used else Style.QUIET),
            setting.value if setting.value is not None else Cell("-", Style.QUIET),
            Cell(setting.origin, Style.PLAIN if setting.origin not in _OF_OURS else Style.QUIET),
        )
        for setting in shown
    ]
    lines = table(columns, rows, looks) or ["everything is at its default"]
    return [*lines, "", looks.styled(f"wrong: {fault}", Style.BAD)] if fault is not None else lines
