"""Which service of the estate an alert is about: by its names, checks, URLs and hosts, where they are its alone."""

from __future__ import annotations

import pytest

from claudeops.domain.alerts import subject
from claudeops.domain.estate.estate import Estate, Manifest, Service
from claudeops.domain.estate.estate import StatementSource as Place
from claudeops.domain.probes.dependencies import dependencies_of
from claudeops.domain.probes.probe import (
    DockerLook,
    HeartbeatLook,
    HttpLook,
    KubernetesLook,
    Probe,
    SystemdLook,
    TcpLook,
)
from claudeops.structs import replace
from support.alerts import World, alert, rules_of

KSM = {
    "job": "kube-state-metrics",
    "service": "kube-prometheus-stack-kube-state-metrics",
    "instance": "10.42.0.9:8080",
    "endpoint": "http",
    "prometheus": "monitoring/kube-prometheus-stack-prometheus",
}


def service(name: str, **fields: object) -> Service:
    return Service(name=name, source=Place(path="x/CLAUDE-OPS.md"), **fields)  # type: ignore[arg-type]


ESTATE = Estate(
    manifests=(
        Manifest(
            repository="home",
            services=(
                service("Shop", address="https://shop.example.org", host="web1", aliases=("shop-web",)),
                service("wiki", address="https://home.example.org/wiki", host="web2"),
                service("photos", address="https://home.example.org/photos", host="web2"),
                service("postgres", check="pg_isready -h db1.lan -p 5432", host="db1.lan"),
                service("local", address="http://localhost:8080"),
            ),
            same_hosts=(("db1.lan", "10.0.0.5"),),
            projects={"Shop": ("home-shop-1",)},
        ),
    ),
    other_names={"shop-web": "Shop", "checkout": "Shop", "web1/checkout": "Shop"},
)
PROBES = (
    Probe(name="photos-tcp", look=TcpLook(host="photos.lan", port=9000), service="photos", origin="p:1"),
    Probe(
        name="cart up",
        look=KubernetesLook(workload="deployment/cart", namespace="prod"),
        service="basket",
        origin="p:2",
    ),
    Probe(name="mail", look=DockerLook(container="mailserver"), service="mail", origin="p:3"),
    Probe(name="dns", look=SystemdLook(unit="unbound.service"), service="resolver", origin="p:4"),
    Probe(name="nightly", look=HeartbeatLook(every=60.0), service="backups", origin="p:5"),
    Probe(name="api", look=HttpLook(url="https://api.example.org/v1"), service="api", origin="p:6"),
)
DIRECTORY = dependencies_of(PROBES, ESTATE).directory

KNOWN: dict[str, tuple[dict[str, str], str, str]] = {
    "a name": ({"app": "SHOP"}, "Shop", "app"),
    "another name": ({**KSM, "namespace": "x", "deployment": "checkout"}, "Shop", "deployment and namespace"),
    "a URL": ({"job": "blackbox", "instance": "https://shop.example.org/login"}, "Shop", "instance"),
    "a URL with its port": ({"job": "sites", "target": "https://shop.example.org:443"}, "Shop", "target"),
    "a URL below another": (
        {"job": "blackbox", "instance": "https://home.example.org/photos/health"},
        "photos",
        "instance",
    ),
    "a host": ({"job": "node", "instance": "web1:9100"}, "Shop", "instance"),
    "a host with its domain": ({"job": "node", "instance": "web1.lan:9100"}, "Shop", "instance"),
    "a host's address": ({"job": "node", "instance": "10.0.0.5:9100"}, "postgres", "instance"),
    "the host of a check": ({"job": "blackbox-tcp", "instance": "db1.lan:5432"}, "postgres", "instance"),
    "a container of compose": ({"job": "cadvisor", "name": "home-shop-1", "instance": "cadvisor:8080"}, "Shop", "name"),
    "a container of a probe": ({"job": "cadvisor", "name": "mailserver", "instance": "cadvisor:8080"}, "mail", "name"),
    "the address of a probe": ({"job": "blackbox-tcp", "instance": "photos.lan:9000"}, "photos", "instance"),
    "the URL of a probe": ({"job": "blackbox", "instance": "https://api.example.org/v1/health"}, "api", "instance"),
    "the workload of a probe": (
        {**KSM, "namespace": "prod", "deployment": "cart"},
        "basket",
        "deployment and namespace",
    ),
    "a check": ({"check": "nightly", "host": "nas"}, "backups", "check"),
    "a unit": ({"job": "node", "instance": "x:9100", "name": "unbound.service"}, "resolver", "name"),
    "a router's service": (
        {"job": "traefik", "exported_service": "shop-web@docker", "service": "traefik"},
        "Shop",
        "exported_service",
    ),
    "an exporter's server with a database": (
        {"job": "postgres-exporter", "datname": "shop"},
        "postgres",
        "job",
    ),
    "an exporter's server in a pod, with a database": (
        {
            "job": "prometheus-postgres-exporter",
            "namespace": "data",
            "pod": "postgres-exporter-6c9f7d8b5-x2m4q",
            "datname": "wiki",
        },
        "postgres",
        "job and namespace",
    ),
    "an exporter's server on its host, with a unit": (
        {"job": "postgres_exporter", "instance": "db1.lan:9187", "systemd_unit": "unbound.service"},
        "postgres",
        "job and instance",
    ),
    "a database of a server that is unknown": (
        {"job": "mysqld-exporter", "instance": "mysqld-exporter:9104", "database": "wiki"},
        "wiki",
        "database",
    ),
    "an exporter's server": ({"job": "postgres-exporter", "instance": "postgres-exporter:9187"}, "postgres", "job"),
}

UNKNOWN: dict[str, dict[str, str]] = {
    "a host of several services": {"job": "node", "instance": "web2:9100"},
    "a URL of several services": {"job": "blackbox", "instance": "https://home.example.org/"},
    "a workload on a service's host": {**KSM, "namespace": "x", "pod": "other-6c9f7d8b5-x2m4q", "node": "web1"},
    "a service that runs elsewhere": {**KSM, "namespace": "staging", "deployment": "cart"},
    "the machine of whoever asks": {"job": "node", "instance": "localhost:9100"},
    "a workload with a hint": {"namespace": "media", "pod": "jellyfin-7d4b9c8f6-abcde", "domain": "shop"},
    "a container with a hint": {"job": "cadvisor", "name": "jellyfin", "instance": "cadvisor:8080", "backend": "shop"},
    "a service with a hint": {"service": "jellyfin", "check": "nightly", "datname": "shop"},
    "another path": {"job": "x", "severity": "shop", "env": "wiki"},
}


@pytest.mark.parametrize("case", KNOWN)
def test_what_the_estate_knows_comes_before_what_labels_say(case: str) -> None:
    labels, name, by = KNOWN[case]
    found = subject.in_estate(labels, (), DIRECTORY)
    assert found is not None
    assert found.service == name
    assert found.by == f"its label{'s' if ' and ' in by else ''} {by}, by which the estate knows it"


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_may_be_several_services_is_none_of_them(case: str) -> None:
    assert subject.in_estate(UNKNOWN[case], (), DIRECTORY) is None


def test_a_monitor_is_known_by_its_name() -> None:
    found = subject.in_estate({"monitor": "x"}, ("Wiki",), DIRECTORY)
    assert found is not None
    assert (found.service, found.by) == ("wiki", "its name, by which the estate knows it")


def test_the_desk_says_whom_it_is_about_and_by_which_label_unless_the_operator_has_named_another() -> None:
    labels = {**KSM, "alertname": "A", "namespace": "prod", "deployment": "cart", "team": "web"}
    said = alert("A", "prod/cart", labels=labels, service_by="its labels deployment and namespace")
    world = World(case={"dependencies": dependencies_of(PROBES, ESTATE)})
    (ruling,) = world.say(said)
    assert ruling.reason.endswith("basket by its labels deployment and namespace, by which the estate knows it")
    assert world.incidents[1].services == ("basket",)
    plain = rules_of()
    source = replace(plain.sources[0], service_label=("team",))
    named = World(rules=replace(plain, sources=(source,)), case=world.case)
    named.say(replace(said, service="web"))
    assert named.incidents[1].services == ("web",)
