"""The real kubectl through the filter: what it looks at, what it changes, and that no secret comes out of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.cluster_engine import Cluster, serving
from support.planted_cluster import SECRET, planted
from support.waiting import PATIENCE_SECONDS

KUBECTL: Final = Path(sys.executable).parent / "kubectl"

LOOKS: Final = (
    "get pods",
    "get pods -A -o wide --show-labels",
    "get pods -o json",
    "get pods -o yaml",
    "get pods --sort-by=.metadata.name -o name",
    "get pods -w --request-timeout=20",
    "get deploy web -o yaml",
    "get deploy,rs",
    "get all -o yaml",
    "get cm cm1 -o yaml",
    "get shops -o yaml",
    "get shops",
    "describe pod web-1",
    "describe deploy web",
    "describe node n1",
    "describe cm cm1",
    "describe shop shop",
    "get --raw /api/v1/namespaces/default/pods",
    "rollout status deploy/web",
    "rollout history deploy/web",
    "wait --for=jsonpath={.spec.replicas}=2 deploy/web --timeout=20s",
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with serving(Cluster(objects=planted(), filtered=True)) as served:
        yield served


@pytest.fixture
def open_cluster() -> Iterator[Cluster]:
    with serving(Cluster(objects=planted())) as served:
        yield served


def kubectl(cluster: Cluster, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(KUBECTL), f"--server={cluster.url}", f"--cache-dir={home}/cache", *words],
        env={"HOME": str(home), "KUBECONFIG": "", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize("words", LOOKS)
def test_a_look_begins_as_without_a_filter_and_no_secret(
    words: str, cluster: Cluster, open_cluster: Cluster, tmp_path: Path
) -> None:
    seen = kubectl(cluster, tmp_path / "a", *words.split())
    whole = kubectl(open_cluster, tmp_path / "b", *words.split())

    assert (seen.returncode, whole.returncode) == (0, 0), seen.stderr + whole.stderr
    assert SECRET not in seen.stdout + seen.stderr
    assert seen.stdout.partition("\n")[0][:60] == whole.stdout.partition("\n")[0][:60]
    assert not cluster.writes
    assert all(not read.dropped for read in cluster.reads)


def test_without_the_filter_the_looks_show_secrets(open_cluster: Cluster, tmp_path: Path) -> None:
    """Or the test above would prove nothing."""
    for words in ("get pods -o yaml", "describe pod web-1", "describe deploy web", "get shops -o yaml"):
        assert SECRET in kubectl(open_cluster, tmp_path, *words.split()).stdout


def test_a_revision_of_a_rollout_is_shown_without_its_secrets(
    cluster: Cluster, open_cluster: Cluster, tmp_path: Path
) -> None:
    shown = []
    for each in (cluster, open_cluster):
        uid = each.objects["deployments", "default", "web"]["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": True}
        each.objects["replicasets", "default", "web-5"]["metadata"]["ownerReferences"] = [owner]
        shown.append(kubectl(each, tmp_path, "rollout", "history", "deploy/web", "--revision=3").stdout)

    assert ["DB_PASSWORD" in text for text in shown] == [True, True]
    assert [SECRET in text for text in shown] == [False, True]


def test_names_that_an_operator_needs_stay(cluster: Cluster, tmp_path: Path) -> None:
    text = kubectl(cluster, tmp_path, "describe", "pod", "web-1").stdout
    for wanted in ("DB_PASSWORD", "registry.example/web:1.2", "CrashLoopBackOff", "Restart Count:  4", "env=prod"):
        assert wanted in text


def test_logs_and_versions_and_permissions_are_answered(cluster: Cluster, tmp_path: Path) -> None:
    assert kubectl(cluster, tmp_path, "logs", "web-1", "-c", "app").stdout == "ready\n"
    assert kubectl(cluster, tmp_path, "logs", "-f", "deploy/web", "-c", "app").stdout == "ready\n"
    assert "v1.34.4" in kubectl(cluster, tmp_path, "version").stdout
    assert kubectl(cluster, tmp_path, "auth", "can-i", "get", "pods").stdout == "yes\n"
    assert kubectl(cluster, tmp_path, "get", "--raw", "/healthz").stdout == "ok"


@pytest.mark.parametrize(
    "words",
    ["get secret", "get secret s1 -o yaml", "describe secret s1", "get --raw /api/v1/namespaces/default/secrets/s1"],
)
def test_secrets_are_refused_in_a_sentence(words: str, cluster: Cluster, tmp_path: Path) -> None:
    done = kubectl(cluster, tmp_path, *words.split())

    assert done.returncode == 1
    assert "secrets of the cluster are never shown" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert not [target for _, target, _ in cluster.calls if "secrets" in target]


def test_a_rollout_restart_changes_the_one_deployment_that_was_read(cluster: Cluster, tmp_path: Path) -> None:
    done = kubectl(cluster, tmp_path, "rollout", "restart", "deploy/web")

    assert (done.returncode, done.stdout) == (0, "deployment.apps/web restarted\n")
    [(method, target, body)] = cluster.writes
    assert (method, target) == (
        "PATCH",
        "/apis/apps/v1/namespaces/default/deployments/web?fieldManager=kubectl-rollout",
    )
    sent = json.loads(body)
    assert sent["metadata"] == {"uid": cluster.objects["deployments", "default", "web"]["metadata"]["uid"]}
    assert list(sent["spec"]["template"]["metadata"]["annotations"]) == ["kubectl.kubernetes.io/restartedAt"]


@pytest.mark.parametrize("more", [(), ("--current-replicas=2",)])
def test_scaling_sends_the_number_and_the_uid(more: tuple[str, ...], cluster: Cluster, tmp_path: Path) -> None:
    done = kubectl(cluster, tmp_path, "scale", "deploy/web", "--replicas=5", *more)

    assert (done.returncode, done.stdout) == (0, "deployment.apps/web scaled\n"), done.stderr
    [(method, target, body)] = cluster.writes
    assert (method, target.partition("?")[0]) == ("PATCH", "/apis/apps/v1/namespaces/default/deployments/web/scale")
    assert json.loads(body)["spec"] == {"replicas": 5}
    assert json.loads(body)["metadata"]["uid"] == cluster.objects["deployments", "default", "web"]["metadata"]["uid"]
    assert cluster.objects["deployments", "default", "web"]["spec"]["replicas"] == 5


def test_deleting_a_pod_sends_its_uid(cluster: Cluster, tmp_path: Path) -> None:
    uid = cluster.objects["pods", "default", "web-1"]["metadata"]["uid"]

    done = kubectl(cluster, tmp_path, "delete", "pod", "web-1", "--grace-period=20")

    assert done.returncode == 0, done.stderr
    [(method, _, body)] = cluster.writes
    assert method == "DELETE"
    assert json.loads(body)["preconditions"] == {"uid": uid}
    assert json.loads(body)["gracePeriodSeconds"] == 20
    assert ("pods", "default", "web-1") not in cluster.objects


@pytest.mark.parametrize(
    "words",
    [
        "delete pod web-1 --force --grace-period=0",
        "delete pod web-1 --now --dry-run=server",
        "delete deploy web",
        "rollout pause deploy/web",
        "rollout undo deploy/web",
        "set env deploy/web A=b",
        "set image deploy/web app=other:1",
        "annotate deploy web a=b",
        "label pod web-1 z=1",
        'patch deploy web -p {"spec":{"replicas":9}}',
        "scale deploy/web --replicas=3 --dry-run=server",
        "scale shop/shop --replicas=3",
        "cordon n1",
        "drain n1 --force",
        "create configmap zz --from-literal=a=b",
        "run x1 --image=bb:1 --restart=Never",
        "debug web-1 --image=bb:1 -- true",
        "create token web",
        "exec -i web-1 -- cat",
        "attach web-1 -c app",
        "get pods --as=admin",
        "get --raw /metrics",
    ],
)
def test_everything_else_changes_nothing(words: str, cluster: Cluster, tmp_path: Path) -> None:
    before = json.dumps(list(cluster.objects.values()))

    done = kubectl(cluster, tmp_path, *words.split(" "))

    assert done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert not cluster.writes
    assert json.dumps(list(cluster.objects.values())) == before
