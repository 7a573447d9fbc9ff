"""Query parameters of the Docker Engine API: which values each may have, and the one spelling in which it is sent on.

What is sent is written anew from what was read here, so that no two readers can take it differently. A value that an
engine would compare with what it keeps secret bit by bit is refused: an event filter with the beginning of a command
line answers whether somebody runs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast
from urllib.parse import quote_plus, unquote_to_bytes

from claudeops.text import regex

Shape = Callable[[str], str | None]
"""From a value as it was sent to the one that is sent on; None if it is refused."""

_MOST_PARAMETERS: Final = 32
_LONGEST_FILTERS: Final = 4096  # characters, decoded
_LONGEST_WORD: Final = 255
_LONGEST_WAIT: Final = 3600  # seconds until a container that does not stop is killed

_LIMIT: Final = regex.Pattern(r"-1|[0-9]{1,6}")
_TAIL: Final = regex.Pattern(r"all|[0-9]{1,9}")
_MOMENT: Final = regex.Pattern(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_SECONDS: Final = regex.Pattern(r"[0-9]{1,4}")
_SIGNAL: Final = regex.Pattern(r"(SIG)?[A-Z][A-Z0-9]{1,9}([+-][0-9]{1,2})?|[1-9][0-9]?")
_WORD: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_./-]*")
_EVENT: Final = regex.Pattern(r"[A-Za-z][A-Za-z_-]*")
_FILTER: Final = regex.Pattern(r"[a-z][a-z.-]{0,63}")
_ESCAPES: Final = regex.Pattern(r"([^%]|%[0-9A-Fa-f]{2})*")

_TRUE: Final = frozenset({"1", "true", "True"})
_FALSE: Final = frozenset({"", "0", "false", "False"})

_COMMAND_COLUMNS: Final = frozenset({"args", "cmd", "command"})
_COLUMNS: Final = frozenset(
    {
        *("pid", "ppid", "pgid", "pgrp", "sid", "sess", "tid", "lwp", "tty", "tt", "tname", "cls", "class"),
        *("user", "uid", "ruser", "ruid", "euser", "euid", "group", "gid", "rgroup", "egroup"),
        *(
            "stat",
            "state",
            "s",
            "c",
            "cp",
            "pcpu",
            "%cpu",
            "pmem",
            "%mem",
            "vsz",
            "vsize",
            "rss",
            "rssize",
            "rsz",
            "sz",
        ),
        *("ni", "nice", "pri", "psr", "nlwp", "thcount", "wchan", "comm", "ucmd", "ucomm"),
        *("time", "cputime", "etime", "etimes", "stime", "start_time"),
        *_COMMAND_COLUMNS,
    }
)


def query_pairs(query: str) -> list[tuple[str, str]] | None:
    """Return the parameters of a query in their order; None if it is no plain query."""
    if not query:
        return []
    parts = query.split("&")
    if len(parts) > _MOST_PARAMETERS:
        return None
    pairs = []
    for part in parts:
        name, _, value = part.partition("=")
        decoded = _decoded(name), _decoded(value)
        if decoded[0] is None or decoded[1] is None or not decoded[0]:
            return None
        pairs.append((decoded[0], decoded[1]))
    return pairs


def query_of(pairs: Iterable[tuple[str, str]]) -> str:
    """Return parameters as a query in the one spelling of this filter."""
    return "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs)


def json_object(text: str) -> Mapping[str, object] | None:
    """Read a JSON object; None for anything else, and for an object that names a key twice: readers differ on it."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# --- the shapes of values -----------------------------------------------------------------------------


def flag(text: str) -> str | None:
    """Read a truth value; it is sent as ``1`` or ``0``."""
    return "1" if text in _TRUE else "0" if text in _FALSE else None


def limit(text: str) -> str | None:
    """Read how many containers are listed; -1 for all."""
    return _matched(_LIMIT, text)


def tail(text: str) -> str | None:
    """Read how many lines of the end of a log are wanted."""
    return _matched(_TAIL, text)


def moment(text: str) -> str | None:
    """Read a time in seconds since 1970, which clients send for whatever people write."""
    return _matched(_MOMENT, text)


def word(text: str) -> str | None:
    """Read a name from a fixed list of the engine's: a scope, a type, a condition."""
    return _matched(_WORD, text)


def seconds(text: str) -> str | None:
    """Read how long a container may take to stop; never without an end (-1)."""
    return text if _SECONDS.fullmatch(text) and int(text) <= _LONGEST_WAIT else None


def signal(text: str) -> str | None:
    """Read a signal by its name or number."""
    return _matched(_SIGNAL, text)


def filters(text: str) -> str | None:
    """Read a JSON object of filters: each the set or the list of its values."""
    found = _filters(text)
    return None if found is None else json.dumps(found, separators=(",", ":"))


def event_filters(text: str) -> str | None:
    """Read filters of events, in which the name of an event is one word.

    With ``exec_create`` among them engines compare all names with the beginning of the event, which goes on with the
    command line.
    """
    found = _filters(text)
    if found is None or not all(_EVENT.fullmatch(name) for name in found.get("event", ())):
        return None
    return json.dumps(found, separators=(",", ":"))


def ps_args(text: str) -> str | None:
    """Read arguments of ``ps`` that show no environment and leave the command line in the last column.

    Engines cut the lines of ``ps`` at spaces: of a command line in any other column the rest would stand in the
    columns after it. In arguments without a dash, ``e`` is the environment.
    """
    if text in {"", "-ef", "aux"}:
        return text or "-ef"
    option, _, columns = text.partition(" ")
    names = columns.split(",")
    shown = _COMMAND_COLUMNS.isdisjoint(names[:-1]) and _COLUMNS.issuperset(names)
    return text if option in {"-o", "-eo"} and shown and len(names) <= len(_COLUMNS) else None


def _filters(text: str) -> dict[str, dict[str, bool] | list[str]] | None:
    if len(text) > _LONGEST_FILTERS:
        return None
    document = json_object(text or "{}")
    if document is None:
        return None
    found: dict[str, dict[str, bool] | list[str]] = {}
    for name, values in document.items():
        if not _FILTER.fullmatch(name):
            return None
        listed = isinstance(values, list) and all(isinstance(value, str) for value in values)
        if not listed and not (isinstance(values, dict) and all(isinstance(value, bool) for value in values.values())):
            return None
        found[name] = cast("dict[str, bool] | list[str]", values)
    return found


def _matched(pattern: regex.Pattern[str], text: str) -> str | None:
    return text if len(text) <= _LONGEST_WORD and pattern.fullmatch(text) else None


def _decoded(text: str) -> str | None:
    if not _ESCAPES.fullmatch(text):
        return None
    try:
        decoded = unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        return None
    return decoded if decoded.isprintable() else None


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is named twice")
    return found
