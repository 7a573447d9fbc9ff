"""Whom an alert is about, by its labels: never the program that has measured it, unless nothing else is named.

The first of these that an alert has:

1. what the operator's ``service_label`` says;
2. a service of the estate: by its name, check, URL or host in a label (`in_estate`); what only hints at one, as
   ``datname`` does, comes after the server that an exporter stands beside, and counts only where no name is given;
3. ``service``, ``app`` or ``application`` that the rule's author has given it;
4. the workload of Kubernetes, or the container of a machine;
5. what a prober has called: the host of a URL or of ``host:port``;
6. ``job``, unless it is that of a program that measures others (`claudeops.domain.alerts.exporters`);
7. the host of ``node`` or ``instance``; of an exporter of one server that server, on its host;
8. the namespace; and last the exporter itself, which comes before it where it measures containers and none is named.

A name is one only within its namespace: ``shop/checkout``. Where a label ``exported_…`` stands beside a plain one
(Prometheus has then renamed the exporter's own), the plain one is the exporter's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import BY_LABELS, Alert
from claudeops.domain.alerts.exporters import Exporter, Measures, exporter
from claudeops.domain.alerts.workloads import claimant_of, cron_job_of, set_of, workload_of
from claudeops.domain.probes.directory import Directory, split_place
from claudeops.structs import replace

_GIVEN: Final = ("service", "app", "application", "app_kubernetes_io_name")
_NAMESPACES: Final = ("namespace", "kubernetes_namespace", "k8s_namespace_name", "namespace_name")
_WORKLOADS: Final = ("deployment", "statefulset", "daemonset", "cronjob", "workload", "rollout")
_JOBS: Final = ("job_name", "kubernetes_job_name")
_CLAIMS: Final = ("persistentvolumeclaim",)
_VOLUMES: Final = ("persistentvolume",)  # in no namespace: one that stands beside it is the exporter's
_PODS: Final = ("pod", "pod_name", "kubernetes_pod_name", "k8s_pod_name")
_CONTAINERS: Final = ("container", "container_name", "k8s_container_name")
_KEEPERS: Final = ("horizontalpodautoscaler", "poddisruptionbudget")  # mostly called like the workload
_COMPOSED: Final = ("container_label_com_docker_compose_service", "com_docker_compose_service", "compose_service")
_PROJECTS: Final = ("container_label_com_docker_compose_project", "com_docker_compose_project", "compose_project")
_TARGETS: Final = ("target", "url", "uri", "site", "probe_target")
_SERVERS: Final = ("server", "target", "addr")  # that an exporter of several asks
_NODES: Final = ("node", "nodename", "kubernetes_node", "k8s_node_name", "hostname", "host")
_HINTS: Final = ("check", "probe", "monitor", "check_name", "systemd_unit", "unit", "name", "process", "groupname")
_GUESTS: Final = ("vm_name", "vm", "guest", "domain", "name", "id")
_MORE_HINTS: Final = (*_GUESTS, "database", "datname", "backend", "proxy")
_PAUSE: Final = "POD"  # the container that holds a pod's network
_OWN_PORTS: Final = frozenset({"9100", "9182"})  # of node_exporter and windows_exporter
_PROBERS: Final = frozenset({"9115", "9116"})  # of blackbox_exporter and snmp_exporter
EXPORTED: Final = "exported_"
_SCRAPED: Final = frozenset({*_NAMESPACES, *_PODS, *_CONTAINERS, "service"})

LABELS: Final = frozenset(
    {
        *(*_GIVEN, "job", *_NAMESPACES, *_WORKLOADS, *_JOBS, "replicaset", *_CLAIMS, *_VOLUMES),
        *(*_PODS, *_CONTAINERS, *_KEEPERS),
        *(*_COMPOSED, *_PROJECTS, "instance", "endpoint", *_TARGETS, *_SERVERS, *_NODES, *_HINTS, *_MORE_HINTS),
        "image",
    }
)
"""Labels that may say whom an alert is about; each may be renamed to ``exported_…``."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whom an alert is about."""

    service: str
    by: str  # what says so, after "by"


class _Kind(Enum):
    GIVEN = auto()  # a name that a person, or the platform, has given it
    PLACE = auto()  # a URL or ``host:port`` that was probed
    JOB = auto()
    HOST = auto()
    HINT = auto()  # a name, if the estate knows it
    LAST = auto()  # the exporter itself


_ALONE: Final = frozenset(_Kind) - {_Kind.HINT}
_SURE: Final = frozenset({_Kind.GIVEN, _Kind.JOB})
_AROUND: Final = frozenset({_Kind.HINT, _Kind.HOST, _Kind.LAST})  # where a name is given: only what is around it


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    kind: _Kind
    name: str
    labels: tuple[str, ...]
    scope: str = ""  # namespace, project or host
    place: str = ""  # as it was written

    def subject(self) -> Subject:
        service = f"{self.scope}/{self.name}" if self.scope else self.name
        return Subject(service=service, by=_by(self.labels))


def of_labels(labels: Mapping[str, str], names: Sequence[str], *, names_first: bool) -> Subject | None:
    """Return whom an alert is about without regard to the estate; ``names``: of its rule, monitor or check.

    ``names_first``: a name says more than a host, since a monitor or check is called like what it looks at.
    """
    named = next((Subject(service=name, by="its name") for name in names if name), None)
    kinds = _SURE if names_first and named is not None else _ALONE
    return next((each.subject() for each in _candidates(labels) if each.kind in kinds), named)


def settled(alert: Alert, own: Sequence[str], directory: Directory) -> Alert:
    """Return an alert with the service of the estate that it is about, unless one of the operator's labels names it."""
    if not directory.names or any(alert.labels.get(label) for label in own):
        return alert
    found = in_estate(alert.labels, (alert.service, alert.name), directory)
    return alert if found is None else replace(alert, service=found.service, service_by=found.by)


def in_estate(labels: Mapping[str, str], names: Sequence[str], directory: Directory) -> Subject | None:
    """Return the service of the estate that an alert is about, if the estate knows one; ``names`` as above."""
    has_name = False
    for each in _candidates(labels):
        if has_name and each.kind in _AROUND:
            continue
        if found := _known(each, directory):
            return Subject(service=found, by=f"{_by(each.labels)}, by which the estate knows it")
        has_name = has_name or each.kind is _Kind.GIVEN
    known = next((found for name in names if (found := directory.named(name))), "") if not has_name else ""
    return Subject(service=known, by="its name, by which the estate knows it") if known else None


def _known(each: _Candidate, directory: Directory) -> str:
    if each.kind is _Kind.PLACE:
        return directory.at(each.place)
    if each.kind is _Kind.HOST:
        return directory.at(each.place) or directory.on(each.name)
    return _named(each, directory)


def _named(each: _Candidate, directory: Directory) -> str:
    plain = each.name.partition("@")[0].removesuffix(".service")  # ``shop@docker`` of Traefik
    names = dict.fromkeys((each.name, plain))
    return next((found for name in names if (found := directory.named(name, scope=each.scope))), "")


def _by(labels: Sequence[str]) -> str:
    return f"its label {labels[0]}" if len(labels) == 1 else f"{BY_LABELS}{' and '.join(labels)}"


# --- what labels say --------------------------------------------------------------------------------------


def _candidates(labels: Mapping[str, str]) -> Iterator[_Candidate]:
    """Yield all that an alert may be about, the likeliest first."""
    return _Labels(labels).candidates()


class _Labels:
    """The labels of one alert, those of the scrape apart from those of what was measured."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._exported = {name.removeprefix(EXPORTED): name for name in labels if name.startswith(EXPORTED)}
        self._is_renamed = not _SCRAPED.isdisjoint(self._exported)
        self._job = labels.get("job", "")
        self._by, self._measured = self._exporter()
        self._namespace = self._first(_NAMESPACES)

    def _exporter(self) -> tuple[str, Exporter | None]:
        """Return what has measured it, and the label that says so; a scrape of all machines is known by their port."""
        label, found = "job", exporter(self._job, is_job=True)
        if not self._job:
            named = ((name, exporter(self._labels.get(name, ""))) for name in _GIVEN)
            label, found = next(((name, each) for name, each in named if each is not None), (label, None))
        _, port = split_place(self._labels.get("instance", ""))
        is_hosts = port in _OWN_PORTS and (found is None or found.measures is Measures.CLUSTER)
        return label, Exporter(Measures.HOST) if is_hosts else found

    def _measures(self, *what: Measures | None) -> bool:
        return (None if self._measured is None else self._measured.measures) in what

    def _first(self, names: Sequence[str]) -> tuple[str, str] | None:
        """Return the first of some labels that says something, and its value."""
        if not self._exported:
            return next(((name, value) for name in names if (value := self._labels.get(name))), None)
        for name in names:
            if (exported := self._exported.get(name)) and (value := self._labels[exported]):
                return exported, value
            if self._is_renamed and name in _SCRAPED:
                continue
            if value := self._labels.get(name, ""):
                return name, value
        return None

    def _scoped(self, name: str, *labels: str, kind: _Kind = _Kind.GIVEN) -> _Candidate:
        if self._namespace is None:
            return _Candidate(kind=kind, name=name, labels=labels)
        return _Candidate(kind=kind, name=name, labels=(*labels, self._namespace[0]), scope=self._namespace[1])

    def candidates(self) -> Iterator[_Candidate]:
        """Yield all that the alert may be about, the likeliest first."""
        given = list(self._given())
        if "endpoint" not in self._labels:  # else ``service`` comes of the scrape
            yield from given
        yield from self._workloads()
        yield from self._composed()
        if "endpoint" in self._labels:
            yield from given
        yield from self._pushed()
        yield from self._asked()
        if self._job and self._measured is None:
            label, job = self._first(("job",)) or ("job", self._job)
            yield self._scoped(job, label, kind=_Kind.JOB)
        yield from self._served()
        for label in (*_HINTS, *_MORE_HINTS):
            if value := self._labels.get(label, ""):
                yield _Candidate(kind=_Kind.HINT, name=value, labels=(label,))
        yield from self._hosts()
        yield from self._last()

    def _given(self) -> Iterator[_Candidate]:
        for name in _GIVEN:
            found = self._first((name,))
            if found is None or exporter(found[1]) is not None:
                continue
            is_scrapes = name == "service" and "endpoint" in self._labels and self._measured is not None
            if not is_scrapes or found[0] != name:
                yield self._scoped(found[1], found[0])

    def _last(self) -> Iterator[_Candidate]:
        """Yield the namespace and the exporter itself.

        What measures containers names one, or a node, in all that it says of them; else it is itself the patient.
        """
        is_spaces = self._measures(None, Measures.CLUSTER, Measures.CONTAINERS)
        space, own = self._namespace if is_spaces else None, self._first(("job", "service", "app"))
        for found in (own, space) if self._measures(Measures.CONTAINERS) else (space, own):
            if found is not None:
                yield _Candidate(kind=_Kind.LAST, name=found[1], labels=(found[0],))

    def _pushed(self) -> Iterator[_Candidate]:
        """Yield the job of what was handed on, as by a push gateway."""
        exported = self._exported.get("job", "")
        if self._measured is not None and exported and (job := self._labels[exported]):
            yield self._scoped(job, exported, kind=_Kind.JOB)

    # --- platforms ----------------------------------------------------------------------------------------

    def _workloads(self) -> Iterator[_Candidate]:
        for name in _WORKLOADS:
            if found := self._first((name,)):
                yield self._scoped(found[1], found[0])
        if found := self._first(_JOBS):
            yield self._scoped(cron_job_of(found[1]) or found[1], found[0])
        if found := self._first(("replicaset",)):
            yield self._scoped(set_of(found[1]), found[0])
        if found := self._first(_CLAIMS):
            yield self._scoped(claimant_of(found[1]), found[0])
        if found := self._first(_VOLUMES):
            yield _Candidate(kind=_Kind.GIVEN, name=found[1], labels=(found[0],))
        yield from self._pods()
        if found := self._first(_KEEPERS):
            yield self._scoped(found[1], found[0])

    def _pods(self) -> Iterator[_Candidate]:
        """Yield the workload of a pod before its container: many workloads call theirs ``app``, or ``nginx``."""
        pod, container, node = (self._first(names) for names in (_PODS, _CONTAINERS, _NODES))
        inside = container[1] if container is not None and container[1] != _PAUSE else ""
        if pod is not None:
            workload = workload_of(pod[1], container=inside, node="" if node is None else node[1])
            if self._is_exporters(workload or pod[1]) or (not workload and self._is_exporters(inside)):
                return
            if workload:
                yield self._scoped(workload, pod[0])
        if container is not None and inside and not self._is_exporters(inside):
            host, by = self._machine() if pod is None and self._namespace is None else ("", "")
            labels = _labels(container[0], by)
            on_host = _Candidate(kind=_Kind.GIVEN, name=inside, labels=labels, scope=host)
            yield on_host if host else self._scoped(inside, container[0])
        if pod is not None:
            yield self._scoped(pod[1], pod[0])

    def _is_exporters(self, name: str) -> bool:
        """Return whether a pod or container is that of the program which has measured it."""
        if self._measured is None or not name:
            return False
        own = exporter(name)
        return (own is not None and own.measures is self._measured.measures) or name == self._job

    def _composed(self) -> Iterator[_Candidate]:
        """Yield the container of a machine, which is one only within its project, or on its host."""
        host, by = self._machine()
        if found := self._first(_COMPOSED):
            project = self._first(_PROJECTS)
            scope, of = (project[1], project[0]) if project is not None else (host, by)
            yield _Candidate(kind=_Kind.GIVEN, name=found[1], labels=_labels(found[0], of), scope=scope)
        is_containers = self._measures(Measures.CONTAINERS)
        if self._measures(Measures.GUESTS) and (guest := self._first(_GUESTS)):
            yield _Candidate(kind=_Kind.GIVEN, name=guest[1], labels=(guest[0],))
        name = self._labels.get("name", "")
        if name and (is_containers or self._labels.get("image")) and self._namespace is None:
            labels = _labels("name", by)
            yield _Candidate(kind=_Kind.GIVEN, name=name.removeprefix("/"), labels=labels, scope=host)

    # --- places -------------------------------------------------------------------------------------------

    def _asked(self) -> Iterator[_Candidate]:
        """Yield what a prober has called; a URL is never the address of a scrape."""
        is_prober = self._measures(Measures.TARGETS)
        for name in (*_TARGETS, "instance"):
            found = self._first((name,))
            if found is None:
                continue
            label, value = found
            host = _host_of(value)
            if host and ("://" in value or (is_prober and not self._is_own_place(value))):
                yield _Candidate(kind=_Kind.PLACE, name=host, labels=(label,), place=value)

    def _served(self) -> Iterator[_Candidate]:
        """Yield the server that an exporter stands beside, on its host."""
        if self._measured is None or not self._measured.service:
            return
        host, by = self._machine()
        if host and self._namespace is None:
            yield _Candidate(kind=_Kind.JOB, name=self._measured.service, labels=_labels(self._by, by), scope=host)
        yield self._scoped(self._measured.service, self._by, kind=_Kind.JOB)

    def _hosts(self) -> Iterator[_Candidate]:
        host, label = self._machine()
        if host:
            place = self._labels.get(label, "")
            yield _Candidate(kind=_Kind.HOST, name=host, labels=(label,), place=place)

    def _machine(self) -> tuple[str, str]:
        """Return the host that it runs on, and the label that names it; what Kubernetes calls a pod's is none."""
        nodes = (*_SERVERS, *_NODES) if self._measures(Measures.SERVICE) else _NODES
        if (node := self._first(nodes)) and (host := _host_of(node[1])):
            return host, node[0]
        is_pods = self._namespace is not None and self._measures(None, Measures.SERVICE)
        if is_pods or self._measures(Measures.CLUSTER):
            return "", ""
        found = self._first(("instance",))
        if found is None or self._is_own_place(found[1]):
            return "", ""
        return _host_of(found[1]), found[0]

    def _is_own_place(self, place: str) -> bool:
        """Return whether an address is that of the exporter itself."""
        host, port = split_place(place)
        return port in _PROBERS or exporter(host) is not None


def _labels(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, names)))


def _host_of(place: str) -> str:
    """Return the host of a URL, of ``host:port``, or of an address; "" for what is none."""
    _, is_url, rest = place.partition("://")
    host, _ = split_place((rest if is_url else place).partition("/")[0].partition("?")[0].partition("#")[0])
    return host if host and not any(map(str.isspace, host)) else ""
