"""A stand-in for a Kubernetes API server: objects in a dict, as much of the protocol as kubectl needs, calls recorded.

It knows nothing of users, versions of objects and admission. With ``filtered`` it puts what `claudeops` judges, masks
and binds in front of itself, in the order in which a process would do it; ``calls`` holds what passed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from claudeops.policy.kubernetes_api.bodies import bound_body, read_body, refuse_review
from claudeops.policy.kubernetes_api.masks import WatchMask, masked
from claudeops.policy.kubernetes_api.requests import (
    ClusterAnswerKind,
    ClusterRead,
    ClusterRefusal,
    DeletePod,
    Exec,
    Restart,
    Scale,
    read_request,
)
from claudeops.text.redact import Redactor
from support.certificates import make_authority, serving_with

JSON: Final = "application/json"
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A kind of object."""

    group: str
    kind: str
    namespaced: bool = True
    parts: tuple[str, ...] = ()  # subresources
    short: str = ""


RESOURCES: Final[Mapping[str, Resource]] = {
    "pods": Resource(group="", kind="Pod", parts=("log", "exec"), short="po"),
    "configmaps": Resource(group="", kind="ConfigMap", short="cm"),
    "events": Resource(group="", kind="Event"),
    "secrets": Resource(group="", kind="Secret"),
    "nodes": Resource(group="", kind="Node", namespaced=False, short="no"),
    "namespaces": Resource(group="", kind="Namespace", namespaced=False),
    "deployments": Resource(group="apps", kind="Deployment", parts=("scale",), short="deploy"),
    "replicasets": Resource(group="apps", kind="ReplicaSet", short="rs"),
    "shops": Resource(group="example.org", kind="Shop"),
}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What is answered."""

    body: bytes
    status: int = 200
    media: str = JSON
    stream: bool = False

    @classmethod
    def of(cls, document: Json, status: int = 200) -> Reply:
        """Return a document as an answer."""
        return cls(body=msgspec.json.encode(document), status=status)


def failure(code: int, reason: str, message: str) -> Reply:
    """Return an error as the API server words it."""
    about = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return Reply.of({**about, "message": message, "reason": reason, "code": code}, code)


@dataclass
class Cluster:
    """The server: its objects by resource, namespace and name."""

    objects: dict[tuple[str, str, str], Json]
    logs: str = "ready\n"
    filtered: bool = False
    url: str = ""
    calls: list[tuple[str, str, bytes]] = field(default_factory=list)  # method, target, body
    reads: list[ClusterRead] = field(default_factory=list)  # that the filter passed
    token: str = ""  # that is asked for
    authority: str = ""  # PEM; empty: it serves without TLS
    allowed: bool = True  # what it says when it is asked what its client may do
    heads: list[dict[str, str]] = field(default_factory=list)  # of the calls
    executed: list[str] = field(default_factory=list)  # targets
    refusal: str = ""  # of what writes
    created: set[tuple[str, str]] = field(default_factory=set)  # method and target

    @property
    def writes(self) -> list[tuple[str, str, bytes]]:
        """Calls that changed something."""
        return [call for call in self.calls if call[0] in {"PATCH", "PUT", "DELETE"} or call[:2] in self.created]

    def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answer a request, through the filter if there is one."""
        self.heads.append({name.lower(): value for name, value in headers.items()})
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            return failure(401, "Unauthorized", "Unauthorized")
        if not self.filtered:
            return self.answer(method, target, headers.get("Accept", ""), body)
        judged = read_request(method, target, headers)
        if isinstance(judged, ClusterRefusal):
            return _refusal(judged)
        if isinstance(judged, ClusterRead):
            refused = refuse_review(body, headers.get("Content-Type", "")) if judged.method == "POST" else None
            self.reads.append(judged)
            return _refusal(refused) if refused else self._shown(judged, body)
        if isinstance(judged, Exec):
            return failure(500, "InternalError", "nothing runs in this pod")
        return self._written(judged, body, headers.get("Content-Type", ""))

    def _written(self, act: Restart | Scale | DeletePod, body: bytes, content_type: str) -> Reply:
        change = read_body(act, body, content_type)
        if isinstance(change, ClusterRefusal):
            return _refusal(change)
        before = self.answer("GET", act.object.target, JSON, b"")
        if before.status != 200:
            return before
        bound = bound_body(change, json.loads(before.body)["metadata"]["uid"])
        if isinstance(bound, ClusterRefusal):
            return _refusal(bound)
        return _masked(act.kind, self.answer(change.method, act.target, JSON, bound))

    def _shown(self, read: ClusterRead, body: bytes) -> Reply:
        reply = self.answer(read.method, read.target, read.accept, body)
        if not reply.stream or read.kind is ClusterAnswerKind.LOG:
            return _masked(read.kind, reply)
        watch, redactor = WatchMask(read.kind), Redactor([])
        lines = (redactor.line(watch.line(line)) for line in reply.body.splitlines(keepends=True))
        return Reply(body=b"".join(lines), stream=True)

    def answer(self, method: str, target: str, accept: str, body: bytes) -> Reply:
        """Answer as the API server would."""
        self.calls.append((method, target, body))
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        segments = parts.path.strip("/").split("/")
        if method == "POST" and segments[-1].endswith("reviews"):
            review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {}}
            return Reply.of({**review, "status": {"allowed": self.allowed}}, 201)
        rest = segments[2:] if segments[0] == "api" else segments[3:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        if self.refusal and method in {"PATCH", "POST"}:
            return failure(422, "Invalid", self.refusal)
        if method == "POST" and len(rest) == 1 and rest[0] in RESOURCES:
            return self._created(target, rest[0], namespace, json.loads(body))
        if len(rest) == 1 and rest[0] in RESOURCES:
            return self._listed(rest[0], namespace, {**query, "accept": accept})
        if len(rest) > 1:
            part = "/".join(rest[2:])
            form = {**query, "accept": accept}
            return self._one(method, (rest[0], namespace, rest[1]), part, form, body)
        missing = failure(404, "NotFound", "the server could not find the requested resource")
        return _discovered(parts.path) or missing

    def _one(self, method: str, key: tuple[str, str, str], part: str, form: Mapping[str, str], body: bytes) -> Reply:
        found = self.objects.get(key)
        if found is None:
            return failure(404, "NotFound", f'{key[0]} "{key[2]}" not found')
        if part == "log":
            return Reply(body=self.logs.encode(), media="text/plain", stream=form.get("follow") == "true")
        if method == "GET":
            return Reply.of(_scale(found) if part == "scale" else _form([found], form, found))
        return self._changed(method, key, json.loads(body), scale=part == "scale")

    def _listed(self, resource: str, namespace: str, form: Mapping[str, str]) -> Reply:
        wanted = [
            found
            for (kind, where, name), found in self.objects.items()
            if kind == resource and namespace in {"", where} and _selected(form, name, found)
        ]
        kind = RESOURCES[resource]
        if form.get("watch") == "true":
            events = [{"type": "ADDED", "object": _form([found], form, found)} for found in wanted]
            if form.get("sendInitialEvents") == "true":
                ended = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
                events.append(
                    {"type": "BOOKMARK", "object": {"kind": kind.kind, "apiVersion": _version(kind), "metadata": ended}}
                )
            return Reply(body=b"".join(msgspec.json.encode(event) + b"\n" for event in events), stream=True)
        whole = {"kind": f"{kind.kind}List", "apiVersion": _version(kind), "metadata": {"resourceVersion": "9"}}
        return Reply.of(_form(wanted, form, {**whole, "items": wanted}))

    def _created(self, target: str, resource: str, namespace: str, body: Json) -> Reply:
        self.created.add(("POST", target))
        body["metadata"] |= {"namespace": namespace, "uid": f"0c0c0c0c-{body['metadata']['name']}"}
        self.objects[resource, namespace, body["metadata"]["name"]] = body
        return Reply.of(body, 201)

    def _changed(self, method: str, key: tuple[str, str, str], body: Json | list[Json], *, scale: bool) -> Reply:
        found = self.objects[key]
        if isinstance(body, list):  # JSON patch, of which `rollout undo` needs this much
            for step in body:
                *way, last = step["path"].strip("/").split("/")
                within = found
                for name in way:
                    within = within[name]
                within[last] = step["value"]
            return Reply.of(found)
        uid = body.get("preconditions", {}).get("uid") if method == "DELETE" else body.get("metadata", {}).get("uid")
        if uid not in {None, found["metadata"]["uid"]}:
            return failure(409, "Conflict", "the object has another uid")
        if method == "DELETE":
            del self.objects[key]
        else:
            _merge(found, {key: value for key, value in body.items() if key in {"metadata", "spec", "data"}})
        return Reply.of(_scale(found) if scale else found)


def _version(kind: Resource) -> str:
    return f"{kind.group}/v1" if kind.group else "v1"


def _refusal(refused: ClusterRefusal) -> Reply:
    return Reply(body=refused.document, status=refused.status)


def _masked(kind: ClusterAnswerKind, reply: Reply) -> Reply:
    shown = reply.body
    if reply.media == JSON:
        shown = msgspec.json.encode(masked(kind, msgspec.json.decode(shown)))
    lines = [Redactor([]).line(line) for line in shown.split(b"\n")]
    return Reply(body=b"\n".join(lines), status=reply.status, media=reply.media, stream=reply.stream)


def _merge(into: Json, patch: Json) -> None:
    for key, value in patch.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _scale(found: Json) -> Json:
    names = {key: found["metadata"][key] for key in ("name", "namespace", "uid")} | {"resourceVersion": "7"}
    spec = {"replicas": found["spec"]["replicas"]}
    status = {"replicas": spec["replicas"], "selector": "app=web"}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": names, "spec": spec, "status": status}


def _selected(query: Mapping[str, str], name: str, found: Json) -> bool:
    fields = dict(term.split("=", 1) for term in query.get("fieldSelector", "").replace("==", "=").split(",") if term)
    labels = dict(term.split("=", 1) for term in query.get("labelSelector", "").split(",") if term)
    owned = found["metadata"].get("labels", {})
    return fields.get("metadata.name", name) == name and all(owned.get(key) == value for key, value in labels.items())


def _form(found: list[Json], form: Mapping[str, str], whole: Json) -> Json:
    """Return objects as a table where one is preferred."""
    if not form["accept"].startswith(f"{JSON};as=Table"):
        return whole
    columns = [{"name": name, "type": "string", "format": "", "priority": 0} for name in ("Name", "Kind")]
    rows = []
    for one in found:
        row: Json = {"cells": [one["metadata"]["name"], one["kind"]]}
        alone = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": one["metadata"]}
        rows.append({**row, "object": one if form.get("includeObject") == "Object" else alone})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "9"},
        "columnDefinitions": columns,
        "rows": rows,
    }


def _discovered(path: str) -> Reply | None:
    groups = sorted({resource.group for resource in RESOURCES.values()} - {""})
    if path == "/version":
        return Reply.of({"major": "1", "minor": "34", "gitVersion": "v1.34.4", "platform": "linux/amd64"})
    if path in {"/healthz", "/livez", "/readyz"}:
        return Reply(body=b"ok", media="text/plain")
    if path == "/api":
        return Reply.of({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    if path == "/apis":
        versions = [{"groupVersion": f"{group}/v1", "version": "v1"} for group in groups]
        listed = [
            {"name": group, "versions": [version], "preferredVersion": version}
            for group, version in zip(groups, versions, strict=True)
        ]
        return Reply.of({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
    served = {"/api/v1": ""} | {f"/apis/{group}/v1": group for group in groups}
    return _resources(served[path]) if path in served else None


_PARTS: Final = {"scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"}}


def _resources(group: str) -> Reply:
    listed = []
    for plural, resource in RESOURCES.items():
        if resource.group == group:
            about = {"namespaced": resource.namespaced, "kind": resource.kind, "singularName": resource.kind.lower()}
            categories = ["all"] if plural != "secrets" else []
            verbs = ["get", "list", "watch", "patch", "delete", "create"]
            listed += [
                {**about, "name": plural, "verbs": verbs, "shortNames": [resource.short], "categories": categories}
            ]
            listed += [
                {**about, "name": f"{plural}/{part}", "verbs": ["get", "patch"], **_PARTS.get(part, {})}
                for part in resource.parts
            ]
    version = f"{group}/v1" if group else "v1"
    return Reply.of({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed})


_SUCCESS: Final = b'{"metadata":{},"status":"Success"}'


def _executed(key: str, printed: bytes) -> tuple[str, bytes]:
    """Return what accepts a websocket, and the frames of a command that prints something and succeeds (RFC 6455)."""
    accepted = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode(), usedforsecurity=False).digest()
    contents = (b"\x01" + printed, b"\x03" + _SUCCESS)  # channels: output, and how it ended
    frames = b"".join(bytes((0x82, len(content))) + content for content in contents)
    return base64.b64encode(accepted).decode(), frames + b"\x88\x02\x03\xe8"


@contextmanager
def serving_tls(cluster: Cluster, place: Path) -> Iterator[Cluster]:
    """Serve on loopback over TLS, with a certificate of an authority that is the cluster's own; ``place`` is a file."""
    authority = make_authority()
    cluster.authority = authority.pem
    with serving(cluster, serving_with(authority.issue(place))) as served:
        yield served


def kubeconfig(cluster: Cluster, user: str) -> str:
    """Return a kubeconfig with two contexts for a cluster; ``user``: what stands of their user in braces."""
    trusted = base64.b64encode(cluster.authority.encode()).decode()
    return (
        "current-context: prod\n"
        "contexts: [{name: prod, context: {cluster: c, user: u}},"
        " {name: other, context: {cluster: c, user: u, namespace: x}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{cluster.url}', certificate-authority-data: '{trusted}'}}}}]\n"
        f"users: [{{name: u, user: {{{user}}}}}]\n"
    )


@contextmanager
def serving(cluster: Cluster, tls: ssl.SSLContext | None = None) -> Iterator[Cluster]:
    """Serve on loopback; plain HTTP kubectl speaks as long as it has no token."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def run(self) -> None:
            cluster.executed.append(self.path)
            accepted, frames = _executed(self.headers["Sec-WebSocket-Key"], b"up 3 days\n")
            self.send_response(101)
            upgraded = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accepted}
            for name, value in {**upgraded, "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(frames)
            self.close_connection = True

        def answer(self) -> None:
            if self.headers.get("Upgrade") == "websocket" and not cluster.filtered:
                self.run()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = cluster.ask(self.command, self.path, dict(self.headers.items()), body)
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.media)
            if reply.stream:
                self.send_header("Connection", "close")
            else:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            self.close_connection = self.close_connection or reply.stream

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - named by http.server

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by http.server
            """Write nothing: calls are recorded."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        cluster.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield cluster
        finally:
            server.shutdown()
            thread.join()
