"""The kind `dns`: one question to one server, over UDP, and over TCP where the answer does not fit."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.domain.network.forbidden_hosts import refuse_host
from claudeops.domain.probes.probe import DnsLook, Saw
from claudeops.engine.probes.results import Attempt, LookResult, blind, down, quote
from claudeops.engine.probes.stream import Means

if TYPE_CHECKING:  # dnspython is slow to import, and one kind needs it
    import dns.message
    import dns.rdata

_PORT: Final = 53
_TRIES: Final = 3  # of one server: a datagram may be lost
_MOST_SHOWN: Final = 4  # values of an answer
_FILE_SECONDS: Final = 5.0


async def look_dns(look: DnsLook, means: Means, attempt: Attempt) -> LookResult:
    """Ask for a record and hold the answer against what is expected; raises `LookFailedError`."""
    attempt.begin("getting ready to ask", ours=True)
    await means.load("dns.asyncquery")
    await means.load("dns.resolver")
    question = _question(look)
    servers = [_server(look.server)] if look.server else await servers_of_machine(means)
    answer = await _asked(question, servers, attempt, ours=not look.server)
    values = _values(question, answer)
    wanted = {_plain(value) for value in look.expect}
    shown = ", ".join(map(quote, values[:_MOST_SHOWN])) + (" and more" if len(values) > _MOST_SHOWN else "")
    if missing := wanted - {_plain(value) for value in values}:
        raise down(f"{look.query} {look.record} is {shown}, without {', '.join(map(quote, sorted(missing)))}")
    return LookResult(Saw.UP, f"{look.query} {look.record} is {shown}")


def _question(look: DnsLook) -> dns.message.QueryMessage:
    import dns.exception  # noqa: PLC0415 - see above
    import dns.message  # noqa: PLC0415 - see above

    try:
        return dns.message.make_query(look.query, look.record)
    except (dns.exception.DNSException, ValueError):
        raise blind(f"{quote(look.query)} {quote(look.record)} is no question that DNS knows") from None


def _server(text: str) -> tuple[str, int]:
    """Return address and port of ``ADDRESS``, ``ADDRESS:PORT`` or ``[ADDRESS]:PORT``; raises `LookFailedError`."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    with contextlib.suppress(ValueError):
        address, number = str(ipaddress.ip_address(host)), int(port or _PORT)
        if (why := refuse_host(address)) is not None:
            raise blind(why)
        if 0 < number < 1 << 16:
            return address, number
    raise blind(f"{quote(text)} is no server that can be asked: write ADDRESS or ADDRESS:PORT")


async def servers_of_machine(means: Means) -> Sequence[tuple[str, int]]:
    """Return the name servers of this machine, once ``dns.resolver`` is loaded; raises `LookFailedError`."""
    import dns.resolver  # noqa: PLC0415 - see above

    def read() -> Sequence[tuple[str, int]]:
        return [(str(server), _PORT) for server in dns.resolver.Resolver().nameservers]

    try:
        found = await means.lookups.run(read, seconds=_FILE_SECONDS, what="reading resolv.conf")
    except (OSError, dns.resolver.NoResolverConfiguration):
        found = ()
    if not found:
        raise blind("this machine has no name server in /etc/resolv.conf: name one with 'server'")
    return found


async def _asked(
    question: dns.message.QueryMessage, servers: Sequence[tuple[str, int]], attempt: Attempt, *, ours: bool
) -> dns.message.Message:
    """Return the first answer of any server; raises `LookFailedError`."""
    import dns.asyncbackend  # noqa: PLC0415 - see above
    import dns.asyncquery  # noqa: PLC0415 - see above
    import dns.exception  # noqa: PLC0415 - see above

    backend = dns.asyncbackend.get_backend("asyncio")
    attempt.begin("waiting for the name server's answer", ours=ours)
    broken = "no name server answered"
    share = attempt.left / (_TRIES * len(servers))
    for _ in range(_TRIES):
        for address, port in servers:
            try:
                with anyio.move_on_after(share):
                    answer, _ = await dns.asyncquery.udp_with_fallback(
                        question, address, port=port, ignore_unexpected=True, ignore_errors=True, backend=backend
                    )
                    return answer
            except (dns.exception.DNSException, ValueError, EOFError):
                broken = f"{address} answers with what is not DNS"
            except OSError as error:
                broken = f"{address} cannot be asked: {error.strerror or type(error).__name__}".lower()
    raise blind(broken) if ours else attempt.failed(broken)


def _values(question: dns.message.QueryMessage, answer: dns.message.Message) -> list[str]:
    """Return the values of an answer, aliases followed; raises `LookFailedError` where there are none."""
    import dns.exception  # noqa: PLC0415 - see above
    import dns.message  # noqa: PLC0415 - see above
    import dns.rcode  # noqa: PLC0415 - see above

    name = question.question[0].name.to_text(omit_final_dot=True)
    if answer.rcode() != dns.rcode.NOERROR:
        raise down(f"the name server answers {dns.rcode.to_text(answer.rcode())} for {name}")
    found = None
    with contextlib.suppress(dns.exception.DNSException):  # aliases in a circle, an answer to another question
        if isinstance(answer, dns.message.QueryMessage):
            found = answer.resolve_chaining().answer
    if not found:
        raise down(f"the name server has no such record for {name}")
    return sorted(_text(value) for value in found)


def _text(value: dns.rdata.Rdata) -> str:
    """Return a value as people write it: texts in one piece, names without the last dot."""
    parts = getattr(value, "strings", None)
    if isinstance(parts, tuple):
        return b"".join(parts).decode("utf-8", "replace")
    return value.to_text().removesuffix(".")


def _plain(value: str) -> str:
    """Return the form in which two spellings of a value are equal."""
    text = value.strip().strip('"').removesuffix(".")
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(text))
    return text.lower()
