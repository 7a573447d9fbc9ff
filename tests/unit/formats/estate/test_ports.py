"""The ports that manifests and compose files name with hosts: what a session's network has to hold for them."""

from __future__ import annotations

import pytest

from claudeops.domain.estate import hosts
from claudeops.domain.estate.estate import Manifest
from claudeops.formats.estate.combine import combine
from claudeops.formats.estate.compose import parse_compose, with_compose
from claudeops.formats.estate.manifest import parse_manifest


def ports(text: str) -> dict[str, tuple[int, ...]]:
    return dict(combine([parse_manifest(text, repository="r")]).ports)


def composed(text: str, manifest: str = "") -> dict[str, tuple[int, ...]]:
    described = parse_manifest(manifest, repository="r") if manifest else Manifest(repository="r")
    return dict(combine([with_compose(described, [parse_compose(text, path="r/compose.yml")])]).ports)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://shop.example/health?next=http://evil.example:9", [("shop.example", 443)]),
        ("http://shop.example", [("shop.example", 80)]),
        ("https://ops:secret@shop.example:8443/", [("shop.example", 8443)]),
        ("http://[fd00::7]:8080/", [("fd00::7", 8080)]),
        ("postgresql+psycopg://db1.example/shop", [("db1.example", 5432)]),
        ("mysql://db1.example", [("db1.example", 3306)]),
        ("rediss://cache.example", [("cache.example", 6379)]),
        ("ldaps://ldap.example and imaps://mail.example", [("ldap.example", 636), ("mail.example", 993)]),
        ("git+ssh://git.example/r", [("git.example", 22)]),
        ("shop.example:8080, 03:00", [("shop.example", 8080)]),
        ("gopher://old.example", []),
        ("http://shop.example:99999/", []),
        ("`nc -z db1.example 5432`", [("db1.example", 5432)]),
        ("`nc -zv -w 3 db1.example 5432 && true`", [("db1.example", 5432)]),
        ("`telnet mail.example 25`", [("mail.example", 25)]),
        ("`telnet mail.example`", [("mail.example", 23)]),
        ("`psql -h db1.example -p 6432 -c 'select 1'`", [("db1.example", 6432)]),
        ("`pg_isready -h db1.example`", [("db1.example", 5432)]),
        ("`psql --host=db1.example --port=6432`", [("db1.example", 6432)]),
        ("`mysqladmin -h db1.example -P 3307 ping`", [("db1.example", 3307)]),
        ("`redis-cli -h cache.example ping | grep PONG`", [("cache.example", 6379)]),
        ("`ssh -p 2222 ops@web1 uptime`", [("web1", 2222)]),
        ("`sudo ssh web1 'systemctl is-active shop'`", [("web1", 22)]),
        ("`ssh -J jump.example:2200 web1 uptime`", [("jump.example", 2200), ("web1", 22)]),
        ("`openssl s_client -connect mail.example:993 -servername mail.example`", [("mail.example", 993)]),
        ("`curl -fs shop.example/health`", [("shop.example", 80)]),
        ("`curl -fs shop.example:8080/health`", [("shop.example", 8080)]),
        ("`dig -p 5353 shop.example`", []),
        ("`ping web1`", []),
        ("`curl -fs localhost:8080/health`", [("localhost", 8080)]),
    ],
)
def test_an_address_or_a_command_names_ports(text: str, expected: list[tuple[str, int]]) -> None:
    assert sorted(set(hosts.in_address(text).ports)) == sorted(expected)


@pytest.mark.parametrize(
    "command",
    [
        "ssh web1 curl -fs http://localhost:8080/health",
        "docker exec shop curl -fs localhost:8080/health",
        "kubectl exec deploy/shop -- nc -z 127.0.0.1 8080",
    ],
)
def test_the_localhost_of_another_place_opens_no_port_of_this_machine(command: str) -> None:
    assert not [pair for pair in hosts.in_address(f"`{command}`").ports if pair[0] != "web1"]


def test_the_ports_of_every_part_of_a_manifest_are_kept_by_host() -> None:
    text = """
# Services

| Service | Host | URL | Check | Port |
| --- | --- | --- | --- | --- |
| shop | web1 | https://shop.example | `curl -fs http://web1:8080/health` | |
| db | DB1.example:5432 | | `pg_isready -h db1.example -p 6432` | |
| cache | cache.example | | | 6379, 16379/tcp |
| files | web2 | | `curl localhost:9000/minio/health` | |
| agent | | | `curl localhost:9100/metrics` | |
| dns | | | | 5353 |

# Hosts
- db1.example (10.0.0.5)
"""
    found = ports(text)
    assert found["shop.example"] == (443,)
    assert found["web1"] == (8080,)
    assert found["db1.example"] == (5432, 6432)
    assert found["cache.example"] == (6379, 16379)
    assert found["web2"] == (9000,)  # its own localhost
    assert found["localhost"] == (5353, 9100)


def test_a_port_counts_for_every_name_of_its_host() -> None:
    text = """---
hosts:
  db1:
    address: 10.0.0.5
services:
  db:
    host: db1
    check: "`nc -z db1 5432`"
---
"""
    assert (found := ports(text))["db1"] == (5432,)
    assert found["10.0.0.5"] == (5432,)


def test_no_port_is_kept_of_what_is_never_asked_or_no_host() -> None:
    text = "# Services\n- meta: http://169.254.169.254:80/ and *.example:80 and ${HOST}:99\n"
    assert ports(text) == {}


# --- compose files ------------------------------------------------------------------------------------

COMPOSE = """
services:
  shop:
    image: shop
    ports:
      - "8080:80"
      - 127.0.0.1:9000:9000/tcp
      - "10.0.0.5:8443:443"
      - "5353:53/udp"
      - "3000-3002:3000-3002"
      - "8081"
      - "${PORT}:80"
      - target: 80
        published: "8090"
      - {target: 53, published: 53, protocol: udp, host_ip: 10.0.0.6}
  web:
    labels: ["health=http://web.example:8181/"]
"""


def test_what_is_published_on_this_machine_counts_for_its_loopback() -> None:
    found = composed(COMPOSE)
    assert found["localhost"] == (3000, 3001, 3002, 8080, 8090, 9000)
    assert found["10.0.0.5"] == (8443,)
    assert found["web.example"] == (8181,)
    assert "10.0.0.6" not in found  # UDP


def test_what_is_published_where_the_manifest_says_that_it_runs_counts_there() -> None:
    found = composed(COMPOSE, "# Services\n- shop (web1): https://shop.example\n")
    assert found["web1"] == (3000, 3001, 3002, 8080, 8090, 9000)
    assert "localhost" not in found


def test_a_list_of_ports_that_many_services_share_is_read_once_and_bounded() -> None:
    shared = "x-p: &p\n" + "".join(f'  - "{port}:80"\n' for port in range(10_000, 14_000))
    text = shared + "services:\n" + "".join(f"  s{number}: {{ports: *p}}\n" for number in range(300))
    assert len(composed(text)["localhost"]) == 64


def test_a_range_of_all_ports_is_cut() -> None:
    found = composed('services:\n  a:\n    ports: ["1-65535:1-65535", "10.0.0.5:70000:1", "65530-65540:65530-65540"]\n')
    assert found["localhost"] == tuple(range(1, 65))
    assert "10.0.0.5" not in found
