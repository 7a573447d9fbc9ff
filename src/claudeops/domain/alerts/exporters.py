"""Programs that measure others: by their names, so that none of them is taken for what it measures.

Names are those of jobs, Services, pods and containers, as charts and examples write them: ``node``, ``node_exporter``,
``integrations/node_exporter`` and ``kube-prometheus-stack-prometheus-node-exporter`` are one program.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.text import casefold_key


class Measures(StrEnum):
    """What a program measures."""

    CLUSTER = "cluster"  # objects of Kubernetes, all through one address of its own
    CONTAINERS = "containers"  # of the machine that it runs on
    GUESTS = "guests"  # virtual machines, all through their host
    HOST = "host"  # the machine that it runs on
    TARGETS = "targets"  # whatever it is configured to probe
    SERVICE = "service"  # one program beside it


class Exporter(msgspec.Struct, frozen=True):
    """A program that measures others."""

    measures: Measures
    service: str = ""  # the program beside it, of `Measures.SERVICE`


_JOBS: Final = {
    "ksm": Measures.CLUSTER,
    **dict.fromkeys(("pve", "proxmox", "libvirt", "vmware", "esxi"), Measures.GUESTS),
    **dict.fromkeys(("docker", "containers", "podman"), Measures.CONTAINERS),
    **dict.fromkeys(("node", "nodes", "hosts", "linux", "unix", "windows", "wmi", "servers"), Measures.HOST),
    **dict.fromkeys(("machines", "vms", "telegraf", "netdata", "wmi exporter"), Measures.HOST),
    **dict.fromkeys(
        ("probe", "probes", "ping", "icmp", "snmp", "http", "https", "tcp", "dns", "ssl"), Measures.TARGETS
    ),
}
"""Whole names of jobs; elsewhere, and as part of a longer one, they say nothing: ``node`` of ``node-red``."""

_PARTS: Final = (
    ("kube state metrics", Measures.CLUSTER),
    ("openshift state metrics", Measures.CLUSTER),
    ("kubelet", Measures.CONTAINERS),
    ("cadvisor", Measures.CONTAINERS),
    ("kubernetes nodes", Measures.CONTAINERS),
    ("pve exporter", Measures.GUESTS),
    ("libvirt exporter", Measures.GUESTS),
    ("vmware exporter", Measures.GUESTS),
    ("node exporter", Measures.HOST),
    ("nodeexporter", Measures.HOST),
    ("windows exporter", Measures.HOST),
    ("smartctl exporter", Measures.HOST),
    ("ipmi exporter", Measures.HOST),
    ("process exporter", Measures.HOST),
    ("systemd exporter", Measures.HOST),
    ("blackbox", Measures.TARGETS),
    ("snmp exporter", Measures.TARGETS),
    ("ssl exporter", Measures.TARGETS),
    ("json exporter", Measures.TARGETS),
    ("http probe", Measures.TARGETS),
    ("ping exporter", Measures.TARGETS),
    ("pushgateway", Measures.TARGETS),
)
"""Names, also as parts of longer ones."""

_DISCOVERED: Final = ("kubernetes pods", "kubernetes service")
_PREFIXES: Final = frozenset({"prometheus", "integrations", "metrics"})
_SERVERS: Final = {"mysqld": "mysql", "postgresql": "postgres", "pg": "postgres"}
_SHORT: Final = 200


def exporter(name: str, *, is_job: bool = False) -> Exporter | None:
    """Return what a program measures, by its name; None: it is no program that measures others."""
    return _exporter(name, is_job) if len(name) <= _SHORT else None


@lru_cache(maxsize=1024)
def _exporter(name: str, is_job: bool) -> Exporter | None:  # noqa: FBT001 - a key of the cache
    words = "".join(sign if sign.isalnum() else " " for sign in casefold_key(name)).split()
    whole = " ".join(words)
    found = _JOBS.get(" ".join(word for word in words if word != "integrations")) if is_job else None
    found = found or next((measures for part, measures in _PARTS if f" {part} " in f" {whole} "), None)
    if found is None and is_job and whole.startswith(_DISCOVERED):
        found = Measures.CLUSTER
    if found is not None:
        return Exporter(found)
    if len(words) == 1 and whole.endswith("exporter"):
        words = [whole.removesuffix("exporter"), "exporter"]
    if "exporter" not in words:
        return None
    service = [_SERVERS.get(word, word) for word in words[: words.index("exporter")] if word not in _PREFIXES]
    return Exporter(Measures.SERVICE, "-".join(filter(None, service)))
