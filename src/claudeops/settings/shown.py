"""The settings in effect, each with where it comes from; secrets are masked, and no way around that leaves here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from claudeops.domain.setting import MASK, Setting
from claudeops.errors import ConfigurationError
from claudeops.settings.environ import without_user
from claudeops.settings.load import load_settings
from claudeops.settings.model import Settings
from claudeops.settings.names import FILE_SUFFIX, KNOWN, Kind, Variable, prompt_variable
from claudeops.text.redact import Redactor

_DATABASE: Final = "CLAUDEOPS_DATABASE_URL"
_TIER_MARK: Final = "CLAUDEOPS_TIER"
_USUAL_TIERS: Final = 3


def effective(environ: Mapping[str, str], *, cwd: Path) -> tuple[Sequence[Setting], ConfigurationError | None]:
    """Return every setting with its value, and what is wrong with them, if anything.

    Where something is wrong, the values are shown as they were given: what the daemon would make of them is not known.
    """
    settings, fault = None, None
    try:
        settings = load_settings(environ, cwd=cwd).settings
    except ConfigurationError as error:
        fault = error
    return shown(environ, settings), fault


def shown(environ: Mapping[str, str], settings: Settings | None) -> Sequence[Setting]:
    """Return every setting with its value; without ``settings``, which cannot be read, as it was given."""
    computed = {} if settings is None else dict(_computed(settings))
    redact = Redactor(() if settings is None else settings.secrets).text
    highest = _USUAL_TIERS if settings is None else settings.max_tier
    return [
        _setting(variable, environ, computed.get(name), redact(environ.get(name, "").strip()))
        for name, variable in KNOWN.items()
        if _is_of_a_tier(name, highest)
    ]


def _setting(variable: Variable, environ: Mapping[str, str], computed: str | None, given: str) -> Setting:
    value, origin = _value(variable, environ, computed, given)
    if variable.name == _DATABASE and computed is not None:
        value = _without_password(computed)
    elif variable.secret and value is not None:
        value = MASK
    elif variable.kind is Kind.URL and value is not None:
        value = without_user(value).partition("?")[0]
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
