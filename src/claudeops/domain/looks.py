"""What a call looked at: names of things, and addresses on the network.

A look says that something was asked and answered, not what the answer was: that is for the model to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import re2

_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HIGHEST_PORT: Final = 65535
_URL: Final = re2.compile(r"""(?i)https?://[^\s"'<>()\\`]+""")

_BARE: Final = re2.compile(
    r"(?i)(?:^|[\s\"'(=@])((?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|localhost|[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+):[0-9]{1,5})\b"
)
_CURLS_OWN: Final = re2.compile(r"(?i)connect to ([^\s]+) port ([0-9]{1,5})\b")  # how curl says whom it could not reach
_BEHIND_A_URL: Final = ".,;:!?]}"  # punctuation of the sentence that it stands in


@dataclass(frozen=True, slots=True)
class Address:
    """Where something answers. The query is left out: it is what was asked, not whom."""

    host: str  # lower case; every name of this machine itself is ``localhost``
    port: int
    path: str = ""  # without a slash at its end

    @property
    def is_here(self) -> bool:
        """Whether it means the machine on which it is asked, whichever that is."""
        return self.host == "localhost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """A call that looked at something and, where it stands as evidence, came back without an error."""

    names: frozenset[str] = frozenset()  # of services, containers, units and the like; without any: a look around
    addresses: frozenset[Address] = frozenset()
    results_before: int = 0  # how many calls of its session had ended when it was asked for

    def joined(self, other: Look) -> Look:
        """Return what both looked at, as one call."""
        return replace(self, names=self.names | other.names, addresses=self.addresses | other.addresses)


def taken_together(looks: Iterable[Look]) -> Look | None:
    """Return what the commands of one call looked at; ``None``: they looked at nothing."""
    taken: Look | None = None
    for look in looks:
        taken = look if taken is None else taken.joined(look)
    return taken


def address_of(url: str) -> Address | None:
    """Return whom a URL or ``HOST:PORT`` asks; ``None`` for what is neither. Without a scheme it counts as http."""
    scheme, given, rest = url.partition("://")
    scheme, rest = (scheme.lower(), rest) if given else ("http", url)
    place, slash, path = rest.partition("/")
    place, path = place.partition("?")[0].partition("#")[0], path.partition("?")[0].partition("#")[0]
    host, port = _host_and_port(place, _PORTS.get(scheme, 0))
    if not host or not 0 < port <= _HIGHEST_PORT:
        return None
    return Address(host=host, port=port, path=(slash + path).rstrip("/"))


def addresses_in(text: str) -> frozenset[Address]:
    """Return the addresses that a sentence names: URLs, ``HOST:PORT`` where the host is plainly one, curl's errors."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # re2 takes no half of a surrogate pair
    found = [url.rstrip(_BEHIND_A_URL) for url in _URL.findall(text)]
    found += _BARE.findall(_URL.sub(" ", text))
    found += [f"{host}:{port}" for host, port in _CURLS_OWN.findall(text)]
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
