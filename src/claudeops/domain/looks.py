"""Looks: what a call looked at, as names and network addresses, and those that the daemon runs for it.

A look means that something was asked and answered, not what the answer was: reading that is the model's job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec
import re2

from claudeops.structs import replace

_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HIGHEST_PORT: Final = 65535
_URL: Final = re2.compile(r"""(?i)https?://[^\s"'<>()\\`]+""")

_BARE: Final = re2.compile(
    r"(?i)(?:^|[\s\"'(=@])((?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|localhost|[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+):[0-9]{1,5})\b"
)
_CURL_ERROR: Final = re2.compile(r"(?i)connect to ([^\s]+) port ([0-9]{1,5})\b")  # what curl could not reach
_AFTER_A_URL: Final = ".,;:!?]}"  # punctuation of the sentence around it


class Address(msgspec.Struct, frozen=True):
    """Where something answers. The query is left out: it says what was asked, not whom."""

    host: str  # lower case; every name of this machine itself is ``localhost``
    port: int
    path: str = ""  # without a slash at its end

    @property
    def is_local(self) -> bool:
        """Whether it means the machine on which the question is asked, whichever that is."""
        return self.host == "localhost"


class InRepository(msgspec.Struct, frozen=True, kw_only=True):
    """Where a look at a repository runs. Paths are absolute."""

    directory: str
    root: str  # the tree that it may see something of: the repositories' directory, or one that a manifest names


class LookCall(msgspec.Struct, frozen=True, kw_only=True):
    """A command that the daemon runs for an allowed call, once, in a cell of its own; its output is the session's."""

    id: str = ""  # in the rendered text, instead of the program: the call's tool_use_id and the command's number
    program: str
    arguments: tuple[str, ...]  # literal, in one canonical form
    where: InRepository | None = None  # None: it sees no files


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceLook:
    """A call that looked at something and, where it counts as evidence, returned without an error."""

    names: frozenset[str] = frozenset()  # of services, containers, units and the like; none: a look around
    addresses: frozenset[Address] = frozenset()
    hosts: frozenset[str] = frozenset()  # other hosts on which it ran
    results_before: int = 0  # how many calls of its session had ended when it was requested
    tool_use_id: str = field(default="", compare=False)  # of the call, once it has run; not part of what was looked at

    def merged_with(self, other: EvidenceLook) -> EvidenceLook:
        """Return what both looked at, as one look."""
        return replace(
            self,
            names=self.names | other.names,
            addresses=self.addresses | other.addresses,
            hosts=self.hosts | other.hosts,
        )


def combined(looks: Iterable[EvidenceLook]) -> EvidenceLook | None:
    """Return what the commands of one call looked at, as one look; ``None`` when they looked at nothing."""
    result: EvidenceLook | None = None
    for look in looks:
        result = look if result is None else result.merged_with(look)
    return result


def address_of(url: str) -> Address | None:
    """Return the address of a URL or ``HOST:PORT``, ``None`` for what is neither. Without a scheme it is http."""
    scheme, given, rest = url.partition("://")
    scheme, rest = (scheme.lower(), rest) if given else ("http", url)
    place, slash, path = rest.partition("/")
    place, path = place.partition("?")[0].partition("#")[0], path.partition("?")[0].partition("#")[0]
    host, port = _host_and_port(place, _PORTS.get(scheme, 0))
    if not host or not 0 < port <= _HIGHEST_PORT:
        return None
    return Address(host=host, port=port, path=(slash + path).rstrip("/"))


def addresses_in(text: str) -> frozenset[Address]:
    """Return the addresses in a sentence: URLs, ``HOST:PORT`` with an unmistakable host, and those in curl's errors."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # re2 takes no half of a surrogate pair
    found = [url.rstrip(_AFTER_A_URL) for url in _URL.findall(text)]
    found += _BARE.findall(_URL.sub(" ", text))
    found += [f"{host}:{port}" for host, port in _CURL_ERROR.findall(text)]
    return frozenset(address for each in found if (address := address_of(each)) is not None)


def _host_and_port(place: str, usual: int) -> tuple[str, int]:
    place = place.rpartition("@")[2].lower()
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    host = host.rstrip(".")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= len(str(_HIGHEST_PORT)) else 0
    return "localhost" if host in _LOOPBACK else host, number if port else usual
