"""A policy's ``network``: what an entry means, and which mistakes stop the start with a line and a remedy."""

from __future__ import annotations

import pytest

from claudeops.domain.network.destination import Destination, merged
from claudeops.policy.policy_file import render
from claudeops.policy.reach import parse_entry
from claudeops.policy.tiers import PolicyFault, parse_policy, read_document
from support.policy_cases import DEFAULT_TEXT


def listed(host: str, *tcp: int, udp: tuple[int, ...] = ()) -> Destination:
    return Destination(host=host, tcp=frozenset(tcp), udp=frozenset(udp), named=frozenset(tcp))


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("DB1.Example:5432", listed("db1.example", 5432)),
        ("10.20.0.0/16:22,443", listed("10.20.0.0/16", 22, 443)),
        ("10.20.0.7/16:22", listed("10.20.0.0/16", 22)),
        ("[fd00:0::1]:80", listed("fd00::1", 80)),
        ("[fd00::/64]:443", listed("fd00::/64", 443)),
        ("10.0.0.53:53/udp", listed("10.0.0.53", udp=(53,))),
        ("10.0.0.53:53", listed("10.0.0.53", 53)),
        ("10.0.0.53:53, 53/udp,853/tcp", listed("10.0.0.53", 53, 853, udp=(53,))),
        ("10.0.0.5/32:22", listed("10.0.0.5", 22)),
        ("localhost:8080", listed("localhost", 8080)),
        ("0.0.0.0:8080", listed("localhost", 8080)),
    ],
)
def test_an_entry_names_hosts_and_ports(entry: str, expected: Destination) -> None:
    assert parse_entry(entry) == expected


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("db1.example", "'db1.example' names no port: write db1.example:443"),
        ("10.0.0.0/8", "'10.0.0.0/8' is a network without ports: write 10.0.0.0/8:443"),
        ("db1.example:", "names no port"),
        ("db1.example:0", "'0' is not a port"),
        ("db1.example:65536", "'65536' is not a port: write numbers from 1 to 65535, or 53/udp"),
        ("db1.example:22-25", "'22-25' is not a port"),
        ("db1.example:53/sctp", "'53/sctp' is not a port"),
        ("*.example:443", "'*.example:443' is a pattern"),
        ("db[12].example:443", "is a pattern"),
        ("!db1.example:443", "excludes"),
        ("{estate}:443", "stands for nothing here"),
        ("https://db1.example", "is a URL: write its host and port"),
        ("fd00::1:443", "put an IPv6 address in brackets"),
        ("10.0.0.0/8:53/udp", "UDP reaches single addresses only"),
        ("10.0.0.0/33:22", "is not a network"),
        ("127.0.0.0/8:80", "such a network is never reached as a whole"),
        ("169.254.169.254:80", "is a link-local or metadata address"),
        ("metadata.google.internal:80", "stands for an address that is never asked"),
        ("ops@db1.example:22", "is not a plain host name or address"),
        (":443", "is not a plain host name or address"),
        (f"db1.example:{','.join(map(str, range(1, 66)))}", "has more than 64 ports"),
    ],
)
def test_a_mistake_in_an_entry_stops_the_start_with_its_line(entry: str, sentence: str) -> None:
    text = f'extends = "default"\n\n[tiers.2]\nnetwork = ["db2.example:22", {entry!r}]\n'
    with pytest.raises(PolicyFault) as fault:
        parse_policy(text, default=DEFAULT_TEXT)
    assert (fault.value.line, sentence in str(fault.value)) == (4, True), str(fault.value)


def test_a_tier_has_no_entries_unless_a_file_names_some_and_keeps_those_of_the_others() -> None:
    assert {rules.network for rules in parse_policy(DEFAULT_TEXT).tiers.values()} == {()}
    policy = parse_policy(
        'extends = "default"\n[tiers.3]\nnetwork = ["b:2", "a:1", "b:3"]\n',
        default=DEFAULT_TEXT.replace("network = []", 'network = ["c:9"]'),
    )
    assert policy.tiers[1].network == policy.tiers[2].network == (listed("c", 9),)
    assert policy.tiers[3].network == (listed("a", 1), listed("b", 2, 3))
    assert policy.tiers[3].hosts == parse_policy(DEFAULT_TEXT).tiers[3].hosts


def test_what_is_in_force_shows_the_entries() -> None:
    document = read_document('[tiers.1]\nnetwork = ["db1.example:5432", "10.0.0.53:53/udp"]\n')
    assert 'network = ["db1.example:5432", "10.0.0.53:53/udp"]' in render(document)
    assert read_document(render(document)).tiers == document.tiers


def test_destinations_of_one_host_are_one() -> None:
    several = [listed("b", 1), listed("a", 2), listed("b", 3, udp=(53,)), listed("a", 2)]
    assert merged(several) == (listed("a", 2), listed("b", 1, 3, udp=(53,)))
    assert merged([]) == ()
