"""What a name server answers is held against what is expected; whoever answers nothing, or nonsense, costs little."""

from __future__ import annotations

import dns.rcode
import pytest

from claudeops.domain.probes.probe import DnsLook, Observation, Saw
from support.looking import look
from support.name_server import NameServer, serving_names

pytestmark = pytest.mark.anyio

RECORDS = {
    ("shop.example", "A"): ("192.0.2.1", "192.0.2.2"),
    ("shop.example", "AAAA"): ("2001:db8::1",),
    ("shop.example", "MX"): ("10 mail.example.",),
    ("shop.example", "TXT"): ('"v=spf1 " "-all"',),
    ("empty.example", "TXT"): ('"\x1b]0;x\x07"',),
    ("big.example", "TXT"): tuple(f'"{"x" * 200}{n}"' for n in range(100)),
}


async def asked(
    server: NameServer,
    query: str = "shop.example",
    record: str = "A",
    expect: tuple[str, ...] = (),
    timeout: float = 5,  # noqa: ASYNC109 - the probe's
) -> Observation:
    async with serving_names(server):
        asks = DnsLook(query=query, record=record, server=f"127.0.0.1:{server.port}", expect=expect)
        return await look(asks, timeout=timeout)


@pytest.mark.parametrize(
    ("record", "expect", "saw"),
    [
        ("A", (), Saw.UP),
        ("A", ("192.0.2.2",), Saw.UP),
        ("A", ("192.0.2.2", "192.0.2.3"), Saw.DOWN),
        ("AAAA", ("2001:0DB8:0::1",), Saw.UP),
        ("MX", ("10 Mail.example",), Saw.UP),
        ("TXT", ("v=spf1 -all",), Saw.UP),
        ("TXT", ("v=spf1",), Saw.DOWN),
        ("SRV", (), Saw.DOWN),
    ],
)
async def test_each_expected_value_must_be_in_the_answer(record: str, expect: tuple[str, ...], saw: Saw) -> None:
    assert (await asked(NameServer(records=RECORDS), record=record, expect=expect)).saw is saw


async def test_what_is_missing_is_told_with_what_is_there() -> None:
    found = await asked(NameServer(records=RECORDS), expect=("192.0.2.9",))
    assert found.detail == 'shop.example A is "192.0.2.1", "192.0.2.2", without "192.0.2.9"'


async def test_a_name_that_is_not_there_is_down() -> None:
    found = await asked(NameServer(records=RECORDS), query="gone.example")
    assert (found.saw, found.detail) == (Saw.DOWN, "the name server answers NXDOMAIN for gone.example")


async def test_a_server_that_fails_is_down() -> None:
    found = await asked(NameServer(records=RECORDS, rcode=dns.rcode.SERVFAIL))
    assert "SERVFAIL" in found.detail
    assert found.saw is Saw.DOWN


async def test_aliases_are_followed_and_circles_are_left() -> None:
    server = NameServer(records=RECORDS, aliases={"www.example": "shop.example"})
    assert (await asked(server, query="www.example", expect=("192.0.2.1",))).saw is Saw.UP
    circle = NameServer(records=RECORDS, aliases={"a.example": "b.example", "b.example": "a.example"})
    assert (await asked(circle, query="a.example")).saw is Saw.DOWN


async def test_an_answer_that_does_not_fit_is_asked_for_over_tcp() -> None:
    server = NameServer(records=RECORDS, truncates=True)
    found = await asked(server, query="big.example", record="TXT", expect=("x" * 200 + "99",))
    assert found.saw is Saw.UP
    assert server.asked == ["udp", "tcp"]
    assert len(found.detail) <= 500


async def test_a_datagram_that_is_lost_is_sent_again() -> None:
    server = NameServer(records=RECORDS, swallows=1)
    assert (await asked(server, timeout=3)).saw is Saw.UP
    assert server.asked == ["udp", "udp"]


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 600, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_nonsense_is_down_in_time(garbage: bytes) -> None:
    found = await asked(NameServer(records=RECORDS, garbage=garbage), timeout=0.6)
    assert found.saw is Saw.DOWN


async def test_a_server_that_says_nothing_costs_the_timeout() -> None:
    found = await asked(NameServer(swallows=100), timeout=0.6)
    assert found.saw is Saw.DOWN


async def test_escape_sequences_in_a_record_are_made_harmless() -> None:
    found = await asked(NameServer(records=RECORDS), query="empty.example", record="TXT")
    assert found.saw is Saw.UP
    assert found.detail.isprintable()


@pytest.mark.parametrize(
    ("server", "query", "record"),
    [
        ("169.254.169.254", "a.example", "A"),
        ("name.example", "a.example", "A"),
        ("127.0.0.1:99999", "a.example", "A"),
        ("127.0.0.1", "a..example", "A"),
        ("127.0.0.1", "a.example", "NOSUCH"),
    ],
)
async def test_a_question_that_cannot_be_asked_sees_nothing(server: str, query: str, record: str) -> None:
    assert (await look(DnsLook(query=query, record=record, server=server))).saw is Saw.NOTHING
