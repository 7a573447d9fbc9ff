"""What the settings are when they are right; what is refused stands in `test_refusals`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from claudeops.errors import ConfigurationError
from support.settings_world import SCHEMA, World


def test_empty_environment_is_a_working_configuration(world: World) -> None:
    loaded = world.load()
    settings = loaded.settings

    assert loaded.warnings == ()
    assert (
        settings.schedule.interval_seconds,
        settings.schedule.cron,
        settings.schedule.timezone,
        settings.schedule.jitter_seconds,
    ) == (
        3600,
        None,
        "UTC",
        0,
    )
    assert (settings.ladder.max_tier, settings.ladder.dry_run, settings.sessions.harness) == (3, False, "claude")
    assert (
        settings.timeouts.session_seconds,
        settings.timeouts.startup_seconds,
        settings.timeouts.silence_seconds,
    ) == (
        1800,
        60,
        600,
    )
    assert (
        settings.timeouts.result_grace_seconds,
        settings.timeouts.stop_grace_seconds,
        settings.timeouts.drain_seconds,
    ) == (30, 10, 60)
    assert (settings.sessions.max_concurrent, settings.bounds.memory_mb, settings.upkeep.memory_budget_tokens) == (
        2,
        4096,
        2000,
    )
    assert (settings.bounds.processes, settings.bounds.file_mb, settings.bounds.disk_mb) == (1024, 1024, 2048)
    assert (settings.budgets.chain_usd, settings.budgets.daily_usd) == (15, 25)
    assert settings.completion.legacy_markers
    assert settings.completion.hang_heuristics
    assert settings.completion.repair_turn
    assert settings.cell.cli_self_test
    assert settings.cell.meter
    assert (settings.log.level, settings.log.format, settings.cell.isolation) == ("info", "auto", "auto")
    assert settings.places.database_url == f"sqlite:///{world.root}/state/claudeops.db"
    assert json.loads(settings.report.schema_text) == SCHEMA
    assert settings.secrets == ()


def test_empty_environment_has_three_tiers(world: World) -> None:
    tiers = world.settings().tiers

    assert [(tier.number, tier.name, tier.model, tier.max_turns, tier.max_budget_usd) for tier in tiers] == [
        (1, "observe", "haiku", 30, 0.5),
        (2, "investigate", "sonnet", 60, 2),
        (3, "remediate", "opus", 100, 10),
    ]
    assert [tier.prompt_text for tier in tiers] == [
        "prompt of tier1-observe\n",
        "prompt of tier2-investigate\n",
        "prompt of tier3-remediate\n",
    ]
    assert all(tier.allowed_tools == tier.disallowed_tools == () and not tier.env for tier in tiers)


@pytest.mark.parametrize("value", ["", "  ", "\t"])
def test_blank_value_counts_as_unset(world: World, value: str) -> None:
    loaded = world.load(CLAUDEOPS_INTERVAL=value, CLAUDEOPS_CRON=value, ANTHROPIC_API_KEY=value, CLAUDEOPS_SITE=value)

    assert loaded == world.load()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(text, value, id=text)
        for value, texts in {True: "true 1 yes on TRUE On", False: "false 0 no off FALSE Off"}.items()
        for text in texts.split()
    ],
)
def test_switch_takes_every_usual_spelling(world: World, text: str, value: bool) -> None:
    assert world.settings(CLAUDEOPS_DRY_RUN=text).ladder.dry_run is value


def test_networks_that_read_the_metrics_are_listed_and_there_are_none_by_default(world: World) -> None:
    assert world.settings().listener.metrics_allow == ()
    listed = world.settings(CLAUDEOPS_METRICS_ALLOW="10.1.0.0/16, 192.0.2.7,fd00::/64").listener.metrics_allow
    assert listed == ("10.1.0.0/16", "192.0.2.7/32", "fd00::/64")


OIDC = {
    "CLAUDEOPS_OIDC_ISSUER": "https://id.example.com/realms/ops/",
    "CLAUDEOPS_OIDC_CLIENT_ID": "claudeops",
    "CLAUDEOPS_OIDC_CLIENT_SECRET": "0123456789",
    "CLAUDEOPS_PUBLIC_URL": "https://ops.example.com, http://10.0.0.5:8080",
}


def test_an_identity_provider_is_one_value_and_none_by_default(world: World) -> None:
    assert world.settings().listener.oidc is None
    client = world.settings(OIDC).listener.oidc
    assert client is not None
    assert (client.issuer, client.claim) == ("https://id.example.com/realms/ops/", "preferred_username")
    assert client.public_urls == ("https://ops.example.com", "http://10.0.0.5:8080")
    assert client.configuration == "https://id.example.com/realms/ops/.well-known/openid-configuration"


def test_an_identity_provider_without_its_libraries_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claudeops.settings.oidc.find_spec", lambda _: None)
    assert world.settings().listener.oidc is None
    with pytest.raises(ConfigurationError, match=r"CLAUDEOPS_OIDC_ISSUER is set.* install claudeops\[oidc\]"):
        world.settings(OIDC)


def test_tiers_that_demand_a_passkey_are_listed_and_a_slip_switches_none_off(world: World) -> None:
    assert world.settings().approvals.passkey_tiers == frozenset()
    assert world.settings(CLAUDEOPS_APPROVAL_PASSKEY="off").approvals.passkey_tiers == frozenset()
    assert world.settings(CLAUDEOPS_APPROVAL_PASSKEY="2, 3").approvals.passkey_tiers == {2, 3}
    for slip in ("three", "0", "off,3", "33", "12", "-1"):
        with pytest.raises(ConfigurationError, match="CLAUDEOPS_APPROVAL_PASSKEY holds"):
            world.settings(CLAUDEOPS_APPROVAL_PASSKEY=slip)


def test_more_tiers_come_by_configuration(world: World) -> None:
    world.file("wizard.md", "you are a wizard")

    *_, tier = world.settings(
        CLAUDEOPS_MAX_TIER="4", CLAUDEOPS_TIER4_MODEL="opus[1m]", CLAUDEOPS_TIER4_PROMPT="wizard.md"
    ).tiers

    assert (tier.number, tier.name, tier.model, tier.prompt_text) == (4, "tier4", "opus[1m]", "you are a wizard")
    assert tier.prompt_path == world.cwd / "wizard.md"
    assert (tier.max_turns, tier.max_budget_usd) == (100, 10)


def test_fewer_tiers_need_none_of_the_others_files(world: World) -> None:
    (world.root / "app" / "prompts" / "tier3-remediate.md").unlink()

    assert [tier.number for tier in world.settings(CLAUDEOPS_MAX_TIER="2").tiers] == [1, 2]


def test_tools_of_a_tier_replace_the_shared_ones(world: World) -> None:
    tiers = world.settings(
        CLAUDEOPS_ALLOWED_TOOLS="Bash(docker ps:*, -a), Read,,Read",
        CLAUDEOPS_TIER2_ALLOWED_TOOLS="mcp__loki__query",
        CLAUDEOPS_DISALLOWED_TOOLS="WebFetch",
        CLAUDEOPS_TIER3_DISALLOWED_TOOLS="Bash(rm:*)",
    ).tiers

    assert [tier.allowed_tools for tier in tiers] == [
        ("Bash(docker ps:*, -a)", "Read"),
        ("mcp__loki__query",),
        ("Bash(docker ps:*, -a)", "Read"),
    ]
    assert [tier.disallowed_tools for tier in tiers] == [("WebFetch",), ("WebFetch",), ("Bash(rm:*)",)]


@pytest.mark.parametrize(
    ("environ", "startup", "silence"),
    [
        pytest.param({"CLAUDEOPS_SESSION_TIMEOUT": "300"}, 60, 270, id="silence"),
        pytest.param({"CLAUDEOPS_SESSION_TIMEOUT": "10"}, 9, 9, id="both"),
        pytest.param({"CLAUDEOPS_SESSION_TIMEOUT": "300", "CLAUDEOPS_SILENCE_TIMEOUT": "299"}, 60, 299, id="set"),
    ],
)
def test_default_timeout_gives_way_to_a_shorter_session(
    world: World, environ: dict[str, str], startup: float, silence: float
) -> None:
    settings = world.settings(environ)

    assert (settings.timeouts.startup_seconds, settings.timeouts.silence_seconds) == (startup, silence)


@pytest.mark.parametrize(
    ("environ", "tiers", "chain", "daily"),
    [
        pytest.param({"CLAUDEOPS_CHAIN_BUDGET_USD": "1"}, [0.5, 1, 1], 1, 25, id="chain"),
        pytest.param({"CLAUDEOPS_DAILY_BUDGET_USD": "5"}, [0.5, 2, 5], 5, 5, id="daily"),
        pytest.param({"CLAUDEOPS_DAILY_BUDGET_USD": "100"}, [0.5, 2, 10], 15, 100, id="higher-daily-raises-nothing"),
    ],
)
def test_default_budget_gives_way_to_a_lower_limit_and_none_rises_by_itself(
    world: World, environ: dict[str, str], tiers: list[float], chain: float, daily: float
) -> None:
    settings = world.settings(environ)

    assert [tier.max_budget_usd for tier in settings.tiers] == tiers
    assert (settings.budgets.chain_usd, settings.budgets.daily_usd) == (chain, daily)


@pytest.mark.parametrize("cron", ["*/30 * * * *", "0 9 * * 0", "0 9 * * 7", "0 9 * * MON-FRI", "0 0 29 2 *"])
def test_cron_is_taken_as_it_stands(world: World, cron: str) -> None:
    settings = world.settings(CLAUDEOPS_CRON=cron, CLAUDEOPS_TIMEZONE="Europe/Berlin", CLAUDEOPS_JITTER="60")

    assert (settings.schedule.cron, settings.schedule.timezone, settings.schedule.jitter_seconds) == (
        cron,
        "Europe/Berlin",
        60,
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        pytest.param("postgres://u:p%40ss@db/ops", "postgresql+psycopg://u:p%40ss@db/ops", id="short-scheme"),
        pytest.param("postgresql://db:5433/ops?sslmode=require", None, id="options"),
        pytest.param("postgresql+psycopg:///ops", "postgresql+psycopg:///ops", id="local-socket"),
        pytest.param(f"postgresql://u@%2Fsrv%2F{'a' * 80}/ops", None, id="socket-longer-than-a-name"),
        pytest.param("sqlite:////srv/ops.db", "sqlite:////srv/ops.db", id="absolute"),
    ],
)
def test_database_url_names_its_driver(world: World, given: str, read: str | None) -> None:
    expected = read or given.replace("postgresql://", "postgresql+psycopg://")

    assert world.settings(CLAUDEOPS_DATABASE_URL=given).places.database_url == expected


def test_relative_database_stays_where_the_daemon_was_started(world: World) -> None:
    assert (
        world.settings(CLAUDEOPS_DATABASE_URL="sqlite:///ops.db").places.database_url == f"sqlite:///{world.cwd}/ops.db"
    )


def test_paths_start_at_the_working_directory_or_at_home(world: World) -> None:
    (world.base / "home" / "keys").mkdir(parents=True)
    world.file("p.md", "look around")

    settings = world.settings(
        CLAUDEOPS_TIER2_HOME="~/keys",
        CLAUDEOPS_TIER2_READ="p.md, ~/keys,p.md",
        CLAUDEOPS_PROMPT="p.md",
        CLAUDEOPS_STATE_DIR="s",
    )

    assert settings.tiers[1].read == (world.cwd / "p.md", world.base / "home" / "keys")
    assert settings.tiers[1].home == world.base / "home" / "keys"
    assert settings.tiers[0].prompt_path == world.cwd / "p.md"
    assert settings.places.state_dir == world.cwd / "s"


def test_sessions_inherit_locale_proxies_and_certificates_only(world: World) -> None:
    passed_on = {"LANG": "C.UTF-8", "LC_TIME": "de_DE", "https_proxy": "http://proxy:3128", "SSL_CERT_FILE": "/ca.pem"}

    settings = world.settings({**passed_on, "AWS_PROFILE": "prod", "EDITOR": "vi", "LC_ALL": ""})

    loopback = "127.0.0.1,localhost,::1"
    assert settings.environment.inherited == {**passed_on, "NO_PROXY": loopback, "no_proxy": loopback}


def test_path_of_the_sessions_does_not_depend_on_where_they_work(world: World) -> None:
    bin_dir = str(world.claude.parent)

    assert world.settings(PATH=f".::node_modules/.bin:{bin_dir}:/usr/bin").environment.path == f"{bin_dir}:/usr/bin"


def test_tier_gets_the_variables_that_it_names_and_no_other_tier_does(world: World) -> None:
    tiers = world.settings(CLAUDEOPS_TIER2_ENV="PGHOST, GRAFANA_TOKEN", PGHOST="db", GRAFANA_TOKEN="glsa_12345").tiers

    assert [dict(tier.env) for tier in tiers] == [{}, {"PGHOST": "db", "GRAFANA_TOKEN": "glsa_12345"}, {}]


def test_values_cannot_be_changed_afterwards(world: World) -> None:
    tier = world.settings().tiers[0]

    with pytest.raises(TypeError):
        tier.env["X"] = "y"  # type: ignore[index]
    with pytest.raises(AttributeError):
        tier.model = "opus"  # type: ignore[misc]


# --- the binary


def test_cli_on_the_path_comes_before_the_bundled_one(world: World) -> None:
    assert world.settings().sessions.claude_bin == world.claude


def test_cli_that_the_operator_names_comes_first(world: World) -> None:
    own = world.file("tools/claude-canary", "#!/bin/sh\n")
    own.chmod(0o755)

    assert world.settings(CLAUDEOPS_CLAUDE_BIN="tools/claude-canary").sessions.claude_bin == own
    assert world.settings(CLAUDEOPS_CLAUDE_BIN="claude").sessions.claude_bin == world.claude


def test_bundled_cli_is_used_where_none_is_on_the_path(world: World) -> None:
    world.claude.unlink()

    bundled = world.settings().sessions.claude_bin

    assert bundled is not None
    assert bundled.parts[-3:] == ("claude_agent_sdk", "_bundled", "claude")
    assert os.access(bundled, os.X_OK)


# --- harnesses


def program(world: World, name: str) -> Path:
    path = world.claude.with_name(name)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_tier_runs_on_its_own_harness_else_on_the_shared_one(world: World) -> None:
    program(world, "codex")
    program(world, "caliban")

    tiers = world.settings(
        CLAUDEOPS_HARNESS="Codex",
        CLAUDEOPS_TIER2_HARNESS="claude",
        CLAUDEOPS_TIER3_HARNESS="caliban",
        CLAUDEOPS_TIER3_MODEL="openai/gpt-5.5",
    ).tiers

    assert [(tier.harness, tier.model) for tier in tiers] == [
        ("codex", "gpt-5-codex"),
        ("claude", "sonnet"),
        ("caliban", "openai/gpt-5.5"),
    ]


def test_model_that_the_operator_sets_holds_on_every_harness(world: World) -> None:
    program(world, "codex")

    tiers = world.settings(CLAUDEOPS_HARNESS="codex", CLAUDEOPS_TIER1_MODEL="gpt-6-mini").tiers

    assert [tier.model for tier in tiers] == ["gpt-6-mini", "gpt-5-codex", "gpt-5-codex"]


def test_only_the_programs_that_some_tier_uses_are_looked_for(world: World) -> None:
    codex = program(world, "codex")
    allowed = {"CLAUDEOPS_ALLOW_UNGATED": "codex"}

    mixed = world.settings(allowed, CLAUDEOPS_TIER1_HARNESS="codex")
    world.claude.unlink()
    alone = world.load(
        allowed, CLAUDEOPS_HARNESS="codex", CLAUDEOPS_CLAUDE_BIN="./nowhere", CLAUDEOPS_CALIBAN_BIN="nowhere"
    )

    assert (mixed.sessions.claude_bin, mixed.sessions.codex_bin, mixed.sessions.caliban_bin) == (
        world.claude,
        codex,
        None,
    )
    assert (alone.settings.sessions.claude_bin, alone.settings.sessions.codex_bin) == (None, codex)
    assert [warning.partition(" ")[0] for warning in alone.warnings] == [
        "CLAUDEOPS_CLAUDE_BIN",
        "CLAUDEOPS_CALIBAN_BIN",
    ]


def test_program_of_a_harness_that_may_not_run_is_not_missed(world: World) -> None:
    assert world.settings(CLAUDEOPS_TIER1_HARNESS="codex").sessions.codex_bin is None


def test_harnesses_without_a_gate_are_allowed_by_name(world: World) -> None:
    assert world.settings().sessions.allow_ungated == ()
    assert world.settings(CLAUDEOPS_ALLOW_UNGATED="codex, caliban").sessions.allow_ungated == ("codex", "caliban")


# --- warnings


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        pytest.param({"CLAUDEOPS_WEBHOOK_MODEL": "haiku"}, "CLAUDEOPS_WEBHOOK_MODEL", id="not-used-yet"),
        pytest.param({"BROWSER_CRED_GRAFANA_USER": "operator"}, "BROWSER_CRED_GRAFANA_USER", id="browser"),
        pytest.param({"CLAUDEOPS_BROWSER_ALLOWED_ORIGINS": "x"}, "BROWSER_ALLOWED_ORIGINS", id="origins"),
        pytest.param({"CLAUDEOPS_SUMMARY_MODEL": "--none of them"}, "CLAUDEOPS_SUMMARY_MODEL", id="summaries"),
        pytest.param({"CLAUDEOPS_TIER5_MODEL": "opus"}, "CLAUDEOPS_TIER5_MODEL", id="tier-above-the-highest"),
    ],
)
def test_known_name_without_effect_is_a_warning(world: World, environ: dict[str, str], named: str) -> None:
    (warning,) = world.load(environ).warnings

    assert named in warning
    assert "no effect" in warning


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CLAUDEOPS_SERVICE_HOST", "10.0.0.7"),
        ("CLAUDEOPS_PORT", "tcp://10.0.0.7:80"),
        ("CLAUDEOPS_PORT_80_TCP_ADDR", "10.0.0.7"),
        ("CLAUDEOPS_DB_SERVICE_PORT_POSTGRES", "5432"),
        ("CLAUDEOPS_DB_PORT_5432_TCP_PROTO", "tcp"),
        ("CLAUDEOPS_DB_PORT", "tcp://10.0.0.8:5432"),
        ("CLAUDEOPS_DASHBOARD_PORT", "tcp://10.0.0.9:8080"),
    ],
)
def test_names_that_kubernetes_makes_for_a_service_are_not_ours(world: World, name: str, value: str) -> None:
    assert world.load({name: value}) == world.load()
