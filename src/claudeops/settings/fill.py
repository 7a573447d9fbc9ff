"""Fills a group of settings: each plain field by the kind of its variable, the derived ones as they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from claudeops.errors import ConfigurationError
from claudeops.settings.reader import (
    Reader,
    read_address,
    read_http_url,
    read_long_token,
    read_networks,
    read_tier_list,
)
from claudeops.settings.variables import Kind, Variable, plain_fields

T = TypeVar("T")

_SHARE_OF_GREATER: Final = 0.9
"""A default that does not fit below another time becomes this share of it."""

_READ: Final[Mapping[Kind, Callable[[Reader, str], object]]] = {
    Kind.TEXT: Reader.text,
    Kind.PROSE: Reader.prose,
    Kind.ADDRESS: read_address,
    Kind.MODEL: Reader.model,
    Kind.SECONDS: Reader.number,
    Kind.WHOLE: Reader.whole,
    Kind.MONEY: Reader.number,
    Kind.SWITCH: Reader.switch,
    Kind.CHOICE: Reader.choice,
    Kind.FILE: Reader.path,
    Kind.DIRECTORY: Reader.path,
    Kind.NAMES: Reader.names,
    Kind.TIERS: read_tier_list,
    Kind.NETWORKS: read_networks,
    Kind.PATHS: Reader.paths,
    Kind.TOOLS: Reader.tools,
    Kind.URL: read_http_url,
    Kind.SECRET: Reader.secret,
    Kind.TOKEN: Reader.token,
    Kind.LONG_TOKEN: read_long_token,
    Kind.SECRET_URL: read_http_url,
}


def fill(group: type[T], reader: Reader, /, *, tier: int | None = None, **derived: object) -> T:
    """Return a group of settings; ``tier`` stands in the names of its variables. Raises `ConfigurationError`."""
    plain = {field: _value(reader, variable, tier) for field, variable in plain_fields(group)}
    make: Callable[..., T] = group
    return make(**plain, **derived)


def by_default(reader: Reader, name: str) -> str:
    """Return what a sentence about two values adds where the operator set but one of them."""
    return "" if reader.is_set(name) else " unless you set it"


def _value(reader: Reader, variable: Variable[object], tier: int | None) -> object:
    name = variable.name.replace("{n}", str(tier))
    return _time_below(reader, name, variable.below) if variable.below else _READ[variable.kind](reader, name)


def _time_below(reader: Reader, name: str, greater: str) -> float:
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
