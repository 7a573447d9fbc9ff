"""A session of the real CLI before docker's engine, the gate wide open: it sees masks, and changes nothing."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest

from claudeops.app.cell import with_filters
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.gate.docker_grants import Grant
from claudeops.domain.looks import LookCall
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.policy.tiers import JudgeScope
from support.caged import caged
from support.levels import needs
from support.scripted_engine import scripted_engine

pytestmark = pytest.mark.anyio

LOOK = "curl -sS -m 60 --unix-socket ${DOCKER_HOST#unix://} http://x/containers/web-1/json"
RESTART = "curl -sS -m 60 --unix-socket ${DOCKER_HOST#unix://} -X POST http://x/containers/web-1/restart"


@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.USER])
async def test_a_tool_sees_masks_and_its_change_is_not_made(
    level: IsolationLevel, tmp_path: Path, everybodys_cli: Path
) -> None:
    needs(level)
    place = Path(mkdtemp(prefix="engine-", dir="/tmp"))
    direct = f"curl -sS -m 60 --unix-socket {place}/engine.sock http://x/containers/web-1/json 2>&1; ls -l {place} 2>&1"
    try:
        async with (
            scripted_engine(place / "engine.sock") as engine,
            caged(
                tmp_path,
                level,
                LOOK,
                RESTART,
                direct,
                binary=everybodys_cli,
                DOCKER_HOST=f"unix://{engine.socket}",
                SHOWN=f"{place}:{engine.socket}",  # what shows the socket by another name
            ) as cage,
        ):
            context = cage.estate.context
            cage.estate.with_context(tiers=with_filters(context.tiers, context.confinement.cell))
            ending = await cage.run()
            seen, refused, around = cage.outputs()[:3]
            assert engine.targets() == []
    finally:
        shutil.rmtree(place)
    assert (str(ending.outcome), ending.calls_ran) == ("success", 3)
    assert "PASSWORD=[redacted]" in seen
    assert "hunter" not in seen + around
    assert "the gate has allowed no such change" in refused
    assert "Couldn't connect" in around or "Permission denied" in around


async def test_what_the_gate_grants_is_done_for_that_call_alone(tmp_path: Path, everybodys_cli: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    place = Path(mkdtemp(prefix="engine-", dir="/tmp"))

    def grants_the_first(call: ToolCall, _scope: JudgeScope) -> Verdict:
        grant = Grant(call=call.tool_use_id, verb="restart", container="web-1")
        granted = () if call.input.get("command") == f"{RESTART} -f" else (grant,)
        return Verdict(kind=VerdictKind.ALLOW, reason="a test", grants=granted)

    try:
        async with (
            scripted_engine(place / "engine.sock") as engine,
            caged(
                tmp_path,
                IsolationLevel.BUBBLEWRAP,
                "true",  # has a grant that it does not use, and that ends with it
                f"{RESTART} -f",
                RESTART,
                binary=everybodys_cli,
                DOCKER_HOST=f"unix://{engine.socket}",
            ) as cage,
        ):
            context = cage.estate.context
            cage.estate.with_context(tiers=with_filters(context.tiers, context.confinement.cell))
            cage.estate.with_judge(grants_the_first)
            await cage.run()
            _, refused, done = cage.outputs()[:3]
            assert engine.targets() == [f"/containers/{'a' * 64}/restart"]
            assert "403" in refused
            assert "403" not in done
    finally:
        shutil.rmtree(place)


async def test_at_level_none_nothing_is_said_to_be_filtered(tmp_path: Path, everybodys_cli: Path) -> None:
    async with caged(
        tmp_path, IsolationLevel.NONE, "echo $DOCKER_HOST", binary=everybodys_cli, DOCKER_HOST="unix:///run/engine.sock"
    ) as cage:
        context = cage.estate.context
        cage.estate.with_context(tiers=with_filters(context.tiers, context.confinement.cell))
        await cage.run()
        (shown, *_) = cage.outputs()
    assert shown.strip() == "unix:///run/engine.sock"


async def test_what_no_filter_can_judge_is_run_by_the_daemon_with_the_engine_itself(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    client = shutil.which("docker")
    if client is None:
        pytest.skip("docker is not installed (Debian: docker.io)")
    place = Path(mkdtemp(prefix="engine-", dir="/tmp"))
    words = ("ps", "--format={{.Names}} {{.Labels}}")

    def has_it_run(call: ToolCall, _scope: JudgeScope) -> Verdict:
        look = LookCall(id=f"{call.tool_use_id}-1", program="docker", arguments=words)
        ran = {"command": shlex.join((*LOOK_CLIENT, look.id))}
        return Verdict(kind=VerdictKind.ALLOW, reason="a test", ran=ran, looks_run=(look,))

    try:
        async with (
            scripted_engine(place / "engine.sock") as engine,
            caged(
                tmp_path,
                IsolationLevel.BUBBLEWRAP,
                "docker compose up -d web",
                binary=everybodys_cli,
                DOCKER_HOST=f"unix://{engine.socket}",
            ) as cage,
        ):
            context = cage.estate.context
            tiers = with_filters(context.tiers, context.confinement.cell)
            cage.estate.with_context(tiers=tiers, path=f"{Path(client).parent}:{context.path}")
            cage.estate.with_judge(has_it_run)
            await cage.run()
            (printed, *_) = cage.outputs()
    finally:
        shutil.rmtree(place)
    assert printed.strip() == "web-1 token=hunter4-4", "it is the engine's own answer, without the filter's masks"
