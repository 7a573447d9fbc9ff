"""The policy as a page: a command that is tried is judged as the gate does it, and never keeps the daemon busy."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from claudeops.app.policy import LoadedPolicy, policy_text, read_policy_text
from claudeops.cli.policy import PolicyQuestion, print_verdicts
from claudeops.domain.answers import plain
from claudeops.policy.judge import TierVerdict
from claudeops.policy.policy_file import in_force
from claudeops.settings import policy_document
from claudeops.settings.environ import child_path
from claudeops.structs import replace
from support.aftermath import processes_of
from support.hostile import TEXTS
from support.listening import bearer
from support.paged import SiteDoor, site_door
from support.policy_in_force import EndlessExplanation, known, policy_in


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.site.policy = policy_in(tmp_path)
        yield made


async def tried(site: SiteDoor, command: str, tier: int) -> str:
    answer = await site.get(f"/policy?{urlencode({'command': command, 'tier': tier})}", bearer(2))
    assert answer.status == 200
    return html.unescape(answer.body.decode()).partition("What the gate would say")[2].partition("Rules")[0]


async def test_a_command_gets_the_verdict_of_its_tier_and_is_not_run(site: SiteDoor, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert "deny" in await tried(site, f"touch {mark}", 1)
    assert not mark.exists()
    assert "allow" in await tried(site, "docker ps", 1)
    assert "deny" in await tried(site, "docker restart web", 1)
    restart = await tried(site, "docker restart web", 2)
    assert "allow" in restart
    assert "restart of" in restart


@pytest.mark.parametrize(
    "command", ["docker ps && curl -s http://192.0.2.7:8080/ | head -3", "docker restart web", "x"]
)
@pytest.mark.parametrize("tier", [1, 2])
async def test_the_page_shows_all_that_the_command_prints(
    site: SiteDoor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    command: str,
    tier: int,
) -> None:
    policy = site.site.policy
    assert policy is not None
    found = await policy.judged(command, tier)
    assert isinstance(found, TierVerdict)
    question = PolicyQuestion(
        command=command, tool="Bash", given=None, tier=tier, expect=None, dry_run=False, file=None
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLAUDEOPS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("CLAUDEOPS_ISOLATION", "none")
    monkeypatch.setenv("PATH", child_path({}))  # as the page's, whose settings name none
    await anyio.to_thread.run_sync(partial(print_verdicts, question, as_json=True))
    (printed,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert printed == plain(found)
    page = await tried(site, command, tier)
    for text in (found.reason, *found.writes):
        assert text in page, text
    for text in filter(None, (*found.parts, *found.names, *found.hosts, found.runs)):
        assert f"<code>{text}</code>" in page, text


async def test_a_command_that_is_never_judged_costs_its_process_and_nothing_else(site: SiteDoor) -> None:
    policy = site.site.policy
    assert isinstance(policy, LoadedPolicy)
    policy.seconds = 0.5
    policy.setups = known({1: replace((await policy.setups())[1], explain=EndlessExplanation())})
    assert "could not be judged" in await tried(site, "docker ps", 1)
    assert not processes_of("claudeops.engine.gate.judge_process")


@pytest.mark.parametrize("text", TEXTS[::7], ids=range(len(TEXTS[::7])))
async def test_a_hostile_command_is_judged_and_shown_as_text(site: SiteDoor, text: str) -> None:
    answer = await site.get(f"/policy?{urlencode({'command': text[:2000], 'tier': '1'})}", bearer(2))
    assert answer.status in {200, 422}
    page = answer.body.decode()
    assert "<script>" not in page
    assert not set(page) & {"\x1b", "\u202e", "\u200b"}
    assert "request_crashed" not in site.door.log.getvalue()


async def test_the_rules_are_those_that_the_command_prints(site: SiteDoor, tmp_path: Path) -> None:
    path, document = policy_document({}, cwd=tmp_path, file=None)
    policy = site.site.policy
    assert policy is not None
    assert policy.text == in_force(document, str(path))
    assert "[tiers.1]" in (await site.get("/policy", bearer(2))).body.decode()


async def test_reading_the_policy_keeps_nothing_else_waiting(tmp_path: Path) -> None:
    settings, meanwhile = policy_in(tmp_path).settings, anyio.Event()

    async def another() -> None:
        meanwhile.set()
        await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(another)
        assert "[tiers.1]" in await read_policy_text(settings)
        assert meanwhile.is_set()


async def test_a_policy_whose_file_is_gone_says_so(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('extends = "default"\n', encoding="utf-8")
    settings = policy_in(tmp_path, CLAUDEOPS_POLICY_PATH=str(file)).settings
    assert policy_text(settings).startswith(f"# In force, from {file}")
    file.unlink()
    assert str(file) in policy_text(settings)
    assert "In force" not in policy_text(settings)


async def test_a_tier_that_there_is_not_is_refused(site: SiteDoor) -> None:
    assert (await site.get("/policy?tier=9", bearer(2))).status == 404
