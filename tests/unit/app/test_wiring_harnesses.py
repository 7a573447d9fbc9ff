"""From the operator's settings to harnesses: who may run, where, and with what."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from claudeops import logs
from claudeops.app.limits import escalation_rules
from claudeops.app.start.checks import binaries, check_harnesses
from claudeops.app.wiring import build_context, root_session
from claudeops.clock import Clock
from claudeops.domain.sessions import Trigger
from claudeops.engine.live.hub import Hub
from claudeops.engine.session.context import SessionContext
from claudeops.errors import ConfigurationError
from claudeops.settings import Settings
from claudeops.store.store import Store
from support.settings_world import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world(tmp_path)
    for name in ("codex", "caliban"):
        path = world.claude.with_name(name)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return world


def context_of(settings: Settings) -> SessionContext:
    logs.configure(level="critical", fmt="json", stream=io.StringIO(), redact=str)
    never_asked = cast("Store", SimpleNamespace(holds=None))
    rules = escalation_rules(settings)
    return build_context(settings, store=never_asked, rules=rules, clock=Clock(), hub=Hub(), log=logs.get_logger())


def test_harness_without_a_gate_is_refused_unless_the_operator_names_it(world: World) -> None:
    check_harnesses(world.settings())
    chosen = {"CLAUDEOPS_TIER2_HARNESS": "codex"}
    check_harnesses(world.settings(chosen, CLAUDEOPS_ALLOW_UNGATED="codex"))
    for allowed in ("", "caliban"):
        with pytest.raises(ConfigurationError, match=r"^Tier 2 would run on codex, .* CLAUDEOPS_ALLOW_UNGATED"):
            check_harnesses(world.settings(chosen, CLAUDEOPS_ALLOW_UNGATED=allowed))


def test_every_queued_session_is_for_the_harness_of_its_tier(world: World) -> None:
    settings = world.settings(CLAUDEOPS_TIER2_HARNESS="codex", CLAUDEOPS_ALLOW_UNGATED="codex")
    assert [choice.harness for choice in escalation_rules(settings).tiers] == ["claude", "codex", "claude"]
    new = root_session(settings, 2, Trigger.MANUAL)
    assert (new.harness, new.model) == ("codex", "gpt-5-codex")
    assert root_session(settings, 8, Trigger.MANUAL).harness == "claude"


def test_kit_knows_who_may_run_and_what_may_be_changed(world: World) -> None:
    settings = world.settings(
        CLAUDEOPS_TIER1_HARNESS="codex",
        CLAUDEOPS_ALLOW_UNGATED="codex,caliban",
        CLAUDE_CODE_DISABLE_BACKGROUND_TASKS="1",
    )
    context = context_of(settings)
    assert set(binaries(settings)) == set(context.clis.binaries) == {"claude", "codex"}
    assert context.clis.allow_ungated == ("codex", "caliban")
    assert context.completion.background_tasks_off
    assert {number: tier.policy.read_only for number, tier in context.tiers.items()} == {1: True, 2: False, 3: False}
