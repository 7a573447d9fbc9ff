"""The daemon's own kubectl: it changes the cluster with the tier's credentials, and a session reads names alone."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import yaml

from claudeops.domain.looks import LookCall
from claudeops.engine.cell import look_client
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.kubernetes.cell import KubectlCell
from claudeops.engine.process.looks import REFUSED, open_looks
from claudeops.logs import get_logger
from claudeops.structs import replace
from claudeops.text.redact import Redactor
from support.cluster_engine import Cluster, kubeconfig, serving_tls
from support.levels import PATH, needs
from support.planted_cluster import DEPLOYMENT, SECRET, planted
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

BIN: Final = str(Path(sys.executable).parent)  # kubectl is there
TOKEN: Final = "the-clusters-own-token"
ID: Final = "toolu_1-1"
UNDO: Final = ("rollout", "undo", "--to-revision=2", "--", "deploy/web")


@dataclass
class Bench:
    """A session that has the daemon run kubectl."""

    cell: KubectlCell
    cluster: Cluster
    place: Path

    @property
    def repos(self) -> Path:
        return self.cell.repos_dir

    def write(self, name: str, document: Any, *more: Any) -> str:
        path = self.repos / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump_all([document, *more]), encoding="utf-8")
        return str(path)

    async def run(self, *arguments: str, cell: KubectlCell | None = None) -> tuple[int, str, str]:
        async with self.session(cell or self.cell, arguments) as client:
            with anyio.fail_after(PATIENCE_SECONDS):
                done = await anyio.run_process([sys.executable, "-I", "-S", str(client), ID], check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    @asynccontextmanager
    async def session(self, cell: KubectlCell, arguments: tuple[str, ...]) -> AsyncIterator[Path]:
        with tempfile.TemporaryDirectory() as short:
            workspace = workspaces.make(Path(short) / "s", template_home=None)
            async with open_looks({"kubectl": cell}, workspace, get_logger()) as looks:
                assert looks is not None
                looks.admit([LookCall(id=ID, program="kubectl", arguments=arguments)])
                shutil.copy(look_client.__file__, workspace.etc / "look")
                yield workspace.etc / "look"


@pytest.fixture(scope="module")
def bubblewrap() -> BubblewrapCell:
    needs(IsolationLevel.BUBBLEWRAP)
    found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert isinstance(found, BubblewrapCell), found
    return found


@pytest.fixture
def bench(tmp_path: Path, bubblewrap: BubblewrapCell) -> Iterator[Bench]:
    (tmp_path / "repos" / "shop").mkdir(parents=True)
    (tmp_path / "mounted" / "data").mkdir(parents=True)
    (tmp_path / "mounted" / "data" / "token").write_text(TOKEN, encoding="utf-8")
    (tmp_path / "token").symlink_to("mounted/data/token")
    objects = planted()
    deployment = objects["deployments", "default", "web"]
    owner = {"kind": "Deployment", "name": "web", "uid": deployment["metadata"]["uid"], "controller": True}
    del objects["replicasets", "default", "web-5"]
    for number, image in ((2, "web:old"), (3, "web:new")):
        old = json.loads(json.dumps(DEPLOYMENT)) | {"kind": "ReplicaSet"}
        old["metadata"] |= {"name": f"web-{number}", "ownerReferences": [{"apiVersion": "apps/v1", **owner}]}
        old["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = str(number)
        old["spec"]["template"]["spec"]["containers"][0]["image"] = image
        objects["replicasets", "default", f"web-{number}"] = old
    with serving_tls(Cluster(objects=objects, token=TOKEN), tmp_path / "server.pem") as cluster:
        (tmp_path / "config").write_text(kubeconfig(cluster, "tokenFile: token"), encoding="utf-8")
        cell = KubectlCell(
            bubblewrap=bubblewrap,
            path=f"{BIN}:{PATH}",
            kubeconfigs=(tmp_path / "config",),
            repos_dir=tmp_path / "repos",
            redact=Redactor([]).text,
        )
        yield Bench(cell, cluster, tmp_path)


async def test_a_workload_is_rolled_back_and_only_its_name_is_read(bench: Bench) -> None:
    status, printed, said = await bench.run(*UNDO)
    assert (status, printed) == (0, "deployment.apps/web rolled back\n"), said
    assert "was previously managed with 'kubectl apply'" in said
    template = bench.cluster.objects["deployments", "default", "web"]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "web:old"
    assert template["spec"]["containers"][0]["env"][0]["value"] == "env-hunter2", "what was masked is as it was"
    assert {head["authorization"] for head in bench.cluster.heads} == {f"Bearer {TOKEN}"}


async def test_a_file_of_a_repository_is_applied(bench: Bench) -> None:
    changed = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "cm1", "namespace": "default"}}
    new = changed | {"metadata": {"name": "cm2", "namespace": "default"}, "data": {"A": "new-hunter2"}}
    file = bench.write("shop/web.yaml", changed | {"data": {"LOG_LEVEL": "warning"}}, new)
    status, printed, said = await bench.run("apply", f"--filename={file}", "--validate=false")
    assert (status, printed) == (0, "configmap/cm1 configured\nconfigmap/cm2 created\n"), said
    assert SECRET not in said
    assert bench.cluster.objects["configmaps", "default", "cm1"]["data"]["LOG_LEVEL"] == "warning"
    assert bench.cluster.objects["configmaps", "default", "cm2"]["data"] == {"A": "new-hunter2"}


async def test_an_overlay_has_its_repository_and_no_other(bench: Bench) -> None:
    base = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "cm1", "namespace": "default"}}
    bench.write("shop/base/cm.yaml", base | {"data": {"LOG_LEVEL": "warning"}})
    bench.write("shop/base/kustomization.yaml", {"resources": ["cm.yaml"]})
    bench.write("shop/prod/kustomization.yaml", {"resources": ["../base"]})
    bench.write("other/kustomization.yaml", {"resources": ["../shop/base"]})
    overlay = f"--kustomize={bench.repos}/shop/prod"
    status, printed, said = await bench.run("apply", overlay, "--validate=false")
    assert (status, printed) == (0, "configmap/cm1 configured\n"), said
    status, printed, _ = await bench.run("apply", f"--kustomize={bench.repos}/other", "--validate=false")
    assert (status, printed) == (1, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "pods", "--output=yaml"),
        ("describe", "deployment", "web"),
        ("rollout", "undo", "--dry-run=client", "--to-revision=2", "--", "deploy/web"),
        ("get", "secrets", "--output=json"),
        ("config", "view", "--raw"),
    ],
)
async def test_what_it_prints_besides_names_is_masked_whatever_was_let_through(
    bench: Bench, arguments: tuple[str, ...]
) -> None:
    status, printed, said = await bench.run(*arguments)
    assert status == 0, said
    assert set(printed.splitlines()) == {"[redacted]"}
    assert SECRET not in said


async def test_what_the_server_refuses_is_said_without_its_value(bench: Bench) -> None:
    bench.cluster.refusal = (
        'ConfigMap "cm1" is invalid: data[A]: Invalid value: "new-hunter2": it is too long'  # as the server words it
    )
    document = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "cm1", "namespace": "default"}}
    file = bench.write("shop/cm.yaml", document | {"data": {"A": "new-hunter2"}})
    status, printed, said = await bench.run("apply", f"--filename={file}", "--validate=false")
    assert (status, printed) == (1, "")
    assert SECRET not in said
    assert "Invalid value: [redacted]: it is too long" in said


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("--filename={place}/config", "is not below"),
        ("--filename={place}/repos/out.yaml", "is not below"),
        ("--kustomize={place}/repos", "is not below"),
        ("--filename=web.yaml", "is not below"),
        ("--filename={place}/repos/gone.yaml", "gone.yaml is not there"),
        ("--context=other-one", "kubectl config get-contexts lists"),
    ],
)
async def test_nothing_else_of_the_machine_is_shown_and_no_other_context(bench: Bench, word: str, why: str) -> None:
    (bench.repos / "out.yaml").symlink_to("../config")
    status, printed, said = await bench.run("apply", word.format(place=bench.place))
    assert (status != 0, printed, why in said) == (True, "", True), said
    assert not bench.cluster.calls


async def test_a_context_whose_credentials_a_program_prints_is_not_used(bench: Bench) -> None:
    text = kubeconfig(
        bench.cluster, f"exec: {{apiVersion: client.authentication.k8s.io/v1, command: {sys.executable}}}"
    )
    (bench.place / "config").write_text(text, encoding="utf-8")
    status, _, said = await bench.run(*UNDO)
    assert (status, "is none that is served" in said) == (REFUSED, True)


async def test_it_sees_its_kubeconfig_its_keys_its_file_and_nothing_of_its_session(bench: Bench) -> None:
    (bench.place / "beside").touch()
    (bench.repos / "shop" / "beside.yaml").touch()
    file = bench.write("shop/web.yaml", {})
    command = bench.cell.command(LookCall(program="kubectl", arguments=("apply", f"--filename={file}")))
    shell = (*command[: command.index("/run/claudeops/kubectl", command.index("LC_ALL"))], "/bin/sh", "-c")
    look = (
        f"ls -A {bench.place} {bench.place}/repos/shop; /usr/bin/env; echo > $HOME/x && echo writable;"
        f" echo > {file} || echo not; echo > {bench.place}/config || echo not; ls -A /run /run/claudeops /root 2>&1"
    )
    done = await anyio.run_process([*shell, f"PATH=/usr/bin:/bin; export PATH; {look}"], env={}, check=False)
    seen = done.stdout.decode().split()
    assert {"config", "token", "web.yaml", "writable"} <= set(seen)
    assert seen.count("not") == 2
    assert not {"beside", "beside.yaml", "mounted", "server.pem", "look.sock", "docker.sock"} & set(seen)
    names = {word.partition("=")[0] for word in seen if "=" in word}
    assert names - {"_", "PWD", "OLDPWD", "SHLVL"} == {"KUBECONFIG", "HOME", "PATH", "LC_ALL"}


async def test_without_kubectl_the_refusal_says_so(bench: Bench) -> None:
    cell = replace(bench.cell, path=str(bench.place))
    assert await bench.run(*UNDO, cell=cell) == (
        REFUSED,
        "",
        "kubectl: kubectl is not installed where the daemon runs\n",
    )


async def test_a_cluster_that_does_not_answer_is_waited_for_no_longer_than_the_bound(bench: Bench) -> None:
    (bench.place / "config").write_text(
        kubeconfig(Cluster(objects={}, url="https://127.0.0.1:1"), "tokenFile: token"), encoding="utf-8"
    )
    status, _, said = await bench.run(*UNDO)
    assert status == 1
    assert "was refused" in said
