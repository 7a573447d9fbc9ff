"""Does anything answer: ports, certificates, echo requests, and the addresses of a name in turn."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from claudeops.domain.probes.probe import IcmpLook, Saw, TcpLook, TlsLook
from claudeops.engine.probes.network import PINGS_FORBIDDEN
from claudeops.engine.probes.stream import Address
from support.certificates import Authority, self_signed, serving_with
from support.looking import look, never, resolving, says, serving

pytestmark = pytest.mark.anyio


async def test_a_port_that_accepts_is_up_and_one_that_refuses_is_down() -> None:
    async with serving(never) as port:
        assert (await look(TcpLook(host="127.0.0.1", port=port))).saw is Saw.UP
    found = await look(TcpLook(host="127.0.0.1", port=port))
    assert (found.saw, found.detail) == (Saw.DOWN, f"connecting to port {port}: connection refused")


async def test_a_banner_must_hold_what_is_expected() -> None:
    async with serving(says(b"220 mail.exa", b"mple ESMTP\r\n")) as port:
        assert (await look(TcpLook(host="127.0.0.1", port=port, banner="ESMTP"))).saw is Saw.UP
        found = await look(TcpLook(host="127.0.0.1", port=port, banner="SSH"), timeout=0.5)
        assert found.saw is Saw.DOWN
    async with serving(says(b"x" * 10_000)) as port:
        found = await look(TcpLook(host="127.0.0.1", port=port, banner="ESMTP"))
        assert 'without "ESMTP"' in found.detail


# --- certificates ---------------------------------------------------------------------------------------------


async def test_days_left_decide(tmp_path: Path, authority: Authority) -> None:
    certificate = authority.issue(tmp_path / "a", days=10)
    async with serving(never, tls=serving_with(certificate)) as port:
        for within, down, saw in ((5, 0, Saw.UP), (14, 0, Saw.DEGRADED), (14, 11, Saw.DOWN)):
            asked = TlsLook(host="127.0.0.1", port=port, expires_within=within, down_within=down)
            found = await look(asked, verified=authority.trust())
            assert found.saw is saw
            assert "its certificate expires in 10 days, on 20" in found.detail


async def test_a_certificate_that_is_not_verified_is_still_read(tmp_path: Path) -> None:
    ends = {90: "expires in 90 days", 5: "expires in 5 days", -3: "expired 3 days ago", -1: "expired 1 day ago"}
    for days, saw in ((90, Saw.UP), (5, Saw.DEGRADED), (-3, Saw.DOWN), (-1, Saw.DOWN)):
        certificate = self_signed(tmp_path / str(days), names=("other.example",), days=days)
        async with serving(never, tls=serving_with(certificate)) as port:
            found = await look(TlsLook(host="127.0.0.1", port=port, verify=False))
            assert found.saw is saw
            assert ends[days] in found.detail


async def test_what_is_wrong_with_a_certificate_is_told(tmp_path: Path, authority: Authority) -> None:
    bad = {
        "its certificate has expired": authority.issue(tmp_path / "expired", days=-1),
        "its certificate is for another host than 127.0.0.1": authority.issue(tmp_path / "other", names=("x.example",)),
        "its certificate is self-signed": self_signed(tmp_path / "self"),
    }
    for told, certificate in bad.items():
        async with serving(never, tls=serving_with(certificate)) as port:
            found = await look(TlsLook(host="127.0.0.1", port=port), verified=authority.trust())
            assert (found.saw, found.detail) == (Saw.DOWN, told)


async def test_the_name_that_is_asked_for_may_be_another_than_the_host(tmp_path: Path, authority: Authority) -> None:
    certificate = authority.issue(tmp_path / "shop", names=("shop.example",))
    async with serving(never, tls=serving_with(certificate)) as port:
        asked = TlsLook(host="127.0.0.1", port=port, server_name="shop.example")
        assert (await look(asked, verified=authority.trust())).saw is Saw.UP


@pytest.mark.parametrize("name", [".shop.example", "a\x00b", "x" * 300])
async def test_a_name_that_tls_does_not_know_has_seen_nothing(name: str) -> None:
    async with serving(never) as port:
        found = await look(TlsLook(host="127.0.0.1", port=port, server_name=name), timeout=1)
        assert found.saw in {Saw.NOTHING, Saw.DOWN}
        assert "itself failed" not in found.detail


# --- names ----------------------------------------------------------------------------------------------------


async def test_addresses_of_a_name_are_tried_in_turn() -> None:
    async with serving(never) as port:
        names = {"shop.example": ["127.0.0.2", "127.0.0.1"]}  # nothing listens at the first
        assert (await look(TcpLook(host="shop.example", port=port), resolve=resolving(names))).saw is Saw.UP


async def test_an_address_that_swallows_everything_leaves_time_for_the_next() -> None:
    with socket.create_server(("127.0.0.3", 0), backlog=0) as full:
        port = full.getsockname()[1]
        crowd = [socket.socket() for _ in range(3)]
        for one in crowd:  # its queue is full: further connections are neither taken nor refused
            one.setblocking(False)  # noqa: FBT003 - positional only
            one.connect_ex(("127.0.0.3", port))
        try:
            with socket.create_server(("127.0.0.1", port)):
                names = {"shop.example": ["127.0.0.3", "127.0.0.1"]}
                asked = TcpLook(host="shop.example", port=port)
                assert (await look(asked, timeout=4, resolve=resolving(names))).saw is Saw.UP
        finally:
            for one in crowd:
                one.close()


@pytest.mark.parametrize(
    ("error", "saw"),
    [
        (socket.gaierror(socket.EAI_NONAME, "not known"), Saw.DOWN),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), Saw.NOTHING),
        (OSError(24, "too many open files"), Saw.NOTHING),
        (UnicodeError("label too long"), Saw.NOTHING),
    ],
)
async def test_a_name_that_is_not_known_is_down_and_a_resolver_that_fails_is_ours(error: Exception, saw: Saw) -> None:
    def resolve(_host: str, _port: int) -> Sequence[Address]:
        raise error

    assert (await look(TcpLook(host="shop.example", port=1), resolve=resolve)).saw is saw


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "fe80::1", "metadata.google.internal", "224.0.0.1", "a b", "2130706433"]
)
async def test_a_host_that_is_never_asked_has_seen_nothing(host: str) -> None:
    for asked in (TcpLook(host=host, port=80), TlsLook(host=host), IcmpLook(host=host)):
        assert (await look(asked)).saw is Saw.NOTHING


# --- echo requests --------------------------------------------------------------------------------------------


async def test_this_machine_answers_echo_requests_or_says_why_it_sends_none() -> None:
    found = await look(IcmpLook(host="127.0.0.1", count=2))
    if found.saw is Saw.NOTHING:
        assert found.detail == PINGS_FORBIDDEN
        pytest.skip("this machine lets the daemon send no echo requests")
    assert (found.saw, found.detail) == (Saw.UP, "2 of 2 echo requests were answered")
    assert found.latency_ms is not None
