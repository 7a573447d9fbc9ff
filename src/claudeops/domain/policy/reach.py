"""How far a tier reaches: the hosts, URLs, services and directories that its calls may be about.

Patterns are globs without regard to case, for hosts also networks (``10.0.0.0/8``). One that begins with ``!`` takes
out again. What is never asked or read (`claudeops.domain.policy.urls`, ``secret_places``) is outside of every reach.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from claudeops.domain import glob, regex

EVERYTHING: Final = ("*",)
_HOST: Final = regex.Pattern(r"(?s)(?:[^/]*//)?([^/?#]*?)(?::\d+)?(?:[/?#].*)?")  # of a URL


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """What a tier's calls may be about."""

    hosts: tuple[str, ...] = EVERYTHING  # that commands may run on or knock at
    urls: tuple[str, ...] = EVERYTHING  # that may be fetched
    services: tuple[str, ...] = EVERYTHING  # that actions may be about
    never_hosts: tuple[str, ...] = ()  # that the policy forbids at every tier
    read: tuple[str, ...] = ("/",)  # directories, absolute: what lies below may be read
    write: tuple[str, ...] = ()  # directories, absolute; files below may be written
    files: tuple[str, ...] = ()  # single files that may be written, absolute

    def refuse_host(self, host: str) -> str | None:
        """Return why a host is out of reach, or None."""
        name = host.rstrip(".")
        if any(matches(name, pattern) for pattern in self.never_hosts):
            return f"{host} is a host that the policy never lets anybody ask"
        return None if _within(name, self.hosts) else f"{host} is not among the hosts of this tier"

    def refuse_url(self, url: str) -> str | None:
        """Return why a URL is out of reach, or None; without a scheme it counts as http."""
        full = url if "://" in url else f"http://{url}"
        found = _HOST.fullmatch(full)
        host = found[1].strip("[]") if found else ""
        if any(matches(host, pattern) for pattern in self.never_hosts):
            return f"{host} is a host that the policy never lets anybody ask"
        return None if _within(full, self.urls) else f"{url[:80]} is not among the URLs of this tier"

    def refuse_service(self, service: str, *others: str) -> str | None:
        """Return why a service is out of reach, or None.

        ``others``: further names of it, by which it is taken out as well, and never let in.
        """
        within = _within(service, self.services, *others)
        return None if within else f"{service} is not among the services of this tier"


def _within(subject: str, patterns: tuple[str, ...], *others: str) -> bool:
    if patterns == EVERYTHING:
        return True
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return any(matches(subject, pattern) for pattern in wanted) and not any(
        matches(name, pattern) for pattern in unwanted for name in (subject, *others)
    )


def matches(subject: str, pattern: str) -> bool:
    """Whether a pattern means a host, URL or service."""
    network = _network(pattern)
    if network is None:
        return glob.matches(subject.lower(), pattern.lower())
    try:
        return ipaddress.ip_address(subject.strip("[]")) in network
    except ValueError:
        return False


def _network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if "/" not in pattern or "://" in pattern:
        return None
    try:
        return ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return None
