"""The way to the model API that the settings describe."""

from __future__ import annotations

from claudeops.app.meter import upstream
from claudeops.harness.protocol import CredentialKind
from support.settings_world import World


def test_an_api_key_goes_to_the_public_address(world: World) -> None:
    way = upstream(world.load(ANTHROPIC_API_KEY="sk-ant-api03-a-key").settings)
    assert (way.url, way.credential, way.secret) == (
        "https://api.anthropic.com",
        CredentialKind.API_KEY,
        "sk-ant-api03-a-key",
    )
    assert "sk-ant" not in repr(way)


def test_a_token_is_used_as_one_and_a_gateway_may_need_none(world: World) -> None:
    way = upstream(world.load(CLAUDE_CODE_OAUTH_TOKEN="sk-ant-oat01-a-token").settings)
    assert (way.credential, way.secret) == (CredentialKind.OAUTH_TOKEN, "sk-ant-oat01-a-token")
    gateway = upstream(world.load(ANTHROPIC_BASE_URL="http://gateway/x/").settings)
    assert (gateway.url, gateway.secret) == ("http://gateway/x", None)


def test_the_proxy_is_used_with_its_password_which_sessions_do_not_get(world: World) -> None:
    settings = world.load(HTTPS_PROXY="http://user:pass-word-7@proxy:3128").settings
    assert upstream(settings).proxy == "http://user:pass-word-7@proxy:3128"
    assert "pass-word-7" not in str(dict(settings.environment.inherited))


def test_what_is_on_this_machine_needs_no_proxy(world: World) -> None:
    settings = world.load(HTTP_PROXY="http://proxy:3128", ANTHROPIC_BASE_URL="http://127.0.0.1:8080").settings
    assert upstream(settings).proxy is None
