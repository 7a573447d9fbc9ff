"""The list of a tier: what stands on the network of its sessions, and what never does, whoever names it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.network.destination import Destination
from claudeops.formats.network.addresses import Endpoint
from claudeops.formats.network.destinations import MOST, Exclusions, destinations
from claudeops.policy.tiers import TierPolicy, parse_policy, tier_policy

USUAL = {22, 80, 443}
ESTATE = Estate(
    hosts=("web1", "db1.example", "10.0.0.5", "fd00::5", "localhost", "127.0.0.1"),
    ports={"web1": (8080,), "db1.example": (5432,), "localhost": (9000,), "fd00::5": (22, 8443)},
    probed=("status.example.net", "db1.example"),
    probed_ports={"status.example.net": (8443,), "db1.example": (6432,)},
)


def tier(
    *,
    hosts: tuple[str, ...] = (),
    urls: tuple[str, ...] = (),
    network: tuple[str, ...] = (),
    never: tuple[str, ...] = (),
) -> TierPolicy:
    lists = f"hosts = {list(hosts)}\nurls = {list(urls)}\nnetwork = {list(network)}"
    return tier_policy(parse_policy(f"[tiers.1]\n{lists}\n[never]\nhosts = {list(never)}\n"), 1)


def listed(
    policy: TierPolicy,
    estate: Estate = NO_ESTATE,
    *,
    endpoints: tuple[Endpoint, ...] = (),
    ssh: str = "",
    here: tuple[str, ...] = (),
) -> Mapping[str, set[int]]:
    found = destinations(policy, estate, endpoints=endpoints, ssh=ssh, here=here)
    assert [one.host for one in found] == sorted({one.host for one in found})
    assert all(one.named <= one.tcp for one in found)
    return {one.host: set(one.tcp) for one in found}


# --- the estate ---------------------------------------------------------------------------------------


def test_the_estate_is_on_the_list_with_the_usual_ports_and_its_own() -> None:
    assert listed(tier(hosts=("{estate}",), urls=("{estate}",)), ESTATE) == {
        "web1": USUAL | {8080},
        "db1.example": USUAL | {5432, 6432},
        "10.0.0.5": USUAL,
        "fd00::5": USUAL | {8443},
        "localhost": {9000},
        "status.example.net": USUAL | {8443},
    }


def test_without_hosts_and_urls_nothing_of_the_estate_is_on_the_list() -> None:
    assert listed(tier(), ESTATE) == {}


@pytest.mark.parametrize(
    ("hosts", "urls", "expected"),
    [
        (("*",), (), {"web1", "db1.example", "10.0.0.5", "fd00::5", "localhost", "status.example.net"}),
        (("*.example*",), (), {"db1.example", "status.example.net"}),
        ((), ("https://*.example.net/health",), {"status.example.net"}),
        ((), ("http://web*:8080/*",), {"web1"}),
        ((), ("https://\\[fd00::5\\]:8443/*",), set()),
        (("{estate}", "!db*"), ("{estate}",), {"web1", "10.0.0.5", "fd00::5", "localhost", "status.example.net"}),
        ((), ("{estate}", "!http*://web1*"), {"db1.example", "10.0.0.5", "fd00::5", "localhost",
                                                              "status.example.net"}),
        ((), ("{estate}", "!http*://web1/admin/*"), {"web1", "db1.example", "10.0.0.5", "fd00::5", "localhost",
                                                     "status.example.net"}),
        (("10.0.0.*",), (), {"10.0.0.5"}),
    ],
)  # fmt: skip
def test_patterns_include_what_something_names(
    hosts: tuple[str, ...], urls: tuple[str, ...], expected: set[str]
) -> None:
    assert set(listed(tier(hosts=hosts, urls=urls), ESTATE)) == expected


def test_patterns_list_nothing_by_themselves() -> None:
    policy = tier(
        hosts=("*", "web*", "db[12]", "{estate}"), urls=("*", "https://*/*", "https://*.example.net/*", "{estate}")
    )
    assert listed(policy) == {}


# --- what the policy writes out -----------------------------------------------------------------------


def test_a_literal_host_is_on_the_list_and_a_network_as_a_network() -> None:
    policy = tier(hosts=("db1.example", "203.0.113.9", "[fd00::9]", "10.0.0.0/8", "192.168.1.7/32", "localhost"))
    found = listed(policy, ESTATE)
    assert found["db1.example"] == USUAL | {5432, 6432}
    assert found["203.0.113.9"] == found["fd00::9"] == found["10.0.0.0/8"] == found["192.168.1.7"] == USUAL
    assert found["10.0.0.5"] == USUAL  # the estate names it, and the network includes it
    assert found["localhost"] == {9000}
    assert "127.0.0.1" not in found  # nobody names a port of it


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("https://status.example.net/*", {"status.example.net": {443}}),
        ("http://status.example.net", {"status.example.net": {80}}),
        ("http*://Status.Example.net/*", {"status.example.net": {80, 443}}),
        ("https://status.example.net:8443/api/*", {"status.example.net": {8443}}),
        ("https://status.example.net:*/*", {"status.example.net": {443}}),
        ("https://[fd00::9]:8443/*", {"fd00::9": {8443}}),
        ("https://status.example.net:99999/", {}),
        ("https://*.example.net:8443/", {}),
        ("ftp://status.example.net/", {}),
        ("!https://status.example.net/*", {}),
        ("status.example.net", {}),  # matches no URL, for it has no scheme
    ],
)
def test_a_url_with_a_literal_host_is_on_the_list_with_its_port(pattern: str, expected: dict[str, set[int]]) -> None:
    assert listed(tier(urls=(pattern,))) == expected


def test_entries_of_network_and_endpoints_are_on_the_list_at_their_ports_alone() -> None:
    policy = tier(network=("db9.example:5432", "10.20.0.0/16:22,443", "10.0.0.53:53,53/udp", "localhost:4010"))
    found = destinations(policy, ESTATE, endpoints=[("mcp.example", 8931), ("127.0.0.1", 4011), ("db9.example", 22)])
    assert found == (
        Destination(host="10.0.0.53", tcp=frozenset({53}), udp=frozenset({53}), named=frozenset({53})),
        Destination(host="10.20.0.0/16", tcp=frozenset({22, 443}), named=frozenset({22, 443})),
        Destination(host="127.0.0.1", tcp=frozenset({4011}), named=frozenset({4011})),
        Destination(host="db9.example", tcp=frozenset({22, 5432}), named=frozenset({22, 5432})),
        Destination(host="localhost", tcp=frozenset({4010}), named=frozenset({4010})),
        Destination(host="mcp.example", tcp=frozenset({8931}), named=frozenset({8931})),
    )


def test_the_usual_ports_of_a_host_are_not_taken_for_named_ones() -> None:
    (only,) = destinations(tier(hosts=("{estate}",)), Estate(hosts=("web1",), ports={"web1": (443, 8080)}))
    assert (set(only.tcp), set(only.named)) == (USUAL | {8080}, {443, 8080})


def test_what_is_named_for_this_machine_counts_for_its_loopback() -> None:
    policy = tier(hosts=("{estate}",))
    assert listed(policy, ESTATE, here=("Web1", "web1.example"))["localhost"] == {8080, 9000}
    assert listed(policy, ESTATE, here=("other",))["localhost"] == {9000}
    assert listed(tier(), ESTATE, here=("web1",)) == {}


# --- ssh ----------------------------------------------------------------------------------------------

SSH = """
Host web1
  HostName 10.0.0.9
  Port 2222
  ProxyJump jump.example
Host 203.0.113.*
  HostName 169.254.169.254
Host nowhere
  HostName 10.0.0.10
"""


def test_where_ssh_connects_for_a_host_is_on_the_list() -> None:
    found = destinations(tier(hosts=("{estate}", "203.0.113.9")), ESTATE, ssh=SSH)
    by_host = {one.host: one.tcp for one in found}
    assert by_host["10.0.0.9"] == {2222}
    assert by_host["jump.example"] == {22}
    assert not {"10.0.0.10", "169.254.169.254"} & by_host.keys()
    assert next(one.named for one in found if one.host == "10.0.0.5") == frozenset()


def test_a_host_without_port_22_needs_no_ssh() -> None:
    assert set(listed(tier(network=("web1:443",)), ssh=SSH)) == {"web1"}


# --- what is never on the list ------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["169.254.169.254", "metadata.google.internal", "fe80::1", "100.100.100.200", "a b"])
def test_what_is_never_asked_is_on_no_list_whoever_names_it(host: str) -> None:
    estate = Estate(hosts=(host,), ports={host: (80,)}, probed=(host,), probed_ports={host: (80,)})
    policy = tier(hosts=("*", "{estate}", host), urls=("*", f"http://{host}/"))
    assert listed(policy, estate, endpoints=((host, 80),)) == {}


@pytest.mark.parametrize("exclusion", ["db1.example", "DB*", "*.example"])
def test_what_the_policy_excludes_is_on_no_list_whoever_names_it(exclusion: str) -> None:
    endpoints = (("db1.example", 5432), ("a.test", 80))
    ssh = "Host a.test\n  HostName db1.example\n"
    names = ("db1.example", "a.test", "{estate}")
    for policy in (
        tier(hosts=(*names, f"!{exclusion}"), urls=("https://db1.example/*",), network=("db1.example:22",)),
        tier(hosts=names, urls=("https://db1.example/*",), network=("db1.example:22",), never=(exclusion,)),
    ):
        found = listed(policy, ESTATE, endpoints=endpoints, ssh=ssh)
        assert "a.test" in found
        assert "db1.example" not in found


def test_what_is_not_of_the_estate_alone_is_not_in_it() -> None:
    found = listed(tier(hosts=("*", "!{estate}", "other.example")), ESTATE, endpoints=(("10.9.9.9", 80),))
    assert set(found) == {"other.example"}


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(first: str, last: str) -> st.SearchStrategy[Network]:
    low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
    return st.builds(
        lambda bits, prefix: ipaddress.ip_network((type(low)(bits), prefix), strict=False),
        st.integers(int(low), int(high)),
        st.integers(0, low.max_prefixlen - 1),
    )


every = networks("0.0.0.1", "255.255.255.255") | networks("::", "2003::") | networks("fc00::", "fe81::")


@given(every, st.lists(every, max_size=3), st.integers(0, 2**128 - 1))
def test_no_network_contains_what_is_never_asked_or_excluded(network: Network, gone: list[Network], place: int) -> None:
    policy = tier(hosts=(str(network), *(f"!{each}" for each in gone[:1])), never=tuple(map(str, gone[1:])))
    unwanted = Exclusions(policy, NO_ESTATE)
    left = unwanted.left_of(Destination(host=str(network), tcp=frozenset({22})))
    parts = [ipaddress.ip_network(one.host) for one in left]
    for part in parts:
        assert [other for other in parts if part.overlaps(other)] == [part]
        for address in (part[0], part[-1], part[place % part.num_addresses]):
            assert address in network
            assert not unwanted.has(str(address))
            assert not address.is_loopback


@given(networks("10.0.0.0", "10.255.255.255") | networks("fd00::", "fdff::"), st.lists(every, max_size=3), st.data())
def test_a_network_keeps_what_nothing_excludes(network: Network, gone: list[Network], data: st.DataObject) -> None:
    policy = tier(hosts=(str(network),), never=tuple(map(str, gone)))
    asked = network[data.draw(st.integers(0, network.num_addresses - 1))]
    assume(asked.is_private and not asked.is_reserved and not asked.is_loopback and int(asked) > 2**24)
    assume(asked not in ipaddress.ip_network("100::/8") if asked.version == 6 else True)
    assume(not Exclusions(policy, NO_ESTATE).has(str(asked)))
    assert any(asked in ipaddress.ip_network(host) for host in listed(policy))


@pytest.mark.parametrize(
    ("never", "absent", "present"),
    [
        ("10.0.0.5", "10.0.0.5", "10.0.0.4"),
        ("10.0.0.0/24", "10.0.0.255", "10.0.1.0"),
        ("10.0.*", "10.0.200.1", "10.1.0.0"),
        ("10.*", "10.200.0.1", ""),
        ("*", "10.200.0.1", ""),
    ],
)
def test_a_network_is_listed_without_what_is_forbidden(never: str, absent: str, present: str) -> None:
    found = [ipaddress.ip_network(host) for host in listed(tier(hosts=("10.0.0.0/8",), never=(never,)))]
    assert not any(ipaddress.ip_address(absent) in part for part in found)
    assert not present or any(ipaddress.ip_address(present) in part for part in found)


def test_everything_by_ipv4_is_a_few_networks_without_this_machine() -> None:
    found = [ipaddress.ip_network(host) for host in listed(tier(network=("0.0.0.0/0:443",)))]
    assert len(found) < 150
    assert not any(ipaddress.ip_address(address) in part for part in found for address in ("127.0.0.1", "0.0.0.7"))
    assert any(ipaddress.ip_address("203.0.113.9") in part for part in found)


def test_a_list_is_bounded_and_what_the_policy_names_comes_first() -> None:
    crowd = Estate(hosts=tuple(f"h{number}.example" for number in range(5000)))
    found = listed(tier(hosts=("{estate}",), network=("z.example:1",)), crowd, endpoints=(("y.example", 2),))
    assert len(found) == MOST
    assert {"y.example", "z.example"} <= found.keys()
