"""Requests to the Kubernetes API: which of them pass, and what the others would have changed or shown.

`read_request` judges one request by its method, target and headers, and builds the target that is sent upstream itself,
so that the API server reads exactly what was judged. Three outcomes:

* `ClusterRead`: it changes nothing. It is sent with ``target`` and ``accept`` and without a body (reviews have one, see
  `claudeops.policy.kubernetes_api.bodies`); its answer is masked by ``kind`` and then redacted as bytes.
* `Restart`, `Scale`, `DeletePod`, `Exec`: it passes if it is what the gate has just allowed, with the body that
  `claudeops.policy.kubernetes_api.bodies` makes of it. `Exec` has no precondition: the pod's uid is compared right
  before it is sent.
* `ClusterRefusal`: whatever the account may do.

Custom resources of any group can be read, since the work of operators shows there; their masks are the strictest.
Whatever is named like a secret (``secrets``, ``externalsecrets``, Rancher's ``tokens``) is refused in every group, as
the gate refuses it. A dry run is refused: it sends a whole object.

Of a request's other headers only ``If-None-Match`` may be sent on, and only for discovery and OpenAPI: what is masked
has another content than its ETag says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from claudeops.structs import replace
from claudeops.text import regex
from claudeops.text.redact import MASK

LONGEST_TARGET: Final = 16_384  # characters


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_JSON: Final = "application/json"
_MOST_PARAMETERS: Final = 300  # the words of a command are parameters
_MOST_ACCEPTED: Final = 16  # media types of one header
_TARGET: Final = regex.Pattern(r"/[!-~]*")
_SEGMENT: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9._:@~-]*")
_SECRET: Final = regex.Pattern(r"(?i)secret|token|credential|passw|kubeconfig")
_CORE: Final = _words(
    "bindings componentstatuses configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims"
    " persistentvolumes pods podtemplates replicationcontrollers resourcequotas serviceaccounts services"
)
_BUILT_IN: Final = _words(
    "apps autoscaling batch extensions policy apiregistration.k8s.io authentication.k8s.io authorization.k8s.io"
    " coordination.k8s.io discovery.k8s.io events.k8s.io flowcontrol.apiserver.k8s.io metrics.k8s.io networking.k8s.io"
    " node.k8s.io rbac.authorization.k8s.io scheduling.k8s.io storage.k8s.io"
)
_LEGACY: Final = frozenset({"watch", "redirect"})
"""Words in the place of a resource that are none: ``/api/v1/watch/…`` would answer with whatever follows."""

_SHOWN_PARTS: Final = frozenset({"", "status", "scale"})
_OF_NAMESPACES: Final = frozenset({"status", "finalize"})
_LONGEST_PATH: Final = 3  # resource, name, subresource
_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})
_REVIEWS: Final = frozenset(
    {
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    }
)
_LIST: Final = _words(
    "allowWatchBookmarks continue fieldSelector includeObject labelSelector limit resourceVersion resourceVersionMatch"
    " sendInitialEvents timeout timeoutSeconds watch"
)
_GET: Final = frozenset({"includeObject", "resourceVersion", "timeout"})
_LOG: Final = _words("container follow limitBytes previous sinceSeconds sinceTime stream tailLines timeout timestamps")
_HEALTH_PARAMETERS: Final = frozenset({"exclude", "timeout", "verbose"})
_SWITCHES: Final = frozenset({"allowWatchBookmarks", "follow", "previous", "sendInitialEvents", "timestamps", "watch"})
"""Parameters that are true or false. The API server takes any other text for true, so none is passed on."""

_ON: Final = frozenset({"true", "1"})
_OFF: Final = frozenset({"false", "0"})
_RESTARTED: Final = frozenset({"deployments", "daemonsets", "statefulsets"})
_SCALED: Final = frozenset(
    {("apps", "deployments"), ("apps", "statefulsets"), ("apps", "replicasets"), ("", "replicationcontrollers")}
)
_FORWARDED: Final = frozenset({"content-encoding", "x-http-method", "x-http-method-override", "x-method-override"})
_FORMS: Final = {
    "meta.k8s.io": ({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}, {"v1", "v1beta1"}),
    "apidiscovery.k8s.io": ({"APIGroupDiscoveryList"}, {"v2", "v2beta1"}),
}
_PROTOCOLS: Final = {
    "websocket": ("sec-websocket-protocol", frozenset({"v5.channel.k8s.io", "v4.channel.k8s.io"})),
    "spdy/3.1": ("x-stream-protocol-version", frozenset({"v5.channel.k8s.io", "v4.channel.k8s.io"})),
}

_NO_SECRETS: Final = "secrets of the cluster are never shown or changed here; look at what uses them instead"
_NO_WRITE: Final = (
    "this would change the cluster in a way that is not passed on; of changes only rollout restart, scale, delete of"
    " one pod and exec are, each after it was allowed"
)
_UNKNOWN: Final = "this path of the Kubernetes API is not passed on; use kubectl get, describe, logs, top or events"
_FORBIDDEN_PARTS: Final = {
    "attach": "attaching to a container is not passed on; read its output with kubectl logs",
    "ephemeralcontainers": "kubectl debug is not passed on; use kubectl exec in a container that is there",
    "portforward": "port forwarding is not passed on; use kubectl exec to ask from within a container",
    "proxy": "the proxies of the API server are not passed on; use kubectl exec to ask from within a container",
    "token": _NO_SECRETS,
}


class ClusterAnswerKind(StrEnum):
    """What an answer holds, and so what is masked in it."""

    TEXT = "text"  # a few words of the server's own
    LOG = "log"  # raw text of a container; only the redactor sees it
    DISCOVERY = "discovery"  # names of resources, the version
    OPENAPI = "openapi"  # schemas
    SCHEMAS = "schemas"  # definitions of custom resources
    OBJECTS = "objects"  # of Kubernetes' own kinds, and answers to reviews
    CONFIG_MAPS = "config maps"
    CUSTOM = "custom"  # objects of which nothing is known


class ClusterRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is not sent."""

    status: int  # of HTTP
    sentence: str

    @property
    def document(self) -> bytes:
        """The answer to a refused request, in a form that kubectl prints as its error."""
        reason = {403: "Forbidden", 405: "MethodNotAllowed", 409: "Conflict"}.get(self.status, "BadRequest")
        return msgspec.json.encode(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
            | {"message": self.sentence, "reason": reason, "code": self.status}
        )


class ClusterRead(msgspec.Struct, frozen=True, kw_only=True):
    """A request that changes nothing."""

    target: str
    kind: ClusterAnswerKind
    stream: bool = False  # the answer comes in lines, and ends when it likes
    dropped: tuple[str, ...] = ()  # parameters that were left out
    method: Literal["GET", "POST"] = "GET"  # POST: a review, which has a body
    accept: str = _JSON


class ObjectName(msgspec.Struct, frozen=True, kw_only=True):
    """Which object is meant, by name; its uid is found with `target`."""

    group: str  # empty: core
    version: str
    resource: str  # the plural
    namespace: str
    name: str

    @property
    def target(self) -> str:
        """Where the object is read."""
        above = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{above}/namespaces/{self.namespace}/{self.resource}/{self.name}"


class _Act(msgspec.Struct, frozen=True, kw_only=True):
    object: ObjectName
    target: str

    @property
    def kind(self) -> ClusterAnswerKind:
        """What the answer holds: the object as it is afterwards."""
        return ClusterAnswerKind.OBJECTS


class Restart(_Act, frozen=True, kw_only=True):
    """``kubectl rollout restart``."""


class Scale(_Act, frozen=True, kw_only=True):
    """``kubectl scale``."""

    whole: bool  # the body is a whole Scale object (PUT), not a patch


class DeletePod(_Act, frozen=True, kw_only=True):
    """``kubectl delete pod``."""


class Exec(_Act, frozen=True, kw_only=True):
    """``kubectl exec`` without input and terminal; its answer is a connection of another protocol."""

    method: Literal["GET", "POST"]
    container: str  # empty: the pod's default
    command: tuple[str, ...]
    upgrade: Literal["websocket", "SPDY/3.1"]
    protocols: tuple[str, ...]  # offered, in order: for Sec-WebSocket-Protocol or X-Stream-Protocol-Version


Act = Restart | Scale | DeletePod | Exec
TimedVerdict = ClusterRefusal | ClusterRead | Act


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where below a group and version a path leads."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    part: str = ""  # a subresource

    @property
    def object(self) -> ObjectName:
        return ObjectName(
            group=self.group,
            version=self.version,
            resource=self.resource,
            namespace=self.namespace,
            name=self.name,
        )


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    segments: tuple[str, ...] = msgspec.field(default=())
    parameters: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str]  # lower-case names


def read_request(method: str, target: str, headers: Mapping[str, str]) -> TimedVerdict:
    """Judge a request; ``target`` is what stands in its first line, several headers of a name are joined by commas."""
    lowered = {name.lower(): value for name, value in headers.items()}
    request = _parsed(method, target, lowered)
    if isinstance(request, ClusterRefusal):
        return request
    if request.segments[0] in {"api", "apis"}:
        place = _place(request.segments)
        if isinstance(place, ClusterRefusal):
            return place
        if place is not None:
            return _judged(request, place)
        return _read(request, ClusterAnswerKind.DISCOVERY, frozenset({"timeout"}))
    return _read_of_server(request)


def accepted(header: str) -> str:
    """Return the Accept header that is sent upstream: JSON, as a table or metadata alone where that is preferred."""
    kept = []
    for one in header.split(",")[:_MOST_ACCEPTED]:
        media, *rest = (part.strip() for part in one.split(";"))
        given = dict(part.partition("=")[::2] for part in rest)
        forms, versions = _FORMS.get(given.get("g", ""), (frozenset(), frozenset()))
        if media.lower() == _JSON and given.get("as") in forms and given.get("v") in versions:
            kept.append(";".join([_JSON, *(f"{name}={given[name]}" for name in given if name in {"as", "g", "v"})]))
    return ",".join([*dict.fromkeys(kept), _JSON])


def _parsed(method: str, target: str, headers: Mapping[str, str]) -> _Request | ClusterRefusal:
    for name in headers:
        if name.startswith(("impersonate-", "x-remote-")):
            return ClusterRefusal(
                status=403, sentence=f"the header {name[:80]!r} is refused: a session acts for no other account"
            )
        if name in _FORWARDED:
            return ClusterRefusal(status=403, sentence=f"the header {name} is refused; send the request plainly")
    if len(target) > LONGEST_TARGET:
        return ClusterRefusal(
            status=414, sentence=f"the address is longer than {LONGEST_TARGET} characters; ask for less"
        )
    path, _, query = target.partition("?")
    segments = tuple(path.split("/")[1:])
    plain = _TARGET.fullmatch(target) and "#" not in target and ".." not in path
    if not plain or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        return ClusterRefusal(status=403, sentence="only plain paths are passed on: no %, no //, no .. and no end in /")
    try:
        parameters = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        return ClusterRefusal(status=403, sentence="the parameters of the address cannot be read; write them plainly")
    return _Request(method=method, path=path, segments=segments, parameters=tuple(parameters), headers=headers)


def _place(segments: Sequence[str]) -> _Place | ClusterRefusal | None:
    """Return where a path below ``/api`` or ``/apis`` leads; None where it is discovery."""
    above = 2 if segments[0] == "api" else 3
    if len(segments) <= above:
        return None
    group, version = ("", segments[1]) if above == 2 else (segments[1], segments[2])  # noqa: PLR2004 - /api/v1
    rest = segments[above:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _OF_NAMESPACES):  # noqa: PLR2004 - namespaces/NAME/…
        namespace, rest = rest[1], rest[2:]
    resource, name, part = (*rest, "", "")[:3]
    if _SECRET.search(resource):
        return ClusterRefusal(status=403, sentence=_NO_SECRETS)
    if "proxy" in {resource, *rest[2:]}:
        return ClusterRefusal(status=403, sentence=_FORBIDDEN_PARTS["proxy"])
    if len(rest) > _LONGEST_PATH or resource in _LEGACY:
        return ClusterRefusal(status=403, sentence=_UNKNOWN)
    return _Place(group=group, version=version, resource=resource, namespace=namespace, name=name, part=part)


def _judged(request: _Request, place: _Place) -> TimedVerdict:
    """Judge a request for objects."""
    if (place.group, place.resource, place.part) == ("", "pods", "exec"):
        return _exec(request, place)
    if place.part in _FORBIDDEN_PARTS:
        return ClusterRefusal(status=403, sentence=_FORBIDDEN_PARTS[place.part])
    if "upgrade" in request.headers:
        return ClusterRefusal(
            status=403, sentence="no other protocol is spoken on this path; leave the Upgrade header out"
        )
    if request.method == "GET":
        return _read_of_objects(request, place)
    if request.method == "POST" and (place.group, place.resource) in _REVIEWS and not place.namespace + place.name:
        read = _read(request, ClusterAnswerKind.OBJECTS, frozenset({"timeout"}))
        return read if isinstance(read, ClusterRefusal) else replace(read, method="POST")
    return _act(request, place)


def _read_of_server(request: _Request) -> TimedVerdict:
    """Judge a request for what is no object."""
    first, *rest = request.segments
    if request.method != "GET" or "upgrade" in request.headers:
        return ClusterRefusal(status=405, sentence="this path can only be read")
    if first in _HEALTH:
        read = _read(request, ClusterAnswerKind.TEXT, _HEALTH_PARAMETERS)
        return read if isinstance(read, ClusterRefusal) else replace(read, accept=f"{_JSON}, */*")
    if request.path == "/version":
        return _read(request, ClusterAnswerKind.DISCOVERY, frozenset({"timeout"}))
    if first == "openapi" and (rest == ["v2"] or (rest[:1] == ["v3"] and _is_schema(rest[1:]))):
        return _read(request, ClusterAnswerKind.OPENAPI, frozenset({"hash", "timeout"}))
    return ClusterRefusal(status=403, sentence=_UNKNOWN)


def _is_schema(rest: Sequence[str]) -> bool:
    """Whether a path below ``/openapi/v3`` is that of the index, or of a group's schema."""
    return not rest or rest[0] == "version" or (rest[0] in {"api", "apis"} and len(rest) <= _LONGEST_PATH)


def _read_of_objects(request: _Request, place: _Place) -> TimedVerdict:
    if (place.group, place.resource, place.part) == ("", "pods", "log") and place.version == "v1":
        read = _read(request, ClusterAnswerKind.LOG, _LOG)
        return read if isinstance(read, ClusterRefusal) else replace(read, accept=f"{_JSON}, */*")
    if place.part not in _SHOWN_PARTS or (not place.group and (place.version != "v1" or place.resource not in _CORE)):
        return ClusterRefusal(status=403, sentence=_UNKNOWN)
    return _read(request, _kind(place), _GET if place.name else _LIST)


def _kind(place: _Place) -> ClusterAnswerKind:
    if not place.group:
        return ClusterAnswerKind.CONFIG_MAPS if place.resource == "configmaps" else ClusterAnswerKind.OBJECTS
    if place.group == "apiextensions.k8s.io":
        return ClusterAnswerKind.SCHEMAS
    return ClusterAnswerKind.OBJECTS if place.group in _BUILT_IN else ClusterAnswerKind.CUSTOM


def _read(request: _Request, kind: ClusterAnswerKind, known: frozenset[str]) -> ClusterRead | ClusterRefusal:
    """Return a read with the parameters that are known; each but ``exclude`` may stand there once."""
    if kind is ClusterAnswerKind.DISCOVERY and (request.method != "GET" or "upgrade" in request.headers):
        return ClusterRefusal(status=405, sentence="this path can only be read")
    kept: list[tuple[str, str]] = []
    dropped: dict[str, None] = {}
    stream = False
    for name, value in request.parameters:
        if name not in known:
            dropped[name] = None
        elif name != "exclude" and name in dict(kept):
            return ClusterRefusal(status=400, sentence=f"the parameter {name} stands there twice; give it once")
        elif name in _SWITCHES and value not in _ON | _OFF:
            return ClusterRefusal(
                status=400, sentence=f"the parameter {name} is neither true nor false; write one of them"
            )
        else:
            kept.append((name, ("true" if value in _ON else "false") if name in _SWITCHES else value))
            stream |= name in {"watch", "follow"} and value in _ON
    accept = accepted(request.headers.get("accept", ""))
    return ClusterRead(
        target=_target(request.path, kept), kind=kind, stream=stream, dropped=tuple(dropped), accept=accept
    )


def _target(path: str, parameters: Sequence[tuple[str, str]]) -> str:
    return f"{path}?{urlencode(parameters, quote_via=quote, safe='')}" if parameters else path


# --- what changes something ---------------------------------------------------------------------------


def _act(request: _Request, place: _Place) -> TimedVerdict:
    if not place.namespace or not place.name or place.version != "v1":
        return ClusterRefusal(status=403, sentence=_NO_WRITE)
    meant = (request.method, place.group, place.part)
    managers: frozenset[str] = frozenset()
    act: Act
    if meant == ("PATCH", "apps", "") and place.resource in _RESTARTED:
        managers = frozenset({"kubectl-rollout"})
        act = Restart(object=place.object, target=request.path)
    elif place.part == "scale" and (place.group, place.resource) in _SCALED and request.method in {"PATCH", "PUT"}:
        managers = frozenset({"kubectl-scale", "kubectl"})
        act = Scale(object=place.object, target=request.path, whole=request.method == "PUT")
    elif meant == ("DELETE", "", "") and place.resource == "pods":
        act = DeletePod(object=place.object, target=request.path)
    else:
        return ClusterRefusal(status=403, sentence=_NO_WRITE)
    for name, value in request.parameters:
        if not (name == "timeout" or (name == "fieldManager" and value in managers)):
            return _refused_parameter(name, value)
    if len(dict(request.parameters)) < len(request.parameters):
        return ClusterRefusal(status=400, sentence="a parameter stands there twice; give it once")
    return replace(act, target=_target(request.path, request.parameters))


def _refused_parameter(name: str, value: str) -> ClusterRefusal:
    if name == "dryRun":
        return ClusterRefusal(status=403, sentence="a dry run is not passed on; leave --dry-run=server out")
    if name == "fieldManager":
        return ClusterRefusal(status=403, sentence=f"a change by {value[:40]!r} is not passed on; {_NO_WRITE}")
    return ClusterRefusal(
        status=403, sentence=f"the parameter {name[:80]!r} of a change is not passed on; leave it out"
    )


def _exec(request: _Request, place: _Place) -> TimedVerdict:
    if request.method not in {"GET", "POST"} or not place.namespace or not place.name or place.version != "v1":
        return ClusterRefusal(status=403, sentence=_NO_WRITE)
    words = tuple(value for name, value in request.parameters if name == "command")
    others = [(name, value) for name, value in request.parameters if name != "command"]
    given = dict(others)
    if len(given) < len(others) or not words or any(MASK in word for word in words):
        return ClusterRefusal(status=400, sentence="exec takes a command without masks, and every other parameter once")
    for name, value in others:
        if name not in {"container", "timeout"} and (
            name not in {"stdin", "stdout", "stderr", "tty"} or value not in _ON | _OFF
        ):
            return _refused_parameter(name, value)
    switched = [name for name in ("stderr", "stdout") if given.get(name) in _ON]
    if given.get("stdin") in _ON or given.get("tty") in _ON or not switched:
        return ClusterRefusal(status=403, sentence="exec is passed on without input and terminal; leave -i and -t out")
    upgrade = _upgrade(request)
    if isinstance(upgrade, ClusterRefusal):
        return upgrade
    protocol, offered = upgrade
    container = given.get("container", "")
    sent = [("command", word) for word in words] + ([("container", container)] if container else [])
    return Exec(
        object=place.object,
        target=_target(request.path, [*sent, *((name, "true") for name in switched)]),
        method="GET" if request.method == "GET" else "POST",
        container=container,
        command=words,
        upgrade=protocol,
        protocols=offered,
    )


def _upgrade(request: _Request) -> tuple[Literal["websocket", "SPDY/3.1"], tuple[str, ...]] | ClusterRefusal:
    """Return the protocol that an exec asks for, and its variants; a token among the variants is left out."""
    wanted = request.headers.get("upgrade", "").lower()
    linked = {word.strip().lower() for word in request.headers.get("connection", "").split(",")}
    if wanted not in _PROTOCOLS or "upgrade" not in linked:
        return ClusterRefusal(
            status=400, sentence="exec needs an upgrade to websocket or SPDY/3.1, as kubectl sends it"
        )
    header, known = _PROTOCOLS[wanted]
    words = (word.strip() for word in request.headers.get(header, "").split(","))
    offered = tuple(dict.fromkeys(word for word in words if word in known))
    if not offered:
        return ClusterRefusal(status=400, sentence=f"exec needs {' or '.join(sorted(known))} in its header {header}")
    return ("websocket" if wanted == "websocket" else "SPDY/3.1"), offered
