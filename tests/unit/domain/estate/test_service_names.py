"""Which names mean one service, by the policy and by the manifests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.estate.estate import Estate, Manifest, Service, StatementSource
from claudeops.domain.estate.service_names import ServiceNames, container_of, counted_by, counted_names, forms
from claudeops.text import casefold_key


def service(name: str, *aliases: str, host: str = "") -> Service:
    return Service(name=name, aliases=aliases, host=host, source=StatementSource(path="media/CLAUDE-OPS.md"))


def estate(*services: Service) -> Estate:
    other_names = {alias: each.name for each in services for alias in each.aliases}
    return Estate(manifests=(Manifest(repository="media", services=services),), other_names=other_names)


@pytest.mark.parametrize(
    ("own", "services", "name", "expected"),
    [
        ({}, (service("web", "media-web-1"),), "media-web-1", "web"),
        ({}, (service("web", "media-web-1"),), "MEDIA-Web-1 ", "web"),
        ({}, (service("web", "media-web-1"),), "web", "web"),
        ({}, (service("web", "media-web-1"),), "db", "db"),
        # behind the host that the manifest names
        ({}, (service("web", "nginx", host="Web1."),), "web1/web", "web"),
        ({}, (service("web", "nginx", host="web1"),), "web1/nginx", "web"),
        ({}, (service("web", host="web1"),), "web2/web", "web2/web"),
        ({}, (service("web", host="web1"), service("web", host="web2")), "web1/web", "web1/web"),
        # the policy comes first
        ({"media-web-1": "shop"}, (service("web", "media-web-1"),), "media-web-1", "shop"),
        ({"media-web-1": "shop"}, (service("web", "media-web-1"),), "web", "shop"),
        ({"MEDIA-WEB-1": "shop"}, (service("web", "media-web-1", "www"),), "WWW", "shop"),
        ({"x": "web"}, (service("shop", "web", host="web1"),), "web1/web", "web"),
        ({"x": "web"}, (service("shop", "web"),), "shop", "web"),
        ({"a": "one", "b": "two"}, (service("web", "a", "b"),), "a", "one"),
        ({"a": "one", "b": "two"}, (service("web", "a", "b"),), "b", "two"),
    ],
)
def test_a_name_counts_for(own: dict[str, str], services: tuple[Service, ...], name: str, expected: str) -> None:
    assert counted_by(counted_names(estate(*services), own))(name) == expected


NAMES = st.sampled_from(["web", "WEB", "db", "media-web-1", "a", "b", "web1/web", "straße", "STRASSE"])


@given(st.dictionaries(NAMES, NAMES, max_size=4), st.dictionaries(NAMES, NAMES, max_size=4), NAMES)
def test_what_the_policy_says_of_a_name_stands(own: dict[str, str], others: dict[str, str], name: str) -> None:
    alone = counted_by(own)
    counted = counted_by(counted_names(Estate(other_names=others), own))
    if casefold_key(alone(name)) != casefold_key(name):
        assert counted(name) == alone(name)
    assert casefold_key(counted(name)) == casefold_key(counted(name.upper()))


# --- names that swarm, podman, systemd and compose make --------------------------------------------------

TASK = "k3v9q2m8x7w5t1r6p4n0b2c7d"


@pytest.mark.parametrize(
    ("name", "container"),
    [
        (f"shop_web.1.{TASK}", "shop_web"),
        (f"web1/shop_web.{TASK}.{TASK}", "web1/shop_web"),
        ("systemd-web", "web"),
        ("web1/container-web", "web1/web"),
        ("docker.web", "web"),
        ("podman@web", "web"),
        ("project:media/docker-web", "project:media/web"),
        # of another kind
        ("web", "web"),
        ("web.1", "web.1"),
        (f"web.1.{TASK[1:]}", f"web.1.{TASK[1:]}"),
        ("docker", "docker"),
        ("my-docker-web", "my-docker-web"),
        ("docker-web/cart", "docker-web/cart"),
    ],
)
def test_other_names_of_a_container(name: str, container: str) -> None:
    assert container_of(name) == container


def test_another_name_of_a_container_leads_to_its_service_unless_it_is_known_itself() -> None:
    names = ServiceNames(estate(service("web", "media-web-1"), service("docker-registry")), {"cart": "shop"})
    assert names.counts_as("docker-media-web-1") == "web"
    assert names.counts_as(f"media-web-1.1.{TASK}") == "web"
    assert names.counts_as("systemd-docker-cart") == "shop"
    assert names.counts_as("docker-registry") == "docker-registry"
    assert names.counts_as("nas/Docker-Registry") == "nas/Docker-Registry"
    assert names.counts_as("docker-other") == "other"
    assert [names.knows(name) for name in ("WEB", "media-web-1", "cart", "shop", "docker-registry")] == [True] * 5
    assert not names.knows("registry")


def test_every_name_is_among_all_names_of_a_service() -> None:
    names = ServiceNames(estate(service("web", "media-web-1")), {}).all_of("docker-web")
    assert names[:2] == ("docker-web", "web")
    assert {"media-web-1", "project:media/web"} <= set(names)


@pytest.mark.parametrize(
    ("name", "among"),
    [
        ("DB@main.service", {"db"}),
        ("nas/media-my-db-1", {"media-my-db", "my-db", "db", "project:media/my-db", "project:media-my/db"}),
        ("nas/media-my-db-1", {"nas/project:media/my-db", "nas/project:media-my/db"}),
        ("container:systemd-app/worker", {"worker", "systemd-app", "app"}),
    ],
)
def test_forms_that_a_name_may_stand_in(name: str, among: set[str]) -> None:
    assert among <= set(forms(name))
