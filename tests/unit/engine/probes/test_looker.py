"""What becomes of a stranger's text, and that no error of ours ends a watch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.probes.probe import MOST_DETAIL, Saw, TcpLook
from claudeops.engine.probes.exchange import url_of
from claudeops.engine.probes.looker import Looker
from claudeops.engine.probes.results import cleaned, quote
from claudeops.engine.probes.web import resolve
from claudeops.text.redact import MASK
from support.looking import QUIET, look, means, resolving

pytestmark = pytest.mark.anyio


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


# --- what is quoted -------------------------------------------------------------------------------------------


SECRET = "hunter2-" * 6


@pytest.mark.parametrize("before", range(60, 130, 7))
def test_no_half_of_a_secret_is_left_where_a_quotation_is_cut(before: int) -> None:
    said = f"{'x ' * (before // 2)}the key is {SECRET} and so on {'y ' * 60}"
    told = cleaned(quote(said), lambda text: text.replace(SECRET, "(redacted)"))

    assert "hunter2" not in told
    assert told.endswith('…"')
    assert len(told) <= 124


def test_a_single_long_word_is_cut_short() -> None:
    assert quote("hunter2" * 40) == '"hunter2hunte…"'
    assert quote(b'{"status": "down", "reason": "' + b"z" * 200) == '"{"status": "down", "reason":…"'
