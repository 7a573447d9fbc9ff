"""Whoever comes from Claude Ops is told what has become of each of its settings, and never sees a value repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from claudeops.errors import ConfigurationError
from claudeops.settings import load_settings
from claudeops.settings.claude_ops import GONE, RENAMED, Fate, LineVerdict, read_set_up, sentence_for
from claudeops.settings.model import KNOWN
from claudeops.settings.variables import WITHOUT_EFFECT
from support.settings_world import make_world

THEIRS: Final = (  # contracts, section 0.8: what its users already set
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDEOPS_INTERVAL", "CLAUDEOPS_PROMPT", "CLAUDEOPS_TIER2_PROMPT"),
    *("CLAUDEOPS_TIER3_PROMPT", "CLAUDEOPS_TIER1_MODEL", "CLAUDEOPS_TIER2_MODEL", "CLAUDEOPS_TIER3_MODEL"),
    *("CLAUDEOPS_MAX_TIER", "CLAUDEOPS_DRY_RUN", "CLAUDEOPS_STATE_DIR", "CLAUDEOPS_RESULTS_DIR", "CLAUDEOPS_REPOS_DIR"),
    *("CLAUDEOPS_ALLOWED_TOOLS", "CLAUDEOPS_DISALLOWED_TOOLS", "CLAUDEOPS_TIER2_ALLOWED_TOOLS"),
    *("CLAUDEOPS_TIER3_DISALLOWED_TOOLS", "CLAUDEOPS_SCHEMA_PATH", "CLAUDEOPS_MCP_CONFIG", "CLAUDEOPS_DASHBOARD_PORT"),
    *("CLAUDEOPS_MEMORY_BUDGET", "CLAUDEOPS_SUMMARY_MODEL", "CLAUDEOPS_WEBHOOK_MODEL", "CLAUDEOPS_CHAT_API_KEY"),
    *("CLAUDEOPS_WEBHOOK_SYSTEM_PROMPT", "CLAUDEOPS_APPRISE_URLS", "CLAUDEOPS_BROWSER_ALLOWED_ORIGINS"),
    *("BROWSER_CRED_SONARR_PASS", "GITHUB_TOKEN"),
)
COMPOSE: Final = """\
services:
  watchdog:
    image: ghcr.io/joestump/claude-ops:latest
    command: ["--verbose", "--interval", "900"]
    environment:
      - ANTHROPIC_API_KEY=${ANTHROPIC_API_KEY}
      - CLAUDEOPS_PR_ENABLED=true
      # - CLAUDEOPS_VERBOSE=true
      CLAUDEOPS_TIER1_PROMPT: prompts/mine.md
      CLAUDEOPS_FOO: hunter22-do-not-print
    ports:
      - "8080:8080"
    volumes:
      - ./state:/state
"""


def told(text: str) -> list[tuple[int, str, Fate]]:
    return [(verdict.line, verdict.subject, verdict.fate) for verdict in read_set_up(text)]


def test_a_compose_file_is_answered_line_by_line() -> None:
    assert told(COMPOSE) == [
        (3, "image", Fate.RENAMED),
        (4, "--verbose", Fate.RENAMED),
        (4, "--interval", Fate.RENAMED),
        (6, "ANTHROPIC_API_KEY", Fate.STAYS),
        (7, "CLAUDEOPS_PR_ENABLED", Fate.GONE),
        (9, "CLAUDEOPS_TIER1_PROMPT", Fate.RENAMED),
        (10, "CLAUDEOPS_FOO", Fate.STRANGE),
        (12, "port 8080", Fate.NOTE),
        (14, "mount /state", Fate.NOTE),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "CLAUDEOPS_TIER=2",
        "export CLAUDEOPS_TIER=2",
        "  - CLAUDEOPS_TIER=2",
        '  - "CLAUDEOPS_TIER=2"',
        "  - CLAUDEOPS_TIER",
        "  CLAUDEOPS_TIER: 2",
        '  "CLAUDEOPS_TIER": "2"',
    ],
)
def test_a_setting_is_seen_in_every_way_to_write_it(line: str) -> None:
    assert told(line) == [(1, "CLAUDEOPS_TIER", Fate.GONE)]


def test_nothing_that_it_says_repeats_a_value() -> None:
    says = " ".join(f"{verdict.subject} {verdict.says}" for verdict in read_set_up(COMPOSE))
    assert "hunter22" not in says


@pytest.mark.parametrize("name", THEIRS)
def test_every_setting_of_its_users_has_an_answer(name: str) -> None:
    (verdict,) = read_set_up(f"{name}=x")
    assert verdict.fate is not Fate.STRANGE
    assert verdict.says


def test_what_is_none_of_ours_is_passed_over() -> None:
    assert told("# CLAUDEOPS_TIER=1\nPATH=/bin\nCONNECTION_TIMEOUT: 5\n\n  restart: always\n- /a:/b\n") == []
    assert told("") == []


def test_every_name_is_in_one_list_and_every_new_name_is_a_setting() -> None:
    assert not RENAMED.keys() & GONE.keys()
    assert not (RENAMED.keys() | GONE.keys()) & (KNOWN.keys() | WITHOUT_EFFECT.keys())
    assert {new for new, _ in RENAMED.values()} <= KNOWN.keys()


@pytest.mark.parametrize("name", [*RENAMED, *GONE])
def test_a_name_that_is_gone_is_refused_with_a_sentence_that_helps(tmp_path: Path, name: str) -> None:
    world = make_world(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        load_settings({name: "true"}, cwd=world.cwd, root=world.root)
    sentence = sentence_for(name)
    assert sentence is not None
    assert sentence in str(refused.value)
    assert "nearest known name" not in str(refused.value)


def test_a_verdict_is_a_value() -> None:
    (verdict,) = read_set_up("CLAUDEOPS_VERBOSE=1")
    new, note = RENAMED["CLAUDEOPS_VERBOSE"]
    assert verdict == LineVerdict(line=1, subject="CLAUDEOPS_VERBOSE", fate=Fate.RENAMED, says=f"now {new}: {note}")
