"""A whole chain in the cell: ssh to a real sshd, Debian's real dockerd, kubectl, and what no session may have of them.

The daemon is a process with the default policy at level bubblewrap; the CLI is the real one, the model is scripted.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import pytest

from claudeops.engine.cell.cell import IsolationLevel
from support.cell_from_outside import InCell, inode, what_a_cell_holds
from support.cluster_engine import Cluster, Reply, kubeconfig, serving_tls
from support.docker_engine import IMAGE, Engine, running_engine
from support.levels import needs
from support.operating import DUMMY_KEY, Operator, conclude, look, operator
from support.passable import let_pass
from support.planted_cluster import SECRET, planted
from support.ssh_servers import ADDRESS, SshServer, body_of, make_key, needs_ssh, ssh_server, user

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]  # an engine and three sessions, where others have one

TIERS: Final = (1, 2, 3)
TOKEN: Final = "the-clusters-own-token"
CONTAINER: Final = "cache-1"
SAYS: Final = "up 41 days"  # the other host
RUN: Final = (
    *("run", "--detach", f"--name={CONTAINER}", "--network=none", "-v", "/usr:/usr:ro", f"--env=PASSWORD=env-{SECRET}"),
    *(f"--label=token=label-{SECRET}", IMAGE, "sh", "-c", f"sleep 1000 # cmd-{SECRET}"),
)
MANIFEST: Final = """
| service | host | port | aliases |
| --- | --- | --- | --- |
| logins | {address} | {port} | |
| cache | | | cache-1 |
| web | | | web-1 |
"""
UIDS: Final = {resource: one["metadata"]["uid"] for (resource, _, _), one in planted().items()}
IS_OVER: Final = "SELECT * FROM sessions WHERE decision_reason <> 'escalated'"
LOOK_AT_RESTARTS: Final = (
    *("events", "--since=1h", "--until=0s", "--filter=type=container", "--filter=event=restart"),
    "--format={{.Actor.Attributes.name}}",
)


@dataclass(kw_only=True)
class Watched(Cluster):
    """A cluster that has something done while a session waits for the answer to its deletion."""

    meanwhile: Callable[[], None] = lambda: None

    def answer(self, method: str, target: str, accept: str, body: bytes) -> Reply:
        if method == "DELETE":
            self.meanwhile()
        return super().answer(method, target, accept, body)


@dataclass(frozen=True)
class World:
    """What the estate consists of, and what the operator has of it."""

    engine: Engine
    cluster: Watched
    host: SshServer
    home: Path  # of every tier
    programs: Path

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no session, log and database may hold."""
        return SECRET, TOKEN, body_of(self.home / ".ssh" / "id_ed25519"), DUMMY_KEY

    def describe(self, node: Operator) -> None:
        """Write the manifest."""
        manifest = MANIFEST.format(address=ADDRESS, port=self.host.port)
        (node.root / "repos" / "estate" / "CLAUDE-OPS.md").write_text(f"# Services\n{manifest}", encoding="utf-8")

    def settings(self, node: Operator) -> dict[str, str]:
        given = {
            "PATH": f"{self.programs}:{node.environment()['PATH']}",
            "DOCKER_HOST": f"unix://{self.engine.socket}",
            "CLAUDEOPS_ISOLATION": IsolationLevel.BUBBLEWRAP.value,
            "CLAUDEOPS_SESSION_DISK_MB": "128",  # so that files are in memory on most machines
        }
        for tier in TIERS:
            given |= {f"CLAUDEOPS_TIER{tier}_HOME": str(self.home), f"CLAUDEOPS_TIER{tier}_ENV": "DOCKER_HOST"}
        return given


@contextmanager
def engine_with_a_container() -> Iterator[Engine]:
    directory = Path(mkdtemp(prefix="dockerd-", dir="/var/tmp"))  # a socket's path is short
    try:
        with running_engine(directory) as engine:
            started = engine.docker(*RUN)
            assert started.returncode == 0, started.stderr
            yield engine
            engine.docker("rm", "--force", CONTAINER)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def world(root: Path) -> Iterator[World]:
    needs(IsolationLevel.BUBBLEWRAP)
    needs_ssh()
    home, programs = root / "of-the-tiers", root / "programs"
    public = make_key(home / ".ssh" / "id_ed25519")
    programs.mkdir()
    let_pass(programs)
    shutil.copy(Path(sys.executable).parent / "kubectl", programs)
    with ExitStack() as held:
        engine = held.enter_context(engine_with_a_container())
        host = held.enter_context(ssh_server(root / "sshd", public, SAYS))
        cluster = Watched(objects=planted(), token=TOKEN)
        held.enter_context(serving_tls(cluster, root / "cluster.pem"))
        (home / ".ssh" / "known_hosts").write_text(host.known)
        (home / ".kube").mkdir()
        (home / ".kube" / "config").write_text(kubeconfig(cluster, "tokenFile: token"))
        (home / ".kube" / "token").write_text(TOKEN)
        yield World(engine, cluster, host, home, programs)


def checked(**services: str) -> list[dict[str, str]]:
    """Return what a report says of services."""
    return [{"name": name, "status": status, "detail": "looked at"} for name, status in services.items()]


def results(node: Operator, model: str) -> list[str]:
    """Return what the calls of a session gave the model, in their order."""
    return [result.text for result in node.api.traffic.main(model)[-1].tool_results]


def kept(node: Operator) -> Mapping[str, str]:
    """Return all that the daemon, which has ended, has sent to the model and written down."""
    files = [path for name in ("state", "results") for path in (node.root / name).rglob("*") if path.is_file()]
    with closing(sqlite3.connect(node.database)) as database:
        rows = "\n".join(database.iterdump())
    requests = {f"request {one.number}": json.dumps(one.body, ensure_ascii=False) for one in node.api.requests}
    written = {str(path): path.read_bytes().decode(errors="replace") for path in (*files, log_of(node))}
    return {**requests, **written, "the rows": rows}


def log_of(node: Operator) -> Path:
    return node.root / "daemon-1.log"


def changes_passed_on(node: Operator) -> list[str]:
    """Return the changes that filters have let through, by the log."""
    lines = [json.loads(line) for line in log_of(node).read_text().splitlines() if line.startswith("{")]
    return [line["change"] for line in lines if line["event"] == "change_passed_on"]


def cells(node: Operator) -> list[InCell]:
    """Return what lies in the cells of the CLIs that run."""
    clis = (pid for pid in node.processes_of_sessions() if Path(f"/proc/{pid}/exe").readlink().name == "claude")
    return [what_a_cell_holds(pid) for pid in clis]


def ladder(node: Operator) -> list[tuple[object, object]]:
    return [
        (row["tier"], row["decision_reason"]) for row in node.rows("SELECT * FROM sessions WHERE root_session_id = 1")
    ]


async def until_it_is_over(node: Operator) -> None:
    """Return when the chain has ended; each tier has a guard against hanging of its own."""
    try:
        for tier in TIERS:
            await node.until(f"{IS_OVER} OR tier = {tier} AND decision_reason = 'escalated'", bool)
    except TimeoutError:
        pytest.fail(f"the chain does not go on:\n{log_of(node).read_text()}")


async def test_a_chain_looks_and_changes_through_what_the_daemon_holds_and_no_secret_is_anywhere(
    tmp_path: Path,
) -> None:
    with world(tmp_path) as given:
        down = conclude(needed=True, services_checked=checked(logins="healthy", cache="down", web="down"))
        well = conclude(services_checked=checked(logins="healthy", cache="healthy", web="healthy"))
        observe = (
            f"ssh -p {given.host.port} {user()}@{ADDRESS} uptime",
            "docker ps --no-trunc",
            f"docker inspect {CONTAINER}",
            "kubectl get pods -o yaml",
        )
        investigate = (f"docker restart --timeout=1 {CONTAINER}", "kubectl rollout restart deploy/web")
        remediate = (
            f"docker exec {CONTAINER} uptime",
            "kubectl delete pod web-1",
            "kubectl scale deploy/web --replicas=3",
            "kubectl rollout restart deploy/web",  # the third of two that are allowed
            "kubectl get deploy web -o yaml",
            f"ls -A {given.engine.data}",
        )
        async with operator(
            tmp_path / "node",
            haiku=[*map(look, observe), down],
            sonnet=[*map(look, investigate), down],
            opus=[*map(look, remediate), well],
        ) as node:
            given.describe(node)
            found: list[InCell] = []
            given.cluster.meanwhile = lambda: found.extend(cells(node))
            async with node.daemon(**given.settings(node)):
                await until_it_is_over(node)
            everything = kept(node)
            logged_in, listed, inspected, pods = results(node, "haiku")[:4]
            restarted, rolled_out = results(node, "sonnet")[:2]
            executed, deleted, scaled, refused, shown, tried = results(node, "opus")[:6]
        engines = inode(given.engine.socket)
        outside = given.engine.docker("inspect", CONTAINER).stdout.decode()
        restarts = given.engine.docker(*LOOK_AT_RESTARTS).stdout.decode().split()

    assert ladder(node) == [(1, "escalated"), (2, "escalated"), (3, "healthy")], log_of(node).read_text()
    assert logged_in.strip() == SAYS
    assert CONTAINER in listed
    assert '"PASSWORD=[redacted]"' in inspected
    assert "name: DB_PASSWORD\n        value: '[redacted]'" in pods
    assert restarted.strip() == CONTAINER
    assert rolled_out.strip() == "deployment.apps/web restarted"
    assert "load average" in executed
    assert 'pod "web-1" deleted' in deleted
    assert scaled.strip() == "deployment.apps/web scaled"
    assert "2 of 2 allowed" in refused
    assert "replicas: 3" in shown

    assert restarts == [CONTAINER]
    assert [(method, target.partition("?")[0]) for method, target, _ in given.cluster.writes] == [
        ("PATCH", "/apis/apps/v1/namespaces/default/deployments/web"),
        ("DELETE", "/api/v1/namespaces/default/pods/web-1"),
        ("PATCH", "/apis/apps/v1/namespaces/default/deployments/web/scale"),
    ]
    rollout, deletion, scale = (json.loads(body) for _, _, body in given.cluster.writes)
    assert rollout["metadata"] == scale["metadata"] == {"uid": UIDS["deployments"]}
    assert list(rollout["spec"]["template"]["metadata"]["annotations"]) == ["kubectl.kubernetes.io/restartedAt"]
    assert deletion["preconditions"] == {"uid": UIDS["pods"]}
    assert scale["spec"] == {"replicas": 3}
    assert changes_passed_on(node) == [
        f"restart {CONTAINER}",
        "restart deployments/web in prod/default",
        f"exec {CONTAINER}: uptime",
        "delete pods/web-1 in prod/default",
        "scale deployments/web in prod/default to 3",
    ]

    assert f"{given.engine.data}': No such file or directory" in tried
    (cell,) = found
    assert {Path(name).name for name in cell.texts} > {"id_ed25519.pub", "known_hosts", "kubeconfig"}
    assert [name for name, text in cell.texts.items() if any(each.encode() in text for each in given.secrets)] == []
    assert cell.sockets, "the filter's, and the agent's"
    assert engines not in cell.sockets.values()
    assert SECRET in outside, "it is there"
    assert [(place, each) for place, text in everything.items() for each in given.secrets if each in text] == []
