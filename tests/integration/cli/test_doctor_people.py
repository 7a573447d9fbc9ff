"""What doctor says of those who are told, and who tell: nothing is sent, and nobody is pinged."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from claudeops.cli.doctor.people import alerts, nobody, notify
from claudeops.cli.doctor.values import Case, Finding, Status
from claudeops.domain.notice.approving import Approver
from claudeops.domain.notice.model import TargetKind
from claudeops.settings import Settings
from support.receivers import receiving
from support.settings_world import World, make_world

CASE = cast("Case", None)
UUID = "5bf66975-d4c7-4bf5-bcc8-b8d8a82ea278"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def settings(world: World, **given: str) -> Settings:
    return world.settings(ANTHROPIC_API_KEY="sk-ant-none", **given)


# --- who tells --------------------------------------------------------------------------------------------


async def sources(world: World, text: str, **given: str) -> Finding:
    file = world.file("alerts.toml", text)
    return await alerts(CASE, settings(world, CLAUDEOPS_ALERTS_PATH=str(file), **given))


SIGNED = '[[source]]\nname = "scripts"\nkind = "generic"\nsecret_env = ["NEW_SECRET", "OLD_SECRET"]\n'


async def test_a_source_whose_signatures_all_fail_is_told(world: World) -> None:
    nothing, half, whole = (
        await sources(world, SIGNED),
        await sources(world, SIGNED, NEW_SECRET="a-secret-of-theirs"),
        await sources(world, SIGNED, NEW_SECRET="a-secret-of-theirs", OLD_SECRET="another-secret"),
    )

    assert [found.status for found in (nothing, half, whole)] == [Status.WARNING, Status.WARNING, Status.OK]
    assert "scripts signs with NEW_SECRET, OLD_SECRET, which is not set: none of its signatures holds." in nothing.says
    assert "OLD_SECRET" in half.says
    assert whole.says.startswith("It declares 1 source, 0 rules, 0 heartbeats (1 generic).")


async def test_sources_before_a_closed_door_are_told(world: World) -> None:
    text = '[[source]]\nname = "am"\nkind = "alertmanager"\n'

    assert "CLAUDEOPS_DASHBOARD is off" in (await sources(world, text, CLAUDEOPS_DASHBOARD="off")).says
    assert (await alerts(CASE, settings(world))).status is Status.OK  # there is no file


# --- who is told ------------------------------------------------------------------------------------------


async def test_an_address_that_apprise_does_not_know_is_found_before_the_night_and_nothing_is_sent(
    world: World,
) -> None:
    with receiving() as phone:
        good = await notify(CASE, settings(world, CLAUDEOPS_APPRISE_URLS=phone.address))
        bad = await notify(CASE, settings(world, CLAUDEOPS_APPRISE_URLS=f"{phone.address},tgramm://a-secret/chat"))
        heard = list(phone.bodies)

    assert (good.status, bad.status) == (Status.OK, Status.FAILED)
    assert bad.says == "Apprise does not understand the address of apprise-2."
    assert "a-secret" not in bad.says + str(bad.remedy)
    assert heard == []


async def test_whoever_tells_nobody_hears_of_it(world: World) -> None:
    assert "nobody is told" in (await notify(CASE, settings(world))).says


def test_an_approver_whom_no_question_can_reach_is_told() -> None:
    telegram, slack, apprise = TargetKind.TELEGRAM, TargetKind.SLACK, TargetKind.APPRISE
    alice, bob = Approver(name="alice", telegram_id="7"), Approver(name="bob", slack_user_id="U7")

    assert list(nobody([alice, bob], [telegram, slack, apprise])) == []
    assert list(nobody([alice, bob], [telegram])) == ["bob can answer nowhere: there is no target of the kind slack."]
    assert list(nobody([], [slack])) == ["Nobody may answer in slack: no approver has a slack_user_id."]
    assert list(nobody([], [apprise])) == []
