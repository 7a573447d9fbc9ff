"""Probes that manifests make, and what a manifest cannot make us ask."""

from __future__ import annotations

import pytest

from claudeops.domain.estate.estate import Estate, Manifest, Service
from claudeops.domain.probes.probe import (
    AnyLook,
    HttpLook,
    IcmpLook,
    MysqlLook,
    PostgresLook,
    RedisLook,
    TcpLook,
    TlsLook,
)
from claudeops.formats.probes.from_manifests import MOST_OF_REPOSITORY, MOST_PORTS, all_probes, derive, of_estate
from claudeops.formats.probes.keys import Defaults
from support.probes import estate, probe, service


@pytest.mark.parametrize(
    ("described", "look"),
    [
        (service("s", "https://shop.example.com/health"), HttpLook(url="https://shop.example.com/health")),
        (service("s", "http://127.0.0.1:8080"), HttpLook(url="http://127.0.0.1:8080")),
        (service("s", "web1:8080/health"), HttpLook(url="http://web1:8080/health")),
        (service("s", "web1:22"), TcpLook(host="web1", port=22)),
        (service("s", "[fd00::1]:22"), TcpLook(host="fd00::1", port=22)),
        (service("s", "web1:443"), TlsLook(host="web1", port=443)),
        (service("s", "10.0.0.5:443"), TcpLook(host="10.0.0.5", port=443)),
        (service("s", "web1:8080", kind="http"), HttpLook(url="http://web1:8080")),
        (service("s", "db1:5432"), PostgresLook(host="db1", port=5432)),
        (service("s", "db1:6432", kind="postgres"), PostgresLook(host="db1", port=6432)),
        (service("s", "postgresql://db1/shop"), PostgresLook(host="db1", port=5432)),
        (service("s", "db1:3306"), MysqlLook(host="db1", port=3306)),
        (service("s", "db1:3310", kind="MariaDB"), MysqlLook(host="db1", port=3310)),
        (service("s", "cache:6380", kind="valkey"), RedisLook(host="cache", port=6380)),
        (service("s", "redis://cache"), RedisLook(host="cache", port=6379)),
        (service("s", "tcp://db1:5432"), TcpLook(host="db1", port=5432)),
        (service("s", "tls://mail:993"), TlsLook(host="mail", port=993)),
        (service("s", host="Web1"), IcmpLook(host="web1")),
        (service("s", "web1"), IcmpLook(host="web1")),
    ],
)
def test_an_address_says_how_a_service_is_asked(described: Service, look: AnyLook) -> None:
    (found,) = of_estate(estate(described))

    assert found.look == look


def test_a_derived_probe_says_where_it_is_from_and_is_as_the_defaults_say() -> None:
    (found,) = of_estate(estate(service("shop", "web1:80")), defaults=Defaults(interval=5, failures=2))

    assert (found.name, found.service, found.origin) == ("shop", "shop", "media/CLAUDE-OPS.md:7")
    assert (found.interval, found.timeout, found.retry_interval, found.failures) == (5, 5, 5, 2)


def test_an_echo_of_a_host_proves_nothing_about_what_runs_there() -> None:
    found = of_estate(estate(service("shop", host="web1"), service("mail", host="web1"), hosts=("nas", "localhost")))

    assert [(each.name, each.service) for each in found] == [("web1:icmp", "web1"), ("nas:icmp", "nas")]


def test_the_host_of_an_address_is_not_asked_for_echoes_too() -> None:
    shop, mail = service("shop", "https://shop.example.org/"), service("mail", "tcp://mx:25", host="web1")
    found = of_estate(estate(shop, mail, hosts=("shop.example.org", "mx", "web1")))

    assert [each.name for each in found] == ["shop", "mail", "web1:icmp"]


def test_names_are_those_of_the_services_in_characters_that_can_be_typed() -> None:
    found = of_estate(estate(service("Home Assistant", "ha:8123"), service("büro/drucker", "print:631")))

    assert [each.name for each in found] == ["Home-Assistant", "b-ro/drucker"]


def test_a_new_repository_takes_nobodys_name() -> None:
    own = Manifest(repository="media", services=(service("shop", "http://web1/"),))
    other = Manifest(repository="evil", services=(service("Shop", "http://evil/"), service("x", "evil:1")))

    assert [each.name for each in of_estate(Estate(manifests=(own, other)))] == ["media/shop", "evil/Shop", "x"]
    assert [each.name for each in of_estate(Estate(manifests=(own, own)))] == ["shop"]


def test_services_of_one_name_in_one_repository_are_numbered() -> None:
    found = of_estate(estate(service("a b", "a:1"), service("a-b", "a:2")))

    assert [each.name for each in found] == ["media/a-b", "media/a-b-2"]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("http://169.254.169.254/latest/meta-data/", "link-local or metadata"),
        ("169.254.169.254:80", "link-local or metadata"),
        ("169.254.169.254", "link-local or metadata"),
        ("metadata.google.internal:80", "an address that is never asked"),
        ("[fe80::1]:80", "link-local or metadata"),
        ("2852039166:80", "is not a plain address"),
        ("0.0.0.0:80", "not the address of one machine"),
        ("255.255.255.255", "not the address of one machine"),
        ("239.0.0.1:80", "never asked"),
        ("http://docker:2375/containers/web/json", "would show environments"),
        ("http://web1/reboot?now=1", "without a query"),
        ("http://web1/#x", "without a query"),
        ("http://mail:25/", "port 25 does not speak HTTP"),
        ("http://printer:9100/", "port 9100 does not speak HTTP"),
        ("file:///etc/passwd", "file:// is not known"),
        ("gopher://web1:70/x", "gopher:// is not known"),
        ("web1:99999", "there is no port 99999"),
        ("web1:0", "there is no port 0"),
        ("web1:http", "is not a port"),
        ("web1:80-90", "is not a port"),
        ("web1 web2", "is not a plain host name"),
        ("$(id):80", "is not a plain host name"),
    ],
)
def test_what_a_manifest_cannot_make_us_ask(address: str, sentence: str) -> None:
    found = derive(estate(service("s", address)))

    assert found.probes == ()
    assert sentence in str(found.faults[0])
    assert str(found.faults[0]).startswith("media/CLAUDE-OPS.md:7: no probe is made of this: ")


@pytest.mark.parametrize("address", ["https://me:s3cr3t@web1/", "postgres://me:s3cr3t@db1/shop", "me:s3cr3t@web1:22"])
def test_a_password_in_an_address_is_not_repeated(address: str) -> None:
    found = derive(estate(service("s", address)))

    assert found.probes == ()
    assert "credentials" in str(found.faults[0])
    assert "s3cr3t" not in str(found.faults[0])


def test_nobody_scans_the_ports_of_a_host_through_a_manifest() -> None:
    spellings = ("web1", "WEB1", "web1.")
    scan = [service(f"s{port}", f"{spellings[port % 3]}:{port}") for port in range(1, 1000)]
    found = derive(estate(*scan, service("again", "http://web1:7/")))

    assert len(found.probes) == MOST_PORTS
    assert len(found.faults) == len(scan) + 1 - MOST_PORTS
    assert "declare it as a probe" in str(found.faults[0])


def test_nobody_scans_a_network_through_a_manifest() -> None:
    found = derive(estate(*(service(f"s{count}", f"10.0.{count // 250}.{count % 250}:22") for count in range(2000))))

    assert len(found.probes) == MOST_OF_REPOSITORY
    assert len(found.faults) == 2000 - MOST_OF_REPOSITORY


def test_what_the_policy_keeps_out_of_reach_is_not_asked() -> None:
    def refuse(host: str) -> str | None:
        return f"{host} is a host that the policy forbids at every tier" if host == "vault" else None

    found = derive(estate(service("v", "https://Vault/"), service("w", "vault:22"), service("s", "a:1")), refuse=refuse)

    assert [each.name for each in found.probes] == ["s"]
    assert "the policy forbids" in str(found.faults[0])


def test_the_operators_probes_replace_those_of_manifests() -> None:
    known = estate(service("shop", "http://web1/"), service("db", "db1:5432"), service("mail", "m:25"))
    declared = [
        probe("front", service="SHOP", look=HttpLook(url="http://web1/health")),  # the same service and kind
        probe("DB", service="other"),  # the same name
        probe("mail-tls", service="mail", look=TlsLook(host="m")),  # another kind
    ]

    found = all_probes(declared, of_estate(known), known)

    assert [each.name for each in found] == ["front", "DB", "mail-tls", "mail"]
