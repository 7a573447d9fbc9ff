"""The hosts and ports that a session's settings name: environment variables, addresses, a kubeconfig.

What is returned is ``host:port`` alone: users and passwords of a URL stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from claudeops.domain.estate.hosts import port_of
from claudeops.formats.estate import trees
from claudeops.formats.estate.trees import Node, NodeList, NodeTable, UnreadableError
from claudeops.text import regex

Endpoint = tuple[str, int]
"""A host as it was written, and a TCP port."""

_HOST: Final = r"(?:\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?\.?)(?::\d{1,5})?"
_URL: Final = regex.Pattern(
    rf"(?i)([a-z][a-z0-9+.-]{{1,20}})://([^\s/?#]*@)?({_HOST}(?:,{_HOST})*)(?:[/?#]([^\s]*)|['\"<>)\s]|$)"
)
_PAGES: Final = frozenset({"http", "https", "ws", "wss"})
_NEXT_URL: Final = regex.Pattern(r"(?i)[,;|]([a-z][a-z0-9+.-]{1,20}://)")
_HOST_PORT: Final = regex.Pattern(
    r"(?i)(?:[\w.+-]+@)?(\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?):(\d{1,5})(?:/\S*)?"
)
_BARE: Final = regex.Pattern(r"(?i)\[?([0-9a-f:.]*:[0-9a-f:.]*)\]?|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?\.?")
_BETWEEN: Final = regex.Pattern(r"[\s,;|]+")
_SECRET: Final = regex.Pattern(r"(?i)secret|password|passwd|token|credential|_key$|^key$|apikey")
_LARGEST_PORT: Final = 65535
_LONGEST: Final = 4096  # characters of a value that are read
_MOST: Final = 64  # endpoints of one value
_USUAL: Final[Mapping[str, str]] = {
    "pg": "postgres",
    "postgres": "postgres",
    "postgresql": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "redis": "redis",
    "valkey": "redis",
    "mongo": "mongodb",
    "mongodb": "mongodb",
    "rabbitmq": "amqp",
    "amqp": "amqp",
    "smtp": "smtp",
    "mail": "smtp",
    "ldap": "ldap",
    "nats": "nats",
    "memcached": "memcached",
}
"""The scheme that the beginning of a variable's name stands for: ``PGHOST``, ``REDIS_HOST``."""


def endpoints_in(text: str) -> tuple[Endpoint, ...]:
    """Return the hosts and ports of a text: URLs, ``host:port``, and lists of them; each once."""
    whole = _NEXT_URL.sub(lambda found: f" {found[1]}", text[:_LONGEST])
    found: dict[Endpoint, None] = {}
    for url in _URL.finditer(whole):
        # A password with a slash in it ends the host too early: what stands there may be a part of the password.
        torn = "@" in (url[4] or "") and (url[2] or url[1].lower() not in _PAGES)
        for host in url[3].split(",") if not torn else ():
            found |= dict.fromkeys(_endpoint(host, port_of(url[1])))
    for word in _BETWEEN.split(whole):
        named = _HOST_PORT.fullmatch(word.strip("'\"")) if "://" not in word else None
        if named is not None and not named[1].isdecimal():
            found |= dict.fromkeys(_endpoint(f"{named[1]}:{named[2]}", 0))
    return tuple(found)[:_MOST]


def endpoints_of_environment(environment: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Return the hosts and ports that variables name, by themselves or as ``PGHOST`` with ``PGPORT``; each once."""
    found: dict[Endpoint, None] = {}
    for name, value in environment.items():
        if name.lower() == "no_proxy" or (_SECRET.search(name) and "://" not in value):
            continue
        found |= dict.fromkeys(endpoints_in(value))
        for suffix in ("HOST", "HOSTADDR"):
            if name.upper().endswith(suffix) and "://" not in value:
                found |= dict.fromkeys(_pairs(value, name[: -len(suffix)], environment))
    return tuple(found)


def servers_in(kubeconfig: str) -> tuple[str, ...]:
    """Return the URLs of the clusters of a kubeconfig, and of their proxies; none where it cannot be read."""
    if not kubeconfig.strip():  # there is no such file: most sessions have none, and read no YAML
        return ()
    try:
        root = trees.read_yaml(kubeconfig)
    except UnreadableError:
        return ()
    clusters = root.get("clusters") if isinstance(root, NodeTable) else None
    urls = [
        scalar.text
        for named in (clusters.nodes if isinstance(clusters, NodeList) else ())
        for key in ("server", "proxy-url")
        for scalar in trees.texts(_below(_below(named, "cluster"), key))
    ]
    return tuple(dict.fromkeys(urls))


def joined(endpoint: Endpoint) -> str:
    """Return ``host:port``, an IPv6 address in brackets."""
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _pairs(value: str, prefix: str, environment: Mapping[str, str]) -> Iterator[Endpoint]:
    """Yield hosts with the ports of the variable beside theirs; as many ports as hosts, or one for all."""
    beside = (environment.get(f"{prefix}{name}", "") for name in ("PORT", "port", "TCP_PORT"))
    ports = next((written for written in beside if written.strip()), "").split(",")
    usual = port_of(_USUAL.get(prefix.lower().strip("_"), ""))
    for place, written in enumerate(_BETWEEN.split(value[:_LONGEST])[:_MOST]):
        if _BARE.fullmatch(written):
            port = ports[min(place, len(ports) - 1)].strip()
            host = written if written.startswith("[") or written.count(":") < 2 else f"[{written}]"  # noqa: PLR2004 - IPv6
            yield from _endpoint(host, int(port) if port.isdecimal() and len(port) <= len("65535") else usual)


def _endpoint(written: str, usual: int) -> Iterator[Endpoint]:
    """Yield the one endpoint that ``host``, ``host:port`` or ``[::1]:port`` is, if its port is known."""
    host, bracket, rest = written.partition("]")
    port = rest.removeprefix(":")
    if not bracket:
        host, _, port = written.partition(":")
    number = int(port) if port else usual
    if host.strip("[") and 1 <= number <= _LARGEST_PORT:
        yield host.strip("[").rstrip(".").lower(), number


def _below(node: Node | None, key: str) -> Node | None:
    return node.get(key) if isinstance(node, NodeTable) else None
