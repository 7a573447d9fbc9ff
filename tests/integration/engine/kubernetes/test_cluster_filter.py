"""The filter before clusters: the real kubectl reads through it, and changes only what was granted, once."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import anyio
import pytest

from claudeops import logs
from claudeops.domain.gate.cluster_grants import DELETE, EXEC, RESTART, SCALE, ClusterGrant
from claudeops.domain.gate.granted import Grants
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.kubernetes.filter import open_cluster_filter
from claudeops.engine.kubernetes.kubeconfig import read_clusters
from support.aftermath import processes_of
from support.cluster_engine import Cluster, Reply, kubeconfig, serving, serving_tls
from support.planted_cluster import SECRET, planted
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

KUBECTL: Final = Path(sys.executable).parent / "kubectl"
TOKEN: Final = "the-clusters-own-token"
KNOWN: Final = "web-known-to-the-daemon"
SCALE_WEB: Final = ClusterGrant(call="toolu_1", verb=SCALE, resource="deployments", name="web", replicas=3)
RESTART_WEB: Final = ClusterGrant(call="toolu_1", verb=RESTART, resource="deployments", name="web")
EXEC_UPTIME: Final = ClusterGrant(call="toolu_1", verb=EXEC, resource="pods", name="web-1", command=("uptime",))

LOOKS: Final = (
    "get pods",
    "get pods -A -o wide --show-labels",
    "get pods -o yaml",
    "get pods -w --request-timeout=20",
    "get pods -o json -w --request-timeout=20",
    "get deploy web -o yaml",
    "get all -o yaml",
    "get cm cm1 -o yaml",
    "get shops -o yaml",
    "describe pod web-1",
    "describe deploy web",
    "describe node n1",
    "logs web-1",
    "get --raw /api/v1/namespaces/default/pods",
    "get --raw /healthz",
    "rollout status deploy/web",
    "rollout history deploy/web",
    "auth can-i delete pods",
    "version",
    "api-resources",
)

CHANGES: Final = (
    "rollout restart deploy/web",
    "scale deploy/web --replicas=0",
    "scale deploy/web --replicas=0 --current-replicas=2",
    "delete pod web-1",
    "delete pod web-1 --grace-period=0 --force",
    "delete pods --all",
    "delete deploy web",
    "delete ns default",
    "exec web-1 -- uptime",
    "exec web-1 -it -- sh",
    "set image deploy/web app=evil",
    "set env deploy/web A=b",
    "label pod web-1 a=b",
    "annotate pod web-1 a=b",
    'patch deploy web -p {"spec":{"replicas":0}}',
    'patch deploy web --subresource=scale --type=merge -p {"spec":{"replicas":0}}',
    "run evil --image=evil",
    "create deploy evil --image=evil",
    "create secret generic evil --from-literal=a=b",
    "create token default",
    "expose deploy web --port=80",
    "autoscale deploy web --max=3",
    "cordon n1",
    "drain n1 --force",
    "taint node n1 a=b:NoSchedule",
    "rollout undo deploy/web",
    "rollout pause deploy/web",
    "attach web-1",
    "port-forward web-1 :80",
    "debug web-1 --image=evil",
    "cp /etc/hostname web-1:/tmp/x",
    "get secrets",
    "get secrets -o yaml",
    "describe secret s1",
    "get --raw /api/v1/namespaces/default/secrets/s1",
    "get --raw /api/v1/namespaces/default/pods/web-1/proxy/",
    "get --raw /api/v1/watch/secrets",
    "--as=system:admin get pods",
    "--as=nobody --as-group=system:masters get pods",
)


@dataclass
class Opened:
    """A filter before a stand-in."""

    kubeconfig: Path
    port: int
    grants: Grants
    cluster: Cluster
    home: Path
    log: io.StringIO

    async def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return await anyio.to_thread.run_sync(partial(run, self.kubeconfig, self.home, *words))

    def entries(self, event: str) -> list[dict[str, object]]:
        return [entry for line in self.log.getvalue().splitlines() if (entry := json.loads(line))["event"] == event]


def run(kubeconfig: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(KUBECTL), f"--cache-dir={home}/cache", *words],
        env={"HOME": str(home), "KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with serving_tls(Cluster(objects=planted(), token=TOKEN), tmp_path / "server.pem") as served:
        yield served


@asynccontextmanager
async def opened(cluster: Cluster, text: str | None = None) -> AsyncIterator[Opened]:
    place = Path(mkdtemp(prefix="filter-", dir="/tmp"))
    (place / "etc").mkdir()
    (place / "config").write_text(text or kubeconfig(cluster, f"token: {TOKEN}"), encoding="utf-8")
    written, grants = io.StringIO(), Grants()
    logs.configure(level="info", fmt="json", stream=written, redact=str)
    try:
        clusters = read_clusters((place / "config",))
        async with open_cluster_filter(clusters, Workspace(place), (KNOWN,), grants, logs.get_logger()) as found:
            assert found is not None
            yield Opened(found.kubeconfig, found.endpoint[1], grants, cluster, place / "home", written)
    finally:
        shutil.rmtree(place)


async def test_every_look_works_and_shows_no_secret(cluster: Cluster, tmp_path: Path) -> None:
    whole = Cluster(objects=planted())
    plain = tmp_path / "plain"
    cluster.logs = f"ready\nconnected with {KNOWN}\n"
    async with opened(cluster) as it:
        with serving(whole):
            plain.write_text(kubeconfig(whole, ""), encoding="utf-8")
            for look in LOOKS:
                words = look.split()
                seen, known = await it.kubectl(*words), await anyio.to_thread.run_sync(run, plain, tmp_path, *words)
                assert (seen.returncode, known.returncode) == (0, 0), (look, seen.stderr, known.stderr)
                assert SECRET not in seen.stdout + seen.stderr, look
                assert KNOWN not in seen.stdout + seen.stderr, look
                assert seen.stdout.partition("\n")[0][:60] == known.stdout.partition("\n")[0][:60], look
        assert not it.entries("parameters_dropped")
    assert not cluster.writes


async def test_nothing_is_changed_or_shown_that_was_not_granted(cluster: Cluster) -> None:
    before = json.dumps(cluster.objects and [*cluster.objects.values()])
    async with opened(cluster) as it:
        for change in CHANGES:
            done = await it.kubectl("--request-timeout=20", *change.split())
            assert SECRET not in done.stdout + done.stderr, change
            assert done.returncode != 0 or "is not passed on" in done.stderr, change  # cordon says it, and 0
        assert it.entries("request_refused")
        assert not it.entries("change_passed_on")
    assert (cluster.writes, cluster.executed) == ([], [])
    assert json.dumps([*cluster.objects.values()]) == before


async def test_what_was_granted_is_done_once(cluster: Cluster) -> None:
    async with opened(cluster) as it:
        it.grants.admit([SCALE_WEB])
        first = await it.kubectl("scale", "deploy/web", "--replicas=3")
        second = await it.kubectl("scale", "deploy/web", "--replicas=3")
        assert (first.returncode, second.returncode) == (0, 1), first.stderr
        assert "the gate has allowed no such change" in second.stderr
        await until(lambda: bool(it.entries("change_passed_on")))
        (entry,) = it.entries("change_passed_on")
    uid = cluster.objects["deployments", "default", "web"]["metadata"]["uid"]
    ((_, _, body),) = cluster.writes
    assert json.loads(body)["metadata"]["uid"] == uid
    assert (entry["engine"], entry["id"], entry["status"]) == ("kubernetes", uid, 200)


@pytest.mark.parametrize(
    ("grant", "words"),
    [
        (SCALE_WEB, "scale deploy/web --replicas=3"),
        (ClusterGrant(call="1", verb=DELETE, resource="pods", name="web-1"), "delete pod web-1 --wait=false"),
        (ClusterGrant(call="1", verb=RESTART, resource="deployments", name="web", context="prod", namespace="default"),
         "--context prod -n default rollout restart deploy web"),
    ],
)  # fmt: skip
async def test_each_change_that_was_granted_is_made(cluster: Cluster, grant: ClusterGrant, words: str) -> None:
    async with opened(cluster) as it:
        it.grants.admit([grant])
        done = await it.kubectl(*words.split())
        assert done.returncode == 0, done.stderr
    assert len(cluster.writes) == 1


@pytest.mark.parametrize(
    "words",
    [
        "scale deploy/web --replicas=4",
        "--context other -n default scale deploy/web --replicas=3",
        "-n other scale deploy/web --replicas=3",
        "scale rs/web --replicas=3",
    ],
)
async def test_a_change_that_differs_in_anything_is_not_made(cluster: Cluster, words: str) -> None:
    async with opened(cluster) as it:
        it.grants.admit([SCALE_WEB])
        assert (await it.kubectl(*words.split())).returncode != 0
    assert not cluster.writes


async def test_a_granted_command_runs_in_its_pod_once(cluster: Cluster) -> None:
    async with opened(cluster) as it:
        it.grants.admit([EXEC_UPTIME])
        done = await it.kubectl("exec", "web-1", "--", "uptime")
        again = await it.kubectl("exec", "web-1", "--", "uptime")
        assert (done.returncode, done.stdout) == (0, "up 3 days\n"), done.stderr
        assert again.returncode != 0
    assert len(cluster.executed) == 1


async def test_a_command_that_was_not_granted_does_not_run(cluster: Cluster) -> None:
    async with opened(cluster) as it:
        it.grants.admit([EXEC_UPTIME])
        for words in ("exec web-1 -- uptime -p", "exec web-2 -- uptime", "exec web-1 -c sidecar -- uptime"):
            assert (await it.kubectl(*words.split())).returncode != 0
    assert not cluster.executed


async def test_a_grant_ends_with_its_call(cluster: Cluster) -> None:
    async with opened(cluster) as it:
        it.grants.admit([RESTART_WEB])
        it.grants.forget("toolu_1")
        assert (await it.kubectl("rollout", "restart", "deploy/web")).returncode != 0
    assert not cluster.writes


async def test_the_credentials_of_the_cluster_are_sent_and_those_of_the_session_are_not(cluster: Cluster) -> None:
    async with opened(cluster) as it:
        assert (await it.kubectl("get", "pods")).returncode == 0
        own = it.kubeconfig.read_text(encoding="utf-8")
        assert it.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert TOKEN not in own
    assert {head.get("authorization") for head in cluster.heads} == {f"Bearer {TOKEN}"}
    assert not {"cookie", "if-none-match"} & {name for head in cluster.heads for name in head}


async def test_without_the_sessions_token_nothing_is_answered(cluster: Cluster) -> None:
    async with opened(cluster) as it:
        text = it.kubeconfig.read_text(encoding="utf-8")
        stranger = it.home.parent / "stranger"
        stranger.write_text(re.sub("token: .*", f"token: {TOKEN}", text), encoding="utf-8")
        refused = await anyio.to_thread.run_sync(run, stranger, it.home, "get", "pods")
        assert refused.returncode != 0
        await until(lambda: bool(it.entries("request_refused")))
        assert {entry["status"] for entry in it.entries("request_refused")} == {401}
    assert not cluster.calls


async def test_a_token_in_a_file_is_read_anew(cluster: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n", encoding="utf-8")
    async with opened(cluster, kubeconfig(cluster, f"tokenFile: {token}")) as it:
        assert (await it.kubectl("get", "pods")).returncode != 0
        token.write_text(f"{TOKEN}\n", encoding="utf-8")
        assert (await it.kubectl("get", "pods")).returncode == 0


async def test_no_token_goes_out_in_plain_text() -> None:
    with serving(Cluster(objects=planted())) as plain:
        async with opened(plain) as it:
            assert (await it.kubectl("get", "pods")).returncode == 0
    assert "authorization" not in {name for head in plain.heads for name in head}


async def test_a_server_with_another_certificate_is_sent_nothing(cluster: Cluster, tmp_path: Path) -> None:
    with serving_tls(Cluster(objects=planted()), tmp_path / "other.pem") as other:
        text = kubeconfig(cluster, f"token: {TOKEN}").replace(cluster.url, other.url)
        async with opened(cluster, text) as it:
            assert (await it.kubectl("get", "pods")).returncode != 0
    assert not other.heads


async def test_the_clusters_own_token_is_in_no_answer(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
    cluster.logs = f"logged in with {TOKEN}\n"
    for user in (f"token: {TOKEN}", f"tokenFile: {tmp_path}/token"):
        async with opened(cluster, kubeconfig(cluster, user)) as it:
            done = await it.kubectl("logs", "web-1")
        assert (done.returncode, done.stdout) == (0, "logged in with [redacted]\n")


async def test_a_server_that_takes_no_websocket_is_asked_in_the_older_way_with_the_same_grant(cluster: Cluster) -> None:
    cluster.filtered = True  # the stand-in then answers 500, and upgrades nothing
    async with opened(cluster) as it:
        it.grants.admit([EXEC_UPTIME])
        await it.kubectl("exec", "web-1", "--", "uptime")
        refused = it.entries("request_refused")
    assert not [entry for entry in refused if "the gate has allowed no such change" in str(entry["sentence"])]


class Odd(Cluster):
    """A server that shows pods in a form of its own."""

    form: Reply

    def answer(self, method: str, target: str, accept: str, body: bytes) -> Reply:
        reply = super().answer(method, target, accept, body)
        return self.form if "/pods" in target else reply


@pytest.mark.parametrize(
    "form",
    [
        Reply(body=f"k8s\0{SECRET}".encode(), media="application/vnd.kubernetes.protobuf"),
        Reply(body=json.dumps({"message": SECRET}).encode(), media="text/html"),
        Reply(body=SECRET.encode()),
        Reply(body=json.dumps({"message": SECRET}).encode(), status=302),
    ],
)
async def test_an_answer_that_cannot_be_masked_is_not_passed_on(tmp_path: Path, form: Reply) -> None:
    odd = Odd(objects=planted())
    odd.form = form
    with serving_tls(odd, tmp_path / "server.pem"):
        async with opened(odd) as it:
            done = await it.kubectl("get", "--raw", "/api/v1/namespaces/default/pods")
            await until(lambda: bool(it.entries("request_refused")))  # the line to the daemon is another one
            (entry,) = it.entries("request_refused")
    assert done.returncode != 0
    assert SECRET not in done.stdout + done.stderr
    assert entry["status"] == 502


class Renewing(Cluster):
    """A server whose pod is made anew, under the same name, after it was looked at twice."""

    looks: int = 0

    def answer(self, method: str, target: str, accept: str, body: bytes) -> Reply:
        if method == "GET" and target.endswith("/pods/web-1"):
            self.looks += 1
            if self.looks > 2:
                self.objects["pods", "default", "web-1"]["metadata"]["uid"] = "another"
        return super().answer(method, target, accept, body)


async def test_a_command_does_not_run_in_a_pod_that_was_made_anew(tmp_path: Path) -> None:
    with serving_tls(Renewing(objects=planted()), tmp_path / "server.pem") as renewing:
        async with opened(renewing) as it:
            it.grants.admit([EXEC_UPTIME])
            assert (await it.kubectl("exec", "web-1", "--", "uptime")).returncode != 0
    assert not renewing.executed


async def test_a_process_that_has_ended_is_started_anew(cluster: Cluster) -> None:
    async with opened(cluster) as it:
        assert (await it.kubectl("get", "pods")).returncode == 0
        (process,) = processes_of("claudeops.engine.kubernetes.process")
        os.kill(process.pid, 9)
        await until(lambda: bool(it.entries("filter_ended")))
        assert (await it.kubectl("get", "pods")).returncode == 0


async def test_an_api_server_that_is_away_is_said_and_no_more() -> None:
    async with opened(Cluster(objects={}, url="https://127.0.0.1:1")) as it:
        assert (await it.kubectl("get", "pods")).returncode != 0
        await until(lambda: bool(it.entries("request_refused")))
        entry = it.entries("request_refused")[0]
    assert (entry["status"], str(entry["sentence"])[:30]) == (502, "the API server does not answer")
