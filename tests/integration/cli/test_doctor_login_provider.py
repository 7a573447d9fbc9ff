"""What doctor says about the identity provider: one that answers, one that does not, and none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from starlette.responses import Response

from claudeops.cli.doctor.finding import DoctorContext, Finding, FindingStatus
from claudeops.cli.doctor.login_provider import login_provider
from support.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider, listening
from support.settings_world import make_world


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with listening(IdentityProvider()) as listens:
        yield listens


async def look(root: Path, issuer: str = "", **given: str) -> Finding:
    about = {
        "CLAUDEOPS_OIDC_ISSUER": issuer,
        "CLAUDEOPS_OIDC_CLIENT_ID": CLIENT_ID,
        "CLAUDEOPS_OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "CLAUDEOPS_PUBLIC_URL": "https://ops.example.com",
    }
    settings = make_world(root).settings({**(about if issuer else {}), **given}, ANTHROPIC_API_KEY="sk-ant-none")
    return await login_provider(cast("DoctorContext", None), settings)


async def test_no_provider_is_no_fault(tmp_path: Path) -> None:
    assert (await look(tmp_path)).status is FindingStatus.OK


async def test_a_provider_that_answers_is_fine(tmp_path: Path, provider: IdentityProvider) -> None:
    found = await look(tmp_path, provider.issuer)
    assert (found.status, "the claim preferred_username names the user" in found.text) == (FindingStatus.OK, True)
    assert provider.paths() == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/.well-known/openid-configuration", b"<html>", "is no JSON"),
        ("/.well-known/openid-configuration", b"", "is no JSON"),
        ("/keys", b'{"keys": []}', "no key"),
    ],
)
async def test_a_provider_that_does_not_do_its_part_is_said_with_the_remedy(
    tmp_path: Path, provider: IdentityProvider, path: str, body: bytes, says: str
) -> None:
    provider.answers[path] = lambda _: Response(body)
    found = await look(tmp_path, provider.issuer)
    assert (found.status, says in found.text) == (FindingStatus.WARNING, True)
    assert "CLAUDEOPS_OIDC_ISSUER" in str(found.remedy)


async def test_an_issuer_that_differs_by_a_slash_is_another_one(tmp_path: Path, provider: IdentityProvider) -> None:
    found = await look(tmp_path, f"{provider.issuer}/")
    assert (found.status, "a slash at the end counts" in found.text) == (FindingStatus.WARNING, True)


async def test_a_provider_that_is_away_is_said_so(tmp_path: Path) -> None:
    found = await look(tmp_path, "http://127.0.0.1:1")
    assert (found.status, "cannot be reached" in found.text) == (FindingStatus.WARNING, True)


async def test_a_provider_without_pages_is_for_no_person(tmp_path: Path) -> None:
    found = await look(tmp_path, "https://id.example.com", CLAUDEOPS_DASHBOARD="off")
    assert (found.status, "no pages" in found.text) == (FindingStatus.WARNING, True)
