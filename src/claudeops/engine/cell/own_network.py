"""What stands on a session's own network: the list of its tier with names looked up, as addresses and ports.

Names are looked up by the daemon, as the machine does it, both families, within seconds in all: what is not there by
then is unknown to this session. A name may lead nowhere that may not be asked, and to this machine (its loopback) only
at ports that somebody names.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import anyio
import msgspec

from claudeops.domain.estate.strangers import address_in
from claudeops.domain.network.destination import LOCALHOST, Destination, network_in
from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.tasks import Threads

MOST_SOCKETS: Final = 512
"""Addresses with ports of one session; ports that somebody names come first."""

_MOST_ADDRESSES: Final = 8  # of one name
_MOST_THREADS: Final = 8
_SECONDS: Final = 3.0  # for all names of a session
_FRESH_SECONDS: Final = 60.0  # an answer is not asked for again, also where there is no such name
_KEPT_SECONDS: Final = 600.0  # an answer serves where there is no newer one
_FIRST: Final = {22: 0, 443: 1, 80: 2}  # of the ports that nobody names, where not all can be had
_LOOPBACK: Final = "127.0.0.1"
_DNS_PORT: Final = 53
_MOST_SERVERS: Final = 3  # that resolv.conf(5) may name
_KEPT_FOR_NAMES: Final = (["search"], ["domain"], ["options"], ["sortlist"])

Lookup = Callable[[str], tuple[str, ...]]

AnyNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on a session's own network."""

    tcp: tuple[tuple[str, int], ...] = ()  # address, port; addresses numeric
    udp: tuple[tuple[str, int], ...] = ()
    networks: tuple[tuple[str, tuple[int, ...]], ...] = ()  # TCP only: network, ports
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()  # for the hosts file: address, names
    unknown: tuple[str, ...] = ()  # names without an address that may be reached
    left_out: tuple[str, ...] = ()  # hosts that not all ports could be had of, beyond `MOST_SOCKETS`


class NetworkPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where connections of a session arrive."""

    kind: str  # ``tcp`` or ``udp``
    address: str
    port: int
    networks: tuple[AnyNetwork, ...] = ()  # that it stands for, instead of one address


def listing(network: Network) -> bytes:
    """Return the lines that the launcher reads, up to the empty one; see ``launcher.py``."""
    addresses = dict.fromkeys(address for address, _ in (*network.tcp, *network.udp))
    lines = [
        *(f"address {address}" for address in addresses if not ipaddress.ip_address(address).is_loopback),
        *(f"network {place}" for place, _ in network.networks),
        *(f"{place.kind} {place.address} {place.port}" for place in places_of(network)),
    ]
    return ("\n".join(lines) + "\n\n").encode("ascii")


def places_of(network: Network) -> list[NetworkPlace]:
    """Return all places, in the order in which the launcher makes them.

    A network's ports are those of every address here, since the kernel knows no socket for a range; other addresses
    with these ports are served by the same socket. What does not lie in what is listed is refused once it has arrived.
    """
    ranges: dict[tuple[str, int], list[AnyNetwork]] = {}
    for text, ports in network.networks:
        for port in ports:
            ranges.setdefault((_everywhere(text), port), []).append(ipaddress.ip_network(text))
    places = []
    for address, port in network.tcp:
        if (_everywhere(address), port) in ranges:
            ranges[_everywhere(address), port].append(ipaddress.ip_network(address))
        else:
            places.append(NetworkPlace(kind="tcp", address=address, port=port))
    places += [NetworkPlace(kind="udp", address=address, port=port) for address, port in network.udp]
    places += [
        NetworkPlace(kind="tcp", address=address, port=port, networks=tuple(found))
        for (address, port), found in ranges.items()
    ]
    return places


def _everywhere(address: str) -> str:
    """Return the address of all addresses of the same family."""
    return "::" if ":" in address else "0.0.0.0"  # noqa: S104 - in the session's namespace


class _Answer(msgspec.Struct, frozen=True):
    addresses: tuple[str, ...]  # none: there is no such name
    at: float  # seconds of the monotonic clock


class NameLookup:
    """Looks names up, and keeps the answers. One for the whole daemon: its threads are bounded."""

    def __init__(
        self,
        lookup: Lookup | None = None,
        *,
        seconds: float = _SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lookup = lookup or look_up
        self._seconds = seconds
        self._monotonic = monotonic
        self._threads = Threads(most=_MOST_THREADS)
        self._answers: dict[str, _Answer] = {}  # threads put theirs in whenever they come

    async def addresses(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the addresses of names, as far as they are known within the time; it takes no longer."""
        wanted = list(dict.fromkeys(names))
        asked = iter([name for name in wanted if self._answer(name, _FRESH_SECONDS) is None])
        with anyio.move_on_after(self._seconds):
            async with anyio.create_task_group() as tasks:
                for _ in range(_MOST_THREADS):
                    tasks.start_soon(self._ask_all, asked)
        answers = {name: self._answer(name, _KEPT_SECONDS) for name in wanted}
        self._forget()
        return {name: answer.addresses for name, answer in answers.items() if answer is not None and answer.addresses}

    async def _ask_all(self, names: Iterator[str]) -> None:
        for name in names:
            try:
                await self._threads.run(partial(self._ask, name), seconds=self._seconds, what=f"looking up {name}")
            except OSError:
                continue  # the one before serves as long as it may

    def _ask(self, name: str) -> None:
        """Look a name up on a thread. An answer that comes too late for its caller serves the next one."""
        try:
            addresses = self._lookup(name)
        except UnicodeError:  # no name by the rules of IDNA
            addresses = ()
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                raise
            addresses = ()
        self._answers[name] = _Answer(addresses[:_MOST_ADDRESSES], self._monotonic())

    def _answer(self, name: str, seconds: float) -> _Answer | None:
        answer = self._answers.get(name)
        return answer if answer is not None and self._monotonic() - answer.at <= seconds else None

    def _forget(self) -> None:
        for name in list(self._answers):
            if self._answer(name, _KEPT_SECONDS) is None:
                self._answers.pop(name, None)


def look_up(name: str) -> tuple[str, ...]:
    """Return the addresses of a name as the machine's resolver has them; blocks. Raises `OSError`, `UnicodeError`."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    addresses = tuple(dict.fromkeys(_short(str(entry[4][0])) for entry in found))
    # In the cell each address seems to answer at once, so a program would settle for one that leads nowhere.
    return tuple(filter(_has_route, addresses)) or addresses


def _short(text: str) -> str:
    address = address_in(text)
    return text if address is None else str(address)


def _has_route(address: str) -> bool:
    """Whether the machine knows a way to an address. Nothing is sent: the socket is of UDP."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
    except OSError:
        return False
    return True


# --- the list -----------------------------------------------------------------------------------------


class _Socket(msgspec.Struct, frozen=True, kw_only=True):
    host: str  # that it is for
    address: str
    port: int
    udp: bool = False
    usual: bool = False  # nobody names the port


class _Found(msgspec.Struct):
    """What is collected of a list."""

    sockets: dict[_Socket, None] = msgspec.field(default_factory=dict)
    names: dict[str, list[str]] = msgspec.field(default_factory=dict)  # by address
    unknown: list[str] = msgspec.field(default_factory=list)

    def take(self, one: Destination, addresses: Iterable[str], *, named: bool) -> None:
        """Take a destination at its addresses; ``named``: by a name, which belongs into the hosts file."""
        for address in addresses:
            if named:
                self.names.setdefault(address, []).append(one.host)
            own = ipaddress.ip_address(address).is_loopback
            for port in sorted(one.named if own else one.tcp):
                self.sockets[_Socket(host=one.host, address=address, port=port, usual=port not in one.named)] = None
            for port in sorted(one.udp):
                self.sockets[_Socket(host=one.host, address=address, port=port, udp=True)] = None


async def resolved(
    destinations: Sequence[Destination], names: NameLookup, *, excluded: Callable[[str], bool] | None = None
) -> Network:
    """Return what stands on the network of a session.

    ``excluded`` says which addresses names may not lead to, besides what is never asked
    (`claudeops.formats.network.destinations.Exclusions.has`).
    """
    single = [one for one in destinations if network_in(one.host) is None]
    answers = await names.addresses(one.host for one in single if _is_name(one.host))
    found = _Found()
    for one in single:
        is_name = _is_name(one.host)
        candidates = answers.get(one.host, ()) if is_name else (_LOOPBACK if one.host == LOCALHOST else one.host,)
        addresses = [address for address in candidates if _may_be_reached(address, excluded)]
        found.take(one, addresses, named=is_name)
        found.unknown += [one.host] if is_name and not addresses else []
    networks = tuple((one.host, tuple(sorted(one.tcp))) for one in destinations if network_in(one.host) is not None)
    return _network(found, networks)


def _is_name(host: str) -> bool:
    return host != LOCALHOST and address_in(host) is None


def _may_be_reached(address: str, excluded: Callable[[str], bool] | None) -> bool:
    return refuse_host(address) is None and not (excluded is not None and excluded(address))


def _network(found: _Found, networks: tuple[tuple[str, tuple[int, ...]], ...]) -> Network:
    ordered = sorted(found.sockets, key=lambda each: (each.usual, _FIRST.get(each.port, 0) if each.usual else 0))
    places: dict[tuple[str, int, bool], None] = {}
    left_out: dict[str, None] = {}
    for each in ordered:
        place = (each.address, each.port, each.udp)
        if place in places or len(places) < MOST_SOCKETS:
            places[place] = None
        else:
            left_out[each.host] = None
    return Network(
        tcp=tuple(sorted((address, port) for address, port, udp in places if not udp)),
        udp=tuple(sorted((address, port) for address, port, udp in places if udp)),
        networks=networks,
        names=tuple((address, tuple(names)) for address, names in found.names.items()),
        unknown=tuple(found.unknown),
        left_out=tuple(sorted(left_out)),
    )


def name_servers(network: Network) -> tuple[str, ...]:
    """Return which addresses of a session's network its programs are to ask for names."""
    return tuple(address for address, port in network.udp if port == _DNS_PORT)[:_MOST_SERVERS]


def resolver_file(servers: Sequence[str], of_machine: str) -> str:
    """Return the text of a session's ``/etc/resolv.conf`` (resolv.conf(5)), by that of the machine.

    The machine's servers are not on the session's network; what it completes names with is kept.
    """
    kept = (line for line in of_machine.splitlines() if line.split(None, 1)[:1] in _KEPT_FOR_NAMES)
    return "".join(f"{line}\n" for line in (*(f"nameserver {address}" for address in servers), *kept))


def hosts_file(network: Network, hostname: str = "cell") -> str:
    """Return the text of a session's ``/etc/hosts``."""
    known = {name for _, names in network.names for name in names}
    lines = [f"{_LOOPBACK} {LOCALHOST}", "::1 ip6-localhost ip6-loopback"]
    lines += [f"127.0.1.1 {hostname}"] if hostname not in known | {LOCALHOST} else []
    return "".join(
        f"{line}\n" for line in [*lines, *(f"{address} {' '.join(names)}" for address, names in network.names)]
    )
