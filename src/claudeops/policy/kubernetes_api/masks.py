"""What an answer of the Kubernetes API shows: values that may be secrets are masked by the field they stand in.

The same fields are masked wherever they stand: a pod template is one in a deployment, in a controller's revision and in
a custom resource. The values of environment variables, commands, arguments, paths and headers of probes and hooks,
annotations but a few harmless ones, and what a container left behind when it ended are masked; ``managedFields`` go.
``kubernetes.io/change-cause`` is masked too: it holds a command line. Names, labels, images and conditions stay.

Beyond that, of config maps the entries whose name or whose lines name a secret, and all of those that helm owns; of
custom resources every value that is named like a secret or where any text may stand (``values``, ``parameters``), and
such lines of their texts. What is left still goes through `claudeops.text.redact.Redactor.line`, as bytes.

Text and names are left alone; nothing is masked in discovery, schemas and what the server says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from claudeops.policy.kubernetes_api.requests import ClusterAnswerKind
from claudeops.text import regex
from claudeops.text.redact import MASK

_DEEPEST: Final = 64  # levels; what lies deeper is masked as a whole
_UNMASKED: Final = frozenset(
    {ClusterAnswerKind.TEXT, ClusterAnswerKind.LOG, ClusterAnswerKind.DISCOVERY, ClusterAnswerKind.OPENAPI}
)
_KEPT: Final = frozenset({"labels", "matchLabels", "nodeSelector", "selector", "podSelector"})
"""Maps of labels: ``env`` and ``command`` are names there like any other."""

_STATES: Final = frozenset({"state", "lastState", "lastTerminationState"})
_HARMLESS_REASONS: Final = frozenset(
    {
        *("ContainerCreating", "CrashLoopBackOff", "CreateContainerConfigError", "ErrImageNeverPull", "ErrImagePull"),
        *("ImageInspectError", "ImagePullBackOff", "InvalidImageName", "PodInitializing", "RegistryUnavailable"),
    }
)
"""Why a container waits, where the message beside it names no command line: images, missing objects, times."""

_SETTINGS: Final = frozenset({"parameters", "volumeAttributes", "options", "attributes"})
"""Maps of settings of storage drivers, in Kubernetes' own kinds: those named like a secret are masked."""

_ANNOTATIONS: Final = frozenset(
    {
        *("deployment.kubernetes.io/revision", "deployment.kubernetes.io/desired-replicas"),
        *("deployment.kubernetes.io/max-replicas", "deployment.kubernetes.io/revision-history"),
        *("deprecated.daemonset.template.generation", "kubectl.kubernetes.io/restartedAt"),
        *("kubectl.kubernetes.io/default-container", "node.alpha.kubernetes.io/ttl", "k8s.io/initial-events-end"),
        *("volumes.kubernetes.io/controller-managed-attach-detach", "pv.kubernetes.io/bind-completed"),
        *("pv.kubernetes.io/bound-by-controller", "pv.kubernetes.io/provisioned-by"),
        *("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"),
        *("volume.kubernetes.io/selected-node", "storageclass.kubernetes.io/is-default-class"),
        *("ingressclass.kubernetes.io/is-default-class", "kubernetes.io/ingress.class"),
        *("kubernetes.io/config.source", "kubernetes.io/config.seen", "kubernetes.io/config.hash"),
        *("kubernetes.io/config.mirror", "endpoints.kubernetes.io/last-change-trigger-time"),
        *("batch.kubernetes.io/cronjob-scheduled-timestamp", "batch.kubernetes.io/job-tracking"),
        *("cronjob.kubernetes.io/instantiate", "rbac.authorization.kubernetes.io/autoupdate"),
        *("meta.helm.sh/release-name", "meta.helm.sh/release-namespace", "prometheus.io/scrape", "prometheus.io/port"),
    }
)
"""Annotations whose values are shown."""

_WORDS: Final = (
    r"passw|passphrase|passcode|\bpwd|_pwd|secret|token|credential|api[_.-]?key|access[_.-]?key|private[_.-]?key"
    r"|encryption[_.-]?key|signing[_.-]?key|master[_.-]?key|licen[cs]e[_.-]?key|authorization|\bauth\b|_auth\b|authkey"
    r"|requirepass|masterauth|cookie|\bsalt|dsn\b|connection[_.-]?string|conn[_.-]?str|database[_.-]?url|webhook[_.-]?url"
    r"|kubeconfig|dockercfg|dockerconfig|htpasswd|keytab|\bpsk|bearer|jwt"
)
_NAME: Final = regex.Pattern(
    rf"(?i){_WORDS}|\bpass\b|_pass\b|^key$|id_(?:rsa|dsa|ecdsa|ed25519)|\.(?:key|pem|p12|pfx|jks|env)$|^\."
)
_REFERENCE: Final = regex.Pattern(
    r"(?i)(?:names?|refs?|references?|selectors?|seconds|keys?from|namespaces?|kinds?|paths?)$"
)
"""Ends of names that are named like a secret, and say where it is."""

_BESIDE_KEYS: Final = frozenset({"name", "operator", "effect", "path"})
"""What stands beside ``key`` where that is the name of something: of a label, of an entry of a secret."""

_ANYTHING: Final = regex.Pattern(
    r"(?i)values?(?:content|object|yaml|inline)?|parameters|params|plugin|config|configuration|(?:string|binary)?data"
    r"|user_?data.*|cloud_?init.*|scripts?|headers?|query|.*env(?:s|_?vars?)?|.*environment|inline.*|.*commands?"
    r"|.*args|.*arguments|extra.*"
)
"""Names in custom resources below which any text may stand."""

_WHERE: Final = frozenset(
    {
        *("apiVersion", "defaultMode", "group", "items", "key", "kind", "mode", "name", "namespace", "optional"),
        *("path", "secretName", "secretRef", "valueFrom"),
        *("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"),
    }
)
"""Fields of what refers to a value."""

_QUOTED: Final = r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
_LINE: Final = regex.Pattern(
    rf"(?im)([\w.-]*(?:{_WORDS})[\w.-]*[\"']?[ \t]*(?:[:=>]|=>)[>=]*[ \t]*|^[ \t]*[\w.-]*(?:{_WORDS})[\w.-]*[ \t]+"
    rf"|--?[\w-]*(?:{_WORDS})[\w-]*[ \t]+)({_QUOTED}|[^\n]*)"
)
"""``name = value``, ``name: value``, ``<name>value``, ``"name": "value"``, ``requirepass value``, ``--name value``."""

_BELOW: Final = regex.Pattern(r"|(?:.*[ \t])?[|>][0-9+-]*(?:[ \t]*#.*)?|[{\[(]+|.*\\|\"[^\"]*|'[^']*|\"{3}.*|'{3}.*")
"""What stands where the value goes on in the next lines."""

_PAIR: Final = regex.Pattern(
    rf"(?i)((?:{_WORDS})[\w.-]*[\"']?[ \t,]*\r?\n?[ \t]*[\"']?value[\"']?[ \t]*[:=][ \t]*)({_QUOTED}|[^\n]*)"
)
"""A name and a value as in lists of variables: ``name: DB_PASSWORD``, ``value: …``."""

_URL: Final = regex.Pattern(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/@:\"']*:)([^\s/@\"']+)@")
_BASE64_MASK: Final = "W3JlZGFjdGVkXQ=="  # the mask in base64
_ESCAPED: Final = regex.Pattern(rb"(?i)\\u005b|\\u005d|\\u00(?:6[0-9a-f]|7[0-9a])")


def masked(kind: ClusterAnswerKind, document: object) -> object:
    """Return an answer without the values that may be secrets; ``document`` is of plain JSON values and stays as is."""
    if kind in _UNMASKED:
        return document
    return _Masking(kind).answer(document)


class WatchMask:
    """Masks the lines of a watch, which is stateful: only its first table names the columns."""

    def __init__(self, kind: ClusterAnswerKind) -> None:
        self._kind = kind
        self._masking = _Masking(kind)

    def line(self, line: bytes) -> bytes:
        """Return an event as a line, nothing of a line that is none; raw text and the like as it is."""
        if self._kind in _UNMASKED:
            return line
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return b""
        if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
            return b""
        if not isinstance(event.get("type"), str):
            return b""
        shown = {"type": event["type"], "object": self._masking.answer(event["object"])}
        return msgspec.json.encode(shown) + (b"\n" if line.endswith(b"\n") else b"")


def masked_line(kind: ClusterAnswerKind, line: bytes) -> bytes:
    """Return one event of a watch as `WatchMask` does that knows no columns."""
    return WatchMask(kind).line(line)


def holds_mask(body: bytes) -> bool:
    """Tell whether a body holds what stands for a value that was not shown, also with escaped letters or in base64."""
    plain = _ESCAPED.sub(_unescaped, body) if b"\\u" in body else body
    return MASK.encode() in plain or _BASE64_MASK.encode() in plain


class _Masking:
    """Walks through an answer; a table's columns are kept for those that follow in a watch."""

    def __init__(self, kind: ClusterAnswerKind) -> None:
        self._kind = kind
        self._columns: tuple[str, ...] = ()

    def answer(self, document: object) -> object:
        if not isinstance(document, dict):
            return MASK if isinstance(document, str) else self._walk(document, 0)
        if document.get("kind") == "Table" and str(document.get("apiVersion", "")).startswith("meta.k8s.io/"):
            return self._table(document)
        return self._walk(document, 0)

    def _table(self, table: Mapping[str, object]) -> dict[str, object]:
        definitions, rows = table.get("columnDefinitions"), table.get("rows")
        if isinstance(definitions, list) and definitions:
            self._columns = tuple(str(one.get("name", "")) if isinstance(one, dict) else "" for one in definitions)
        rest = {key: self._walk(value, 1) for key, value in table.items() if key not in {"columnDefinitions", "rows"}}
        shown = [self._row(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return {**rest, "columnDefinitions": definitions, "rows": shown}

    def _row(self, row: Mapping[str, object]) -> dict[str, object]:
        cells = row.get("cells")
        rest = {key: self._walk(value, 1) for key, value in row.items() if key != "cells"}
        return {
            "cells": [self._cell(at, cell) for at, cell in enumerate(cells)] if isinstance(cells, list) else [],
            **rest,
        }

    def _cell(self, at: int, cell: object) -> object:
        """Mask what a column shows; in a table of unknown columns only the name, which is first, is shown as it is."""
        known = at < len(self._columns)
        if known and _names_secret(self._columns[at]):
            return cell if isinstance(cell, int) else _everything(cell)  # how many secrets there are
        if self._kind not in {ClusterAnswerKind.CUSTOM, ClusterAnswerKind.SCHEMAS}:
            return cell
        if not known:
            return cell if at == 0 else _everything(cell)
        return _masked_text(cell) if isinstance(cell, str) else self._walk(cell, 1)

    def _walk(self, value: object, depth: int) -> object:
        if depth > _DEEPEST:
            return MASK
        if isinstance(value, dict):
            return self._map(value, depth)
        if isinstance(value, list):
            return [self._walk(one, depth + 1) for one in value]
        return _masked_text(value) if isinstance(value, str) and self._kind is ClusterAnswerKind.CUSTOM else value

    def _map(self, fields: Mapping[str, object], depth: int) -> dict[str, object]:
        helm = self._kind is ClusterAnswerKind.CONFIG_MAPS and _is_helms(fields)
        shown = {}
        for key, value in fields.items():
            if helm and key == "data":
                shown[key] = _everything(value)
            elif key == "key" and isinstance(value, str) and fields.keys() & _BESIDE_KEYS:
                shown[key] = value
            elif key != "managedFields":
                shown[key] = self._field(key, value, depth)
        return shown

    def _field(self, key: str, value: object, depth: int) -> object:
        if key in _BY_NAME:
            return _BY_NAME[key](value)
        if (
            self._kind is ClusterAnswerKind.SCHEMAS
        ):  # properties are named like fields, so nothing below a specification is one
            return self._walk(value, depth + 1) if key in {"items", "metadata", "object"} else value
        if key in _KEPT and _is_labels(value):
            return value
        if key in _STATES and isinstance(value, dict):
            return {name: self._state(name, state, depth + 1) for name, state in value.items()}
        return self._by_kind(key, value, depth)

    def _by_kind(self, key: str, value: object, depth: int) -> object:
        """Mask a field that means something in objects of this kind alone."""
        if self._kind is ClusterAnswerKind.CONFIG_MAPS and key in {"data", "binaryData"}:
            return _entries(value) if key == "data" else _bytes(value)
        if self._kind is not ClusterAnswerKind.CUSTOM:
            return _settings(value) if key in _SETTINGS and isinstance(value, dict) else self._walk(value, depth + 1)
        if _ANYTHING.fullmatch(key):
            return _environment(value) if _is_variables(value) else _everything(value)
        return _everything(value) if _names_secret(key) and not _is_reference(value) else self._walk(value, depth + 1)

    def _state(self, name: str, state: object, depth: int) -> object:
        """Mask messages of a container's state: what it wrote at its end, and errors that quote its command."""
        shown = self._walk(state, depth)
        if not isinstance(shown, dict) or (name == "waiting" and shown.get("reason") in _HARMLESS_REASONS):
            return shown
        return {key: _everything(value) if key == "message" else value for key, value in shown.items()}


def _everything(value: object, depth: int = 0) -> object:
    """Mask every text and number in a value; names of fields and how many there are stay."""
    if depth > _DEEPEST:
        return MASK
    if isinstance(value, dict):
        return {key: _everything(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_everything(one, depth + 1) for one in value]
    return value if value is None or value == "" or isinstance(value, bool) else MASK


def _masked_text(text: str) -> str:
    """Mask what follows a name of a secret in the lines of a text, and passwords in URLs; all where that is unclear."""
    values = [match[2].strip() for shape in (_LINE, _PAIR) for match in shape.finditer(text)]
    if "\n" in text and any(_BELOW.fullmatch(value) for value in values):
        return MASK
    for shape in (_PAIR, _LINE) if values else ():
        text = shape.sub(lambda match: f"{match[1]}{MASK}", text)
    return _URL.sub(lambda match: f"{match[1]}{MASK}@", text)


def _unescaped(found: regex.Match[bytes]) -> bytes:
    return bytes.fromhex(found[0][-2:].decode())


def _names_secret(name: str) -> bool:
    return bool(_NAME.search(name)) and not _REFERENCE.search(name)


def _bytes(value: object) -> object:
    """Mask what clients decode from base64."""
    return dict.fromkeys(value, _BASE64_MASK) if isinstance(value, dict) else _everything(value)


def _is_helms(fields: Mapping[str, object]) -> bool:
    metadata = fields.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return isinstance(labels, dict) and str(labels.get("owner", "")).lower() == "helm"


def _is_labels(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(inner, str) for inner in value.values())


def _is_variables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "name" in one for one in value)


def _is_reference(value: object) -> bool:
    """Whether a value says where a secret is, or whether there is one."""
    if isinstance(value, list):
        return all(isinstance(one, dict) and _is_reference(one) for one in value)
    return isinstance(value, bool) or (isinstance(value, dict) and set(value) <= _WHERE)


def _annotations(value: object) -> object:
    if not isinstance(value, dict):
        return _everything(value)
    return {key: inner if key in _ANNOTATIONS else _everything(inner) for key, inner in value.items()}


def _environment(value: object) -> object:
    """Mask values of variables; their names and where values come from stay."""
    if not isinstance(value, list):
        return _everything(value)
    return [
        {key: inner if key == "name" or _is_source(key, inner) else _everything(inner) for key, inner in one.items()}
        if isinstance(one, dict)
        else _everything(one)
        for one in value
    ]


def _is_source(key: str, value: object) -> bool:
    return key == "valueFrom" and isinstance(value, dict) and set(value) <= _WHERE


def _web_request(value: object) -> object:
    """Mask the path and the headers' values of a probe or hook."""
    if not isinstance(value, dict):
        return _everything(value)
    headers = _environment(value["httpHeaders"]) if "httpHeaders" in value else None
    shown = {key: inner if key in {"port", "scheme", "host"} else _everything(inner) for key, inner in value.items()}
    return shown if headers is None else {**shown, "httpHeaders": headers}


def _settings(value: Mapping[str, object]) -> dict[str, object]:
    return {key: _everything(inner) if _NAME.search(key) else inner for key, inner in value.items()}


def _entries(value: object) -> object:
    """Mask entries of a config map, by their names and by the names in their lines."""
    if not isinstance(value, dict):
        return _everything(value)
    return {
        key: _everything(inner) if _NAME.search(key) or not isinstance(inner, str) else _masked_text(inner)
        for key, inner in value.items()
    }


_BY_NAME: Final[Mapping[str, Callable[[object], object]]] = {
    "annotations": _annotations,
    "args": _everything,
    "command": _everything,
    "env": _environment,
    "extra": _everything,  # what an authenticator knows of a user
    "httpGet": _web_request,
}
"""Fields that are masked wherever they stand."""
