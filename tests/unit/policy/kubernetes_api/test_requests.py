"""What passes to a cluster: every recorded look of kubectl, four kinds of change, and nothing that was made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claudeops.policy.kubernetes_api.bodies import read_body
from claudeops.policy.kubernetes_api.requests import (
    Act,
    ClusterAnswerKind,
    ClusterRead,
    ClusterRefusal,
    DeletePod,
    Exec,
    ObjectName,
    Restart,
    Scale,
    TimedVerdict,
    accepted,
    read_request,
)

RECORDED: Final = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "data" / "kubernetes-api.jsonl").read_text("utf-8").splitlines()
]
"""Every call that kubectl 1.27 to 1.37 and helm made against an API server 1.34, without the answers."""

CHANGES: Final[dict[str, type[Act]]] = {
    "kubectl rollout restart": Restart,
    "kubectl scale": Scale,
    "kubectl delete pod": DeletePod,
    "kubectl delete $(": DeletePod,
    "kubectl exec deploy/web": Exec,
    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false kubectl exec": Exec,
    "kubectl cp": Exec,
}
CORE: Final = "/api/v1/namespaces/default"
APPS: Final = "/apis/apps/v1/namespaces/default"
EXEC: Final = f"{CORE}/pods/web-1/exec?command=id&container=app&stdout=true"
WEBSOCKET: Final = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}
SPDY: Final = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v5.channel.k8s.io, v4"}


def judged(method: str, target: str, headers: dict[str, str] | None = None) -> TimedVerdict:
    return read_request(method, target, headers or {})


def of_recorded(call: dict[str, Any]) -> TimedVerdict:
    upgrade = {"websocket": WEBSOCKET, "SPDY/3.1": SPDY}.get(call.get("upgrade", ""), {})
    return judged(call["method"], call["path"], {"Accept": call.get("accept", ""), **upgrade})


def is_look(call: dict[str, Any]) -> bool:
    path = call["path"]
    shows = not any(word in path for word in ("/secrets", "/metrics?", "/exec?", "/attach?", "/portforward"))
    return call["method"] == "GET" and shows and path != "/metrics"


@pytest.mark.parametrize("call", [call for call in RECORDED if is_look(call)], ids=lambda call: str(call["path"]))
def test_every_recorded_look_passes_as_it_was(call: dict[str, Any]) -> None:
    read = of_recorded(call)

    assert isinstance(read, ClusterRead), read
    assert (read.method, read.target, read.dropped) == ("GET", call["path"], ())
    assert read.stream is ("watch=true" in call["path"] or "follow=true" in call["path"])
    assert "protobuf" not in read.accept
    if "as=" in call["accept"]:
        assert read.accept == call["accept"]


def test_the_recordings_hold_looks_and_changes() -> None:
    """Or the tests around it would prove nothing."""
    assert len([call for call in RECORDED if is_look(call)]) > 70
    assert len([call for call in RECORDED if not is_look(call)]) > 40


@pytest.mark.parametrize(
    "call", [call for call in RECORDED if not is_look(call)], ids=lambda call: f"{call['method']} {call['path'][:90]}"
)
def test_every_other_recorded_call_is_a_change_that_was_meant_or_refused(call: dict[str, Any]) -> None:
    found = of_recorded(call)
    wanted = next((act for command, act in CHANGES.items() if call["command"].startswith(command)), None)
    if "review" in call["path"]:
        assert isinstance(found, ClusterRead)
        assert found.method == "POST"
    elif wanted is not None:
        assert isinstance(found, wanted)
        assert "body" not in call or not isinstance(whole(found, call), ClusterRefusal)
    else:
        assert isinstance(found, ClusterRefusal) or isinstance(whole(found, call), ClusterRefusal)


def whole(found: TimedVerdict, call: dict[str, Any]) -> object:
    """Return what the body of a change makes of it."""
    assert isinstance(found, Restart | Scale | DeletePod)
    media = "application/strategic-merge-patch+json" if call["method"] == "PATCH" else "application/json"
    return read_body(found, call["body"].encode(), media)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/version", ClusterAnswerKind.DISCOVERY),
        ("/readyz/poststarthook/rbac/bootstrap-roles?verbose=true", ClusterAnswerKind.TEXT),
        ("/livez?exclude=etcd&exclude=ping", ClusterAnswerKind.TEXT),
        ("/openapi/v2", ClusterAnswerKind.OPENAPI),
        ("/apis/example.org", ClusterAnswerKind.DISCOVERY),
        ("/apis/example.org/v1alpha1/shops", ClusterAnswerKind.CUSTOM),
        ("/apis/example.org/v1/namespaces/a/shops/b/status", ClusterAnswerKind.CUSTOM),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ClusterAnswerKind.SCHEMAS),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", ClusterAnswerKind.OBJECTS),
        ("/apis/metrics.k8s.io/v1beta1/nodes", ClusterAnswerKind.OBJECTS),
        ("/api/v1/namespaces/a/status", ClusterAnswerKind.OBJECTS),
        (f"{APPS}/deployments/web/scale", ClusterAnswerKind.OBJECTS),
        (f"{CORE}/configmaps", ClusterAnswerKind.CONFIG_MAPS),
        (f"{CORE}/pods/web-1/log?follow=false", ClusterAnswerKind.LOG),
    ],
)
def test_what_shows_no_secret_is_read(target: str, kind: ClusterAnswerKind) -> None:
    read = judged("GET", target)
    assert isinstance(read, ClusterRead)
    assert (read.target, read.kind, read.stream) == (target, kind, False)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "",
        "version",
        "http://other/version",
        "/version/",
        "/version#x",
        "/metrics",
        "/logs/kube.log",
        "/debug/pprof/heap",
        "/openid/v1/jwks",
        "/.well-known/openid-configuration",
        "/openapi/v3/.well-known/openid-configuration",
        "/openapi/v3/logs",
        "/api/v1/secrets",
        f"{CORE}/secrets/s1",
        f"{CORE}/Secrets",
        "/apis/example.org/v1/secrets",
        "/apis/external-secrets.io/v1/externalsecrets",
        "/apis/management.cattle.io/v3/tokens",
        "/apis/oauth.openshift.io/v1/oauthaccesstokens",
        "/api/v1/watch/secrets",
        "/api/v1/watch/namespaces/default/pods",
        "/apis/apps/v1/watch/deployments",
        "/apis/example.org/v1/watch/namespaces/default/secrets",
        "/api/v1/redirect/nodes/n1",
        "/api/v1/proxy/nodes/n1",
        "/api/v1/nodes/n1/proxy/logs",
        "/api/v1/nodes/n1/proxy",
        f"{CORE}/services/web/proxy/admin/x",
        f"{CORE}/pods/web-1/proxy",
        f"{CORE}/pods/web-1/portforward",
        f"{CORE}/pods/web-1/attach",
        f"{CORE}/pods/web-1/exec",
        f"{CORE}/pods/web-1/ephemeralcontainers",
        f"{CORE}/pods/web-1/eviction",
        f"{CORE}/serviceaccounts/web/token",
        f"{CORE}/things",
        "/api/v2/pods",
        "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/console",
        f"{CORE}/pods%2fweb-1",
        f"{CORE}/%73ecrets",
        f"{CORE}//secrets",
        f"{CORE}/pods/../secrets",
        f"{CORE}/./secrets",
        f"{CORE}/pods/a..b",
        f"{CORE}/pods;x/../secrets",
        f"{CORE}/pods\\..\\secrets",
        f"{CORE}/pods/",
        f"{CORE}/pods?watch=true&watch=false",
        f"{CORE}/pods?watch=",
        f"{CORE}/pods?watch=yes",
        f"{CORE}/pods?limit=%ff",
        f"{CORE}/pods?a=%20" + "b" * 20_000,
        "/version?" + "&".join(["a=b"] * 1000),
    ],
)
def test_what_may_show_a_secret_or_is_not_known_is_refused(target: str) -> None:
    for headers in ({}, WEBSOCKET, SPDY):
        refused = judged("GET", target, headers)
        assert isinstance(refused, ClusterRefusal), refused
        assert 400 <= refused.status < 500
        assert json.loads(refused.document)["message"] == refused.sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Impersonate-User", "admin"),
        ("IMPERSONATE-GROUP", "system:masters"),
        ("impersonate-extra-scopes", "x"),
        ("X-Remote-User", "admin"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("Content-Encoding", "gzip"),
        ("Upgrade", "websocket"),
    ],
)
def test_nothing_is_asked_as_another_or_in_another_protocol(name: str, value: str) -> None:
    for target in ("/version", "/api", f"{CORE}/pods", f"{CORE}/pods/web-1/log"):
        assert isinstance(judged("GET", target, {name: value}), ClusterRefusal)
    assert isinstance(judged("DELETE", f"{CORE}/pods/web-1", {name: value}), ClusterRefusal)


def test_unknown_parameters_of_a_read_are_left_out_and_named() -> None:
    read = judged("GET", f"{CORE}/pods?limit=5&pretty=true&labelSelector=a%3Db%2Cc&export=1&pretty=x&watch=1")
    assert isinstance(read, ClusterRead)
    assert read.target == f"{CORE}/pods?limit=5&labelSelector=a%3Db%2Cc&watch=true"
    assert read.dropped == ("pretty", "export")
    assert read.stream

    log = judged("GET", f"{CORE}/pods/web-1/log?insecureSkipTLSVerifyBackend=true&follow=1")
    assert isinstance(log, ClusterRead)
    assert (log.target, log.dropped) == (f"{CORE}/pods/web-1/log?follow=true", ("insecureSkipTLSVerifyBackend",))

    one = judged("GET", f"{CORE}/pods/web-1?watch=true")
    assert isinstance(one, ClusterRead)
    assert (one.stream, one.dropped) == (False, ("watch",))


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "CONNECT", "TRACE", "POST", "PUT", "PATCH", "DELETE", "get", ""])
@pytest.mark.parametrize(
    "target",
    ["/version", "/api", "/healthz", "/openapi/v3", f"{CORE}/pods", f"{CORE}/configmaps/a", "/apis/a.b/v1/c/d"],
)
def test_what_is_read_can_only_be_read(method: str, target: str) -> None:
    assert isinstance(judged(method, target), ClusterRefusal)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("DELETE", f"{CORE}/pods"),
        ("DELETE", "/api/v1/pods/web-1"),
        ("DELETE", f"{CORE}/pods/web-1?gracePeriodSeconds=0"),
        ("DELETE", f"{CORE}/pods/web-1?propagationPolicy=Orphan"),
        ("DELETE", f"{CORE}/pods/web-1?dryRun=All"),
        ("DELETE", f"{CORE}/pods/web-1/status"),
        ("DELETE", f"{APPS}/deployments/web"),
        ("PATCH", f"{APPS}/deployments/web?fieldManager=kubectl-rollout&force=true"),
        ("PATCH", f"{APPS}/deployments/web?fieldManager=kubectl-patch"),
        ("PATCH", f"{APPS}/deployments/web?fieldManager=kubectl-rollout&fieldManager=kubectl-rollout"),
        ("PATCH", f"{APPS}/deployments/web/status"),
        ("PATCH", f"{APPS}/replicasets/web"),
        ("PATCH", "/apis/apps/v1/deployments/web"),
        ("PATCH", "/apis/example.org/v1/namespaces/a/deployments/web"),
        ("PATCH", "/apis/example.org/v1/namespaces/a/shops/web/scale"),
        ("PUT", f"{APPS}/deployments/web"),
        ("PUT", f"{CORE}/pods/web-1/status"),
        ("POST", f"{CORE}/pods/web-1/eviction"),
        ("POST", f"{CORE}/serviceaccounts/web/token"),
        ("PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval"),
        ("PATCH", "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval"),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("POST", "/apis/authorization.k8s.io/v1/namespaces/a/selfsubjectaccessreviews"),
        ("DELETE", f"{CORE}/secrets/s1"),
    ],
)
def test_a_change_that_is_not_known_is_refused(method: str, target: str) -> None:
    assert isinstance(judged(method, target), ClusterRefusal)


def test_a_change_names_its_object() -> None:
    web = ObjectName(group="apps", version="v1", resource="statefulsets", namespace="shop", name="web")
    path = "/apis/apps/v1/namespaces/shop/statefulsets/web"

    assert judged("PATCH", path) == Restart(object=web, target=path)
    assert judged("PATCH", f"{path}/scale") == Scale(object=web, target=f"{path}/scale", whole=False)
    assert judged("PUT", f"{path}/scale") == Scale(object=web, target=f"{path}/scale", whole=True)
    assert web.target == path
    pod = judged("DELETE", f"{CORE}/pods/web-1")
    assert isinstance(pod, DeletePod)
    assert pod.object.target == f"{CORE}/pods/web-1"


@pytest.mark.parametrize(("method", "headers"), [("GET", WEBSOCKET), ("POST", SPDY), ("POST", WEBSOCKET)])
def test_an_exec_has_its_command_word_by_word(method: str, headers: dict[str, str]) -> None:
    target = f"{CORE}/pods/web-1/exec?command=sh&command=-c&command=a%20%26%20b&stdout=1&stderr=true&stdin=false"
    found = judged(method, target, headers)
    assert isinstance(found, Exec)
    assert (found.command, found.container) == (("sh", "-c", "a & b"), "")
    assert found.target == f"{CORE}/pods/web-1/exec?command=sh&command=-c&command=a%20%26%20b&stderr=true&stdout=true"
    assert found.protocols == ("v5.channel.k8s.io",)


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (f"{EXEC}&stdin=true", WEBSOCKET),
        (f"{EXEC}&tty=true", WEBSOCKET),
        (f"{EXEC}&stdin=", WEBSOCKET),
        (f"{EXEC}&container=other", WEBSOCKET),
        (f"{EXEC}&privileged=true", WEBSOCKET),
        (f"{CORE}/pods/web-1/exec?stdout=true", WEBSOCKET),
        (f"{CORE}/pods/web-1/exec?command=id", WEBSOCKET),
        (f"{CORE}/pods/web-1/exec?command=cat&command=%5Bredacted%5D&stdout=true", WEBSOCKET),
        (EXEC, {}),
        (EXEC, {"Upgrade": "websocket", "Sec-WebSocket-Protocol": "v5.channel.k8s.io"}),
        (EXEC, WEBSOCKET | {"Upgrade": "h2c"}),
        (EXEC, WEBSOCKET | {"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io.c2VjcmV0"}),
        (EXEC, WEBSOCKET | {"Impersonate-User": "admin"}),
    ],
)
def test_an_exec_with_input_or_in_another_way_is_refused(target: str, headers: dict[str, str]) -> None:
    assert isinstance(judged("GET", EXEC, WEBSOCKET), Exec)
    assert isinstance(judged("GET", target, headers), ClusterRefusal)


def test_a_token_among_the_protocols_is_left_out() -> None:
    offered = "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io,v4.channel.k8s.io"
    found = judged("GET", EXEC, WEBSOCKET | {"Sec-WebSocket-Protocol": offered})
    assert isinstance(found, Exec)
    assert found.protocols == ("v5.channel.k8s.io", "v4.channel.k8s.io")


@pytest.mark.parametrize(
    ("header", "sent"),
    [
        ("", "application/json"),
        ("application/vnd.kubernetes.protobuf, */*", "application/json"),
        ("application/yaml", "application/json"),
        (
            "application/json;as=Table;q=1;g=meta.k8s.io;v=v1, application/yaml",
            "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
        ),
        ("application/json;as=Other;g=meta.k8s.io;v=v1", "application/json"),
        ("application/json;as=Table;g=other.io;v=v1,application/cbor", "application/json"),
        ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", "application/json"),
        ("application/json;stream=watch", "application/json"),
    ],
)
def test_only_json_is_asked_for(header: str, sent: str) -> None:
    assert accepted(header) == sent


PARTS: Final = st.sampled_from(
    [
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "pods",
        "secrets",
        "watch",
        "exec",
        "log",
        "scale",
        "a",
        "..",
        "",
        "%2e",
    ]
)


@given(
    method=st.sampled_from(["GET", "POST", "PATCH", "PUT", "DELETE"]) | st.text(max_size=5),
    target=st.text(max_size=60)
    | st.builds(
        lambda parts, query: "/" + "/".join(parts) + query,
        st.lists(PARTS, max_size=8),
        st.sampled_from(["", "?", "?watch=true", "?command=a&stdout=true", "?%", "?a=\udcff", "?=&&;"]),
    ),
    headers=st.dictionaries(
        st.sampled_from(["Accept", "Upgrade", "Connection", "Sec-WebSocket-Protocol"]) | st.text(max_size=9),
        st.sampled_from(["websocket", "Upgrade", "v5.channel.k8s.io", ";;=,as=Table;=", "\ud800"])
        | st.text(max_size=9),
        max_size=4,
    ),
)
@example(method="GET", target="/api/v1", headers={"accept": ";,;g"})
def test_no_request_breaks_the_reader(method: str, target: str, headers: dict[str, str]) -> None:
    found = judged(method, target, headers)
    if not isinstance(found, ClusterRefusal):
        assert "secrets" not in found.target.split("?")[0].split("/")[4:]
        assert found.target.isascii()
        again = judged(found.method if isinstance(found, ClusterRead | Exec) else method, found.target, headers)
        assert getattr(again, "target", None) == found.target
    else:
        json.loads(found.document)
