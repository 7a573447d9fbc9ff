"""A daemon whose people log in at an identity provider, as the operator configures it."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.identity_provider import ACCESS_TOKEN, CLIENT_ID, CLIENT_SECRET, IdentityProvider, listening
from support.loopback_http import ask
from support.operating import conclude, operator
from support.ports import kept_port

pytestmark = pytest.mark.anyio

BACK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


async def test_a_user_logs_in_at_the_provider_and_the_log_has_no_secret(tmp_path: Path) -> None:
    provider = IdentityProvider(now=lambda: datetime.now(UTC))
    with kept_port() as port:
        async with listening(provider), operator(tmp_path, haiku=[conclude()]) as node:
            url = f"http://127.0.0.1:{port}"
            settings = {
                "CLAUDEOPS_LISTENER": "on",
                "CLAUDEOPS_DASHBOARD_PORT": str(port),
                "CLAUDEOPS_PUBLIC_URL": url,
                "CLAUDEOPS_OIDC_ISSUER": provider.issuer,
                "CLAUDEOPS_OIDC_CLIENT_ID": CLIENT_ID,
                "CLAUDEOPS_OIDC_CLIENT_SECRET": CLIENT_SECRET,
            }
            async with node.daemon(**settings) as daemon:
                await daemon.until_logged("web_ready")
                assert (await node.run("user", "add", "bea", "--role", "operator", **settings)).code == 0
                page = await ask(f"{url}/login", method="GET")
                assert f"Log in with {provider.issuer.removeprefix('http://')}" in html.unescape(page.body.decode())
                begun = await ask(f"{url}/login/oidc", method="GET")
                kept = begun.headers["set-cookie"].partition(";")[0]
                back = provider.consent(begun.headers["location"])
                ended = await ask(back, method="GET", headers={"cookie": kept, **BACK})
                assert ended.status == 303
                cookie = ended.headers["set-cookie"].partition(";")[0]
                assert b"bea" in (await ask(f"{url}/", method="GET", headers={"cookie": cookie, **BACK})).body
            logged = daemon.output.read_text(encoding="utf-8")
            for secret in (CLIENT_SECRET, ACCESS_TOKEN, *provider.tokens, *provider.verifiers):
                assert secret not in logged


async def test_a_daemon_does_not_start_with_half_a_provider(tmp_path: Path) -> None:
    async with operator(tmp_path, haiku=[conclude()]) as node:
        done = await node.run("run", CLAUDEOPS_OIDC_ISSUER="https://id.example.com")
    assert done.code == 78
    assert "CLAUDEOPS_OIDC_CLIENT_ID and CLAUDEOPS_OIDC_CLIENT_SECRET are not" in done.stderr
