"""The kinds `tcp`, `tls` and `icmp`: does something answer at all."""

from __future__ import annotations

from typing import Final

from claudeops.domain.probes.probe import IcmpLook, Saw, TcpLook, TlsLook
from claudeops.engine.probes.results import Attempt, LookResult, blind, down, quote
from claudeops.engine.probes.stream import Means, certificate_of

_MOST_BANNER: Final = 4096  # bytes in which a banner is looked for
_MOST_ECHOES: Final = 20
_LONGEST_PAUSE: Final = 0.2  # seconds between two echo requests

PINGS_FORBIDDEN: Final = (
    "this machine's kernel lets the daemon send no echo requests: set net.ipv4.ping_group_range to a range that holds "
    "its group, or give it CAP_NET_RAW"
)


async def look_tcp(look: TcpLook, means: Means, attempt: Attempt) -> LookResult:
    """Connect to a port, and look for a banner where one is expected; raises `LookFailedError`."""
    async with means.connection(look.host, look.port, attempt) as stream:
        if not look.banner:
            return LookResult(Saw.UP, f"port {look.port} accepts connections")
        attempt.begin("waiting for the banner")
        wanted, found = look.banner.encode(), b""
        while wanted not in found:
            more = await stream.receive()
            found = (found + more)[:_MOST_BANNER]
            if not more or len(found) == _MOST_BANNER:
                break
        if wanted in found:
            return LookResult(Saw.UP, f"port {look.port} greets with {quote(found)}")
        greeting = f"greets with {quote(found)}" if found else "closes the connection without a word"
        raise down(f"port {look.port} {greeting}, without {quote(look.banner)}")


async def look_tls(look: TlsLook, means: Means, attempt: Attempt) -> LookResult:
    """Make a handshake and look at the certificate; raises `LookFailedError`."""
    async with means.connection(look.host, look.port, attempt) as stream:
        name = look.server_name or look.host.removeprefix("[").removesuffix("]")
        tls = await stream.start_tls(means.verified() if look.verify else means.unverified(), name)
        certificate = await certificate_of(tls, means)
    if certificate is None:
        raise down("it shows no certificate that can be read")
    now = means.clock.now()
    days, told = certificate.days_left(now), certificate.told(now)
    if days <= look.down_within:
        return LookResult(Saw.DOWN, told)
    return LookResult(Saw.DEGRADED if days <= look.expires_within else Saw.UP, told)


async def look_icmp(look: IcmpLook, means: Means, attempt: Attempt) -> LookResult:
    """Send echo requests, without privileges where the kernel allows that; raises `LookFailedError`."""
    address = (await means.addresses(look.host, 0, attempt))[0][1]
    await means.load("icmplib")
    import icmplib  # noqa: PLC0415 - slow to import, and one kind needs it

    count = max(1, min(look.count, _MOST_ECHOES))
    pause = min(_LONGEST_PAUSE, attempt.timeout / (4 * count))
    # The last answer may take what is left: all of them together stay within the time of the look.
    patience = (attempt.left - pause * (count - 1)) / count * 0.9
    attempt.begin("waiting for echo replies")
    for privileged in (False, True):
        try:
            host = await icmplib.async_ping(
                str(address[0]), count=count, interval=pause, timeout=patience, privileged=privileged
            )
            break
        except icmplib.SocketPermissionError:
            continue
        except icmplib.ICMPLibError:
            raise blind("echo requests cannot be sent: this machine gives no socket for them") from None
    else:
        raise blind(PINGS_FORBIDDEN)
    lost = 1 - host.packets_received / count
    told = f"{host.packets_received} of {count} echo requests were answered"
    if not host.packets_received:
        return LookResult(Saw.DOWN, told)
    return LookResult(Saw.DEGRADED if lost >= look.lost else Saw.UP, told, latency_ms=host.avg_rtt)
