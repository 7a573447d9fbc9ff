"""What answers show: no planted secret, and everything that an operator looks for."""

from __future__ import annotations

import copy
import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.policy.kubernetes_api.masks import WatchMask, holds_mask, masked, masked_line
from claudeops.policy.kubernetes_api.requests import ClusterAnswerKind
from claudeops.text.redact import MASK, Redactor
from support.planted_cluster import CONFIG_MAP, CUSTOM, DEPLOYMENT, HELM, NODE, POD, SECRET, metadata

Json = dict[str, Any]
OBJECTS: Final = {
    "pod": (ClusterAnswerKind.OBJECTS, POD),
    "deployment": (ClusterAnswerKind.OBJECTS, DEPLOYMENT),
    "revision": (
        ClusterAnswerKind.OBJECTS,
        {"kind": "ControllerRevision", "data": {"spec": {"template": DEPLOYMENT["spec"]}}},
    ),
    "cron job": (ClusterAnswerKind.OBJECTS, {"kind": "CronJob", "spec": {"jobTemplate": {"spec": DEPLOYMENT["spec"]}}}),
    "node": (ClusterAnswerKind.OBJECTS, NODE),
    "config map": (ClusterAnswerKind.CONFIG_MAPS, CONFIG_MAP),
    "release of helm": (ClusterAnswerKind.CONFIG_MAPS, HELM),
    "custom": (ClusterAnswerKind.CUSTOM, CUSTOM),
    "pod as a custom resource": (ClusterAnswerKind.CUSTOM, POD),
    "storage class": (
        ClusterAnswerKind.OBJECTS,
        {"kind": "StorageClass", "parameters": {"restuserkey": "a", "adminPassword": "x-hunter2", "type": "ssd"}},
    ),
    "review": (
        ClusterAnswerKind.OBJECTS,
        {"kind": "SelfSubjectReview", "status": {"userInfo": {"extra": {"a": ["x-hunter2"]}}}},
    ),
    "definition": (
        ClusterAnswerKind.SCHEMAS,
        {"kind": "CustomResourceDefinition", "metadata": metadata("shops"), "spec": {}},
    ),
}


def table(one: Json, *, columns: bool = True) -> Json:
    definitions = [{"name": "Name", "type": "string"}, {"name": "Password", "type": "string"}, {"name": "Age"}]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "columnDefinitions": definitions if columns else None,
        "rows": [{"cells": ["web-1", "cell-hunter2", "5m"], "object": one}],
    }


def seen(kind: ClusterAnswerKind, document: object) -> str:
    """Return what a client gets: masked, and redacted as bytes."""
    return Redactor([]).line(msgspec.json.encode(masked(kind, document))).decode()


@pytest.mark.parametrize("name", OBJECTS)
def test_no_planted_secret_survives(name: str) -> None:
    kind, one = OBJECTS[name]
    before = copy.deepcopy(one)
    forms = {
        "alone": one,
        "list": {"kind": "List", "items": [one, one]},
        "table": table(one),
        "metadata in a table": table({"kind": "PartialObjectMetadata", "metadata": one.get("metadata", {})}),
    }
    for form, document in forms.items():
        assert SECRET in json.dumps(document), form
        assert SECRET not in seen(kind, document), form
    assert one == before

    for document in (one, table(one), table(one, columns=False)):
        line = masked_line(kind, msgspec.json.encode({"type": "MODIFIED", "object": document}) + b"\n")
        shown = Redactor([]).line(line).decode()
        if document is not one and kind is not ClusterAnswerKind.CUSTOM and document["columnDefinitions"] is None:
            shown = shown.replace("cell-hunter2", "")  # Kubernetes' own tables have no such column
        assert SECRET not in shown
        assert shown.endswith("\n")
        assert json.loads(shown)["type"] == "MODIFIED"


def test_what_an_operator_looks_for_stays() -> None:
    shown = masked(ClusterAnswerKind.OBJECTS, POD)
    assert isinstance(shown, dict)
    assert shown["metadata"]["labels"] == POD["metadata"]["labels"]
    assert shown["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    assert "managedFields" not in shown["metadata"]
    container = shown["spec"]["containers"][0]
    assert container["env"] == [
        {"name": "DB_PASSWORD", "value": MASK},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "password"}}},
        {"name": "EMPTY", "value": ""},
    ]
    assert (container["command"], container["args"]) == ([MASK] * 3, [MASK])
    assert container["livenessProbe"]["httpGet"] == {
        "path": MASK,
        "port": 8080,
        "scheme": "HTTP",
        "httpHeaders": [{"name": "X-Key", "value": MASK}],
    }
    for field in ("name", "image", "envFrom", "volumeMounts", "resources"):
        assert container[field] == POD["spec"]["containers"][0][field]
    assert shown["spec"]["volumes"][0] == POD["spec"]["volumes"][0]
    assert shown["spec"]["volumes"][1]["csi"]["volumeAttributes"] == {"apiKey": MASK, "share": "a"}
    states = shown["status"]["containerStatuses"]
    assert states[0]["state"] == POD["status"]["containerStatuses"][0]["state"]
    assert states[0]["lastState"]["terminated"] == POD["status"]["containerStatuses"][0]["lastState"]["terminated"] | {
        "message": MASK
    }
    assert shown["status"]["conditions"] == POD["status"]["conditions"]

    node = masked(ClusterAnswerKind.OBJECTS, NODE)
    assert isinstance(node, dict)
    assert (node["spec"], node["status"]) == (NODE["spec"], NODE["status"])


def test_a_config_map_shows_what_is_no_secret() -> None:
    shown = masked(ClusterAnswerKind.CONFIG_MAPS, CONFIG_MAP)
    assert isinstance(shown, dict)
    assert shown["data"] == {
        "LOG_LEVEL": "debug",
        "DB_PASSWORD": MASK,
        "tls.key": MASK,
        "app.conf": f"dsn={MASK}\nworkers = 4\napi_token: {MASK}\n",
        "app.json": f'{{"workers": 4, "password": {MASK}, "host": "db"}}',
        "redis.conf": f"port 6379\nrequirepass {MASK}\n",
        "flags": f"serve --port 80 --api-key {MASK}",
        "block.yaml": MASK,
        "list.yaml": f"env:\n- name: DB_PASSWORD\n  value: {MASK}\nworkers: 4\n",
        "open.yaml": MASK,
        "app.xml": f"<a>\n<password>{MASK}\n<workers>4</workers>\n</a>",
        "url": f"http://user:{MASK}@db.example/",
    }
    assert shown["binaryData"] == {"blob": "W3JlZGFjdGVkXQ=="}  # clients decode it


def test_a_custom_resource_shows_its_state() -> None:
    shown = masked(ClusterAnswerKind.CUSTOM, CUSTOM)
    assert isinstance(shown, dict)
    assert shown["status"] == CUSTOM["status"]
    spec = shown["spec"]
    assert (spec["replicas"], spec["hostname"]) == (3, "shop.example")
    assert spec["adminPasswordSecretRef"] == {"name": "s1", "key": "admin"}
    assert spec["triggers"][0]["metadata"] == {"connectionString": MASK, "queue": "orders"}
    assert spec["params"] == [{"name": "x", "value": MASK}]
    assert spec["pin"] == {"token": MASK}


@pytest.mark.parametrize(
    "spec",
    [
        {"passwords": [{"text": "a-hunter2"}]},
        {"passwords": [["a-hunter2"], "b-hunter2"]},
        {"tokens": {"any": {"thing": "a-hunter2"}}},
        {"env": [{"name": "A", "valueFrom": {"literal": "a-hunter2"}}]},
        {"env": [{"name": "A", "valueFrom": "a-hunter2"}]},
        {"env": {"A": "a-hunter2"}},
        {"key": "a-hunter2"},
        {"httpGet": "a-hunter2"},
        {"annotations": ["a-hunter2"]},
        {"metadata": {"password": "a-hunter2"}},
        {"labels": {"password": ["a-hunter2"]}},
    ],
    ids=str,
)
def test_a_custom_resource_hides_secrets_in_every_form(spec: Json) -> None:
    assert SECRET not in seen(ClusterAnswerKind.CUSTOM, {"kind": "Shop", "spec": spec})


def test_an_object_that_is_named_like_a_table_is_none() -> None:
    named = {"kind": "Table", "apiVersion": "example.org/v1", "columnDefinitions": [{"password": "a-hunter2"}]}
    assert SECRET not in seen(ClusterAnswerKind.CUSTOM, named)


def test_a_schema_keeps_the_names_of_its_fields() -> None:
    properties = {"env": {"type": "array"}, "command": {"type": "string"}, "annotations": {"type": "object"}}
    definition = {"kind": "CustomResourceDefinition", "metadata": metadata("a"), "spec": {"properties": properties}}
    shown = masked(ClusterAnswerKind.SCHEMAS, {"kind": "List", "items": [definition]})
    assert isinstance(shown, dict)
    assert shown["items"][0]["spec"] == definition["spec"]
    assert SECRET not in json.dumps(shown)


@pytest.mark.parametrize(
    "kind", [ClusterAnswerKind.TEXT, ClusterAnswerKind.LOG, ClusterAnswerKind.DISCOVERY, ClusterAnswerKind.OPENAPI]
)
def test_what_the_server_says_of_itself_and_raw_text_stay(kind: ClusterAnswerKind) -> None:
    document = {"env": [{"name": "a", "value": "b"}]}
    assert masked(kind, document) == document
    assert masked_line(kind, b"any text") == b"any text"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{",
        b'"hunter2"',
        b"{}",
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":"hunter2"}',
        b'{"type":1,"object":{}}',
        b'{"object":{}}',
        b"\xff",
        b"k8s\x00",
        b'{"type":"ADDED","object":{"a":' + b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("kind", [ClusterAnswerKind.OBJECTS, ClusterAnswerKind.CUSTOM])
def test_nothing_is_left_of_a_line_that_is_no_event(kind: ClusterAnswerKind, line: bytes) -> None:
    assert masked_line(kind, line) == b""


def test_a_watch_remembers_its_columns() -> None:
    watch = WatchMask(ClusterAnswerKind.CUSTOM)
    first = json.loads(watch.line(msgspec.json.encode({"type": "ADDED", "object": table({})})))
    later = json.loads(watch.line(msgspec.json.encode({"type": "ADDED", "object": table({}, columns=False)})))
    alone = json.loads(
        masked_line(ClusterAnswerKind.CUSTOM, msgspec.json.encode({"type": "A", "object": table({}, columns=False)}))
    )
    assert first["object"]["rows"][0]["cells"] == ["web-1", MASK, "5m"]
    assert later["object"]["rows"][0]["cells"] == ["web-1", MASK, "5m"]
    assert alone["object"]["rows"][0]["cells"] == ["web-1", MASK, MASK]


def test_the_end_of_the_first_events_is_seen() -> None:
    bookmark = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    line = masked_line(ClusterAnswerKind.OBJECTS, msgspec.json.encode({"type": "BOOKMARK", "object": bookmark}))
    assert json.loads(line)["object"] == bookmark


def test_a_document_that_is_nested_too_deeply_is_cut() -> None:
    document: object = "x-hunter2"
    for _ in range(400):
        document = {"a": [document]}
    for kind in ClusterAnswerKind:
        assert kind in {
            ClusterAnswerKind.TEXT,
            ClusterAnswerKind.LOG,
            ClusterAnswerKind.DISCOVERY,
            ClusterAnswerKind.OPENAPI,
            ClusterAnswerKind.SCHEMAS,
        } or SECRET not in seen(kind, document)
    for key in ("env", "annotations", "values", "data"):
        assert SECRET not in seen(ClusterAnswerKind.CUSTOM, {key: document})


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        (b'{"a":"[redacted]"}', True),
        (b'{"a":"\\u005Bred\\u0061cted\\u005d"}', True),
        (b'{"data":{"a":"W3JlZGFjdGVkXQ=="}}', True),
        (b'{"a":"redacted"}', False),
        (b'{"a":"\\u00e9\\u12"}', False),
        (b"", False),
    ],
)
def test_a_body_with_a_mask_is_known(body: bytes, holds: bool) -> None:
    assert holds_mask(body) is holds


NAMES: Final = st.sampled_from(
    [
        *(
            "env",
            "command",
            "annotations",
            "metadata",
            "labels",
            "state",
            "lastState",
            "data",
            "items",
            "rows",
            "cells",
        ),
        *("httpGet", "httpHeaders", "value", "name", "key", "password", "kind", "columnDefinitions", "apiVersion", "a"),
    ]
)
PLAIN: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["Table", "meta.k8s.io/v1", "a: |\nb"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(kind=st.sampled_from(ClusterAnswerKind), document=PLAIN, line=st.binary(max_size=40))
def test_no_answer_breaks_the_masks(kind: ClusterAnswerKind, document: object, line: bytes) -> None:
    masked(kind, document)
    masked_line(kind, line)
    holds_mask(line)
    raw = json.dumps({"type": "ADDED", "object": document}).encode()
    shown = masked_line(kind, raw)
    assert (
        shown == b""
        or isinstance(msgspec.json.decode(shown), dict)
        or kind in {ClusterAnswerKind.TEXT, ClusterAnswerKind.LOG}
    )


@given(text=st.text(st.sampled_from("ab \n:='\"|{passwordtoken-/@.")))
def test_no_text_breaks_the_masks(text: str) -> None:
    for kind in (ClusterAnswerKind.CONFIG_MAPS, ClusterAnswerKind.CUSTOM):
        masked(kind, {"data": {"a": text}, "b": text})
