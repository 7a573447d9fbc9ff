"""Secrets and credentials: where they may come from, that all are known to the redactor, that none is shown."""

from __future__ import annotations

import json

import pytest

from claudeops.errors import ConfigurationError
from claudeops.settings import require_credentials
from support.settings_world import World


def test_secret_may_come_from_a_file(world: World) -> None:
    key, url = world.file("key", "sk-ant-from-a-file\n"), world.file("url", "postgresql://u:hunter22@db/ops")

    settings = world.settings(ANTHROPIC_API_KEY_FILE=str(key), CLAUDEOPS_DATABASE_URL_FILE=str(url))

    assert settings.access.api_key == "sk-ant-from-a-file"
    assert settings.places.database_url == "postgresql+psycopg://u:hunter22@db/ops"
    assert settings.secrets == ("sk-ant-from-a-file", "hunter22")


SECRET_PLACES = [
    pytest.param({"ANTHROPIC_API_KEY": "sk-ant-0123456789"}, {"sk-ant-0123456789"}, id="key"),
    pytest.param({"CLAUDE_CODE_OAUTH_TOKEN": "oat-0123456789"}, {"oat-0123456789"}, id="token"),
    pytest.param({"ANTHROPIC_BASE_URL": "https://me:basic-secret@gateway"}, {"basic-secret"}, id="base-url"),
    pytest.param(
        {"CLAUDEOPS_DATABASE_URL": "postgresql://u:p%40ssword@db/ops"}, {"p%40ssword", "p@ssword"}, id="database"
    ),
    pytest.param({"CLAUDEOPS_DATABASE_URL": "postgresql:///ops?password=hunter22"}, {"hunter22"}, id="database-query"),
    pytest.param({"CLAUDEOPS_TARGET_DATABASE_URL": "postgresql://u:hunter22@db/ops"}, {"hunter22"}, id="target"),
    pytest.param({"CLAUDEOPS_CHAT_API_KEY": "chat-0123456789"}, {"chat-0123456789"}, id="chat"),
    pytest.param({"CLAUDEOPS_TRUSTED_PROXY_SECRET": "proxy-0123456789"}, {"proxy-0123456789"}, id="trusted-proxy"),
    pytest.param(
        {
            "CLAUDEOPS_OIDC_ISSUER": "https://id.example.com",
            "CLAUDEOPS_OIDC_CLIENT_ID": "ops",
            "CLAUDEOPS_OIDC_CLIENT_SECRET": "oidc-0123456789",
            "CLAUDEOPS_PUBLIC_URL": "https://ops.example.com",
        },
        {"oidc-0123456789"},
        id="oidc",
    ),
    pytest.param(
        {"CLAUDEOPS_APPRISE_URLS": "discord://1234/averyverylongtoken, mailto://me:mailsecret@example.com"},
        {
            "discord://1234/averyverylongtoken",
            "averyverylongtoken",
            "mailto://me:mailsecret@example.com",
            "mailsecret",
        },
        id="notices",
    ),
    pytest.param(
        {"CLAUDEOPS_HEARTBEAT_URL": "https://hc.example/0123456789abcdef"},
        {"https://hc.example/0123456789abcdef", "0123456789abcdef"},
        id="heartbeat",
    ),
    pytest.param({"BROWSER_CRED_GRAFANA_PASS": "correct horse"}, {"correct horse"}, id="browser"),
    pytest.param(
        {"CLAUDEOPS_TIER1_ENV": "GRAFANA_TOKEN,DEBUG", "GRAFANA_TOKEN": "glsa_12345", "DEBUG": "verbose"},
        {"glsa_12345"},
        id="handed-to-a-tier",
    ),
    pytest.param({"HTTPS_PROXY": "http://me:proxysecret@proxy:3128"}, {"proxysecret"}, id="proxy"),
]


@pytest.mark.parametrize(("environ", "secrets"), SECRET_PLACES)
def test_every_secret_is_known_to_the_redactor(world: World, environ: dict[str, str], secrets: set[str]) -> None:
    assert set(world.settings(environ).secrets) == secrets


@pytest.mark.parametrize(("environ", "secrets"), SECRET_PLACES)
def test_no_secret_shows_in_a_repr_or_a_warning(world: World, environ: dict[str, str], secrets: set[str]) -> None:
    loaded = world.load(environ)

    shown = repr(loaded) + repr(loaded.settings.tiers)
    assert [secret for secret in secrets if secret in shown] == []


def test_secrets_of_mcp_servers_are_known_too(world: World) -> None:
    servers = {
        "loki": {"command": "loki-mcp", "env": {"LOKI_TOKEN": "loki-secret", "LOKI_URL": "http://loki"}},
        "grafana": {"url": "https://grafana", "headers": {"Authorization": "Bearer grafana-secret"}},
    }
    world.file("mcp.json", json.dumps({"mcpServers": servers}))

    settings = world.settings(CLAUDEOPS_MCP_CONFIG="mcp.json")

    assert settings.mcp.config == servers
    assert settings.secrets == ("Bearer grafana-secret", "grafana-secret", "loki-secret")


def test_longest_secret_comes_first(world: World) -> None:
    settings = world.settings(ANTHROPIC_API_KEY="sk-ant-abcdef", BROWSER_CRED_X_TOKEN="sk-ant-abcdef-and-more")

    assert settings.secrets == ("sk-ant-abcdef-and-more", "sk-ant-abcdef")


def test_short_secret_is_a_warning_and_no_rule(world: World) -> None:
    loaded = world.load(CLAUDEOPS_TIER1_ENV="DB_PASS", DB_PASS="abc")

    assert loaded.settings.secrets == ()
    (warning,) = loaded.warnings
    assert "DB_PASS" in warning
    assert "abc" not in warning


# --- credentials


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"])
def test_one_way_to_the_model_is_enough(world: World, name: str) -> None:
    require_credentials(world.settings({name: "https://gateway.example"}))


def test_no_way_to_the_model_is_refused_only_when_asked(world: World) -> None:
    settings = world.settings()

    with pytest.raises(ConfigurationError, match=r"set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN"):
        require_credentials(settings)


def test_no_way_to_claudes_model_is_needed_where_no_tier_runs_on_claude(world: World) -> None:
    codex = world.file("codex", "#!/bin/sh\n")
    codex.chmod(0o755)

    require_credentials(world.settings(CLAUDEOPS_HARNESS="codex", CLAUDEOPS_CODEX_BIN="./codex"))


PROVIDER = {"CLAUDEOPS_TIER1_ENV": "CLAUDE_CODE_USE_VERTEX,ANTHROPIC_VERTEX_PROJECT_ID", "CLAUDEOPS_MAX_TIER": "1"}
VERTEX = {**PROVIDER, "CLAUDE_CODE_USE_VERTEX": "1", "ANTHROPIC_VERTEX_PROJECT_ID": "estate"}


def test_no_key_is_needed_where_every_tier_asks_another_provider(world: World) -> None:
    settings = world.settings({**VERTEX, "CLAUDEOPS_METER": "off"})

    require_credentials(settings)
    assert settings.tiers[0].env == {"CLAUDE_CODE_USE_VERTEX": "1", "ANTHROPIC_VERTEX_PROJECT_ID": "estate"}
    with pytest.raises(ConfigurationError, match="no access to the model API"):
        require_credentials(world.settings({**VERTEX, "CLAUDEOPS_METER": "off", "CLAUDEOPS_MAX_TIER": "2"}))
    with pytest.raises(ConfigurationError, match="no access to the model API"):
        require_credentials(world.settings({**VERTEX, "CLAUDEOPS_METER": "off", "CLAUDE_CODE_USE_VERTEX": "0"}))


def test_a_provider_that_leads_past_the_meter_is_refused_beside_it(world: World) -> None:
    with pytest.raises(ConfigurationError, match="leads the CLI past the meter: set CLAUDEOPS_METER to off"):
        world.settings(VERTEX)
