"""The operator's MCP file, and what proxies sessions are told of."""

from __future__ import annotations

import json

import pytest

from claudeops.errors import ConfigurationError
from support.settings_world import World


def with_servers(world: World, servers: object) -> dict[str, str]:
    world.file("mcp.json", json.dumps({"mcpServers": servers}))
    return {"CLAUDEOPS_MCP_CONFIG": "mcp.json"}


def test_variables_are_filled_in_from_the_daemons_environment_and_known_to_the_redactor(world: World) -> None:
    server = {
        "command": "${MCP_DIR:-/opt/mcp}/loki",
        "args": ["--token", "${LOKI_TOKEN}"],
        "env": {"WHERE": "${WHERE:-here}"},
    }
    given = with_servers(world, {"loki": server})

    settings = world.settings(given, LOKI_TOKEN="token-of-loki")

    assert settings.mcp.config == {
        "loki": {"command": "/opt/mcp/loki", "args": ["--token", "token-of-loki"], "env": {"WHERE": "here"}}
    }
    assert settings.secrets == ("token-of-loki",)
    assert "token-of-loki" not in repr(settings)


def test_without_a_file_there_are_no_servers(world: World) -> None:
    assert world.settings().mcp.config is None


REFUSED = {
    "a variable that is not set": ({"x": {"command": "a", "env": {"T": "${NOT_SET}"}}}, "NOT_SET"),
    "a secret of the daemon": ({"x": {"command": "a", "env": {"T": "${ANTHROPIC_API_KEY}"}}}, "the daemon's alone"),
    "nothing to start or to ask": ({"x": {"args": []}}, "neither"),
    "a name that makes no tool": ({"a b": {"command": "a"}}, "'a b'"),
    "arguments that are a text": ({"x": {"command": "a", "args": "b"}}, '"args"'),
    "an environment of numbers": ({"x": {"command": "a", "env": {"T": 1}}}, '"env"'),
}


@pytest.mark.parametrize(("servers", "words"), REFUSED.values(), ids=REFUSED)
def test_a_server_that_could_not_be_started_is_refused_at_the_start(
    world: World, servers: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigurationError, match="CLAUDEOPS_MCP_CONFIG") as caught:
        world.settings(with_servers(world, servers), ANTHROPIC_API_KEY="sk-ant-key-of-the-daemon")
    assert words in str(caught.value)
    assert "sk-ant" not in str(caught.value)


def test_files_with_secrets_and_configuration_are_known_to_the_cell(world: World) -> None:
    key = world.file("key", "sk-ant-from-a-file")
    given = with_servers(world, {})

    settings = world.settings(given, ANTHROPIC_API_KEY_FILE=str(key))

    assert set(settings.private_files) == {key, world.cwd / "mcp.json"}


# --- proxies


def test_a_proxys_password_is_not_passed_on_and_that_is_said(world: World) -> None:
    loaded = world.load(HTTPS_PROXY="http://me:proxysecret@proxy:3128/", https_proxy="me:proxysecret@proxy:3128")

    passed = loaded.settings.environment.inherited
    assert (passed["HTTPS_PROXY"], passed["https_proxy"]) == ("http://proxy:3128/", "proxy:3128")
    assert [warning.split()[0] for warning in loaded.warnings] == ["HTTPS_PROXY", "https_proxy"]
    assert "proxysecret" not in str(loaded.warnings)


def test_a_tier_may_be_handed_the_whole_proxy_by_name(world: World) -> None:
    whole = "http://me:proxysecret@proxy:3128"

    settings = world.settings(HTTPS_PROXY=whole, CLAUDEOPS_TIER2_ENV="HTTPS_PROXY")

    assert [tier.env.get("HTTPS_PROXY") for tier in settings.tiers] == [None, whole, None]


def test_what_a_session_asks_of_its_own_machine_goes_through_no_proxy(world: World) -> None:
    settings = world.settings(https_proxy="http://proxy:3128", no_proxy="intranet,localhost")

    assert settings.environment.inherited["no_proxy"] == "intranet,localhost,127.0.0.1,::1"
    assert settings.environment.inherited["NO_PROXY"] == "127.0.0.1,localhost,::1"


def test_the_daemon_keeps_the_proxies_as_they_are_and_shows_none(world: World) -> None:
    settings = world.load(HTTPS_PROXY="http://user:pass-word-7@proxy:3128", http_proxy="").settings
    assert settings.environment.proxies == {"HTTPS_PROXY": "http://user:pass-word-7@proxy:3128"}
    assert "pass-word-7" not in repr(settings)
    assert "pass-word-7" in settings.secrets
