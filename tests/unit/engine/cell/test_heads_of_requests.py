"""What of a request goes out with a secret, and what of it never does. Pure; the relay is tried in a real cell."""

from __future__ import annotations

import h11
import pytest

from claudeops.engine.cell.headers.heads import (
    HeaderHosts,
    HeaderRefusal,
    ends_connection,
    is_unreadable,
    refusal,
    returned,
    sent,
)
from claudeops.formats.network.headers import SecretHeader

HEADER = SecretHeader(host="a.example", port=8443, name="X-Api-Key", value="hush-hush", secrets=("hush-hush",))
HOSTS = HeaderHosts(headers=(HEADER,), others=frozenset({"b.example"}), port=8443, tls=True)


def request(
    *headers: tuple[str, str], method: str = "GET", target: str = "/", host: str = "a.example:8443"
) -> h11.Request:
    return h11.Request(method=method, target=target, headers=[("Host", host), *headers])


@pytest.mark.parametrize("host", ["a.example:8443", "A.Example.:8443"])
def test_the_named_host_is_known_in_every_spelling(host: str) -> None:
    assert refusal(request(host=host), HOSTS, "a.example") == "a.example"


@pytest.mark.parametrize(
    "host",
    [
        "a.example",
        "a.example:443",
        "b.example:8443",
        "c.example:8443",
        "a.example:8443@b",
        "a.example,b:8443",
        "",
    ],
)
def test_any_other_host_is_refused(host: str) -> None:
    found = refusal(request(host=host), HOSTS, "a.example")
    assert isinstance(found, HeaderRefusal)
    assert "a.example" in found.sentence


def test_without_tls_another_host_that_is_listed_is_sent_on_without_the_header() -> None:
    plain = HeaderHosts(headers=(HEADER,), others=frozenset({"b.example"}), port=80, tls=False)
    assert refusal(request(host="b.example"), plain, None) == "b.example"
    assert plain.of("b.example") == ()
    assert isinstance(refusal(request(host="c.example"), plain, None), HeaderRefusal)


def test_what_goes_out_has_the_secret_in_place_of_the_sessions_own_value_and_nothing_of_one_hop() -> None:
    given = request(
        ("x-api-key", "mine"),
        ("X_Api_Key", "mine"),
        ("Connection", "keep-alive, X-Other"),
        ("X-Other", "1"),
        ("Accept-Encoding", "br"),
        ("Range", "bytes=0-1"),
        ("X-Forwarded-Host", "b.example"),
        ("Upgrade", "h2c"),
        ("Cookie", "kept"),
    )
    out = dict(sent(given, (HEADER,)).headers)
    assert out == {
        b"host": b"a.example:8443",
        b"cookie": b"kept",
        b"accept-encoding": b"identity",
        b"x-api-key": b"hush-hush",
    }


def test_the_session_cannot_have_the_host_or_the_secret_taken_out_as_of_one_hop() -> None:
    out = dict(sent(request(("Connection", "host, x-api-key")), (HEADER,)).headers)
    assert (out[b"host"], out[b"x-api-key"]) == (b"a.example:8443", b"hush-hush")


def test_an_answer_loses_its_length_only_where_it_has_a_body() -> None:
    answer = h11.Response(status_code=200, headers=[("Content-Length", "3"), ("Connection", "close")])
    fields = list(answer.headers)
    assert returned(answer, b"GET", fields, last=False).headers.raw_items() == []
    assert dict(returned(answer, b"HEAD", fields, last=True).headers) == {
        b"content-length": b"3",
        b"connection": b"close",
    }
    assert ends_connection(answer, b"GET")
    assert ends_connection(h11.Response(status_code=200, headers=[], http_version="1.1"), b"GET")
    assert not ends_connection(h11.Response(status_code=304, headers=[], http_version="1.1"), b"GET")


def test_a_compressed_answer_is_unreadable_unless_it_has_no_body() -> None:
    answer = h11.Response(status_code=200, headers=[("Content-Encoding", "gzip")])
    assert is_unreadable(answer, b"GET")
    assert not is_unreadable(answer, b"HEAD")
    assert not is_unreadable(h11.Response(status_code=200, headers=[("Content-Encoding", "identity")]), b"GET")
