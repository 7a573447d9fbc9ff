"""What silence means, what becomes of a stranger's text, and that no error of ours ends a watch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.probe.model import MOST_DETAIL, HeartbeatLook, Saw, TcpLook
from claudeops.domain.redact import MASK
from claudeops.engine.probes.exchange import url_of
from claudeops.engine.probes.looker import Looker, heard
from claudeops.engine.probes.seen import cleaned
from claudeops.engine.probes.web import resolve
from claudeops.errors import DatabaseUnavailableError
from support.looking import QUIET, look, means, resolving

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
HOURLY = HeartbeatLook(every=3600, grace=60)


@pytest.mark.parametrize(
    ("last", "listening", "saw"),
    [
        (10, 0, Saw.UP),
        (3660, 0, Saw.UP),
        (3661, 0, Saw.DOWN),
        (-5, 0, Saw.UP),  # the clock was set back
        (None, 3660, Saw.NOTHING),
        (None, 3661, Saw.DOWN),
    ],
)
def test_silence_is_the_failure(last: float | None, listening: float, saw: Saw) -> None:
    pinged = None if last is None else NOW - timedelta(seconds=last)
    assert heard(HOURLY, pinged, since=NOW - timedelta(seconds=listening), now=NOW).saw is saw


async def test_a_ping_is_read_by_the_name_of_the_probe() -> None:
    asked = []

    async def last_ping(name: str) -> datetime:
        asked.append(name)
        return datetime.now(UTC) - timedelta(seconds=5)

    found = await look(HOURLY, looker=Looker(means=means(), log=QUIET, last_ping=last_ping))
    assert (found.saw, found.detail, found.latency_ms) == (Saw.UP, "last heard from 5 s ago", None)
    assert asked == ["shop"]


async def test_a_database_that_is_away_is_no_silence() -> None:
    async def last_ping(_name: str) -> datetime:
        raise DatabaseUnavailableError("locked")

    assert (await look(HOURLY, looker=Looker(means=means(), log=QUIET, last_ping=last_ping))).saw is Saw.NOTHING


async def test_an_error_of_our_own_ends_the_look_and_nothing_else() -> None:
    def broken(_host: str, _port: int) -> list[object]:
        raise ZeroDivisionError

    found = await look(TcpLook(host="shop.example", port=1), resolve=broken)
    assert found.saw is Saw.NOTHING
    assert "the look itself failed (ZeroDivisionError): looking up shop.example" in found.detail


async def test_details_are_redacted() -> None:
    looker = Looker(
        means=means(resolve=resolving({})), log=QUIET, redact=lambda text: text.replace("shop.example", MASK)
    )
    found = await look(TcpLook(host="shop.example", port=80), looker=looker)
    assert found.detail == f"the name {MASK} is not known"


@given(st.text(max_size=2000))
def test_a_detail_is_one_printable_line_of_bounded_length(text: str) -> None:
    line = cleaned(text, lambda same: same)
    assert line.isprintable()
    assert len(line) <= MOST_DETAIL


@given(st.text(max_size=200))
def test_no_text_is_too_odd_for_a_url(text: str) -> None:
    for url in (url_of(text), url_of(f"http://{text}"), url_of(text, base="http://a.example/b")):
        assert url is None or (url.target.isascii() and " " not in url.target)


@given(st.text(max_size=20), st.recursive(st.integers() | st.text(max_size=3), st.lists))
def test_no_pointer_is_too_odd_for_a_document(pointer: str, document: object) -> None:
    resolve(document, pointer)
