"""Whom an alert is about: what people's Prometheus really sends, and who must never be taken for the patient."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from claudeops.domain.alerts import subject
from claudeops.domain.alerts.alert import SenderBody
from claudeops.domain.alerts.exporters import exporter
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.domain.alerts.workloads import workload_of
from claudeops.formats.senders import read
from support.alerts import NOON

KSM = {
    "job": "kube-state-metrics",
    "service": "kube-prometheus-stack-kube-state-metrics",
    "instance": "10.42.0.9:8080",
    "endpoint": "http",
    "prometheus": "monitoring/kube-prometheus-stack-prometheus",
}
KUBELET = {
    "job": "kubelet",
    "service": "kube-prometheus-stack-kubelet",
    "instance": "10.0.0.5:10250",
    "endpoint": "https-metrics",
    "metrics_path": "/metrics/cadvisor",
    "node": "worker1",
}
NODE_POD = {
    "job": "node-exporter",
    "service": "kps-prometheus-node-exporter",
    "endpoint": "http-metrics",
    "namespace": "monitoring",
    "pod": "kps-prometheus-node-exporter-x7k2p",
    "container": "node-exporter",
}

# labels → the service, and the labels that name it; "": its name does
SAID: dict[str, tuple[dict[str, str], str, str]] = {
    # objects of a cluster
    "a pod of a Deployment": (
        {**KSM, "namespace": "shop", "pod": "checkout-7d4b9c8f6-abcde", "container": "checkout"},
        "shop/checkout",
        "pod and namespace",
    ),
    "a Deployment": (
        {**KSM, "namespace": "media", "deployment": "jellyfin"},
        "media/jellyfin",
        "deployment and namespace",
    ),
    "a StatefulSet": (
        {**KSM, "namespace": "shop", "statefulset": "postgres"},
        "shop/postgres",
        "statefulset and namespace",
    ),
    "a pod of a StatefulSet": (
        {**KSM, "namespace": "shop", "pod": "postgres-12"},
        "shop/postgres",
        "pod and namespace",
    ),
    "a DaemonSet": ({**KSM, "namespace": "logs", "daemonset": "promtail"}, "logs/promtail", "daemonset and namespace"),
    "a pod of a DaemonSet": (
        {**KSM, "namespace": "logs", "pod": "promtail-9xk2v"},
        "logs/promtail",
        "pod and namespace",
    ),
    "a Job of a CronJob": (
        {**KSM, "namespace": "shop", "job_name": "backup-28419840"},
        "shop/backup",
        "job_name and namespace",
    ),
    "a pod of a CronJob": (
        {**KSM, "namespace": "shop", "pod": "backup-28419840-abcde"},
        "shop/backup",
        "pod and namespace",
    ),
    "a CronJob": ({**KSM, "namespace": "shop", "cronjob": "report"}, "shop/report", "cronjob and namespace"),
    "a Job alone": ({**KSM, "namespace": "shop", "job_name": "migrate"}, "shop/migrate", "job_name and namespace"),
    "a sidecar": (
        {**KSM, "namespace": "shop", "pod": "cart-6c9f7d8b5-x2m4q", "container": "istio-proxy"},
        "shop/cart",
        "pod and namespace",
    ),
    "a container alone": ({**KSM, "namespace": "shop", "container": "cart"}, "shop/cart", "container and namespace"),
    "the container that holds the network": (
        {**KUBELET, "namespace": "shop", "pod": "cart-6c9f7d8b5-x2m4q", "container": "POD"},
        "shop/cart",
        "pod and namespace",
    ),
    "a pod alone": ({**KSM, "namespace": "shop", "pod": "debug"}, "shop/debug", "pod and namespace"),
    "a pod of the node itself": (
        {**KSM, "namespace": "kube-system", "pod": "etcd-worker1", "node": "worker1"},
        "kube-system/etcd",
        "pod and namespace",
    ),
    "a claim": (
        {**KUBELET, "namespace": "shop", "persistentvolumeclaim": "data-postgres-0"},
        "shop/data-postgres",
        "persistentvolumeclaim and namespace",
    ),
    "a volume, which is in no namespace": ({**KSM, "persistentvolume": "pvc-1"}, "pvc-1", "persistentvolume"),
    "a volume in the namespace of its exporter": (
        {**KSM, "namespace": "monitoring", "persistentvolume": "nfs-media-2", "phase": "Failed"},
        "nfs-media-2",
        "persistentvolume",
    ),
    "a claim and its volume": (
        {**KSM, "namespace": "shop", "persistentvolumeclaim": "uploads", "persistentvolume": "pvc-1"},
        "shop/uploads",
        "persistentvolumeclaim and namespace",
    ),
    "a node": ({**KSM, "node": "worker1", "condition": "Ready"}, "worker1", "node"),
    "a namespace": ({**KSM, "namespace": "shop", "resourcequota": "compute"}, "shop", "namespace"),
    "an autoscaler": (
        {**KSM, "namespace": "shop", "horizontalpodautoscaler": "cart"},
        "shop/cart",
        "horizontalpodautoscaler and namespace",
    ),
    "an exporter that crashes": (
        {**KSM, "namespace": "monitoring", "pod": "node-exporter-x7k2p", "container": "node-exporter"},
        "monitoring/node-exporter",
        "pod and namespace",
    ),
    "what the exporter said, renamed": (
        {
            "job": "kube-state-metrics",
            "namespace": "monitoring",
            "pod": "kube-state-metrics-6c9f7d8b5-x2m4q",
            "container": "kube-state-metrics",
            "exported_namespace": "shop",
            "exported_pod": "cart-6c9f7d8b5-x2m4q",
            "exported_container": "cart",
        },
        "shop/cart",
        "exported_pod and exported_namespace",
    ),
    "the exporter itself, and nothing else": (KSM, "kube-state-metrics", "job"),
    "a workload that scrapes itself": (
        {
            "job": "cart",
            "service": "cart-metrics",
            "endpoint": "http",
            "namespace": "shop",
            "pod": "cart-6c9f7d8b5-x2m4q",
            "instance": "10.42.0.7:80",
        },
        "shop/cart",
        "pod and namespace",
    ),
    "pods found by themselves": (
        {
            "job": "kubernetes-pods",
            "kubernetes_namespace": "shop",
            "kubernetes_pod_name": "cart-6c9f7d8b5-x2m4q",
            "instance": "10.42.0.7:80",
        },
        "shop/cart",
        "kubernetes_pod_name and kubernetes_namespace",
    ),
    # machines
    "a host": ({"job": "node-exporter", "instance": "db1.lan:9100"}, "db1.lan", "instance"),
    "a host by the usual job": ({"job": "node", "instance": "DB1.lan:9100"}, "db1.lan", "instance"),
    "a host of Grafana's agent": ({"job": "integrations/node_exporter", "instance": "db1"}, "db1", "instance"),
    "a host by its address": ({"job": "node_exporter", "instance": "10.0.0.5:9100"}, "10.0.0.5", "instance"),
    "a host by IPv6": ({"job": "node", "instance": "[2001:db8::5]:9100"}, "2001:db8::5", "instance"),
    "a host by IPv6 without a port": ({"job": "node", "instance": "2001:db8::5"}, "2001:db8::5", "instance"),
    "a host with a name beside it": (
        {"job": "node", "instance": "10.0.0.5:9100", "nodename": "db1"},
        "db1",
        "nodename",
    ),
    "a host among hosts": ({"job": "production", "instance": "db1.lan:9100"}, "db1.lan", "instance"),
    "a host of Windows": ({"job": "windows_exporter", "instance": "dc1:9182"}, "dc1", "instance"),
    "a node of a cluster": ({**NODE_POD, "instance": "10.0.0.5:9100"}, "10.0.0.5", "instance"),
    "a host alone": ({"instance": "nas:80"}, "nas", "instance"),
    "the only host, beside its exporter": ({"job": "node", "instance": "node-exporter:9100"}, "node", "job"),
    # containers of machines
    "a container of cadvisor": (
        {"job": "cadvisor", "instance": "web1.lan:8080", "name": "traefik", "image": "traefik:3"},
        "web1.lan/traefik",
        "name and instance",
    ),
    "a container beside cadvisor": (
        {"job": "cadvisor", "instance": "cadvisor:8080", "name": "traefik"},
        "traefik",
        "name",
    ),
    "a service of compose": (
        {
            "job": "cadvisor",
            "instance": "cadvisor:8080",
            "name": "shop-web-1",
            "container_label_com_docker_compose_service": "web",
            "container_label_com_docker_compose_project": "shop",
        },
        "shop/web",
        "container_label_com_docker_compose_service and container_label_com_docker_compose_project",
    ),
    "a virtual machine": (
        {"job": "pve-exporter", "instance": "pve1.lan", "id": "qemu/101", "name": "nextcloud"},
        "nextcloud",
        "name",
    ),
    "a virtual machine without a name": ({"job": "pve", "instance": "pve1.lan", "id": "lxc/7"}, "lxc/7", "id"),
    "the host of virtual machines": ({"job": "pve", "instance": "pve1.lan"}, "pve1.lan", "instance"),
    "kubelets that cannot be scraped": (
        {"job": "kubelet", "namespace": "kube-system", "service": "kps-kubelet"},
        "kubelet",
        "job",
    ),
    "cadvisors that cannot be scraped": (
        {"job": "integrations/cadvisor", "namespace": "monitoring"},
        "integrations/cadvisor",
        "job",
    ),
    "kubelets without a job": ({"service": "kps-kubelet", "namespace": "kube-system"}, "kps-kubelet", "service"),
    "a cadvisor that crashes": (
        {"job": "cadvisor", "namespace": "monitoring", "pod": "cadvisor-x7k2p", "container": "cadvisor"},
        "cadvisor",
        "job",
    ),
    "a node of the kubelets": ({"job": "kubelet", "namespace": "kube-system", "node": "worker1"}, "worker1", "node"),
    "a container of the kubelets": (
        {"job": "kubelet", "namespace": "shop", "container": "cart"},
        "shop/cart",
        "container and namespace",
    ),
    "exporters that cannot be scraped": (
        {"job": "node-exporter", "namespace": "monitoring", "service": "kps-node-exporter"},
        "node-exporter",
        "job",
    ),
    # what probers ask
    "a website": (
        {"job": "blackbox", "instance": "https://shop.example.org/health?x=1"},
        "shop.example.org",
        "instance",
    ),
    "a website of a job of its own": (
        {"job": "websites", "instance": "https://u:p@shop.example.org:8443/"},
        "shop.example.org",
        "instance",
    ),
    "a target": (
        {"job": "blackbox-http", "instance": "blackbox:9115", "target": "https://shop.example.org"},
        "shop.example.org",
        "target",
    ),
    "a port": ({"job": "blackbox_tcp", "instance": "db1.lan:5432"}, "db1.lan", "instance"),
    "a switch": ({"job": "snmp", "instance": "10.0.0.2"}, "10.0.0.2", "instance"),
    # servers, and exporters of one
    "a job of its own": ({"job": "postgres", "instance": "db1:9187"}, "postgres", "job"),
    "an exporter beside its server": (
        {"job": "postgres-exporter", "instance": "postgres-exporter:9187"},
        "postgres",
        "job",
    ),
    "an exporter on a host": (
        {"job": "postgres_exporter", "instance": "db1.lan:9187"},
        "db1.lan/postgres",
        "job and instance",
    ),
    "an exporter of several": (
        {"job": "redis-exporter", "instance": "redis-exporter:9121", "target": "redis2.lan:6379"},
        "redis2.lan/redis",
        "job and target",
    ),
    "an exporter of nginx": ({"job": "nginx-prometheus-exporter", "instance": "nginx-exporter:9113"}, "nginx", "job"),
    "an exporter of mysql": ({"job": "mysqld-exporter", "instance": "mysqld-exporter:9104"}, "mysql", "job"),
    "an exporter in a pod": (
        {
            "job": "redis-exporter",
            "namespace": "shop",
            "pod": "redis-exporter-6c9f7d8b5-x2m4q",
            "instance": "10.42.0.8:9121",
        },
        "shop/redis",
        "job and namespace",
    ),
    "an exporter without a job": (
        {"service": "postgres-exporter", "instance": "db1:9187"},
        "db1/postgres",
        "service and instance",
    ),
    "a cluster's exporter without a job": (
        {"service": "kps-kube-state-metrics", "namespace": "shop", "pod": "cart-6c9f7d8b5-x2m4q"},
        "shop/cart",
        "pod and namespace",
    ),
    "a pushed job": (
        {"job": "pushgateway", "instance": "pushgateway:9091", "exported_job": "backup"},
        "backup",
        "exported_job",
    ),
    # what people write into their rules
    "a service": ({"service": "shop"}, "shop", "service"),
    "a service of an alert about a host": (
        {"service": "shop", "job": "node", "instance": "web1:9100"},
        "shop",
        "service",
    ),
    "a service of a namespace": ({"service": "cart", "namespace": "staging"}, "staging/cart", "service and namespace"),
    "an app": ({"app": "shop", "job": "node"}, "shop", "app"),
    "nothing but a rule": ({}, "Rule", ""),
}


def sentence(labels: str) -> str:
    return f"its label{'s' if ' and ' in labels else ''} {labels}" if labels else "its name"


def about(labels: Mapping[str, str], kind: SenderKind = SenderKind.ALERTMANAGER, **source: object) -> tuple[str, str]:
    """Return the service of one alert of a body, and what names it."""
    body = msgspec.json.encode({"version": "4", "alerts": [{"status": "firing", "labels": labels}]})
    found = read(AlertSource(name="am", kind=kind, **source), body, received_at=NOON)  # type: ignore[arg-type]
    assert isinstance(found, SenderBody)
    (alert,) = found.alerts
    return alert.service, alert.service_by


@pytest.mark.parametrize("case", SAID)
def test_an_alert_is_about_what_was_measured_and_not_about_who_has_measured_it(case: str) -> None:
    labels, service, by = SAID[case]
    assert about({"alertname": "Rule", "severity": "warning", **labels}) == (service, sentence(by))


def test_services_of_one_name_in_two_namespaces_are_two() -> None:
    for label, value in (
        ("deployment", "cart"),
        ("pod", "cart-6c9f7d8b5-x2m4q"),
        ("container", "cart"),
        ("service", "cart"),
    ):
        shop, staging = (about({"alertname": "A", label: value, "namespace": name})[0] for name in ("shop", "staging"))
        assert (shop, staging) == ("shop/cart", "staging/cart")


def test_all_alerts_of_one_workload_are_about_one_service() -> None:
    labels: list[dict[str, str]] = [
        {**KSM, "namespace": "shop", "deployment": "cart"},
        {**KSM, "namespace": "shop", "pod": "cart-6c9f7d8b5-x2m4q", "container": "cart"},
        {**KSM, "namespace": "shop", "pod": "cart-5f4d9c7b66-zz2kv", "container": "proxy"},
        {**KUBELET, "namespace": "shop", "pod": "cart-6c9f7d8b5-9vvcb", "container": "POD"},
        {"job": "cart", "namespace": "shop", "pod": "cart-6c9f7d8b5-9vvcb", "endpoint": "web", "service": "cart-web"},
        {"service": "cart", "namespace": "shop"},
    ]
    assert {about({"alertname": "A", **each})[0] for each in labels} == {"shop/cart"}


def test_a_volume_and_the_program_that_has_measured_it_are_two() -> None:
    errors = about(
        {"alertname": "KubePersistentVolumeErrors", "persistentvolume": "pvc-1", "job": "kube-state-metrics"}
    )
    lists = about({"alertname": "KubeStateMetricsListErrors", "job": "kube-state-metrics"})
    assert (errors[0], lists[0]) == ("pvc-1", "kube-state-metrics")


@pytest.mark.parametrize("kind", [SenderKind.GRAFANA, SenderKind.ALERTMANAGER])  # one that Grafana sends to
@pytest.mark.parametrize("state", ["DatasourceNoData", "DatasourceError"])
def test_rules_that_cannot_be_evaluated_are_as_many_as_they_are(kind: SenderKind, state: str) -> None:
    labels = {"alertname": state, "datasource_uid": "p1", "ref_id": "A", "grafana_folder": "Home"}
    assert about({**labels, "rulename": "disk nas"}, kind) == ("disk nas", "its name")
    assert about({**labels, "rulename": "http shop"}, kind) == ("http shop", "its name")
    assert about({**labels, "rulename": "http shop", "app": "shop"}, kind) == ("shop", "its label app")
    assert about({**labels, "rulename": "x", "rule": "cpu"}, kind, service_label=("rule",))[0] == "cpu"
    assert about({**labels, "rulename": " "}, kind) == (state, "its name")
    assert about({"alertname": "Other", "rulename": "disk nas"}, kind) == ("Other", "its name")


def test_the_labels_that_the_operator_names_win_over_everything() -> None:
    labels = {**KSM, "alertname": "A", "namespace": "shop", "deployment": "cart", "team": "web"}
    assert about(labels, service_label=("squad", "team")) == ("web", "its label team, as alerts.toml says")
    assert about(labels, service_label=("job",)) == ("kube-state-metrics", "its label job, as alerts.toml says")
    assert about(labels, service_label=("squad",))[0] == "shop/cart"


def test_a_flood_of_labels_displaces_none_that_says_whom_it_is_about() -> None:
    flood = {f"a{number:04}": "x" * 100 for number in range(500)}
    body = msgspec.json.encode({"alerts": [{"labels": {**flood, "namespace": "shop", "deployment": "cart"}}]})
    found = read(AlertSource(name="am", kind=SenderKind.ALERTMANAGER), body, received_at=NOON)
    assert isinstance(found, SenderBody)
    assert {"namespace", "deployment"} <= set(found.alerts[0].labels)


@pytest.mark.parametrize(
    "value", [{}, [], 7, None, "", " ", "\x00", "-", "--", "://", "[", "[]:", "a" * 5000, "é-\u202e-x2m4q"]
)
def test_whatever_stands_in_a_label_has_a_service_and_ends(value: object) -> None:
    for name in sorted({*subject.LABELS, *(f"exported_{label}" for label in subject.LABELS)}):
        labels = {"alertname": "A", "job": "blackbox", name: value}
        body = msgspec.json.encode({"alerts": [{"labels": labels}]})
        found = read(AlertSource(name="am", kind=SenderKind.ALERTMANAGER), body, received_at=NOON)
        assert isinstance(found, SenderBody)
        assert found.alerts[0].service.isprintable()
        assert 0 < len(found.alerts[0].service) <= 255


# --- names of pods and programs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("checkout-7d4b9c8f6-abcde", "checkout"),
        ("my-shop-web-6bfc9d8f7d-kq2vz", "my-shop-web"),
        ("cart-bcdfghjkl-mnpqr", "cart"),
        ("postgres-0", "postgres"),
        ("ingress-nginx-x2m4q", "ingress-nginx"),
        ("backup-1717200000-kq2vz", "backup"),
        ("web", ""),
        ("my-redis", ""),
        ("", ""),
        ("-", ""),
        ("shop-production-blues", ""),
    ],
)
def test_a_pods_name_says_its_workload_only_where_a_controller_has_made_it(pod: str, workload: str) -> None:
    assert workload_of(pod) == workload


def test_a_suffix_that_may_be_a_word_is_one_unless_the_container_is_called_like_the_rest() -> None:
    assert workload_of("fluentbit-abcde") == ""
    assert workload_of("fluentbit-abcde", container="fluentbit") == "fluentbit"


@pytest.mark.parametrize(
    "name", ["node-red", "docker-registry", "windows-updates", "blackbird", "importer", "http-proxy"]
)
def test_a_service_is_not_taken_for_an_exporter_because_of_a_word(name: str) -> None:
    assert exporter(name, is_job=True) is None
    assert about({"alertname": "A", "job": name, "instance": "web1:80"}) == (name, "its label job")
