"""Debian's real dockerd behind the filter: its own client looks, changes what was granted, and shows no secret."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import anyio
import pytest

from claudeops import logs
from claudeops.domain.gate.docker_grants import Execution, Grant
from claudeops.domain.gate.granted import Grants
from claudeops.domain.looks import LookCall
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.docker.cell import DockerCell
from claudeops.engine.docker.filter import open_filter
from support.caged import working_cell
from support.docker_engine import IMAGE, Engine, running_engine
from support.levels import PATH, needs
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

PLANTED = ("env-hunter22", "label-hunter22", "cmd-hunter22", "health-hunter22")
RUN = (
    *("run", "--detach", "--name=web-1", "--network=none", "-v", "/usr:/usr:ro", "--env=PASSWORD=env-hunter22"),
    *("--label=token=label-hunter22", "--health-cmd=true health-hunter22", "--health-interval=1s", IMAGE),
    *("sh", "-c", "sleep 1000 # cmd-hunter22"),
)
LOOKS = (
    "version",
    "info",
    "ps --all --no-trunc",
    "ps --format='{{json .}}'",
    "inspect web-1",
    "inspect --size --type=container web-1",
    "inspect --format='{{json .Config}}' web-1",
    f"image inspect {IMAGE}",
    f"history --no-trunc {IMAGE}",
    "images --all --digests",
    "logs --tail=5 --timestamps web-1",
    "top web-1",
    "stats --no-stream",
    "events --since=1h --until=0s",
    "events --since=1h --until=0s --format='{{json .}}'",
    "port web-1",
    "diff web-1",
    "system df --verbose",
    "network ls",
    "network inspect none",
    "volume ls",
)
STATE = ("inspect", "--format={{.State.StartedAt}} {{.Name}} {{.HostConfig.NanoCpus}}", "web-1")
REFUSED = (
    "rm --force web-1",
    f"run --rm {IMAGE} id",
    "cp web-1:/etc/hostname -",
    "export web-1",
    f"save {IMAGE}",
    "commit web-1",
    "rename web-1 other",
    "update --cpus=1 web-1",
    "kill web-1",
    "restart web-1",
    "stop web-1",
    "exec web-1 id",
    "attach --no-stdin web-1",
    "system prune --force",
    "top web-1 eww",
    "swarm init",
)


@dataclass
class Behind:
    """A client of the engine that has only the filter."""

    place: Path
    grants: Grants

    async def docker(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        environment = {"PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{self.place}", "HOME": "/nonexistent"}
        with anyio.fail_after(PATIENCE_SECONDS * 2):
            return await anyio.run_process(["docker", *words], env=environment, input=stdin, check=False)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    directory = Path(mkdtemp(prefix="dockerd-", dir="/var/tmp"))
    try:
        with running_engine(directory) as running:
            started = running.docker(*RUN)
            assert started.returncode == 0, started.stderr
            yield running
            running.docker("rm", "--force", "web-1")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def behind(engine: Engine) -> AsyncIterator[Behind]:
    place, grants = Path(mkdtemp(prefix="filter-", dir="/tmp")), Grants()
    (place / "etc").mkdir()
    try:
        async with open_filter(engine.socket, Workspace(place), (), grants, logs.get_logger()) as found:
            assert found is not None
            yield Behind(found, grants)
    finally:
        shutil.rmtree(place)


async def test_every_look_works_and_shows_no_secret(engine: Engine) -> None:
    async with behind(engine) as client:
        for look in LOOKS:
            words = shlex.split(look)
            done, plain = await client.docker(*words), engine.docker(*words)
            said = done.stdout.decode() + done.stderr.decode()
            assert done.returncode == plain.returncode == 0, (look, said)
            assert [secret for secret in PLANTED if secret in said] == [], (look, said)
    shown = engine.docker("inspect", "web-1").stdout.decode()
    assert [secret for secret in PLANTED if secret not in shown] == [], "they are there"


async def test_nothing_is_changed_that_was_not_granted(engine: Engine) -> None:
    before = engine.docker(*STATE).stdout
    async with behind(engine) as client:
        for change in REFUSED:
            done = await client.docker(*change.split(" "))
            assert done.returncode != 0, change
    after = engine.docker(*STATE).stdout
    assert before == after


async def test_what_was_granted_is_done_once(engine: Engine) -> None:
    started = ("inspect", "--format={{.State.StartedAt}}", "web-1")
    async with behind(engine) as client:
        before = engine.docker(*started).stdout
        client.grants.admit([Grant(call="1", verb="restart", container="web-1")])
        first = await client.docker("restart", "-t", "1", "web-1")
        between = engine.docker(*started).stdout
        second = await client.docker("restart", "-t", "1", "web-1")
        after = engine.docker(*started).stdout
    assert (first.returncode, first.stdout) == (0, b"web-1\n")
    assert before != between == after
    assert b"the gate has allowed no such change" in second.stderr


async def test_a_granted_command_has_its_input_its_output_and_its_status(engine: Engine) -> None:
    command = ("sh", "-c", "cat; echo problem >&2; exit 3")
    grant = Grant(call="1", verb="exec", container="web-1", execution=Execution(command=command, takes_input=True))
    async with behind(engine) as client:
        client.grants.admit([grant])
        done = await client.docker("exec", "-i", "web-1", *command, stdin=b"given " * 50_000)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"given " * 50_000, b"problem\n")


async def test_the_daemon_runs_the_client_with_the_engines_own_socket_in_a_cell_of_its_own(
    engine: Engine, tmp_path: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    (tmp_path / "repos").mkdir()
    bubblewrap = working_cell(IsolationLevel.BUBBLEWRAP, Path("/bin/sh"), repos=tmp_path / "repos", hidden=())
    cell = DockerCell(
        bubblewrap=bubblewrap,  # type: ignore[arg-type] # a cell of that level
        path=f"{PATH}:{os.environ['PATH']}",
        engine=engine.socket,
        home=None,
        redact=str,
    )
    look = LookCall(program="docker", arguments=("ps", "--format={{.Names}}"))
    done = await anyio.run_process(cell.command(look), env={}, check=False)
    assert (done.returncode, done.stdout) == (0, b"web-1\n"), done.stderr
    missing = LookCall(program="docker", arguments=("inspect", "nothing-1"))
    failed = await anyio.run_process(cell.command(missing), env={}, check=False)
    assert "nothing-1" in cell.sentence(missing, failed.returncode, failed.stderr)
