"""What a look at a URL expects is checked, and what the answer says is told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from anyio.abc import ByteStream

from claudeops.domain.probes.probe import HttpLook, Observation, Saw
from support.certificates import Authority, self_signed, serving_with
from support.looking import answers, head, look, replies, resolving, serving

pytestmark = pytest.mark.anyio

ELSEWHERE = {
    "localhost": ["127.0.0.1"],
    "shop.example": ["127.0.0.1"],
    "rebound.example": ["127.0.0.1", "169.254.169.254"],
}


async def at(handler: object, look_with: Mapping[str, object] | None = None, **given: object) -> Observation:
    """Look at a server that does one thing."""
    async with serving(handler) as port:  # type: ignore[arg-type]  # any of the handlers below
        return await look(HttpLook(url=f"http://127.0.0.1:{port}/health", **(look_with or {})), **given)  # type: ignore[arg-type]


# --- status ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "expected", "saw"),
    [
        (200, (), Saw.UP),
        (399, (), Saw.UP),
        (400, (), Saw.DOWN),
        (503, (), Saw.DOWN),
        (401, (401,), Saw.UP),
        (200, (401, 403), Saw.DOWN),
    ],
)
async def test_the_status_decides(status: int, expected: tuple[int, ...], saw: Saw) -> None:
    found = await at(answers(status=status), {"status": expected})
    assert found.saw is saw
    assert str(status) in found.detail
    assert found.latency_ms is not None


async def test_a_head_request_has_no_body_to_wait_for() -> None:
    heard: list[bytes] = []
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    assert (await at(replies(whole, heard=heard), {"method": "HEAD"})).saw is Saw.UP
    assert heard[0].startswith(b"HEAD /health HTTP/1.1\r\n")


# --- text and JSON --------------------------------------------------------------------------------------------


async def test_a_text_that_is_missing_is_a_service_that_is_down() -> None:
    assert (await at(answers(b"all is well"), {"text": "well"})).saw is Saw.UP
    found = await at(answers(b"maintenance"), {"text": "well"})
    assert (found.saw, found.detail) == (Saw.DOWN, 'answered 200, but without the text "well"')


async def test_a_text_is_found_in_either_encoding_that_is_left_in_use() -> None:
    for encoding in ("utf-8", "latin-1"):
        assert (await at(answers("Größe".encode(encoding)), {"text": "Größe"})).saw is Saw.UP


JSON = b'{"status": "ok", "a/b": {"m~n": [1, true, 2.5]}, "n": 1}'


@pytest.mark.parametrize(
    ("pointer", "value", "saw"),
    [
        ("/status", "ok", Saw.UP),
        ("/status", "failing", Saw.DOWN),
        ("/a~1b/m~0n/0", 1, Saw.UP),
        ("/a~1b/m~0n/1", True, Saw.UP),
        ("/a~1b/m~0n/1", 1, Saw.DOWN),
        ("/n", True, Saw.DOWN),
        ("/n", 1.0, Saw.UP),
        ("/a~1b/m~0n/2", 2.5, Saw.UP),
        ("/a~1b/m~0n/3", 1, Saw.DOWN),
        ("/a~1b/m~0n/00", 1, Saw.DOWN),
        ("/a~1b/m~0n/999999999999999999999999", 1, Saw.DOWN),
        ("/nowhere", 1, Saw.DOWN),
        ("status", "ok", Saw.DOWN),
    ],
)
async def test_a_json_pointer_must_lead_to_the_value(pointer: str, value: object, saw: Saw) -> None:
    assert (await at(answers(JSON), {"json": {pointer: value}})).saw is saw


async def test_what_stands_in_the_place_of_a_value_is_told() -> None:
    found = await at(answers(b'{"status": "degraded"}'), {"json": {"/status": "ok"}})
    assert found.detail == 'answered 200, but its JSON has "degraded" instead of "ok" at "/status"'


@pytest.mark.parametrize("body", [b"<html>", b"[" * 5000, b'{"a": NaN}', b"\xff\xfe", b""])
async def test_a_body_that_is_not_json_is_a_service_that_is_down(body: bytes) -> None:
    found = await at(answers(body), {"json": {"/a": 1}})
    assert found.saw is Saw.DOWN
    assert "not with JSON" in found.detail


async def test_an_answer_that_is_compressed_unasked_is_not_unpacked() -> None:
    bomb = answers(b"\x1f\x8b" + bytes(100), headers=[("Content-Encoding", "gzip")])
    for expected in ({"text": "well"}, {"json": {"/a": 1}}):
        found = await at(bomb, expected)
        assert found.saw is Saw.DOWN
        assert '"gzip"' in found.detail
    assert (await at(bomb)).saw is Saw.UP


# --- time -----------------------------------------------------------------------------------------------------


async def test_an_answer_that_takes_longer_than_it_may_is_degraded() -> None:
    found = await at(answers(), {"slower_than": 0.0})
    assert found.saw is Saw.DEGRADED
    assert "more than 0 s" in found.detail
    assert (await at(answers(), {"slower_than": 30.0})).saw is Saw.UP


# --- TLS ------------------------------------------------------------------------------------------------------


async def over_tls(certificate: Path, authority: Authority, **asked: object) -> Observation:
    async with serving(answers(), tls=serving_with(certificate)) as port:
        looked = HttpLook(url=f"https://localhost:{port}/", **asked)  # type: ignore[arg-type]
        return await look(looked, verified=authority.trust(), resolve=resolving(ELSEWHERE))


async def test_a_certificate_that_lasts_is_no_worry(tmp_path: Path, authority: Authority) -> None:
    found = await over_tls(authority.issue(tmp_path / "good"), authority)
    assert (found.saw, found.detail) == (Saw.UP, "answered 200")


@pytest.mark.parametrize("verify", [True, False])
async def test_a_certificate_about_to_expire_degrades(tmp_path: Path, authority: Authority, verify: bool) -> None:
    certificate = authority.issue(tmp_path / "soon", days=5)
    found = await over_tls(certificate, authority, verify=verify)
    assert found.saw is Saw.DEGRADED
    assert "its certificate expires in 5 days" in found.detail
    assert (await over_tls(certificate, authority, verify=verify, expires_within=4)).saw is Saw.UP


async def test_a_certificate_that_is_not_accepted_is_down_and_told_why(tmp_path: Path, authority: Authority) -> None:
    bad = {
        "its certificate has expired": authority.issue(tmp_path / "expired", days=-1),
        "its certificate is not valid yet": authority.issue(tmp_path / "early", begins=1),
        "its certificate is for another host than localhost": authority.issue(tmp_path / "other", names=("x.example",)),
        "its certificate is self-signed": self_signed(tmp_path / "self"),
    }
    for told, certificate in bad.items():
        found = await over_tls(certificate, authority)
        assert (found.saw, found.detail) == (Saw.DOWN, told)
        assert (await over_tls(certificate, authority, verify=False)).saw in {Saw.UP, Saw.DEGRADED}


# --- redirects ------------------------------------------------------------------------------------------------


def redirecting(*places: str) -> object:
    """Return a server that redirects each request to the next place; the last place stays."""
    left = list(places)

    async def handler(stream: ByteStream) -> None:
        await head(stream)
        place = left.pop(0) if len(left) > 1 else left[0]
        answer = "200 OK" if place == "!" else f"302 Found\r\nLocation: {place}"
        await stream.send(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())

    return handler


async def test_a_redirect_to_the_own_host_is_followed() -> None:
    found = await at(redirecting("/a", "b?c=d", "!"))
    assert (found.saw, found.detail) == (Saw.UP, "answered 200")


async def test_redirects_without_end_are_left() -> None:
    found = await at(redirecting("/again"))
    assert (found.saw, found.detail) == (Saw.DOWN, "it redirects more than 3 times")


async def test_a_redirect_that_was_expected_is_not_followed() -> None:
    assert (await at(redirecting("/again"), {"status": (302,)})).saw is Saw.UP
    assert (await at(redirecting("/again"), {"redirects": 0})).saw is Saw.UP


async def test_a_redirect_out_of_the_estate_is_told_and_not_followed() -> None:
    async with serving(answers()) as other:
        handler = redirecting(f"http://shop.example:{other}/")
        found = await at(handler, resolve=resolving(ELSEWHERE))
        assert found.saw is Saw.UP  # it has answered with a status below 400
        assert 'redirects to "shop.example", which is outside of the estate: not followed' in found.detail
        assert (await at(handler, {"status": (200,)}, resolve=resolving(ELSEWHERE))).saw is Saw.DOWN
        known = await at(handler, {"status": (200,)}, resolve=resolving(ELSEWHERE), hosts=lambda: {"shop.example"})
        assert (known.saw, known.detail) == (Saw.UP, "answered 200")


@pytest.mark.parametrize(
    "place",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.google.internal/",
        "http://[fe80::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://0251.0376.0251.0376/",
        "http://127.0.0.1:2375/containers/json",
    ],
)
async def test_a_redirect_to_what_is_never_asked_is_down(place: str) -> None:
    found = await at(redirecting(place), hosts=lambda: {"169.254.169.254", "metadata.google.internal"})
    assert found.saw is Saw.DOWN
    assert "never asked" in found.detail


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "gopher://x/", "http://a:b@127.0.0.1/", "http://", "http://[::1"]
)
async def test_a_redirect_to_no_url_is_down(place: str) -> None:
    assert (await at(redirecting(place))).saw is Saw.DOWN


# --- where a name leads ---------------------------------------------------------------------------------------


async def test_a_name_that_leads_to_a_metadata_address_is_not_asked() -> None:
    found = await look(HttpLook(url="http://rebound.example/"), resolve=resolving(ELSEWHERE))
    assert found.saw is Saw.DOWN
    assert "rebound.example stands for a forbidden address" in found.detail


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/", "http://metadata/", "http://u:p4ssw0rd@127.0.0.1/", "ftp://x/"]
)
async def test_a_url_that_must_not_be_asked_sees_nothing(url: str) -> None:
    found = await look(HttpLook(url=url))
    assert found.saw is Saw.NOTHING
    assert "p4ssw0rd" not in found.detail


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await at(answers())).saw is Saw.UP


# --- headers --------------------------------------------------------------------------------------------------

SECRET = "Bearer s3cr3t-of-the-shop"


async def test_headers_take_values_from_the_environment() -> None:
    heard: list[bytes] = []
    asked = {"headers": {"Authorization": "${SHOP_TOKEN}", "X-Own": "a${EMPTY}b"}}
    await at(answers(heard=heard), asked, environment={"SHOP_TOKEN": SECRET, "EMPTY": ""})
    assert f"authorization: {SECRET}\r\n".encode() in heard[0]
    assert b"x-own: ab\r\n" in heard[0]


async def test_a_variable_that_is_not_there_sees_nothing() -> None:
    found = await look(HttpLook(url="http://127.0.0.1:1/", headers={"X": "${NOT_SET}"}))
    assert found.saw is Saw.NOTHING
    assert "NOT_SET" in found.detail


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\x00", "ä"])
async def test_a_value_that_would_add_a_header_is_refused_and_not_shown(value: str) -> None:
    found = await look(HttpLook(url="http://127.0.0.1:1/", headers={"X": "${V}"}), environment={"V": value})
    assert found.saw is Saw.NOTHING
    assert value not in found.detail


@pytest.mark.parametrize("name", ["Content-Length", "Transfer-Encoding"])
async def test_a_header_that_promises_a_body_is_refused(name: str) -> None:
    found = await at(answers(), {"headers": {name: "5"}})
    assert found.saw in {Saw.NOTHING, Saw.UP}


@pytest.mark.parametrize(
    "body",
    [
        SECRET.encode(),
        f'{{"status": "{SECRET}"}}'.encode(),
        f"HTTP/1.1 302 Found\r\nLocation: http://{SECRET}/".encode(),
    ],
)
async def test_a_secret_that_comes_back_reaches_no_detail(body: bytes) -> None:
    asked = {"headers": {"Authorization": "${T}"}, "json": {"/status": "ok"}}
    found = await at(answers(body), asked, environment={"T": SECRET})
    assert found.saw is Saw.DOWN
    assert "s3cr3t" not in found.detail


async def test_headers_of_one_server_do_not_go_to_another() -> None:
    heard: list[bytes] = []
    async with serving(answers(heard=heard)) as other:
        await at(
            redirecting(f"http://127.0.0.1:{other}/"), {"headers": {"Authorization": "${T}"}}, environment={"T": SECRET}
        )
    assert len(heard) == 1
    assert b"s3cr3t" not in heard[0]


async def test_the_end_of_a_look_is_when_it_was_made() -> None:
    found = await at(answers())
    assert abs((datetime.now(UTC) - found.at).total_seconds()) < 60
