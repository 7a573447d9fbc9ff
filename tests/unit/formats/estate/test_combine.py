"""One service is counted once, whatever it is called; what could merge two by mistake merges none."""

from __future__ import annotations

from claudeops.domain.estate.estate import Estate
from claudeops.formats.estate.combine import combine
from claudeops.formats.estate.compose import parse_compose, with_compose
from claudeops.formats.estate.manifest import parse_manifest
from support.understood import estate_of

SHOP = "# Services\n- shop (web1, aka store): https://shop.example.org/\n"
COMPOSE = """
name: media
x-common: &common
  restart: always
services:
  shop:
    <<: *common
    image: shop
    container_name: shop-app
    hostname: shop.lan
    environment:
      PASSWORD: hunter2
      OTHER: https://secret.example.org/
    ports: ["10.0.0.9:8080:80", "0.0.0.0:9090:90", "443:443"]
    labels:
      - "traefik.http.routers.shop.rule=Host(`shop.example.org`, `www.example.org`) || Host(`${DOMAIN}`)"
      - "homepage.href=https://start.example.org:8443/"
      - "traefik.tcp.routers.shop.rule=HostSNI(`*`)"
  worker:
    image: worker
    deploy:
      labels:
        rule: "Host(`worker.example.org`)"
    networks:
      default:
        aliases: [jobs.lan]
"""


def with_files(text: str, *composed: str, path: str = "media/compose.yml") -> Estate:
    manifest = parse_manifest(text, repository="media")
    return combine([with_compose(manifest, [parse_compose(one, path=path) for one in composed])])


def test_a_service_is_counted_by_its_name_whatever_stands_in_front() -> None:
    names = estate_of(SHOP).other_names
    assert names == {"store": "shop", "web1/shop": "shop", "web1/store": "shop"}


def test_a_host_with_several_names_is_one_host() -> None:
    names = estate_of("# Hosts\n- web1 (10.0.0.5, web1.example.org)\n" + SHOP).other_names
    assert {name for name, main in names.items() if main == "shop"} == {
        "store",
        *(f"{host}/{name}" for host in ("web1", "10.0.0.5", "web1.example.org") for name in ("shop", "store")),
    }


def test_containers_of_a_described_service_are_that_service() -> None:
    estate = with_files(SHOP, COMPOSE)
    assert estate.other_names["shop-app"] == "shop"
    assert estate.other_names["project:media/shop"] == "shop"
    assert estate.other_names["web1/project:media/shop"] == "shop"
    (service,) = estate.services
    assert service.aliases == ("store", "shop-app")
    assert "jobs.lan" not in estate.other_names


def test_a_container_that_compose_names_itself_is_known_too() -> None:
    names = with_files(SHOP, "services:\n  shop:\n    image: x\n", path="media/My Media/compose.yml").other_names
    assert {name for name in names if "/" not in name} == {"store", "mymedia-shop-1", "mymedia_shop_1"}


def test_compose_files_name_hosts_but_nothing_of_an_environment() -> None:
    estate = with_files("", COMPOSE)
    assert set(estate.hosts) == {
        *("shop", "shop-app", "shop.lan", "10.0.0.9", "shop.example.org", "www.example.org", "start.example.org"),
        *("worker", "worker.example.org", "jobs.lan"),
    }
    assert estate.faults == ()
    assert estate.expected == ()


def test_a_compose_file_that_is_none_is_a_fault_with_its_line() -> None:
    (fault,) = with_files(SHOP, "services:\n  a: [\n").faults
    assert (fault.source.path, fault.source.line) == ("media/compose.yml", 3)


def test_a_label_with_a_metadata_address_is_a_fault_and_no_host() -> None:
    estate = with_files("", "services:\n  a:\n    labels:\n      x: http://169.254.169.254/latest\n")
    assert estate.hosts == ("a",)
    assert [fault.source.line for fault in estate.faults] == [4]


def test_one_service_of_two_repositories_is_one_if_its_host_agrees() -> None:
    estate = estate_of(SHOP, "# Services\n- shop (web1, aka bazaar)\n", "# Services\n- shop\n")
    assert estate.faults == ()
    assert estate.other_names["bazaar"] == estate.other_names["store"] == estate.other_names["web1/bazaar"] == "shop"


def test_one_name_on_two_hosts_is_two_services_and_the_name_alone_is_none() -> None:
    estate = estate_of("# Services\n- nginx (web1, aka front)\n", "# Services\n- nginx (web2)\n")
    assert estate.other_names == {"front": "web1/nginx", "web1/front": "web1/nginx"}
    (fault,) = estate.faults
    assert fault.source.path == "r2/CLAUDE-OPS.md"
    assert "give each a name of its own" in fault.sentence


def test_an_alias_that_two_services_claim_counts_for_neither() -> None:
    estate = estate_of("# Services\n- shop (aka store)\n", "# Services\n- depot (aka store)\n")
    assert estate.other_names == {}
    assert [service.aliases for service in estate.services] == [(), ()]
    assert [fault.source.path for fault in estate.faults] == ["r/CLAUDE-OPS.md", "r2/CLAUDE-OPS.md"]


def test_an_alias_cannot_take_another_service_over() -> None:
    estate = estate_of("# Services\n- shop (aka DB)\n", "# Services\n- db\n")
    assert estate.other_names == {}
    (fault,) = estate.faults
    assert (fault.source.path, fault.source.line) == ("r/CLAUDE-OPS.md", 2)


def test_a_name_with_its_host_in_front_cannot_take_another_service_over() -> None:
    estate = estate_of("# Services\n- shop (web1)\n- `web1/shop`\n")
    assert "web1/shop" not in estate.other_names


def test_what_one_manifest_needs_another_may_describe() -> None:
    needs = "# Services\n- shop: https://shop.example.org/, needs db\n# Rules\n- never restart db\n"
    assert [fault.source.line for fault in estate_of(needs).faults] == [2, 4]
    assert estate_of(needs, "# Services\n- postgres (aka db)\n").faults == ()


def test_what_is_forbidden_stays_so_by_a_name_that_two_services_claim() -> None:
    text = "# Services\n- api (web1), never restart\n- legacy (web1)\n"
    shared = "services:\n  api: &api\n    container_name: prod-api\n  legacy: *api\n"
    estate = with_files(text, shared)
    (rule,) = estate.prohibitions
    assert rule.services == ("api", "prod-api")
    assert "prod-api" not in estate.other_names
    (rule,) = with_files(text.replace(", never restart", "") + "# Never\n- restart\n", shared).prohibitions
    assert rule.services == ("*", "prod-api")
