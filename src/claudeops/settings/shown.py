"""The settings in effect, each with where it comes from; secrets are masked, and no way around that leaves here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Final

from claudeops.domain.setting import MASK, Setting
from claudeops.errors import ConfigurationError
from claudeops.settings.environ import without_user
from claudeops.settings.load import load_settings
from claudeops.settings.model import KNOWN, Settings
from claudeops.settings.variables import FILE_SUFFIX, ValueKind, Variable, declared_by, prompt_variable
from claudeops.text.redact import Redactor

_DATABASE: Final = "CLAUDEOPS_DATABASE_URL"
_TIER_MARK: Final = "CLAUDEOPS_TIER"
_USUAL_TIERS: Final = 3
_PATHS: Final = (ValueKind.FILE, ValueKind.DIRECTORY, ValueKind.PROGRAM)


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
    highest = _USUAL_TIERS if settings is None else settings.ladder.max_tier
    return [
        _setting(variable, environ, computed.get(name), redact(environ.get(name, "").strip()))
        for name, variable in KNOWN.items()
        if _is_of_a_tier(name, highest)
    ]


def _setting(variable: Variable[object], environ: Mapping[str, str], computed: str | None, given: str) -> Setting:
    value, origin = _value(variable, environ, computed, given)
    if variable.name == _DATABASE and computed is not None:
        value = _without_password(computed)
    elif variable.secret and value is not None:
        value = MASK
    elif variable.kind is ValueKind.URL and value is not None:
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


def _value(
    variable: Variable[object], environ: Mapping[str, str], computed: str | None, given: str
) -> tuple[str | None, str]:
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
    for path, variable in declared_by(Settings):
        value = reduce(getattr, path, settings)
        if (variable.kind in _PATHS and isinstance(value, Path)) or variable.kind is ValueKind.IDENTIFIER:
            yield variable.name, str(value)
        elif variable.kind is ValueKind.MONEY or variable.below:
            yield variable.name, f"{value:g}"
    yield _DATABASE, settings.places.database_url
    for tier in settings.tiers:
        yield prompt_variable(tier.number), str(tier.prompt_path)
        yield f"{_TIER_MARK}{tier.number}_MODEL", tier.model
        if tier.harness != settings.sessions.harness:
            yield f"{_TIER_MARK}{tier.number}_HARNESS", tier.harness
        yield f"{_TIER_MARK}{tier.number}_MAX_TURNS", str(tier.max_turns)
        yield f"{_TIER_MARK}{tier.number}_MAX_BUDGET_USD", f"{tier.max_budget_usd:g}"


def _is_of_a_tier(name: str, highest: int) -> bool:
    """Return whether a variable is about all tiers, or about one that there is."""
    number = name.removeprefix(_TIER_MARK)[:1] if name.startswith(_TIER_MARK) else ""
    return not name.startswith(f"{_TIER_MARK}{number}_") or int(number) <= highest
