"""Fills a group of settings: each plain field by the kind of its variable, the derived ones as they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from claudeops.errors import ConfigurationError
from claudeops.settings.reader import (
    VariableReader,
    by_default,
    read_address,
    read_http_url,
    read_long_token,
    read_networks,
    read_tier_list,
)
from claudeops.settings.variables import ValueKind, Variable, plain_fields

T = TypeVar("T")

_SHARE_OF_GREATER: Final = 0.9
"""A default that does not fit below another time becomes this share of it."""

_READ: Final[Mapping[ValueKind, Callable[[VariableReader, str], object]]] = {
    ValueKind.TEXT: VariableReader.text,
    ValueKind.PROSE: VariableReader.prose,
    ValueKind.ADDRESS: read_address,
    ValueKind.MODEL: VariableReader.model,
    ValueKind.SECONDS: VariableReader.number,
    ValueKind.WHOLE: VariableReader.whole,
    ValueKind.MONEY: VariableReader.number,
    ValueKind.SWITCH: VariableReader.switch,
    ValueKind.CHOICE: VariableReader.choice,
    ValueKind.FILE: VariableReader.path,
    ValueKind.DIRECTORY: VariableReader.path,
    ValueKind.NAMES: VariableReader.names,
    ValueKind.TIERS: read_tier_list,
    ValueKind.NETWORKS: read_networks,
    ValueKind.PATHS: VariableReader.paths,
    ValueKind.TOOLS: VariableReader.tools,
    ValueKind.URL: read_http_url,
    ValueKind.SECRET: VariableReader.secret,
    ValueKind.TOKEN: VariableReader.token,
    ValueKind.LONG_TOKEN: read_long_token,
    ValueKind.SECRET_URL: read_http_url,
}


def fill(group: type[T], reader: VariableReader, /, *, tier: int | None = None, **derived: object) -> T:
    """Return a group of settings; ``tier`` stands in the names of its variables. Raises `ConfigurationError`."""
    plain = {field: _value(reader, variable, tier) for field, variable in plain_fields(group)}
    make: Callable[..., T] = group
    return make(**plain, **derived)


def _value(reader: VariableReader, variable: Variable[object], tier: int | None) -> object:
    name = variable.name.replace("{n}", str(tier))
    return _time_below(reader, name, variable.below) if variable.below else _READ[variable.kind](reader, name)


def _time_below(reader: VariableReader, name: str, greater: str) -> float:
    """Return a time in seconds that is below another one."""
    limit, value = reader.number(greater), reader.number(name)
    if value < limit:
        return value
    if not reader.is_set(name):
        return limit * _SHARE_OF_GREATER
    raise ConfigurationError(
        f"{name} is {value:g} s, not below {greater}, which is {limit:g} s{by_default(reader, greater)}: "
        "lower the first, or raise the second."
    )
