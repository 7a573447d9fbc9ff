"""A session of the real CLI before a cluster, the gate wide open: it sees masks, and has no credential."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from claudeops.app.cell import with_filters
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.gate.cluster_grants import SCALE, ClusterGrant
from claudeops.domain.looks import LookCall
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.policy.tiers import JudgeScope
from claudeops.structs import replace
from support.caged import caged
from support.cluster_engine import Cluster, kubeconfig, serving_tls
from support.levels import needs
from support.planted_cluster import SECRET, planted

pytestmark = pytest.mark.anyio

TOKEN = "the-clusters-own-token"
SOUGHT = "the-cluster[s]-own-token"  # what is sought stands in the transcript, which is in the home
LOOK = "$KUBECTL get pods -o yaml"
CHANGE = "$KUBECTL scale deploy/web --replicas=3"


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory that every user may pass, with kubectl, a kubeconfig's place and a token."""
    made = Path(mkdtemp(prefix="cluster-", dir="/tmp"))
    made.chmod(0o755)
    shutil.copy(Path(sys.executable).parent / "kubectl", made / "kubectl")
    (made / "token").touch(mode=0o600)
    (made / "token").write_text(TOKEN, encoding="utf-8")
    yield made
    shutil.rmtree(made)


@pytest.fixture
def cluster(place: Path) -> Iterator[Cluster]:
    with serving_tls(Cluster(objects=planted(), token=TOKEN), place / "server.pem") as served:
        (place / "config").touch(mode=0o600)
        (place / "config").write_text(kubeconfig(served, "tokenFile: token"), encoding="utf-8")
        yield served


@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.USER])
async def test_a_tool_sees_masks_changes_nothing_and_finds_no_credential(
    level: IsolationLevel, tmp_path: Path, place: Path, cluster: Cluster, everybodys_cli: Path
) -> None:
    needs(level)
    around = (
        f"cat {place}/config {place}/token ~/.kube/config 2>&1; grep -rs {SOUGHT} ~ /run 2>/dev/null;"
        f" cat $KUBECONFIG; $KUBECTL --kubeconfig {place}/config get pods 2>&1; curl -ksS -m 20 {cluster.url}/api 2>&1"
    )
    async with caged(
        tmp_path,
        level,
        LOOK,
        CHANGE,
        around,
        binary=everybodys_cli,
        KUBECTL=str(place / "kubectl"),
        KUBECONFIG=str(place / "config"),
        SHOWN=f"{place}/config:{place}/token",
    ) as cage:
        context = cage.estate.context
        tiers = with_filters(context.tiers, context.confinement.cell)
        assert ("takes bubblewrap" in tiers[1].scope.looks["kubectl"]) is (level is IsolationLevel.USER)
        cage.estate.with_context(tiers=tiers)
        ending = await cage.run()
        seen, refused, tried = cage.outputs()[:3]
    assert (str(ending.outcome), ending.calls_ran) == ("success", 3)
    assert "name: DB_PASSWORD" in seen
    assert SECRET not in seen + tried
    assert TOKEN not in seen + refused + tried
    assert "the gate has allowed no such change" in refused
    assert "https://127.0.0.1:" in tried, "its own kubeconfig"
    assert "Couldn't connect" in tried or "Unauthorized" in tried
    assert not cluster.writes


async def test_what_the_gate_grants_is_done_for_that_call_alone(
    tmp_path: Path, place: Path, cluster: Cluster, everybodys_cli: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)

    def grants_the_second(call: ToolCall, _scope: JudgeScope) -> Verdict:
        grant = ClusterGrant(call=call.tool_use_id, verb=SCALE, resource="deployments", name="web", replicas=3)
        granted = (grant,) if call.input.get("command") == f"{CHANGE} -v=0" else ()
        return Verdict(kind=VerdictKind.ALLOW, reason="a test", grants=granted)

    async with caged(
        tmp_path,
        IsolationLevel.BUBBLEWRAP,
        CHANGE,
        f"{CHANGE} -v=0",
        CHANGE,
        binary=everybodys_cli,
        KUBECTL=str(place / "kubectl"),
        KUBECONFIG=str(place / "config"),
    ) as cage:
        context = cage.estate.context
        cage.estate.with_context(tiers=with_filters(context.tiers, context.confinement.cell))
        cage.estate.with_judge(grants_the_second)
        await cage.run()
        before, done, after = cage.outputs()[:3]
    assert "scaled" in done
    assert "the gate has allowed no such change" in before
    assert "the gate has allowed no such change" in after
    assert len(cluster.writes) == 1


@pytest.mark.usefixtures("cluster")
async def test_the_kubeconfig_of_a_tiers_home_is_not_in_the_sessions(
    tmp_path: Path, place: Path, everybodys_cli: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    home = tmp_path / "template"
    (home / ".kube").mkdir(parents=True)
    (home / "kept").touch()
    for name in ("config", "token"):
        shutil.copy(place / name, home / ".kube" / name)
    async with caged(
        tmp_path / "cage",
        IsolationLevel.BUBBLEWRAP,
        f"ls -A ~ ~/.kube 2>&1; grep -rs {SOUGHT} ~ /run; $KUBECTL get pods -o name 2>&1",
        binary=everybodys_cli,
        KUBECTL=str(place / "kubectl"),
    ) as cage:
        context = cage.estate.context
        tiers = {number: replace(tier, template_home=home) for number, tier in context.tiers.items()}
        cage.estate.with_context(tiers=with_filters(tiers, context.confinement.cell))
        await cage.run()
        (seen, *_) = cage.outputs()
    assert "kept" in seen
    assert "pod/web-1" in seen
    assert TOKEN not in seen
    assert "token" not in seen.split()


async def test_what_no_filter_can_judge_is_run_by_the_daemon_with_the_credentials_themselves(
    tmp_path: Path, place: Path, cluster: Cluster, everybodys_cli: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    changed = {"data": {"LOG_LEVEL": "warning"}, "kind": "ConfigMap", "apiVersion": "v1"}
    file = tmp_path / "repos" / "shop" / "cm.json"

    def has_it_run(call: ToolCall, _scope: JudgeScope) -> Verdict:
        words = ("apply", f"--filename={file}", "--validate=false")
        look = LookCall(id=f"{call.tool_use_id}-1", program="kubectl", arguments=words)
        ran = {"command": shlex.join((*LOOK_CLIENT, look.id))}
        return Verdict(kind=VerdictKind.ALLOW, reason="a test", ran=ran, looks_run=(look,))

    async with caged(
        tmp_path,
        IsolationLevel.BUBBLEWRAP,
        f"kubectl apply -f {file}",
        binary=everybodys_cli,
        KUBECONFIG=str(place / "config"),
    ) as cage:
        context = cage.estate.context
        assert context.repos_dir == tmp_path / "repos"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(changed | {"metadata": {"name": "cm1", "namespace": "default"}}), encoding="utf-8")
        tiers = with_filters(context.tiers, context.confinement.cell)
        assert tiers[1].scope.looks["kubectl"] == "", "the gate has it run by the daemon"
        cage.estate.with_context(tiers=tiers, path=f"{place}:{context.path}")
        cage.estate.with_judge(has_it_run)
        await cage.run()
        (printed, *_) = cage.outputs()
        seen = cage.requests()
    assert printed.strip() == "configmap/cm1 configured"
    assert cluster.objects["configmaps", "default", "cm1"]["data"]["LOG_LEVEL"] == "warning"
    assert SECRET not in seen
    assert TOKEN not in seen


@pytest.mark.usefixtures("cluster")
async def test_at_level_none_nothing_is_said_to_be_filtered(tmp_path: Path, place: Path, everybodys_cli: Path) -> None:
    config = str(place / "config")
    async with caged(
        tmp_path, IsolationLevel.NONE, "echo $KUBECONFIG", binary=everybodys_cli, KUBECONFIG=config
    ) as cage:
        context = cage.estate.context
        cage.estate.with_context(tiers=with_filters(context.tiers, context.confinement.cell))
        await cage.run()
        (shown, *_) = cage.outputs()
    assert shown.strip() == config
