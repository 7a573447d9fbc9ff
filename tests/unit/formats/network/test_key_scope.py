"""For which hosts keys may be used: those that ssh may connect to, and whose keys are known."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.network.destination import Destination, at_ports
from claudeops.formats.network.key_scope import MOST_BYTES, MOST_HOSTS, KeyScope, key_scope
from claudeops.formats.network.known_hosts import MOST_COMPARISONS, KnownHosts


def key(kind: str = "ssh-ed25519", *parts: bytes) -> str:
    strings = (kind.encode(), *(parts or (bytes(32),)))
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in strings)
    return f"{kind} {base64.b64encode(blob).decode()}"


KEY, OTHER = key(), key("ssh-ed25519", bytes(31) + b"o")
RSA = key("ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 256)


def hashed(name: str) -> str:
    salt = b"salt" * 5
    return "|".join(["", "1", *(base64.b64encode(part).decode() for part in (salt, digest(salt, name)))])


def digest(salt: bytes, name: str) -> bytes:
    return hmac.digest(salt, name.encode(), hashlib.sha1)


def scope(*listed: Destination, known: str, config: str = "") -> KeyScope:
    return key_scope(listed, config=config, known_hosts=known)


def usual(host: str, *ports: int) -> Destination:
    return at_ports(host, ports, usual=True)


def test_a_listed_host_whose_key_is_known_counts_with_all_its_keys_and_no_others() -> None:
    found = scope(usual("web1"), known=f"web1 {KEY} a comment\nweb1 {RSA}\nweb2 {KEY}\n")
    assert (found.hosts, found.known_hosts) == (("web1",), f"web1 {KEY}\nweb1 {RSA}\n")


@pytest.mark.parametrize(
    "names", ["Web1,10.0.0.5", hashed("web1"), "web?", "*,!web2", "|1|broken,web1\nweb1"], ids=lambda names: names[:9]
)
def test_a_host_is_known_in_every_way_in_which_ssh_knows_it(names: str) -> None:
    assert scope(usual("web1"), known=f"{names} {KEY}").known_hosts == f"web1 {KEY}\n"


@pytest.mark.parametrize(
    "line",
    [
        f"web2 {KEY}",
        f"*,!web1 {KEY}",
        f"#web1 {KEY}",
        f"@revoked web1 {KEY}",
        f"@revoked * {KEY}\nweb1 {KEY}",
        f"@unknown web1 {KEY}",
        "web1 ssh-ed25519 AAAA",
        "web1 ssh-ed25519",
        "web1 ssh-ed25519 not-base64",
        "web1 ssh-ed25519 \u00e9\u00e9\u00e9\u00e9",
        f"web1 {KEY[:-8]}",
        f"web1 ssh-rsa {KEY.split()[1]}",
        f"web1 {key('ssh-ed25519', bytes(31))}",
        f"web1 {key('ssh-rsa', b'3', bytes([255]) * 64)}",
        f"web1 {key('ssh-dss', b'p', b'q', b'g', b'y')}",
    ],
)
def test_a_host_without_a_key_that_openssh_reads_is_unknown(line: str) -> None:
    """ssh-add would add no key at all for a list with one such host on it."""
    assert scope(usual("web1"), known=line) == KeyScope(unknown=("web1",))


def test_an_authority_vouches_for_its_hosts() -> None:
    assert scope(usual("web1"), known=f"@cert-authority *1 {KEY}").known_hosts == f"@cert-authority web1 {KEY}\n"


def test_a_port_that_somebody_names_counts_and_a_usual_one_does_not() -> None:
    known = "".join(f"[web1]:{port} {KEY}\n" for port in (80, 443, 2222, 2223))
    assert scope(usual("web1", 2222), known=known).hosts == ("[web1]:2222",)


def test_a_host_that_is_listed_twice_counts_with_all_its_ports() -> None:
    known = f"[web1]:2222,[web1]:2223 {KEY}"
    assert scope(at_ports("web1", [2222]), at_ports("web1", [2223]), known=known).hosts == (
        "[web1]:2222",
        "[web1]:2223",
    )


def test_where_the_key_is_not_known_with_the_port_ssh_looks_for_it_without() -> None:
    assert scope(at_ports("web1", [2222]), known=f"web1 {KEY}").hosts == ("web1",)
    assert scope(at_ports("web1", [2222]), known=f"web1 {KEY}\n[web1]:2222 {OTHER}").hosts == ("[web1]:2222",)


def test_a_host_without_the_port_of_ssh_does_not_count() -> None:
    assert scope(at_ports("web1", []), Destination(host="db", udp=frozenset({22})), known=f"web1,db {KEY}").hosts == ()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("Host web1\n HostKeyAlias blue", ("blue",)),
        ("Host short\n HostName web1\n HostKeyAlias blue", ("blue",)),
        ("Host short\n HostName web1\n Port 2222\n HostKeyAlias blue", ()),
        ("Host short\n HostName web9\n HostKeyAlias blue", ()),
    ],
)
def test_a_key_that_is_known_by_an_alias_counts_where_the_alias_leads_to_the_list(
    config: str, expected: tuple[str, ...]
) -> None:
    assert scope(usual("web1"), known=f"blue {KEY}", config=config).hosts == expected


def test_addresses_in_a_listed_network_count() -> None:
    known = f"10.0.0.5,10.1.0.5,web1 {KEY}\n[10.0.0.6]:2222 {KEY}\n[10.0.0.7]:22 {KEY}\n[10.0.0.8]:{'9' * 5000} {KEY}"
    network = Destination(host="10.0.0.0/16", tcp=frozenset({22, 80}))
    assert scope(network, known=known).hosts == ("10.0.0.5", "[10.0.0.7]:22")


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a>b", "root@web1", "a b"])
def test_a_name_that_means_something_to_ssh_add_does_not_count(name: str) -> None:
    assert scope(usual(name), known=f"{name},* {KEY}").hosts == ()


def test_a_list_stays_within_what_an_agent_takes() -> None:
    hosts = [usual(f"host{number:04}") for number in range(MOST_HOSTS + 3)]
    found = scope(*hosts, known=f"* {KEY}")
    assert (len(found.hosts), found.left_out) == (MOST_HOSTS, ("host0512", "host0513", "host0514"))
    large = scope(*hosts, known=f"* {KEY}\n* {RSA}\n* {key('ssh-rsa', b'3', bytes([255]) * 512)}")
    assert 0 < len(large.hosts) < MOST_HOSTS
    assert len(large.hosts) + len(large.left_out) == len(hosts)
    assert len(large.known_hosts) * 3 // 4 < MOST_BYTES


@given(known=st.text(max_size=300), config=st.text(max_size=100), host=st.text(max_size=30))
def test_whatever_the_files_hold_something_is_decided(known: str, config: str, host: str) -> None:
    scope(usual(host), Destination(host="10.0.0.0/8", tcp=frozenset({22})), known=known, config=config)
    assert KnownHosts(f"{known}\nweb1 {KEY}").keys_of("web1") or "@revoked" in known


def test_a_list_that_is_known_by_hashes_alone_is_decided_in_bounded_work() -> None:
    """Each of these lines has a salt of its own, so that it is compared with each host: a million times here."""
    names = [f"host{number:04}" for number in range(1_000)]
    known = "".join(f"{hashed(name)} {KEY}\n" for name in names)
    found = scope(*map(usual, names), known=known)
    assert (len(found.hosts), len(found.unknown)) == (MOST_COMPARISONS // 1_000, 1_000 - MOST_COMPARISONS // 1_000)
