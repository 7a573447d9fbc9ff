"""What the doctor makes of a sentence, and of settings that are wrong in several places."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from claudeops.cli.doctor.command import gather
from claudeops.cli.doctor.finding import halves
from claudeops.cli.doctor.machine import mentioned
from support.settings_world import make_world

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sentence", "says", "remedy"),
    [
        ("It is broken: mend it.", "It is broken.", "Mend it."),
        ("X: it is broken: mend it.", "X: it is broken.", "Mend it."),
        ("No bwrap: install it (Debian: apt-get install it).", "No bwrap.", "Install it (Debian: apt-get install it)."),
        ("It is broken.", "It is broken.", None),
        ("It is broken (how: badly).", "It is broken (how: badly).", None),
        ("", "", None),
    ],
)
def test_problem_and_remedy_are_told_apart(sentence: str, says: str, remedy: str | None) -> None:
    assert halves(sentence) == (says, remedy)


def test_every_fault_is_found_and_the_rest_is_read(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    environ = {
        "PATH": str(world.claude.parent),
        "CLAUDEOPS_REPOS_DIR": str(world.root / "repos"),
        "CLAUDEOPS_INTERVAL": "soon",
        "CLAUDEOPS_MAX_TIER": "2",
        "CLAUDEOPS_TIER2_MAX_TURNS": "many",
        "CLAUDEOPS_TYPPO": "1",
        "ANTHROPIC_API_KEY": "sk-ant-one",
        "CLAUDE_CODE_OAUTH_TOKEN": "oauth-two",
    }
    case = gather(environ, cwd=world.cwd, now=NOW)
    assert set(case.refused) == {
        "ANTHROPIC_API_KEY",
        "CLAUDEOPS_INTERVAL",
        "CLAUDEOPS_TIER2_MAX_TURNS",
        "CLAUDEOPS_TYPPO",
    }
    assert all(name in sentence for name, sentence in case.refused.items())
    assert case.settings is not None
    assert (case.settings.ladder.max_tier, case.settings.access.oauth_token) == (2, "oauth-two")


def test_of_variables_that_mean_something_only_together_one_fault_is_said(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    environ = {
        "PATH": str(world.claude.parent),
        "CLAUDEOPS_REPOS_DIR": str(world.root / "repos"),
        "CLAUDEOPS_PUBLIC_URL": "https://ops.example.com",
        "CLAUDEOPS_OIDC_ISSUER": "http://id.example.com",
        "CLAUDEOPS_OIDC_CLIENT_ID": "ops",
        "CLAUDEOPS_OIDC_CLIENT_SECRET": "0123456789",
    }
    case = gather(environ, cwd=world.cwd, now=NOW)
    assert list(case.refused) == ["CLAUDEOPS_OIDC_ISSUER"]
    assert case.settings is not None
    assert case.settings.listener.public_hosts == ("ops.example.com",)


def test_only_command_lines_are_taken_for_programs() -> None:
    text = "Use `curl -sS URL`, never `sudo`. `services_checked` and `service:category` are none, nor is `GET /x`."
    assert mentioned([text]) == {"curl"}
