"""The trial of isolation goes on beside the rest of a start, which may end before it."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import Future
from io import StringIO
from pathlib import Path

import anyio
import pytest

from claudeops import logs
from claudeops.app.cell import LateLooks
from claudeops.app.start.checks import make_directories
from claudeops.app.start.trial import Trial, surroundings, trying
from claudeops.app.start.trial_process import begun, find_looks, started
from claudeops.engine.cell.levels import Selected, choose
from claudeops.engine.cell.look_cell import FoundLooks
from claudeops.errors import ConfigurationError
from claudeops.settings import Settings, load_settings
from claudeops.structs import replace
from support.estate import STAND_IN


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    (tmp_path / "repos" / "web").mkdir(parents=True)
    given = {
        "PATH": "/usr/bin:/bin",
        "CLAUDEOPS_STATE_DIR": str(tmp_path / "state"),
        "CLAUDEOPS_RESULTS_DIR": str(tmp_path / "results"),
        "CLAUDEOPS_REPOS_DIR": str(tmp_path / "repos"),
        "CLAUDEOPS_CLAUDE_BIN": str(STAND_IN),
        "ANTHROPIC_API_KEY": "dummy",
    }
    found = load_settings(given, cwd=tmp_path).settings
    await make_directories(found)
    return found


async def test_a_start_that_is_refused_leaves_nothing_of_its_trial_behind(settings: Settings) -> None:
    async with trying(settings) as trial:
        pass
    assert trial.isolation.done()
    assert trial.looks.cancelled()  # what is tried in the cell was not begun


async def test_a_start_that_is_cancelled_waits_for_the_processes_of_its_trial(settings: Settings) -> None:
    with anyio.CancelScope() as scope:
        async with trying(settings) as trial:
            scope.cancel()
            await anyio.sleep_forever()
    assert trial.isolation.done()
    assert trial.looks.done()


async def test_what_a_process_has_found_is_what_this_one_would_find_and_it_has_ended_then(settings: Settings) -> None:
    process = started()
    async with trying(settings, process) as trial:
        chosen = await anyio.to_thread.run_sync(trial.isolation.result)
        trial.order_looks()
        found = await anyio.to_thread.run_sync(trial.looks.result)

        assert process.returncode == 0
    assert chosen == choose(settings.cell.isolation, surroundings(settings))
    assert found == find_looks(chosen.cell, settings.environment.path)
    assert "git" in {**found.cells, **found.why}


async def test_programs_are_looked_for_on_the_path_of_the_settings(settings: Settings, tmp_path: Path) -> None:
    bwrap = shutil.which("bwrap", path=settings.environment.path)
    if bwrap is None:
        pytest.skip("bubblewrap is not installed")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").symlink_to(bwrap)
    settings = replace(settings, environment=replace(settings.environment, path=str(tmp_path / "bin")))

    async with trying(settings) as trial:
        await anyio.to_thread.run_sync(trial.isolation.result)
        trial.order_looks()
        found = await anyio.to_thread.run_sync(trial.looks.result)

    assert (found.cells, found.why) == ({}, {"git": "there is no git on PATH"})


async def test_programs_that_no_session_wanted_are_not_tried(settings: Settings) -> None:
    process = started()
    async with trying(settings, process) as trial:
        await anyio.to_thread.run_sync(trial.isolation.result)
        assert process.poll() is None

    assert "it was ended" in str(trial.looks.exception())


async def test_a_level_that_does_not_work_is_refused_in_the_same_sentence(settings: Settings) -> None:
    settings = replace(settings, cell=replace(settings.cell, isolation="bubblewrap"))
    settings = replace(settings, environment=replace(settings.environment, path="/nonexistent"))

    async with trying(settings) as trial:
        assert str(await _fault(trial)) == _refused(settings)
        assert trial.looks.exception() is trial.isolation.exception()


async def test_a_daemon_whose_trial_was_ended_goes_on_without_what_it_would_run_for_sessions() -> None:
    said, isolation, ended = StringIO(), Future[Selected](), Future[FoundLooks]()
    logs.configure(level="info", fmt="json", stream=said, redact=str)
    orders: list[None] = []
    looks = LateLooks(Trial(isolation, ended, lambda: orders.append(None)), logs.get_logger())
    ended.set_exception(ConfigurationError("it was ended"))

    found = [await looks.found(), await looks.found()]

    assert [each.known() for each in found] == [{}, {}]
    assert len(orders) == 1
    (line,) = map(json.loads, said.getvalue().splitlines())
    assert (line["event"], line["level"], line["why"]) == ("looks_chosen", "warning", {"git": "it was ended"})


async def test_a_process_that_was_killed_is_said_to_have_ended(settings: Settings) -> None:
    process = started()
    process.kill()
    process.wait()

    async with trying(settings, process) as trial:
        assert "it was ended; start claudeops again" in str(await _fault(trial))


def test_a_start_whose_settings_are_refused_leaves_no_process_behind() -> None:
    with begun() as process:
        assert process is not None

    assert process.returncode == 0


async def _fault(trial: Trial) -> BaseException | None:
    return await anyio.to_thread.run_sync(trial.isolation.exception)


def _refused(settings: Settings) -> str:
    with pytest.raises(ConfigurationError) as refused:
        choose(settings.cell.isolation, surroundings(settings))
    return str(refused.value)
