"""A disk that does not answer costs whoever needs it, and for a time; the event loop asks no disk at all."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from claudeops.app.start.checks import answered
from claudeops.clock import Clock
from claudeops.domain.calls import ToolCall
from claudeops.domain.sessions import Outcome
from claudeops.engine.cell.cell import lease_user
from claudeops.engine.cell.workspace import create, enter, remove
from claudeops.engine.control import CliTranscript, StopControl
from claudeops.engine.daemon.housekeeping import Housekeeping
from claudeops.engine.daemon.status import StatusFile, StatusWriter
from claudeops.engine.gate.approvals import ApprovalDenied, ApprovalService
from claudeops.engine.session.runner import SessionRunner
from claudeops.errors import ConfigurationError
from claudeops.structs import replace
from support.estate import STAND_IN, Estate, deliver, look, report
from support.hung_disk import disk
from support.loop_time import loop_time
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

SLOWNESS = 40  # of the event loop's clock: a bound of ten seconds lasts longer than a test may


def with_home(estate: Estate) -> Path:
    """Give every tier a home to copy."""
    home = estate.root / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "key").write_text("key", encoding="utf-8")
    estate.with_context(
        tiers={number: replace(tier, template_home=home) for number, tier in estate.context.tiers.items()}
    )
    return home


async def test_a_session_asks_no_disk_on_the_event_loop(estate: Estate) -> None:
    with_home(estate)
    estate.with_context(timeouts=replace(estate.context.timeouts, silence=2))
    estate.script(look(), {"grow": "x" * 100, "every": 0.2, "times": 8}, deliver(report()))
    await estate.queue()
    session = await estate.claim()

    with disk(estate.root, answers=True) as watched:
        ending = await SessionRunner(context=estate.context).run(session, StopControl())

    assert ending.outcome is Outcome.SUCCESS
    assert watched.reached.is_set()
    assert watched.on_the_loop == []


def _repositories(estate: Estate) -> Path:
    return estate.context.repos_dir


def _results(estate: Estate) -> Path:
    return estate.root / "results"


def _binary(estate: Estate) -> Path:
    """Put the CLI on a disk of its own."""
    directory = estate.root / "bin"
    directory.mkdir()
    (directory / "claude").symlink_to(STAND_IN)
    estate.with_context(binaries={"claude": directory / "claude"})
    return directory


@pytest.mark.parametrize("place", [_repositories, _results, _binary, with_home])
async def test_a_session_whose_disk_hangs_can_be_ended(estate: Estate, place: Callable[[Estate], Path]) -> None:
    hung = place(estate)
    estate.script(look(), deliver(report()))
    await estate.queue()
    session = await estate.claim()

    with disk(hung, answers=False) as one, loop_time(slowness=SLOWNESS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(SessionRunner(context=estate.context).run, session, StopControl())
            await anyio.to_thread.run_sync(one.reached.wait, PATIENCE_SECONDS)
            tasks.cancel_scope.cancel()
        assert one.on_the_loop == []
        assert not one.is_back


async def test_a_workspace_that_was_made_too_late_is_removed(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    (home / "key").write_text("key", encoding="utf-8")
    with disk(home, answers=False) as one:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(create, root, template_home=home))
            await anyio.to_thread.run_sync(one.reached.wait, PATIENCE_SECONDS)
            tasks.cancel_scope.cancel()
    await until(lambda: not root.exists())


async def test_a_removal_that_takes_too_long_is_told_and_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    await create(root, template_home=None)
    with disk(root, answers=False):
        left = await remove(root, seconds=0.1)
        assert isinstance(left, TimeoutError)
        assert "took longer than 0.1 s" in str(left)
    await until(lambda: not root.exists())


async def test_a_user_that_was_taken_too_late_is_given_back(tmp_path: Path) -> None:
    users = tmp_path / "users"
    first = _first(users)
    with disk(users, answers=False) as one, contextlib.ExitStack() as held:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter, held, lease_user(users))
            await anyio.to_thread.run_sync(one.reached.wait, PATIENCE_SECONDS)
            tasks.cancel_scope.cancel()
    await until(lambda: _first(users) == first)


def _first(users: Path) -> int:
    """Return the first user that is free."""
    with lease_user(users) as user:
        return user.uid


# --- what a session asks people about -----------------------------------------------------------------


async def test_a_call_that_names_a_file_on_a_disk_that_hangs_is_denied_in_time(estate: Estate) -> None:
    await estate.queue()
    desk = ApprovalService(
        session=await estate.claim(),
        approvals=estate.store.approvals,
        clock=estate.context.clock,
        key=b"k" * 32,
        timeout_seconds=60,
        workdir=str(estate.root),
        own=(str(estate.root),),
        redact=str,
        waiting=_nobody_waits,
        log=estate.context.log,
        read_seconds=0.2,
    )
    call = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": f"{estate.root}/away/restart.sh"})
    with disk(estate.root / "away", answers=False), anyio.fail_after(PATIENCE_SECONDS):
        said = await desk.ask(call, redacted_input="{}", reason="restarts the database")

    assert isinstance(said, ApprovalDenied)
    assert "could not be read in time" in said.reason
    assert estate.rows("SELECT * FROM approvals") == []


def _nobody_waits() -> AbstractContextManager[None]:
    raise AssertionError("nobody is asked")


# --- the daemon's own files ---------------------------------------------------------------------------


async def test_a_state_file_whose_disk_hangs_keeps_no_daemon_from_stopping_and_is_true_when_it_is_back(
    estate: Estate,
) -> None:
    path = estate.root / "state" / "daemon.json"
    file = StatusFile(path, estate.owner, estate.context.clock.now(), write_seconds=0.2)
    keeper = StatusWriter(
        file=file, holds=estate.store.holds, clock=estate.context.clock, running=list, log=estate.context.log
    )
    await keeper.refresh()
    with disk(path.parent, answers=False) as one, anyio.fail_after(PATIENCE_SECONDS):
        await keeper.stop()
        await keeper.refresh()  # while the first one still hangs: nothing older can come after it
        with pytest.raises(TimeoutError):
            await file.remove()
        assert one.on_the_loop == []
    assert estate.logged.getvalue().count('"status_not_written"') == 2

    await until(
        lambda: not path.with_suffix(".json.new").exists() and json.loads(path.read_text())["reason"] is not None
    )
    await keeper.refresh()
    assert json.loads(path.read_text())["reason"] == "the daemon is shutting down"


async def test_upkeep_of_logs_on_a_disk_that_hangs_can_be_ended(estate: Estate) -> None:
    await estate.finished(look(), deliver(report()))
    upkeep = Housekeeping(
        database=estate.store.retention,
        records=estate.store.records,
        clock=_Later(estate),
        results_dir=estate.root / "results",
        retention_days=30,
        running=list,
        log=estate.context.log,
    )
    with disk(estate.root / "results", answers=False) as one, anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(upkeep.round)
            await anyio.to_thread.run_sync(one.reached.wait, PATIENCE_SECONDS)
            tasks.cancel_scope.cancel()
        assert one.on_the_loop == []

    done = await upkeep.round()
    assert done["logs_packed"] == 1


class _Later(Clock):
    """A clock some hours on."""

    def __init__(self, estate: Estate) -> None:
        self._clock = estate.context.clock

    def now(self) -> datetime:
        return self._clock.now() + timedelta(hours=5)

    def monotonic(self) -> float:
        return self._clock.monotonic()


async def test_a_transcript_whose_disk_hangs_is_no_sign_of_life_and_none_of_death(tmp_path: Path) -> None:
    project = tmp_path / ".claude" / "projects" / "-work"
    project.mkdir(parents=True)
    (project / "s.jsonl").write_bytes(b"x" * 10)
    transcript = CliTranscript(tmp_path, "s")
    assert await transcript.size() == 10
    with disk(tmp_path, answers=False) as one, anyio.fail_after(PATIENCE_SECONDS):
        assert await transcript.size() == 10
        assert one.on_the_loop == []


async def test_a_start_on_a_disk_that_hangs_is_refused_with_what_to_mend(tmp_path: Path) -> None:
    with (
        disk(tmp_path, answers=False),
        anyio.fail_after(PATIENCE_SECONDS),
        pytest.raises(ConfigurationError, match="CLAUDEOPS_STATE_DIR") as refused,
    ):
        await answered(lambda: sorted(tmp_path.iterdir()), "listing the results directory", seconds=0.1)
    assert "does not answer (listing the results directory took longer than 0.1 s)" in str(refused.value)
