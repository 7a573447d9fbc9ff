"""The operator's file of headers: what it means, and each mistake with its line and the remedy."""

from __future__ import annotations

import pytest

from claudeops.formats.network.headers import (
    MOST,
    SecretHeader,
    added_in_words,
    of_tier,
    places_by_name,
    read_headers,
)
from claudeops.text.toml_file import TomlFault

PLAIN = '[[headers]]\nhost = "Grafana.example."\nname = "Authorization"\nvalue = "Bearer ${TOKEN}"\n'


def one(**more: object) -> SecretHeader:
    given: dict[str, object] = {"host": "a.example", "port": 443, "name": "X-Key", "value": "hush-hush", "secrets": ()}
    return SecretHeader(**{**given, **more})  # type: ignore[arg-type]  # a test names its fields


def test_a_header_needs_a_host_a_name_and_a_value_and_the_rest_follows() -> None:
    (found,) = read_headers(PLAIN)
    assert (found.host, found.port, found.tls, found.tiers) == ("grafana.example", 443, True, frozenset(range(1, 10)))
    (other,) = read_headers(f"{PLAIN}tls = false\ntiers = [2]\n")
    assert (other.port, other.tls, other.tiers) == (80, False, frozenset({2}))


FAULTS = {
    "no TOML": ("[[headers]\n", 1, "not TOML"),
    "nothing": ("headers = []\n", 1, "add a [[headers]]"),
    "another table": (f"{PLAIN}[[header]]\n", 5, "[[headers]]"),
    "a wrong key": (f'{PLAIN}zzz = "x"\n', 5, "known are host"),
    "a wrong key that is nearly right": (f'{PLAIN}prt = "x"\n', 5, "did you mean 'port'"),
    "a wrong type": (f'{PLAIN}port = "x"\n', 5, "port: Expected"),
    "no name": ('[[headers]]\nhost = "a.example"\nvalue = "${T}"\n', 1, "'name'"),
    "a secret in the file": (PLAIN.replace("${TOKEN}", "abcdefgh"), 4, "does not belong into this file"),
    "a reference that is none": (PLAIN.replace("${TOKEN}", "${TOKEN} ${1}"), 4, "refers to nothing"),
    "a line end": (PLAIN.replace("Bearer ", "Bearer\\r\\n"), 4, "printable ASCII"),
    "a URL": (PLAIN.replace("Grafana.example.", "https://grafana.example"), 2, "without a scheme"),
    "a network": (PLAIN.replace("Grafana.example.", "10.0.0.0/8"), 2, "one host"),
    "a pattern": (PLAIN.replace("Grafana.example.", "*.example"), 2, "one host"),
    "a metadata address": (PLAIN.replace("Grafana.example.", "169.254.169.254"), 2, "never asked"),
    "a header of the connection": (PLAIN.replace("Authorization", "Host"), 3, "holds no secret"),
    "a header that is no name": (PLAIN.replace("Authorization", "X Key"), 3, "not the name of a header"),
    "a port": (f"{PLAIN}port = 70000\n", 5, "1 to 65535"),
    "no tier": (f"{PLAIN}tiers = []\n", 5, "name some"),
    "a certificate without TLS": (f'{PLAIN}tls = false\nca_file = "x"\n', 6, "leave it out"),
    "the same twice": (f"{PLAIN}{PLAIN}", 7, "line 1 adds Authorization there already"),
    "two kinds at one port": (f"{PLAIN}{PLAIN}port = 443\ntls = false\n", 6, "agree on one"),
    "too many": (PLAIN * (MOST + 1), 1, "leave some out"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_is_told_with_its_line_and_what_to_write(fault: str) -> None:
    text, line, said = FAULTS[fault]
    with pytest.raises(TomlFault) as caught:
        read_headers(text)
    assert said in str(caught.value)
    assert caught.value.line == line


def test_one_place_may_have_two_headers_or_one_for_each_tier() -> None:
    other = PLAIN.replace("Authorization", "X-Key")
    assert len(read_headers(f"{PLAIN}tiers = [1]\n{PLAIN}tiers = [2]\n{other}")) == 3


def test_a_session_is_told_of_places_and_names_and_never_of_values() -> None:
    headers = [one(), one(name="X-Other"), one(host="fd00::1", port=80, tls=False), one(host="b.example", port=8443)]
    said = added_in_words(headers)
    assert "https://a.example (X-Key, X-Other), https://b.example:8443 (X-Key)" in said
    assert "http://[fd00::1]" in said
    assert "hush" not in said + repr(headers)
    assert added_in_words([]) == ""
    assert places_by_name(headers[:2]) == {"x-key": ("https://a.example",), "x-other": ("https://a.example",)}
    assert of_tier([one(tiers=frozenset({2}))], 1) == ()
