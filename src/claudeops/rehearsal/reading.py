"""From a parsed document to values, with one sentence that names the place when something is wrong."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from claudeops.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T", bound=msgspec.Struct)

_PLACE: Final = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$?(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN_KEY: Final = re.compile(r"Object contains unknown field `(.*)`")


def convert(
    obj: object,
    wanted: type[T],
    *,
    place: str,
    shapes: Mapping[str, type[msgspec.Struct]],
    remedies: Mapping[str, str],
) -> T:
    """Return ``obj`` as ``wanted``; raises `ConfigurationError` with ``<place>.<path>: <what is wrong>``.

    ``shapes`` are the structs below ``wanted`` by the key at which they stand, ``remedies`` what is said of a wrong
    value of some key instead of msgspec's own sentence.
    """
    try:
        return msgspec.convert(obj, wanted)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_sentence(str(error), wanted, place, shapes, remedies)) from None


def _sentence(
    complaint: str,
    wanted: type[msgspec.Struct],
    place: str,
    shapes: Mapping[str, type[msgspec.Struct]],
    remedies: Mapping[str, str],
) -> str:
    """Turn ``<what> - at `$.a[0].b``` into ``<place>.a[0].b: <what>``, with the near miss of an unknown key."""
    parts = _PLACE.fullmatch(complaint)
    what, path = (parts["what"], parts["path"] or "") if parts else (complaint, "")
    where = f"{place}{path}".removeprefix(".")
    last = re.findall(r"[A-Za-z_]+", path)[-1:]
    if unknown := _UNKNOWN_KEY.fullmatch(what):
        known = (shapes[last[0]] if last else wanted).__struct_fields__
        what = f"unknown key {unknown[1]!r}, {nearest(unknown[1], known)}"
    elif last and last[0] in remedies:
        what = remedies[last[0]]
    return f"{where}: {what}" if where else what


def nearest(name: str, known: tuple[str, ...]) -> str:
    """Return the remedy for a name that is not among the known ones."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
