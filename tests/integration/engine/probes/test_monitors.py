"""Whoever is asked about a service answers over its real protocol; whoever does not answer says nothing about it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from anyio.abc import ByteStream

from claudeops.domain.probes.probe import DockerLook, KubernetesLook, Observation, ProbeState, PrometheusLook, Saw
from claudeops.engine.probes.kubernetes import cluster_of
from claudeops.engine.probes.results import LookFailedError
from support.certificates import Authority, serving_with
from support.looking import Handler, answers, head, look, never, serving

pytestmark = pytest.mark.anyio


def api(documents: Mapping[str, object], heard: list[bytes] | None = None, *, token: str = "") -> Handler:
    """Return a server that has a document at each path, in chunks as such servers send them."""

    async def handler(stream: ByteStream) -> None:
        request = await head(stream)
        if heard is not None:
            heard.append(request)
        path = urlsplit(request.split(b" ")[1].decode()).path
        status = 200 if path in documents else 404
        if token and f"authorization: Bearer {token}\r\n".encode() not in request:
            status = 401
        body = json.dumps(documents[path] if status == 200 else {"message": "no"}).encode()
        lines = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        await stream.send(lines.encode() + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")

    return handler


# --- Prometheus: answers recorded from 2.42 --------------------------------------------------------------------


def vector(*values: str) -> dict[str, object]:
    result = [
        {"metric": {"__name__": "up", "instance": f"web{number}", "job": "web"}, "value": [1795349259.85, value]}
        for number, value in enumerate(values)
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


async def of_prometheus(answer: object, **asked: object) -> Observation:
    async with serving(api({"/prom/api/v1/query": answer})) as port:
        url = f"http://127.0.0.1:{port}/prom/"
        return await look(PrometheusLook(url=url, expression='up{job="web"}', **asked))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "asked", "saw"),
    [
        (("1", "1"), {"below": 1}, Saw.UP),
        (("1", "0"), {"below": 1}, Saw.DOWN),
        (("3", "5"), {"above": 5}, Saw.UP),
        (("3", "5.1"), {"above": 5}, Saw.DOWN),
        (("+Inf",), {"above": 5}, Saw.DOWN),
        (("NaN", "3"), {"above": 5}, Saw.UP),
        (("NaN",), {"above": 5}, Saw.NOTHING),
        (("3", "9"), {"above": 8, "below": 4}, Saw.DOWN),
        (("7",), {}, Saw.UP),
        ((), {}, Saw.NOTHING),
        ((), {"absent": ProbeState.DOWN}, Saw.DOWN),
        ((), {"absent": ProbeState.UP}, Saw.UP),
        ((), {"absent": ProbeState.DEGRADED}, Saw.DEGRADED),
    ],
)
async def test_the_worst_series_is_held_against_the_threshold(
    values: tuple[str, ...], asked: dict[str, object], saw: Saw
) -> None:
    assert (await of_prometheus(vector(*values), **asked)).saw is saw


async def test_the_worst_series_is_named() -> None:
    found = await of_prometheus(vector("9", "12", "1"), above=8)
    assert found.detail == '12 is above 8 "{instance=web1, job=web}"; 2 of 3 series'


async def test_a_scalar_is_a_value_too() -> None:
    answer = {"status": "success", "data": {"resultType": "scalar", "result": [1795349259.907, "2"]}}
    assert (await of_prometheus(answer, above=1)).saw is Saw.DOWN


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "error", "errorType": "bad_data", "error": "1:5: parse error: unclosed left parenthesis"},
        {"status": "success", "data": {"resultType": "matrix", "result": []}},
        {"status": "success", "data": {"resultType": "string", "result": [1, "x"]}},
        {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "histogram": [1, {}]}]}},
        {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "many"]}]}},
        {"status": "success"},
        ["x"],
    ],
)
async def test_what_is_no_number_has_seen_nothing(answer: object) -> None:
    found = await of_prometheus(answer, above=1)
    assert found.saw is Saw.NOTHING
    assert "crash" not in found.detail
    assert "itself failed" not in found.detail


async def test_the_expression_arrives_as_it_was_written() -> None:
    heard: list[bytes] = []
    async with serving(api({"/api/v1/query": vector("1")}, heard)) as port:
        expression = 'sum(rate(x{a="b&c=d #+"}[5m])) > 1'
        await look(PrometheusLook(url=f"http://127.0.0.1:{port}", expression=expression))
    assert parse_qs(urlsplit(heard[0].split(b" ")[1].decode()).query) == {"query": [expression]}


async def test_a_monitor_that_does_not_answer_says_nothing_about_the_service() -> None:
    gone = await look(PrometheusLook(url="http://127.0.0.1:1", expression="up"))
    assert gone.saw is Saw.NOTHING
    async with serving(never) as port:
        hangs = await look(PrometheusLook(url=f"http://127.0.0.1:{port}", expression="up"), timeout=0.3)
        assert hangs.saw is Saw.NOTHING
    async with serving(answers(b"<html>", status=502)) as port:
        proxied = await look(PrometheusLook(url=f"http://127.0.0.1:{port}", expression="up"))
        assert proxied.saw is Saw.NOTHING
        assert "502" in proxied.detail


# --- docker ---------------------------------------------------------------------------------------------------


async def of_docker(directory: Path, documents: Mapping[str, object], container: str = "web") -> Observation:
    path = str(directory / "docker.sock")
    async with serving(api(documents), path=path):
        return await look(DockerLook(container=container, socket=path))


def container(restarts: int = 0, **state: object) -> dict[str, object]:
    environment = ["PASSWORD=s3cr3t"]
    return {"State": state, "RestartCount": restarts, "Config": {"Env": environment}, "Name": "/web"}


@pytest.mark.parametrize(
    ("state", "saw", "told"),
    [
        ({"Status": "running"}, Saw.UP, 'it is "running"'),
        ({"Status": "running", "Health": {"Status": "healthy"}}, Saw.UP, '"healthy"'),
        ({"Status": "running", "Health": {"Status": "starting"}}, Saw.DEGRADED, '"starting"'),
        ({"Status": "running", "Health": {"Status": "unhealthy"}}, Saw.DOWN, '"unhealthy"'),
        ({"Status": "running", "Health": {"Status": "none"}}, Saw.UP, "running"),
        ({"Status": "exited", "ExitCode": 137, "OOMKilled": True}, Saw.DOWN, "exit code 137, out of memory"),
        ({"Status": "restarting", "ExitCode": 1}, Saw.DOWN, "restarting"),
        ({"Status": "paused"}, Saw.DOWN, "paused"),
        ({}, Saw.DOWN, "no state"),
    ],
)
async def test_state_and_health_of_a_container_decide(
    tmp_path: Path, state: dict[str, object], saw: Saw, told: str
) -> None:
    found = await of_docker(tmp_path, {"/containers/web/json": container(restarts=3, **state)})
    assert found.saw is saw
    assert told in found.detail
    assert "restarted 3 times" in found.detail
    assert "s3cr3t" not in found.detail


async def test_a_container_that_is_not_there_is_down(tmp_path: Path) -> None:
    found = await of_docker(tmp_path, {}, container="../images/x")
    assert (found.saw, found.detail) == (Saw.DOWN, 'there is no container "../images/x"')


async def test_an_engine_that_does_not_answer_says_nothing_about_the_container(tmp_path: Path) -> None:
    found = await look(DockerLook(container="web", socket=str(tmp_path / "none")))
    assert found.saw is Saw.NOTHING
    assert "mount it" in found.detail
    for path, handler in (("hangs", never), ("odd", answers(b"[]")), ("refuses", answers(status=403))):
        async with serving(handler, path=str(tmp_path / path)):
            found = await look(DockerLook(container="web", socket=str(tmp_path / path)), timeout=0.5)
            assert found.saw is Saw.NOTHING


# --- kubernetes -----------------------------------------------------------------------------------------------

TOKEN = "t0ken-of-the-account"
DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"


def kubeconfig(directory: Path, port: int, authority: Authority, **user: object) -> str:
    data = base64.b64encode(authority.pem.encode()).decode()
    document = {
        "apiVersion": "v1",
        "current-context": "home",
        "contexts": [{"name": "home", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": data}}
        ],
        "users": [{"name": "u", "user": user or {"token": TOKEN}}],
    }
    (directory / "config").write_text(yaml.safe_dump(document))
    return str(directory / "config")


async def of_kubernetes(
    directory: Path,
    authority: Authority,
    documents: Mapping[str, object],
    workload: str = "deployment/web",
    user: Mapping[str, object] | None = None,
) -> Observation:
    tls = serving_with(authority.issue(directory / "server"))
    async with serving(api(documents, token=TOKEN), tls=tls) as port:
        config = kubeconfig(directory, port, authority, **(user or {}))
        return await look(KubernetesLook(workload=workload, namespace="shop", kubeconfig=config))


@pytest.mark.parametrize(
    ("wanted", "ready", "saw"), [(3, 3, Saw.UP), (3, 1, Saw.DEGRADED), (3, None, Saw.DOWN), (0, None, Saw.UP)]
)
async def test_ready_replicas_are_held_against_wanted_ones(
    tmp_path: Path, authority: Authority, wanted: int, ready: int | None, saw: Saw
) -> None:
    status = {} if ready is None else {"readyReplicas": ready}
    document = {"kind": "Deployment", "spec": {"replicas": wanted}, "status": status}
    assert (await of_kubernetes(tmp_path, authority, {DEPLOYMENT: document})).saw is saw


async def test_a_daemonset_wants_one_for_each_node(tmp_path: Path, authority: Authority) -> None:
    status = {"desiredNumberScheduled": 5, "numberReady": 4}
    documents = {"/apis/apps/v1/namespaces/shop/daemonsets/logs": {"kind": "DaemonSet", "spec": {}, "status": status}}
    found = await of_kubernetes(tmp_path, authority, documents, "ds/logs")
    assert (found.saw, found.detail) == (Saw.DEGRADED, "4 of 5 replicas are ready")


async def test_a_workload_that_is_not_there_is_down(tmp_path: Path, authority: Authority) -> None:
    assert (await of_kubernetes(tmp_path, authority, {})).saw is Saw.DOWN


@pytest.mark.parametrize("user", [{"token": "another"}, {"exec": {"command": "aws"}}, {"token": "a\r\nb"}])
async def test_an_account_that_may_not_ask_has_seen_nothing(
    tmp_path: Path, authority: Authority, user: dict[str, object]
) -> None:
    found = await of_kubernetes(tmp_path, authority, {DEPLOYMENT: {}}, user=user)
    assert found.saw is Saw.NOTHING
    assert "another" not in found.detail


async def test_a_cluster_that_nobody_vouches_for_gets_no_token(tmp_path: Path, authority: Authority) -> None:
    heard: list[bytes] = []
    tls = serving_with(authority.issue(tmp_path / "server", names=("other.example",)))
    async with serving(api({}, heard), tls=tls) as port:
        config = kubeconfig(tmp_path, port, authority)
        found = await look(KubernetesLook(workload="deployment/web", kubeconfig=config))
    assert found.saw is Saw.NOTHING
    assert "for another host" in found.detail
    assert heard == []


@pytest.mark.parametrize("workload", ["web", "pod/web", "deployment/", ""])
async def test_what_is_no_workload_has_seen_nothing(workload: str) -> None:
    assert (await look(KubernetesLook(workload=workload))).saw is Saw.NOTHING


@pytest.mark.parametrize("content", ["", "a: b", "[", "- x", "current-context: home\ncontexts: 7"])
async def test_a_kubeconfig_that_cannot_be_read_has_seen_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").write_text(content)
    for path in ("config", "none"):
        found = await look(KubernetesLook(workload="deployment/web", kubeconfig=str(tmp_path / path)))
        assert found.saw is Saw.NOTHING
        assert "itself failed" not in found.detail


async def test_a_client_certificate_logs_in(tmp_path: Path, authority: Authority) -> None:
    both = authority.issue(tmp_path / "client").read_text()
    key, _, certificate = both.partition("-----BEGIN CERTIFICATE-----")
    (tmp_path / "client.key").write_text(key)
    (tmp_path / "client.crt").write_text(f"-----BEGIN CERTIFICATE-----{certificate}")
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    config = kubeconfig(tmp_path, 1, authority, **user)
    cluster = cluster_of(KubernetesLook(workload="deployment/web", kubeconfig=config), {})
    assert cluster.token == ""


def test_the_service_account_of_a_pod_leads_to_its_cluster(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "ca.crt").write_text(authority.pem)
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    asked = KubernetesLook(workload="deployment/web")
    cluster = cluster_of(asked, environment, tmp_path)
    assert (cluster.url.origin, cluster.token) == (("https", "10.0.0.1", 6443), TOKEN)
    with pytest.raises(LookFailedError, match="KUBERNETES_SERVICE_HOST"):
        cluster_of(asked, {}, tmp_path)
    with pytest.raises(LookFailedError, match="neither"):
        cluster_of(asked, {}, tmp_path / "none")
