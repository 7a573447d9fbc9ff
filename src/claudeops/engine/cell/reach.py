"""What a session, or a command of a probe, reaches: its list, looked up, on a network of its own while it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from claudeops.domain.estate.estate import Estate
from claudeops.domain.network.destination import Destination
from claudeops.engine.cell.cell import OwnNetwork
from claudeops.engine.cell.forwarder import ForwarderTally, NotConnected, open_network
from claudeops.engine.cell.headers.relay import Relays, RelayTally, Trouble, relays_for
from claudeops.engine.cell.own_network import NameLookup, Network, hosts_file, name_servers, resolved
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES
from claudeops.files import read_text
from claudeops.formats.network.addresses import Endpoint, endpoints_in, endpoints_of_environment, servers_in
from claudeops.formats.network.destinations import Exclusions, destinations
from claudeops.formats.network.headers import SecretHeader
from claudeops.formats.network.ssh_config import option_in
from claudeops.logs import LogEvent, Logger
from claudeops.policy.policy import TierPolicy
from claudeops.structs import replace

_MOST_INCLUDED: Final = 50  # files, by one line of a configuration of ssh
_SHOWN: Final = 20  # places of a log line
_ETC_SSH: Final = Path("/etc/ssh/ssh_config")


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a list is made of."""

    tier: TierPolicy
    estate: Estate
    environment: Mapping[str, str]
    home: Path  # with its ssh configuration and kubeconfig
    endpoints: Sequence[Endpoint] = ()  # further ones, that the operator's settings name
    ours: Sequence[Endpoint] = ()  # of the daemon, on every list: the meter, filters; their hosts are addresses
    headers: Sequence[SecretHeader] = ()  # that are added for the tier


@dataclass(frozen=True, kw_only=True, slots=True)
class ReachedPlace:
    """What is reached."""

    network: OwnNetwork
    listed: tuple[Destination, ...]  # without what is ours
    unknown: tuple[str, ...]  # names without an address
    headers: tuple[SecretHeader, ...]  # that are added: those of hosts on the list
    tally: ForwarderTally = field(compare=False)
    relayed: RelayTally = field(compare=False)
    listen_again: Callable[[], None] = field(compare=False)  # before a call, which may have mended what refused


@asynccontextmanager
async def open_reach(needs: Needs, names: NameLookup, log: Logger) -> AsyncIterator[ReachedPlace]:
    """Hold a network for the length of the block; raises `OSError`."""
    listed = await list_of(needs)
    excluded = Exclusions(needs.tier, needs.estate).has
    network = await resolved(listed, names, excluded=excluded)
    network = replace(network, tcp=tuple(dict.fromkeys((*needs.ours, *network.tcp))))
    added, relays = await _relays(needs.headers, listed, network, log)
    relayed = RelayTally() if relays is None else relays.tally
    async with open_network(network, _into(log, network), excluded=excluded, relays=relays) as opened:
        log.info(
            LogEvent.NETWORK_OPENED,
            places=len(network.tcp) + len(network.udp) + len(network.networks),
            unknown=network.unknown,
            left_out=network.left_out,
        )
        try:
            yield ReachedPlace(
                network=OwnNetwork(
                    door=opened.door,
                    hosts=hosts_file(network, os.uname().nodename),
                    name_servers=name_servers(network),
                    authority="" if relays is None else relays.authority.certificate,
                    relayed=tuple(dict.fromkeys(header.host for header in added)),
                ),
                listed=listed,
                unknown=network.unknown,
                headers=added,
                tally=opened.tally,
                relayed=relayed,
                listen_again=opened.listen_again,
            )
        finally:
            _note_end(opened.tally, relayed, log)


def _into(log: Logger, network: Network) -> Callable[[NotConnected], None]:
    """Return what logs connections that could not be made, with the names of where they led."""
    called = dict(network.names)

    def failed(failure: NotConnected) -> None:
        log.warning(
            LogEvent.CONNECTION_FAILED,
            address=failure.address,
            port=failure.port,
            names=called.get(failure.address, ()),
            error=failure.error,
        )

    return failed


def _note_end(tally: ForwarderTally, relayed: RelayTally, log: Logger) -> None:
    log.info(
        LogEvent.NETWORK_CLOSED,
        connected=tally.connected,
        failed=tally.failed,
        missing=tally.missing[:_SHOWN],
        headers_added=relayed.added,
        headers_refused=relayed.refused,
        headers_failed=relayed.failed,
    )


async def _relays(
    headers: Iterable[SecretHeader], listed: Iterable[Destination], network: Network, log: Logger
) -> tuple[tuple[SecretHeader, ...], Relays | None]:
    """Return the headers that are added, which are those of hosts on the list, and what adds them; raises `OSError`."""
    loop = asyncio.get_running_loop()
    ports = [(one.host, port) for one in listed for port in one.tcp]
    added = tuple(header for header in headers if (header.host, header.port) in ports)
    if not added:
        return (), None

    def trouble(each: Trouble) -> None:
        log.warning(LogEvent.HEADER_NOT_ADDED, host=each.host, port=each.port, error=each.error)

    def from_its_thread(each: Trouble) -> None:
        with suppress(RuntimeError):  # the daemon's loop has ended
            loop.call_soon_threadsafe(trouble, each)

    made = await SESSION_FILES.run(  # a library that takes time to import, and keys
        lambda: relays_for(added, network.names, ports, from_its_thread),
        seconds=LOOK_SECONDS,
        what="making a session's authority",
    )
    return added, made


async def list_of(needs: Needs) -> tuple[Destination, ...]:
    """Return the list by names, from files too; raises `OSError` when their disk does not answer."""

    def read() -> tuple[str, list[str]]:
        places = [Path(place) for place in needs.environment.get("KUBECONFIG", "").split(":") if place.startswith("/")]
        texts = [read_text(place) for place in (*places, needs.home / ".kube" / "config")]
        return ssh_text(needs.home, read_text), [url for text in texts for url in servers_in(text)]

    ssh, servers = await SESSION_FILES.run(read, seconds=LOOK_SECONDS, what="reading what a session may connect to")
    endpoints = (
        *needs.endpoints,
        *((header.host, header.port) for header in needs.headers),
        *endpoints_of_environment(needs.environment),
        *(endpoint for url in servers for endpoint in endpoints_in(url)),
    )
    name = os.uname().nodename.lower()
    here = frozenset({name, name.partition(".")[0]})
    return destinations(needs.tier, needs.estate, endpoints=endpoints, ssh=ssh, here=here)


def endpoint_of(url: str) -> Endpoint:
    """Return where a URL of ours leads, which has a host and a port."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise AssertionError(f"{url} has no host or no port")
    return parts.hostname, parts.port


# --- files of ssh -------------------------------------------------------------------------------------


def ssh_text(home: Path, read: Callable[[Path], str]) -> str:
    """Return ssh's configuration for a home, what it includes in its place; ``read`` returns "" for what it cannot."""
    # The second file begins anew, whatever hosts the first one was about at its end.
    files = (home / ".ssh" / "config", _ETC_SSH)
    return "\n".join(line for path in files for line in ("Host *", *_ssh_lines(path, home, read)))


def _ssh_lines(path: Path, home: Path, read: Callable[[Path], str]) -> Iterator[str]:
    for line in read(path).split("\n"):
        keyword, rest = option_in(line)
        if keyword != "include":
            yield line
            continue
        for pattern in rest.split():
            whole = path.parent / (home / pattern[2:] if pattern.startswith("~/") else pattern.strip('"'))
            for included in islice(sorted(Path("/").glob(str(whole).lstrip("/"))), _MOST_INCLUDED):
                yield from read(included).split("\n")
