"""The heads of requests and answers: what is refused, what is sent on, and what comes back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import h11
import msgspec

from claudeops.domain.network.destination import plain
from claudeops.formats.network.addresses import endpoints_in
from claudeops.formats.network.headers import SecretHeader

Fields = list[tuple[bytes, bytes]]

_OF_ONE_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings", b"expect"),
    }
)
_NOT_SENT: Final = frozenset(
    {
        b"accept-encoding",
        # Answers in parts, each with a part of a secret, which would not be found.
        *(b"range", b"if-range"),
        # A server behind a proxy would take these for the host that is meant.
        *(b"forwarded", b"x-forwarded-host", b"x-forwarded-server", b"x-forwarded-for", b"x-forwarded-proto"),
        *(b"x-forwarded-port", b"x-host", b"x-original-host", b"x-original-url", b"x-rewrite-url"),
    }
)
_NO_METHODS: Final = frozenset({b"CONNECT", b"TRACE"})
_NOT_BODIES: Final = frozenset({204, 304})
_MISDIRECTED, _FORBIDDEN, _NOT_IMPLEMENTED, _BAD = 421, 403, 501, 400


class HeaderRefusal(msgspec.Struct, frozen=True):
    """Why a request is not sent on."""

    status: int
    sentence: str


class HeaderHosts(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts at one address and port."""

    headers: tuple[SecretHeader, ...]
    others: frozenset[str] = frozenset()  # names and addresses that are listed too, without a header
    port: int
    tls: bool

    def of(self, host: str) -> tuple[SecretHeader, ...]:
        """Return what is added to requests to a host."""
        return tuple(header for header in self.headers if header.host == host)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts for which something is added."""
        return tuple(dict.fromkeys(header.host for header in self.headers))


def values(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return the values of a header, by its name in lower case."""
    return [value for each, value in fields if each == name]


def tokens(fields: Iterable[tuple[bytes, bytes]], name: bytes) -> set[bytes]:
    """Return the words of headers that are lists, in lower case."""
    return {token.strip().lower() for value in values(fields, name) for token in value.split(b",") if token.strip()}


def refusal(request: h11.Request, hosts: HeaderHosts, connected_to: str | None) -> HeaderRefusal | str:
    """Return why a request is not sent on, else the host that it is for.

    ``connected_to``: the host that the session began TLS with; None without TLS.
    """
    if request.method in _NO_METHODS:
        return HeaderRefusal(
            _NOT_IMPLEMENTED, f"the method {request.method.decode('ascii', 'replace')} does not work here"
        )
    if not (request.target.startswith(b"/") or request.target == b"*"):
        return HeaderRefusal(_BAD, "write the path alone as the target of a request: this is no proxy")
    upgrade = tokens(request.headers, b"upgrade") - {b"h2c"}
    if upgrade:
        return HeaderRefusal(_NOT_IMPLEMENTED, "a connection to this host cannot be upgraded to another protocol")
    codings = tokens(request.headers, b"transfer-encoding")
    if codings and (codings != {b"chunked"} or values(request.headers, b"content-length")):
        return HeaderRefusal(_BAD, "the length of the body can be read in two ways")
    host = _host(values(request.headers, b"host"), hosts)
    if host is None or (connected_to is not None and host != connected_to):
        return HeaderRefusal(_MISDIRECTED, f"the Host of a request here must be {connected_to or _known(hosts)}")
    return host


def _known(hosts: HeaderHosts) -> str:
    return " or ".join((*hosts.names, *sorted(hosts.others)))


def _host(written: Sequence[bytes], hosts: HeaderHosts) -> str | None:
    """Return which of the hosts here a request names, as its one ``Host`` header; None: none of them."""
    if len(written) != 1:
        return None
    text = written[0].decode("latin-1").strip().lower()
    whole = endpoints_in(f"{'https' if hosts.tls else 'http'}://{text}/") if text.isascii() else ()
    if len(whole) != 1 or whole[0][1] != hosts.port or any(sign in text for sign in "/@,?# "):
        return None
    host = plain(whole[0][0])
    return host if host in (*hosts.names, *hosts.others) else None


def sent(request: h11.Request, added: Sequence[SecretHeader]) -> h11.Request:
    """Return a request as it goes out: with the headers instead of the session's own, and its answer to be readable."""
    own = {_comparable(header.name.encode()) for header in added}
    unwanted = _OF_ONE_HOP | _NOT_SENT | tokens(request.headers, b"connection")
    kept: Fields = [
        (name, value)
        for name, value in request.headers
        if (name not in unwanted or name == b"host") and _comparable(name) not in own
    ]
    if tokens(request.headers, b"transfer-encoding"):
        kept.append((b"transfer-encoding", b"chunked"))
    kept.append((b"accept-encoding", b"identity"))
    kept += [(header.name.encode(), header.value.encode()) for header in added]
    return h11.Request(method=request.method, target=request.target, headers=kept)


def _comparable(name: bytes) -> bytes:
    return name.lower().replace(b"_", b"-")  # to many servers both are one name


def is_unreadable(answer: h11.Response, method: bytes) -> bool:
    """Whether an answer has a body in which nothing could be found."""
    return _has_body(answer, method) and bool(tokens(answer.headers, b"content-encoding") - {b"identity"})


def returned(answer: h11.Response, method: bytes, fields: Fields, *, last: bool) -> h11.Response:
    """Return an answer as it goes back, with ``fields``; the length of its body may change.

    ``last``: no further request is answered.
    """
    unwanted = _OF_ONE_HOP | tokens(answer.headers, b"connection")
    if _has_body(answer, method):
        unwanted |= {b"content-length", b"accept-ranges"}
    kept = [(name, value) for name, value in fields if name.lower() not in unwanted]
    kept += [(b"connection", b"close")] if last else []
    return h11.Response(status_code=answer.status_code, headers=kept)


def ends_connection(answer: h11.Response, method: bytes) -> bool:
    """Whether the server closes the connection after an answer."""
    if answer.http_version < b"1.1" or b"close" in tokens(answer.headers, b"connection"):
        return True
    is_framed = values(answer.headers, b"content-length") or b"chunked" in tokens(answer.headers, b"transfer-encoding")
    return _has_body(answer, method) and not is_framed


def _has_body(answer: h11.Response, method: bytes) -> bool:
    return method != b"HEAD" and answer.status_code not in _NOT_BODIES
