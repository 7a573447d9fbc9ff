"""The reach of a tier (hosts, URLs, services, directories), addresses that are never asked, and a session's own places.

Patterns are globs without regard to case, for hosts also networks (``10.0.0.0/8``) and, like URLs, ``{estate}``
(`claudeops.domain.estate.strangers`). A pattern that begins with ``!`` excludes. What is never asked or read (here,
and ``places``) is outside of every reach.

Link-local and metadata addresses are never asked, in whatever spelling: the link-local ranges of RFC 3927 and RFC 4291,
and the addresses under which cloud providers serve credentials to their machines. Numbers are accepted only as plain
dotted quads, since resolvers also read ``0251.0376.1``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.estate.strangers import ESTATE, address_in, is_within, stranger
from claudeops.domain.network.destination import Destination, network_in, plain
from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.policy.places import is_secret_name
from claudeops.text import glob, regex

EVERYTHING: Final = ("*",)
_HOST_OF_URL: Final = regex.Pattern(r"(?s)(?:[^/]*//)?([^/?#]*?)(?::\d+)?(?:[/?#].*)?")


class TierReach(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier's calls may be about."""

    hosts: tuple[str, ...] = EVERYTHING  # that commands may run on or contact
    urls: tuple[str, ...] = EVERYTHING  # that may be fetched
    services: tuple[str, ...] = EVERYTHING  # that actions may be about
    never_hosts: tuple[str, ...] = ()  # that the policy forbids at every tier
    read: tuple[str, ...] = ("/",)  # directories, absolute: what lies below may be read
    write: tuple[str, ...] = ()  # directories, absolute; files below may be written
    files: tuple[str, ...] = ()  # single files that may be written, absolute
    estate: Estate = NO_ESTATE  # what ``{estate}`` stands for
    tier: int = 1  # of the policy, for sentences

    def refuse_host(self, host: str) -> str | None:
        """Return why a host is out of reach, or None; a `Stranger` where only the estate does not name it."""
        name = host.rstrip(".")
        return self._refuse_never(name) or self._refuse_outside(host, subject=name, host=name, key="hosts")

    def refuse_url(self, url: str) -> str | None:
        """Return why a URL is out of reach, or None, as `refuse_host` does; without a scheme it counts as http."""
        full = url if "://" in url else f"http://{url}"
        found = _HOST_OF_URL.fullmatch(full)
        host = found[1].rstrip(".") if found else ""
        return self._refuse_never(host) or self._refuse_outside(url[:80], subject=full, host=host, key="urls")

    def refuse_service(self, service: str, *others: str) -> str | None:
        """Return why a service is out of reach, or None.

        ``others``: further names of it, which can exclude it but never include it.
        """
        within = _within(service, self.services, *others)
        return None if within else f"{service} is not among the services of this tier"

    def _refuse_never(self, host: str) -> str | None:
        forbidden = any(matches(host.strip("[]"), pattern) for pattern in self.never_hosts)
        return f"{host} is a host that the policy forbids at every tier" if forbidden else None

    def _refuse_outside(self, shown: str, *, subject: str, host: str, key: str) -> str | None:
        patterns = self.hosts if key == "hosts" else self.urls
        if patterns == EVERYTHING:
            return None

        def fits(pattern: str) -> bool:
            return is_within(host, self.estate) if pattern == ESTATE else matches(subject, pattern)

        if not any(fits(pattern[1:]) for pattern in patterns if pattern.startswith("!")):
            if any(fits(pattern) for pattern in patterns if not pattern.startswith("!")):
                return None
            if ESTATE in patterns:
                return stranger(host, tier=self.tier, key=key)
        return f"{shown} is not among the {'hosts' if key == 'hosts' else 'URLs'} of this tier"


def matches(subject: str, pattern: str) -> bool:
    """Whether a pattern matches a host, URL or service."""
    network = network_in(pattern)
    address = address_in(subject)
    if network is not None:
        return address is not None and address in network
    return glob.matches(subject.lower(), pattern.lower()) or (address is not None and address == address_in(pattern))


def _within(subject: str, patterns: tuple[str, ...], *others: str) -> bool:
    if patterns == EVERYTHING:
        return True
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return any(matches(subject, pattern) for pattern in wanted) and not any(
        matches(name, pattern) for pattern in unwanted for name in (subject, *others)
    )


# --- addresses that are never asked ---------------------------------------------------------------------


_URL: Final = regex.Pattern(
    r"(?:(?P<scheme>[A-Za-z][\w+.-]*)://)?(?P<host>\[[^]/?#@]*\]|[^/?#:@\\]+)(?::(?P<port>\d{1,5}))?(?P<rest>[/?#].*)?"
)
_RANGE: Final = regex.Pattern(r"\[\w+-\w+")  # curl(1): [1-100] becomes a hundred requests
_INTERFACES: Final = frozenset({"2375", "2376", "4243", "2379", "2380", "10250", "10255"})
"""Ports of docker's engine, etcd and the kubelet."""

_TELLS_STATE: Final = ("/health", "/healthz", "/version", "/_ping", "/livez", "/readyz", "/metrics")
_ENGINE: Final = regex.Pattern(
    r"(?:/v[\d.]+)?(?:/libpod)?/(?:(?:containers|services|tasks|configs|secrets|exec|images|nodes|plugins)/.*json"
    r"|containers/.*/(?:archive|export|top))"
    r"|/v[\d.]+(?:/libpod)?/(?:services|tasks|configs|secrets|swarm|exec)(?:/.*)?"
    r"|(?:/.*)?/(?:actuator|manage|management)/(?:env|configprops|heapdump|threaddump|httptrace)(?:/.*)?"
    r"|(?:/.*)?/(?:phpinfo(?:\.php)?|debug/vars|debug/pprof/.*|v1/kv(?:/.*)?|\.aws/.*|\.git/.*)"
)
"""Paths of docker's engine that reveal a container's environment, and paths of other servers that reveal their own."""

_DECODED: Final = 2  # times a path is decoded: some servers decode twice
_GUESSED_SCHEMES: Final = ("ftp.", "dict.", "ldap.", "imap.", "smtp.", "pop3.")  # curl(1), "URL": guessed from the host


def refuse_url(url: str, *, schemes: tuple[str, ...] = ("http", "https")) -> str | None:
    """Return why a URL may not be fetched, or None; without a scheme it counts as http."""
    parts = _URL.fullmatch(url)
    # Programs differ on whether a host ends at ``?`` and ``#``: behind an ``@`` there some see another one.
    if parts is None or ((parts["rest"] or "")[:1] in {"?", "#"} and "@" in parts["rest"]):
        return f"{url[:80]!r} is not a plain URL: write http(s)://host:port/path without credentials"
    if (parts["scheme"] or "http").lower() not in schemes:
        return f"{parts['scheme']}:// is not allowed: only {' and '.join(schemes)}"
    if not parts["scheme"] and parts["host"].lower().startswith(_GUESSED_SCHEMES):
        return f"{url[:80]}: write the scheme out"
    if _RANGE.search(parts["rest"] or ""):
        return f"{url[:80]}: a range of addresses is not asked at once"
    return refuse_host(parts["host"]) or _refuse_interface(url, parts["port"], parts["rest"] or "")


def _refuse_interface(url: str, port: str | None, rest: str) -> str | None:
    """Return why a URL may not be fetched, or None: it names an interface that reveals environments or keys."""
    path = rest.partition("?")[0].partition("#")[0]
    for _ in range(_DECODED):
        path = unquote(path)
    path = posixpath.normpath("/" + path.lower().lstrip("/"))
    if port in _INTERFACES and path not in _TELLS_STATE:
        return f"{url[:80]}: what answers at port {port} would show environments: ask {', '.join(_TELLS_STATE[:3])}"
    if _ENGINE.fullmatch(path) or any(is_secret_name(name) for name in path.split("/") if name):
        return f"{url[:80]} would show environments or secrets, which are never asked for"
    return None


# --- what stands on a session's network ------------------------------------------------------------------


MOST_PORTS: Final = 64
"""Of one entry."""

_LARGEST_PORT: Final = 65535
_ENTRY: Final = regex.Pattern(r"(\[[^\[\]]*\]|[^\[\]:]*):([^:\[\]]*)")
_PORT: Final = regex.Pattern(r"(?i)(\d{1,5})(?:/(tcp|udp))?")
_PATTERN: Final = regex.Pattern(r"[*?]|\[[^\]:]*\]")


class EntryFault(Exception):  # noqa: N818 - describes a fault in an operator's text
    """An entry of a tier's ``network`` cannot be used; ``str()`` says why and what to write."""


def parse_entry(text: str) -> Destination:
    """Return what an entry of a policy's ``network`` names; raises `EntryFault`."""
    written, numbers = _divided(text)
    tcp, udp = _ports(text, numbers)
    network = network_in(written)
    if "/" in written and network is None:
        raise EntryFault(f"{text!r}: {written!r} is not a network: write it as 10.20.0.0/16:443 or [fd00::/64]:443")
    if network is None or network.num_addresses == 1:
        host = plain(written if network is None else str(network.network_address))
        if (reason := refuse_host(host)) is not None:
            raise EntryFault(f"{reason}: take {text!r} out" if "plain" not in reason else f"{text!r}: {reason}")
        return Destination(host=host, tcp=tcp, udp=udp, named=tcp)
    if network.is_loopback or network.is_link_local or network.is_multicast:
        raise EntryFault(f"{text!r}: such a network is never reached as a whole: name single hosts and ports")
    if udp:
        raise EntryFault(f"{text!r}: UDP reaches single addresses only: name them, such as 10.0.0.53:53/udp")
    return Destination(host=str(network), tcp=tcp, named=tcp)


def _divided(text: str) -> tuple[str, str]:
    """Return host and ports as they are written; raises `EntryFault`."""
    if "://" in text:
        raise EntryFault(f"{text!r} is a URL: write its host and port, such as db1.example:5432")
    if text.startswith("!"):
        raise EntryFault(
            f"{text!r} excludes, and nothing is on this list by itself: exclude under 'hosts' or never.hosts"
        )
    if "{" in text:
        raise EntryFault(f"{text!r} stands for nothing here: hosts of the estate are on the list as 'hosts' has them")
    if _PATTERN.search(text):
        raise EntryFault(f"{text!r} is a pattern, and only what is named can be on the list: name hosts or a network")
    found = _ENTRY.fullmatch(text)
    if found is None and text.count(":") > 1:
        raise EntryFault(f"{text!r}: put an IPv6 address in brackets and add a port: [fd00::1]:443")
    if found is None or not found[2].strip():
        kind = "is a network without ports" if "/" in text else "names no port"
        raise EntryFault(f"{text!r} {kind}: write {text.rstrip(':')}:443")
    return found[1].strip("[]"), found[2]


def _ports(text: str, numbers: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return ports of TCP and of UDP."""
    listed = numbers.split(",")
    if len(listed) > MOST_PORTS:
        raise EntryFault(f"{text[:80]!r} has more than {MOST_PORTS} ports: name those that are needed")
    tcp: set[int] = set()
    udp: set[int] = set()
    for written in listed:
        found = _PORT.fullmatch(written.strip())
        if found is None or not 1 <= int(found[1]) <= _LARGEST_PORT:
            port = written.strip()
            raise EntryFault(f"{text!r}: {port!r} is not a port: write numbers from 1 to {_LARGEST_PORT}, or 53/udp")
        (udp if (found[2] or "").lower() == "udp" else tcp).add(int(found[1]))
    return frozenset(tcp), frozenset(udp)


# --- a session's own places -----------------------------------------------------------------------------


def as_written(path: str) -> str:
    """Return the path itself: the resolver where no file system is available."""
    return path


def always(_path: str) -> bool:
    """Return True: every path is a file where no file system is available."""
    return True


def no_names(_pattern: str) -> tuple[str, ...]:
    """Return no names: what a pattern finds where no file system is available."""
    return ()


def usual_program(name: str) -> str:
    """Return where most programs are: the resolver where no file system is available."""
    return f"/usr/bin/{name}"


class NodeScope(msgspec.Struct, frozen=True, kw_only=True):
    """The places and switches that all sessions of a daemon share. Paths are absolute."""

    repos_dir: str  # the operator's infrastructure as files: read, and deployed from
    dry_run: bool = False
    forbidden_paths: tuple[str, ...] = ()  # state, results, database: never read nor written
    resolve: Callable[[str], str] = as_written  # follows symlinks as a session does; never through ``/proc``
    is_file: Callable[[str], bool] = always  # whether a path is a regular file, or is not there
    expand: Callable[[str], tuple[str, ...] | None] = no_names  # an absolute pattern's paths, in order; None: too many
    program: Callable[[str], str | None] = usual_program  # where a program is on the session's ``PATH``; None: nowhere
    estate: Estate = NO_ESTATE  # what the manifests say, as the session began
    look_client: tuple[str, ...] = ()  # the words in front of a look's id
    filters: frozenset[str] = frozenset()  # ``docker``, ``kubernetes``: reached from here through a filter alone
    looks: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The programs that the daemon runs for sessions, each with "" or the sentence why it does not work here."""
    headers: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """The headers that the daemon adds to what sessions send, in lower case, each with the places that it is for."""


class JudgeScope(NodeScope, frozen=True, kw_only=True):
    """A session's own places and switches, which its calls are judged against. Paths are absolute."""

    workdir: str  # the session's own directory: its first working directory, writable from tier 2 up
    tmpdir: str  # the session's own temporary directory, writable from tier 2 up
    home: str  # the session's home: its files with a leading dot are never read
    handoff: str = ""  # the file by which a session with an older prompt asks for the next tier; "" = there is none
