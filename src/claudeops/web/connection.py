"""How a request has come, and what that proves: from this machine, through the operator's proxy, or in the clear.

A header is what a client says. So TLS is believed of a proxy with the operator's secret alone, and what comes from
another machine without it counts as plain HTTP, whatever its Host.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request

from claudeops.errors import ErrorKind
from claudeops.web.endpoints import Connection
from claudeops.web.problems import RefusedError

NOT_ENCRYPTED: Final = (
    "You can only look: this connection is not encrypted. Open the pages by https, or on the machine itself; where the "
    "network is trusted, CLAUDEOPS_DASHBOARD_INSECURE=true says so."
)
WAS_NOT_ENCRYPTED: Final = (
    "You can only look: this login began over a connection that is not encrypted. Log out, and log in again."
)

SECRET_HEADER: Final = "x-claudeops-proxy-secret"  # noqa: S105 - the name of a header
CLIENT_HEADER: Final = "x-forwarded-for"
USER_HEADER: Final = "remote-user"
GROUPS_HEADER: Final = "remote-groups"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionRules:
    """What the operator says of the network."""

    proxy_secret: str | None = field(default=None, repr=False)  # None: no proxy says who a person is
    is_network_trusted: bool = False  # plain HTTP from another machine is as good as TLS

    def connection(self, request: Request) -> Connection:
        """Return how a request has come. Raises `RefusedError` for what a proxy alone may say, and another has said."""
        peer = request.client.host if request.client is not None else ""
        by_proxy = self._is_by_proxy(request)
        users = request.headers.getlist(USER_HEADER)
        if len(users) > 1 or (not by_proxy and (users or GROUPS_HEADER in request.headers)):
            raise _refused("Remote-User is for a proxy with the secret of CLAUDEOPS_TRUSTED_PROXY_SECRET, once.")
        return Connection(
            peer=_client(request) or peer if by_proxy else peer,
            is_tls=by_proxy,
            is_private=by_proxy or self.is_network_trusted or is_loopback(peer),
            user=users[0].strip() if users else "",
        )

    def _is_by_proxy(self, request: Request) -> bool:
        """Return whether a request comes through the operator's proxy. Raises `RefusedError` for a wrong proof."""
        given = request.headers.getlist(SECRET_HEADER)
        if not given:
            return False
        ours = (self.proxy_secret or "").encode()
        is_right = hmac.compare_digest(given[0].encode(errors="replace"), ours)
        if not ours or not is_right or len(given) > 1:
            raise _refused("X-Claudeops-Proxy-Secret is not the secret of CLAUDEOPS_TRUSTED_PROXY_SECRET.")
        return True


def _client(request: Request) -> str:
    """Return the address that a proxy names as its client: the last entry is its own; empty: it names none."""
    last = ",".join(request.headers.getlist(CLIENT_HEADER)).rpartition(",")[2].strip()
    host = last[1:].partition("]")[0] if last.startswith("[") else last
    if host.count(":") == 1:  # an IPv4 address and a port
        host = host.partition(":")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


def is_loopback(peer: str) -> bool:
    """Return whether an address is this machine's own."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def peer_key(peer: str) -> str:
    """Return by what a peer is counted: an address; of IPv6 the network, of which one has many."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((int(address), 64), strict=False))
    return peer


def _refused(detail: str) -> RefusedError:
    return RefusedError(403, detail, kind=ErrorKind.AUTH)
