"""Headers with a secret that the daemon adds to what a session sends to a host, and the operator's file of them.

The file never holds a secret itself: a value refers to a variable of the daemon, ``${NAME}``, or to a file,
``${file:PATH}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from claudeops.domain.network.destination import network_in, plain
from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.formats.network.addresses import joined
from claudeops.text import regex
from claudeops.text.toml_file import KeyFault, TomlFile, keys_of

MOST: Final = 100
REFERENCE: Final = regex.Pattern(r"\$\{(?:([A-Za-z_][A-Za-z0-9_]{0,199})|file:([^{}$\r\n]{1,1000}))\}")
"""A variable, or a file."""

_TABLE: Final = "headers"
_NAME: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}")
_PLAIN: Final = regex.Pattern(r"[ -~]*")
_OF_THE_CONNECTION: Final = frozenset(
    {
        *("accept-encoding", "connection", "content-encoding", "content-length", "expect", "forwarded", "host"),
        *("if-range", "keep-alive", "range", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_TLS_PORT: Final = 443
_PLAIN_PORT: Final = 80
_LARGEST_PORT: Final = 65535
HIGHEST_TIER: Final = 9
_SHOWN: Final = 20  # hosts in a sentence


class WrittenHeader(msgspec.Struct, frozen=True, kw_only=True):
    """A header as a file names it; what it refers to is not looked up."""

    host: str  # in its one spelling
    port: int
    tls: bool
    name: str
    value: str  # with references
    tiers: frozenset[int]
    ca_file: str  # "": the machine's authorities
    line: int  # for messages


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretHeader:
    """A header that the daemon adds to a session's requests to a host."""

    host: str  # a name or address, in its one spelling
    port: int
    tls: bool = True
    name: str
    value: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)  # the parts of the value that are secret
    tiers: frozenset[int] = frozenset(range(1, HIGHEST_TIER + 1))
    authority: str = field(
        default="", repr=False
    )  # certificates (PEM) that the host's is checked by; "": the machine's

    @property
    def place(self) -> str:
        """The address that a session asks: ``https://host``, with the port where it is another than usual."""
        scheme, usual = ("https", _TLS_PORT) if self.tls else ("http", _PLAIN_PORT)
        host = joined((self.host, self.port))
        return f"{scheme}://{host.removesuffix(f':{usual}') if self.port == usual else host}"


def of_tier(headers: Iterable[SecretHeader], tier: int) -> tuple[SecretHeader, ...]:
    """Return the headers that the sessions of a tier have added."""
    return tuple(header for header in headers if tier in header.tiers)


def places_by_name(headers: Iterable[SecretHeader]) -> dict[str, tuple[str, ...]]:
    """Return, by the name of each header in lower case, the places that it is added for."""
    found: dict[str, dict[str, None]] = {}
    for header in headers:
        found.setdefault(header.name.lower(), {})[header.place] = None
    return {name: tuple(places) for name, places in found.items()}


def added_in_words(headers: Iterable[SecretHeader]) -> str:
    """Return for which places the daemon adds which header, in words for a session; "" for none."""
    found: dict[str, dict[str, None]] = {}
    for header in headers:
        found.setdefault(header.place, {})[header.name] = None
    if not found:
        return ""
    places = [f"{place} ({', '.join(names)})" for place, names in sorted(found.items())]
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return (
        f"keys: the daemon adds the header with the key to every request to {', '.join(places[:_SHOWN])}{more}; ask "
        "there by that name, and without a key: there is none in this session, and an answer that repeats it has "
        "[redacted] in its place"
    )


# --- the file -----------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``[[headers]]``, as it is written."""

    host: str
    port: int | None = None
    tls: bool = True
    name: str
    value: str
    tiers: tuple[int, ...] | None = None
    ca_file: str = ""


class _Document(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    headers: tuple[_Entry, ...] = ()


def read_headers(text: str) -> tuple[WrittenHeader, ...]:
    """Return the headers that a file names; raises `TomlFault`."""
    file = TomlFile(text, what="a file of headers")
    for key in file.values:
        if key != _TABLE:
            reason = f"the key {key[:40]!r} is not known here: headers stand under [[headers]]"
            raise file.fault((key, 0), reason)
    for index, table in file.tables(_TABLE):
        file.check_keys(table, (_TABLE, index), keys_of(_Entry))
    document = file.as_document(_Document, remedy="write every entry as a table, [[headers]]")
    if not document.headers:
        raise file.fault((), "there is no header in it: add a [[headers]], or unset CLAUDEOPS_HEADERS_PATH")
    if len(document.headers) > MOST:
        raise file.fault((), f"there are more than {MOST} headers in it: leave some out")
    found: list[WrittenHeader] = []
    for index, entry in enumerate(document.headers):
        with file.at(_TABLE, index):
            header = _header(entry, file.line(_TABLE, index))
            _check_others(header, found)
            found.append(header)
    return tuple(found)


def _header(entry: _Entry, line: int) -> WrittenHeader:
    port = entry.port if entry.port is not None else _TLS_PORT if entry.tls else _PLAIN_PORT
    if not 1 <= port <= _LARGEST_PORT:
        raise KeyFault("port", f"{port} is not a port: write a number from 1 to {_LARGEST_PORT}")
    name = entry.name
    if not _NAME.fullmatch(name):
        raise KeyFault("name", f"{name[:80]!r} is not the name of a header: write one such as 'Authorization'")
    if name.lower() in _OF_THE_CONNECTION or name.lower().startswith(("proxy-", "x-forwarded-")):
        raise KeyFault("name", f"{name} says how a request is sent, and holds no secret: name the header with the key")
    if entry.tiers is not None and not (entry.tiers and all(1 <= tier <= HIGHEST_TIER for tier in entry.tiers)):
        raise KeyFault("tiers", "tiers: name some, such as [1, 2], or leave it out: then it is all of them")
    if entry.ca_file and not entry.tls:
        raise KeyFault(
            "ca_file", "ca_file: without TLS there is no certificate: leave it out, or leave out tls = false"
        )
    _check_value(entry.value)
    return WrittenHeader(
        host=_host(entry.host),
        port=port,
        tls=entry.tls,
        name=name,
        value=entry.value,
        tiers=frozenset(entry.tiers if entry.tiers is not None else range(1, HIGHEST_TIER + 1)),
        ca_file=entry.ca_file,
        line=line,
    )


def _host(written: str) -> str:
    if "://" in written or "/" in written or network_in(written) is not None:
        raise KeyFault("host", f"{written[:80]!r}: write the name or address of one host, without a scheme or a path")
    host = plain(written)
    if (reason := refuse_host(host)) is not None:
        raise KeyFault("host", f"{reason}: write the name or address of one host, such as 'grafana.example'")
    return host


def _check_value(value: str) -> None:
    rest = REFERENCE.sub("", value)
    if rest == value:
        raise KeyFault(
            "value",
            "value: the secret itself does not belong into this file: refer to a variable, '${NAME}', or to a file, "
            "'${file:PATH}'",
        )
    if "${" in rest:
        raise KeyFault("value", "value: there is a '${' that refers to nothing: write '${NAME}' or '${file:PATH}'")
    if not _PLAIN.fullmatch(rest):
        raise KeyFault("value", "value: a header holds printable ASCII alone: correct what stands beside the reference")


def _check_others(header: WrittenHeader, others: Sequence[WrittenHeader]) -> None:
    for other in others:
        if (other.host, other.port) != (header.host, header.port):
            continue
        if (other.tls, other.ca_file) != (header.tls, header.ca_file):
            raise KeyFault(
                "host", f"line {other.line} has this host and port with another 'tls' or 'ca_file': agree on one"
            )
        if other.name.lower() == header.name.lower() and other.tiers & header.tiers:
            raise KeyFault(
                "name", f"line {other.line} adds {header.name} there already: leave one out, or part their tiers"
            )
