"""The bodies of changes: exactly what kubectl sends, and the object's uid in what goes out."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.policy.kubernetes_api.bodies import (
    LONGEST_BODY,
    Change,
    Deleted,
    Restarted,
    Scaled,
    bound_body,
    read_body,
    refuse_review,
)
from claudeops.policy.kubernetes_api.requests import ClusterRefusal, DeletePod, ObjectName, Restart, Scale

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"
WEB: Final = ObjectName(group="apps", version="v1", resource="deployments", namespace="default", name="web")
POD: Final = ObjectName(group="", version="v1", resource="pods", namespace="default", name="web-1")
RESTART: Final = Restart(object=WEB, target=WEB.target)
SCALE: Final = Scale(object=WEB, target=f"{WEB.target}/scale", whole=False)
WHOLE: Final = Scale(object=WEB, target=f"{WEB.target}/scale", whole=True)
DELETE: Final = DeletePod(object=POD, target=POD.target)
ACTS: Final = (RESTART, SCALE, WHOLE, DELETE)
AT: Final = "kubectl.kubernetes.io/restartedAt"
TIME: Final = "2026-11-26T21:48:36Z"


def patch(annotations: str, more: str = "") -> bytes:
    return f'{{"spec":{{"template":{{"metadata":{{"annotations":{annotations}}}{more}}}}}}}'.encode()


RESTARTS: Final = patch(f'{{"{AT}":"{TIME}"}}')


def whole(**changed: object) -> bytes:
    metadata = {"name": "web", "namespace": "default", "uid": "u-1", "resourceVersion": "7", "creationTimestamp": None}
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {"replicas": 4}}
    return json.dumps(scale | {"status": {"replicas": 2, "selector": "app=web"}} | changed).encode()


def sent(change: Change | ClusterRefusal, uid: str = "u-1") -> object:
    assert not isinstance(change, ClusterRefusal), change
    body = bound_body(change, uid)
    return body if isinstance(body, ClusterRefusal) else json.loads(body)


@pytest.mark.parametrize("media", [MERGE, STRATEGIC, f"{STRATEGIC}; charset=utf-8"])
def test_a_restart_sends_the_time_and_the_uid(media: str) -> None:
    change = read_body(RESTART, RESTARTS, media)
    assert isinstance(change, Restarted)
    assert change.content_type == media.partition(";")[0]
    annotations = {"metadata": {"annotations": {AT: TIME}}}
    assert sent(change) == {"metadata": {"uid": "u-1"}, "spec": {"template": annotations}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        "\ufeff{}".encode(),
        RESTARTS.decode().encode("utf-16"),
        patch("{}"),
        patch(f'{{"{AT}":"{TIME}","note":"x"}}'),
        patch(f'{{"{AT}":"{TIME}","{AT}":"{TIME}"}}'),
        patch(f'{{"{AT}":"now"}}'),
        patch(f'{{"{AT}":null}}'),
        patch(f'{{"{AT}":"{TIME}"}}', ',"labels":{}'),
        patch(f'{{"{AT}":"{TIME}"}}', '},"spec":{"containers":[{"name":"app","image":"other"}]'),
        RESTARTS[:-1] + b',"metadata":{"uid":"u-2"}}',
        RESTARTS[:-1] + b',"$patch":"replace"}',
        RESTARTS[:-1] + b',"spec":{"replicas":0}}',
        b'{"spec":{"paused":true}}',
        b'[{"op":"replace","path":"/spec/template","value":{}}]',
        patch('{"kubectl.kubernetes.io/restartedAt":"[redacted]"}'),
        b"[" * 50_000,
        b" " * (LONGEST_BODY + 1),
    ],
)
def test_a_patch_that_is_no_restart_is_refused(body: bytes) -> None:
    assert isinstance(read_body(RESTART, body, STRATEGIC), ClusterRefusal)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    "media", ["application/json-patch+json", "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf"]
)
def test_a_body_of_another_type_is_refused(act: Restart | Scale | DeletePod, media: str) -> None:
    for body in (RESTARTS, b'{"spec":{"replicas":1}}', whole(), b'{"propagationPolicy":"Background"}'):
        refused = read_body(act, body, media)
        assert isinstance(refused, ClusterRefusal)
        assert refused.status == 415


@pytest.mark.parametrize("replicas", [0, 3, 2**31 - 1])
def test_scaling_sends_the_number_and_the_uid(replicas: int) -> None:
    change = read_body(SCALE, json.dumps({"spec": {"replicas": replicas}}).encode(), MERGE)
    assert change == Scaled(replicas=replicas)
    assert sent(change) == {"metadata": {"uid": "u-1"}, "spec": {"replicas": replicas}}


def test_a_whole_scale_object_is_sent_as_a_patch_of_what_was_read() -> None:
    change = read_body(WHOLE, whole(), JSON)
    assert change == Scaled(replicas=4, uid="u-1", resource_version="7")
    assert sent(change) == {"metadata": {"uid": "u-1", "resourceVersion": "7"}, "spec": {"replicas": 4}}
    refused = sent(change, "u-2")
    assert isinstance(refused, ClusterRefusal)
    assert refused.status == 409


@pytest.mark.parametrize(
    ("act", "body"),
    [
        *((SCALE, f'{{"spec":{{"replicas":{number}}}}}'.encode()) for number in ("-1", "true", "1.5", '"3"', "null")),
        *((SCALE, f'{{"spec":{{"replicas":{number}}}}}'.encode()) for number in (str(2**31), "1e3", "NaN", "9" * 5000)),
        (SCALE, b'{"spec":{"replicas":3},"metadata":{"uid":"u-2"}}'),
        (SCALE, b'{"spec":{"replicas":3,"selector":{}}}'),
        (SCALE, b'{"spec":{"replicas":1,"replicas":3}}'),
        (SCALE, whole()),
        (WHOLE, b'{"spec":{"replicas":3}}'),
        (WHOLE, whole(metadata={"name": "other"})),
        (WHOLE, whole(metadata={"name": "web", "namespace": "other"})),
        (WHOLE, whole(metadata={"name": "web", "uid": 7})),
        (WHOLE, whole(metadata={"name": "web", "labels": {}})),
        (WHOLE, whole(kind="Deployment")),
        (WHOLE, whole(apiVersion=["v1"])),
        (WHOLE, whole(apiVersion="example.org/v1")),
        (WHOLE, whole(more=1)),
        (WHOLE, whole(status={"replicas": 2, "selector": "[redacted]"})),
        (WHOLE, whole(spec={"replicas": 1, "more": 1})),
    ],
)
def test_a_scaling_of_more_than_the_number_is_refused(act: Scale, body: bytes) -> None:
    assert isinstance(read_body(act, body, JSON if act.whole else MERGE), ClusterRefusal)


@pytest.mark.parametrize(
    ("body", "change"),
    [
        (b"", Deleted(grace_seconds=None, propagation="")),
        (b'{"propagationPolicy":"Background"}\n', Deleted(grace_seconds=None, propagation="Background")),
        (
            b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":30}',
            Deleted(grace_seconds=30, propagation=""),
        ),
    ],
)
def test_a_deletion_sends_the_uid_as_its_precondition(body: bytes, change: Deleted) -> None:
    assert read_body(DELETE, body, JSON) == change
    document = sent(change)
    assert isinstance(document, dict)
    assert document["preconditions"] == {"uid": "u-1"}
    assert ("gracePeriodSeconds" in document) is (change.grace_seconds is not None)


@pytest.mark.parametrize(
    "body",
    [
        b'{"gracePeriodSeconds":0}',
        b'{"gracePeriodSeconds":-1}',
        b'{"gracePeriodSeconds":false}',
        b'{"gracePeriodSeconds":30,"gracePeriodSeconds":0}',
        b'{"gracePeriodSeconds":1e9}',
        b'{"propagationPolicy":"Other"}',
        b'{"propagationPolicy":["Background"]}',
        b'{"orphanDependents":true}',
        b'{"dryRun":["All"]}',
        b'{"preconditions":{"uid":"u-2"}}',
        b'{"kind":"Pod"}',
        b'{"kind":["Pod"]}',
        b'{"ignoreStoreReadErrorWithClusterBreakingPotential":true}',
    ],
)
def test_a_deletion_by_force_or_with_other_options_is_refused(body: bytes) -> None:
    assert isinstance(read_body(DELETE, body, JSON), ClusterRefusal)


def test_no_change_goes_out_for_whatever_object_there_is() -> None:
    for change in (
        Deleted(grace_seconds=None, propagation=""),
        Scaled(replicas=1),
        Restarted(at=TIME, content_type=STRATEGIC),
    ):
        with pytest.raises(ValueError, match="uid"):
            bound_body(change, "")


def test_a_review_is_small_and_of_a_type_that_is_known() -> None:
    assert refuse_review(b"k8s\x00\n", "application/vnd.kubernetes.protobuf") is None
    assert refuse_review(b"{}", "application/json; charset=utf-8") is None
    assert refuse_review(b"{}", "application/yaml") is not None
    assert refuse_review(b"x" * (LONGEST_BODY + 1), JSON) is not None


PLAIN: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["u-1", "web", TIME]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "template", "metadata", "annotations", AT, "replicas", "name", "kind", "apiVersion", "status"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(
    act=st.sampled_from(ACTS),
    body=st.binary(max_size=60) | PLAIN.map(lambda value: json.dumps(value).encode()),
    media=st.sampled_from([JSON, MERGE, STRATEGIC, ""]) | st.text(max_size=8),
)
def test_no_body_breaks_the_reader(act: Restart | Scale | DeletePod, body: bytes, media: str) -> None:
    change = read_body(act, body, media)
    if not isinstance(change, ClusterRefusal):
        assert not isinstance(bound_body(change, getattr(change, "uid", "") or "u-1"), ClusterRefusal)
