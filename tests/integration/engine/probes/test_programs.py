"""Commands of probes run in the cell, judged; units are asked for; whatever hangs or floods ends with its tree."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from pathlib import Path

import anyio
import pytest

from claudeops.app.cell import scope_with
from claudeops.app.start.trial_process import find_looks
from claudeops.domain.probes.probe import CommandLook, Observation, Saw, SystemdLook
from claudeops.engine.cell.cell import Cell, IsolationLevel
from claudeops.engine.cell.levels import HostContext, choose
from claudeops.engine.probes.in_cell import CellCommands
from claudeops.engine.probes.looker import Looker
from claudeops.engine.probes.programs import NotRun, ProgramRun, judged
from claudeops.engine.probes.results import LookFailedError
from claudeops.logs import get_logger
from claudeops.policy.tiers import NodeScope, tier_policy
from support.levels import PATH, needs
from support.looking import QUIET, look, means
from support.policy_cases import POLICY
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def ran(result: ProgramRun | NotRun, **asked: object) -> Observation:
    async def run(_command: str, _seconds: float) -> ProgramRun | NotRun:
        return result

    return await look(CommandLook(command="true", **asked), looker=Looker(means=means(), log=QUIET, run_command=run))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "asked", "saw", "told"),
    [
        (ProgramRun(0, "12 ok\n"), {}, Saw.UP, 'it said "12 ok"'),
        (ProgramRun(0, ""), {}, Saw.UP, "it said nothing"),
        (ProgramRun(1, "a\nfailed"), {}, Saw.DOWN, 'exit code 1, and said "failed"'),
        (ProgramRun(3, "warn"), {"degraded": (3,)}, Saw.DEGRADED, "exit code 3"),
        (ProgramRun(0, "12 ok"), {"text": "13 ok"}, Saw.DOWN, 'without "13 ok"'),
        (ProgramRun(0, "12 ok"), {"text": "12 ok"}, Saw.UP, "12 ok"),
        (
            ProgramRun(None, "x", "it wrote more than 256 KiB"),
            {},
            Saw.DOWN,
            "it wrote more than 256 KiB, and was ended",
        ),
        (NotRun("tier 1's policy does not let it run: rm"), {}, Saw.NOTHING, "policy"),
        (ProgramRun(0, "\x1b[2Jcleared"), {}, Saw.UP, "cleared"),
    ],
)
async def test_exit_code_and_output_decide(
    result: ProgramRun | NotRun, asked: dict[str, object], saw: Saw, told: str
) -> None:
    found = await ran(result, **asked)
    assert found.saw is saw
    assert told in found.detail
    assert found.detail.isprintable()
    assert found.latency_ms is None


async def test_without_a_cell_no_command_runs() -> None:
    assert (await look(CommandLook(command="true"))).saw is Saw.NOTHING


# --- in the cell ----------------------------------------------------------------------------------------------


def in_cell(directory: Path, level: IsolationLevel = IsolationLevel.NONE) -> Looker:
    needs(level)
    repos = directory / "repos"
    repos.mkdir(exist_ok=True)
    cell: Cell = choose(level.value, HostContext(path=PATH, repos_dir=repos)).cell
    looks = find_looks(cell, PATH)
    commands = CellCommands(
        log=get_logger(),
        cell=cell,
        root=directory / "probes",
        path=PATH,
        repos_dir=repos,
        policy=tier_policy(POLICY, 1),
        scope=scope_with(looks, NodeScope(repos_dir=str(repos))),
        looks=looks.cells,
        env={"FROM_TIER_1": "given"},
    )
    return Looker(means=means(), log=QUIET, run_command=commands.run)


@pytest.mark.parametrize("level", list(IsolationLevel))
async def test_a_reading_command_runs_in_the_cell_and_leaves_nothing(tmp_path: Path, level: IsolationLevel) -> None:
    looker = in_cell(tmp_path, level)
    found = await look(CommandLook(command="uptime"), looker=looker, timeout=PATIENCE_SECONDS)
    assert found.saw is Saw.UP
    assert "load average" in found.detail
    assert (await look(CommandLook(command="ls /nowhere"), looker=looker, timeout=PATIENCE_SECONDS)).saw is Saw.DOWN
    assert not list((tmp_path / "probes").glob("*"))


@pytest.mark.parametrize("level", list(IsolationLevel))
async def test_a_command_reaches_what_it_names_itself_and_sees_the_machines_ports(
    tmp_path: Path, level: IsolationLevel
) -> None:
    looker = in_cell(tmp_path, level)
    with socket.create_server(("127.0.0.1", 0)) as service:
        port, command = service.getsockname()[1], CommandLook(command="ss -tln", text=f":{service.getsockname()[1]}")
        if shutil.which("ss", path=PATH):
            assert (await look(command, looker=looker, timeout=PATIENCE_SECONDS)).saw is Saw.UP

        def answer() -> None:
            with service.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        command = CommandLook(command=f"curl -sf http://localhost:{port}/")
        assert (await look(command, looker=looker, timeout=PATIENCE_SECONDS)).saw is Saw.UP
        thread.join(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "command",
    ["rm -rf /tmp/x", "systemctl restart nginx", "curl -X POST http://a.example/", "echo x > /etc/passwd", "("],
)
async def test_a_command_that_changes_anything_does_not_run(tmp_path: Path, command: str) -> None:
    found = await look(CommandLook(command=command), looker=in_cell(tmp_path), timeout=PATIENCE_SECONDS)
    assert found.saw is Saw.NOTHING
    assert "tier 1's policy does not let it run" in found.detail


async def test_a_command_that_hangs_ends_with_its_tree(tmp_path: Path) -> None:
    looker = in_cell(tmp_path)
    os.mkfifo(tmp_path / "repos" / "pipe")  # nobody writes to it
    with anyio.fail_after(PATIENCE_SECONDS):
        found = await look(CommandLook(command=f"cat {tmp_path}/repos/pipe"), looker=looker, timeout=1)
    assert found.saw is Saw.DOWN, found.detail
    assert not list((tmp_path / "probes").glob("*"))


async def test_a_command_that_floods_is_ended(tmp_path: Path) -> None:
    looker = in_cell(tmp_path)
    with (tmp_path / "repos" / "big").open("wb") as big:
        big.truncate(1 << 30)
    found = await look(CommandLook(command=f"cat {tmp_path}/repos/big"), looker=looker, timeout=PATIENCE_SECONDS)
    assert "it wrote more than 256 KiB, and was ended" in found.detail


# --- systemd --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("active", "sub", "more", "saw"),
    [
        ("active", "running", {}, Saw.UP),
        ("active", "exited", {}, Saw.UP),
        ("reloading", "reload", {}, Saw.UP),
        ("activating", "start", {}, Saw.DEGRADED),
        ("activating", "auto-restart", {"NRestarts": "7"}, Saw.DOWN),
        ("deactivating", "stop", {}, Saw.DOWN),
        ("inactive", "dead", {"LoadState": "masked"}, Saw.DOWN),
        ("failed", "failed", {"Result": "exit-code"}, Saw.DOWN),
    ],
)
def test_the_state_of_a_unit_decides(active: str, sub: str, more: dict[str, str], saw: Saw) -> None:
    states = {"LoadState": "loaded", "ActiveState": active, "SubState": sub, "Result": "success", **more}
    found = judged("web.service", states)
    assert found.saw is saw
    for value in more.values():
        assert value in found.detail


def test_a_unit_that_is_not_there_is_down() -> None:
    assert judged("x.service", {"LoadState": "not-found", "ActiveState": "inactive"}).saw is Saw.DOWN
    with pytest.raises(LookFailedError):
        judged("x.service", {})


def systemctl(directory: Path, script: str) -> dict[str, str]:
    program = directory / "systemctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{directory}:{PATH}"}


async def test_a_unit_is_asked_for_by_its_name(tmp_path: Path) -> None:
    script = '[ "$5" = web.service ] && echo LoadState=loaded && echo ActiveState=active && echo SubState=running'
    found = await look(SystemdLook(unit="web.service"), environment=systemctl(tmp_path, script))
    assert (found.saw, found.detail) == (Saw.UP, "it is active (running)")


async def test_a_machine_without_systemd_has_seen_nothing(tmp_path: Path) -> None:
    script = "echo 'System has not been booted with systemd as init system (PID 1).' >&2; exit 1"
    found = await look(SystemdLook(unit="a"), environment=systemctl(tmp_path, script))
    assert found.saw is Saw.NOTHING
    assert "System has not been booted" in found.detail
    assert (await look(SystemdLook(unit="a"), environment={"PATH": str(tmp_path / "none")})).saw is Saw.NOTHING


async def test_a_systemctl_that_hangs_costs_the_timeout(tmp_path: Path) -> None:
    found = await look(SystemdLook(unit="a"), environment=systemctl(tmp_path, "sleep 600 & sleep 600"), timeout=1)
    assert (found.saw, found.detail) == (Saw.NOTHING, "no end after 1 s: waiting for systemctl")


async def test_what_a_program_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    script = "sleep 600 & echo LoadState=loaded; echo ActiveState=active"
    assert (await look(SystemdLook(unit="a"), environment=systemctl(tmp_path, script))).saw is Saw.UP
