"""From settings to what the engine works with: nothing of the daemon's own is left within a session's reach."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest

from claudeops.app.limits import escalation_rules
from claudeops.app.wiring import (
    build_context,
    estate_now,
    estates,
    model_access,
    refuse_command,
    root_session,
    schedule,
)
from claudeops.clock import Clock
from claudeops.domain.calls import ToolCall, VerdictKind
from claudeops.domain.estate.estate import NO_ESTATE
from claudeops.domain.schedules import Cron, Interval
from claudeops.domain.sessions import Trigger
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.gate.judge_process import HEADER_BYTES, message
from claudeops.engine.gate.judging import SessionJudge
from claudeops.engine.live.hub import Hub
from claudeops.engine.session.context import SessionContext
from claudeops.harness.protocol import CredentialKind
from claudeops.logs import get_logger
from claudeops.settings import Settings
from claudeops.store.store import Store
from support.settings_world import World

NO_STORE: Final = cast("Store", SimpleNamespace(holds=None))
"""Nobody asks it anything here."""


def context_of(settings: Settings) -> SessionContext:
    rules = escalation_rules(settings)
    return build_context(settings, store=NO_STORE, rules=rules, clock=Clock(), hub=Hub(), log=get_logger())


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_no_tier_reads_what_belongs_to_the_daemon(tier: int, world: World) -> None:
    database = world.base / "elsewhere" / "watch.db"
    settings = world.settings(CLAUDEOPS_DATABASE_URL=f"sqlite:///{database}")
    workspace = Workspace(settings.places.state_dir / "sessions" / "000001")
    judge = context_of(settings).tiers[tier].judge_in(workspace, NO_ESTATE)
    for path in (
        database,
        f"{database}-wal",
        settings.places.state_dir / "daemon.json",
        settings.places.results_dir / "session-000001.ndjson",
        settings.places.state_dir / "sessions" / "000002" / "work" / "notes",
    ):
        call = ToolCall(tool_use_id="t", tool_name="Read", input={"file_path": str(path)})
        assert judge(call).kind is VerdictKind.DENY, path
    own = ToolCall(tool_use_id="t", tool_name="Read", input={"file_path": str(workspace.workdir / "notes")})
    assert judge(own).kind is VerdictKind.ALLOW


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_a_sessions_calls_are_judged_by_the_directories_that_are_its_own(tier: int, world: World) -> None:
    settings = world.settings()
    workspace = Workspace(world.base / "cells" / "000001")  # as at level user: not below the state directory
    judge = context_of(settings).tiers[tier].judge_in(workspace, NO_ESTATE)

    def verdict(tool: str, path: Path) -> VerdictKind:
        given = {"file_path": str(path), **({"content": "x"} if tool == "Write" else {})}
        return judge(ToolCall(tool_use_id="t", tool_name=tool, input=given)).kind

    assert verdict("Read", workspace.home / ".notes") is VerdictKind.DENY
    assert verdict("Read", workspace.workdir / ".notes") is VerdictKind.ALLOW
    may_write = VerdictKind.DENY if tier == 1 else VerdictKind.ALLOW
    for own in (workspace.workdir, workspace.tmpdir):
        assert verdict("Read", own / "notes") is VerdictKind.ALLOW
        assert verdict("Write", own / "notes") is may_write
    assert verdict("Write", world.base / "cells" / "000002" / "work" / "notes") is VerdictKind.DENY


@pytest.mark.parametrize("tier", [1, 2, 3])
async def test_the_process_that_judges_gets_the_whole_policy_and_where_things_are(tier: int, world: World) -> None:
    settings = world.settings()
    known = await estates(settings).look(get_logger())
    workspace = Workspace(settings.places.state_dir / "sessions" / "000001")
    judge = context_of(settings).tiers[tier].judge_in(workspace, known)
    passed_on: SessionJudge = pickle.loads(message(judge)[HEADER_BYTES:])  # noqa: S301 - our own
    workspace.workdir.mkdir(parents=True)
    (workspace.workdir / "link").symlink_to("/etc/shadow")  # followed by the file system's own answer
    for command in (
        "uptime && df -h /",
        f"cat {workspace.workdir}/link",
        "docker restart web",
        "curl https://x.example/",
    ):
        call = ToolCall(tool_use_id="t", tool_name="Bash", input={"command": command})
        assert passed_on(call) == judge(call)


def test_dry_run_reaches_every_tiers_gate(world: World) -> None:
    settings = world.settings(CLAUDEOPS_DRY_RUN="true")
    call = ToolCall(tool_use_id="t", tool_name="Bash", input={"command": "docker restart web"})
    workspace = Workspace(settings.places.state_dir / "sessions" / "000001")
    verdict = context_of(settings).tiers[3].judge_in(workspace, NO_ESTATE)(call)
    assert (verdict.kind, "dry run" in verdict.reason) == (VerdictKind.DENY, True)


def test_the_operators_tool_list_narrows_what_exists(world: World) -> None:
    tools = context_of(world.settings(CLAUDEOPS_TIER1_ALLOWED_TOOLS="Read")).tiers[1].policy.tools
    assert tools == ("Read",)


def test_a_cron_line_keeps_its_time_zone_and_an_interval_needs_none(world: World) -> None:
    by_cron = world.settings(CLAUDEOPS_CRON="5 4 * * 7", CLAUDEOPS_TIMEZONE="Europe/Berlin")
    assert schedule(by_cron).cadence == Cron(expr="5 4 * * 7", timezone="Europe/Berlin")
    assert schedule(world.settings(CLAUDEOPS_INTERVAL="90")).cadence == Interval(seconds=90)


def test_a_root_takes_the_model_of_its_tier(world: World) -> None:
    new = root_session(world.settings(CLAUDEOPS_TIER2_MODEL="sonnet-x"), 2, Trigger.MANUAL, "look at web")
    assert (new.tier, new.model, new.prompt_text) == (2, "sonnet-x", "look at web")


def test_a_token_and_a_key_go_by_descriptors_of_their_own(world: World) -> None:
    token = model_access(world.settings(CLAUDE_CODE_OAUTH_TOKEN="token-of-the-tests"))
    key = model_access(world.settings(ANTHROPIC_API_KEY="key-of-the-tests"))
    assert (token.credential, token.secret) == (CredentialKind.OAUTH_TOKEN, "token-of-the-tests")
    assert (key.credential, key.secret) == (CredentialKind.API_KEY, "key-of-the-tests")
    assert "key-of-the-tests" not in repr(key)


async def test_the_operators_probes_widen_the_reach_of_sessions_and_a_wrong_file_does_not(world: World) -> None:
    file = world.base / "probes.toml"
    settings = world.settings(CLAUDEOPS_PROBES_PATH=str(file))
    file.write_text('[[probe]]\nname = "status"\nkind = "http"\nurl = "https://status.example.net/"\n')
    judged = context_of(settings).tiers[1].judge_in
    workspace = Workspace(settings.places.state_dir / "sessions" / "000001")
    asks = ToolCall(tool_use_id="t", tool_name="Bash", input={"command": "curl -s https://status.example.net/api"})

    known = await estates(settings).look(get_logger())
    assert judged(workspace, known)(asks).kind is VerdictKind.ALLOW
    assert estate_now(settings) == known
    file.write_text(file.read_text() + "[[probe]")
    unknown = await estates(settings).look(get_logger())
    assert judged(workspace, unknown)(asks).kind is VerdictKind.DENY
    assert estate_now(settings) == unknown


def test_a_command_of_a_probe_may_name_a_host_before_the_estate_is_known(world: World) -> None:
    refused = refuse_command(world.settings())
    assert refused("curl -s https://shop.example.com/health") is None
    assert refused("ssh web1 uptime") is None
    assert "never asked" in str(refused("curl -s http://169.254.169.254/"))
    assert refused("docker restart web") is not None
