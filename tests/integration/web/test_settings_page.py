"""The settings as a page: whoever may look sees what is in effect, and no secret, wherever in a value it stands."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from claudeops.domain.access.logins import Role
from claudeops.domain.answers import plain
from claudeops.settings import load_settings
from claudeops.settings.model import KNOWN
from claudeops.settings.shown import effective, shown
from support.listening import bearer
from support.paged import SiteDoor, site_door

PLANTED = "hunter2hunter2"


def environ_in(directory: Path) -> dict[str, str]:
    """Return an environment with a secret at every place that takes one."""
    key = directory / "key"
    key.write_text(f"sk-{PLANTED}", encoding="utf-8")
    made = {name: f"https://ann:{PLANTED}@x.example/{PLANTED}" for name, one in KNOWN.items() if one.secret}
    del made["CLAUDE_CODE_OAUTH_TOKEN"], made["ANTHROPIC_API_KEY"]
    return made | {
        "ANTHROPIC_API_KEY_FILE": str(key),
        "ANTHROPIC_BASE_URL": f"https://ann:{PLANTED}@gateway.example/v1?key={PLANTED}",
        "CLAUDEOPS_DATABASE_URL": f"postgresql://ann:{PLANTED}@db.example/ops?password={PLANTED}",
        "CLAUDEOPS_TARGET_DATABASE_URL": f"postgresql://ann:{PLANTED}@db.example/ops?password={PLANTED}",
        "CLAUDEOPS_APPRISE_URLS": f"json://{PLANTED}@receiver.example",
        "CLAUDEOPS_OIDC_ISSUER": "https://id.example.com",
        "CLAUDEOPS_OIDC_CLIENT_ID": "ops",
        "CLAUDEOPS_PUBLIC_URL": "https://ops.example.com",
        "CLAUDEOPS_STATE_DIR": str(directory / "state"),
        "CLAUDEOPS_DAILY_BUDGET_USD": "3",
    }


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    environ = environ_in(tmp_path)
    settings = load_settings(environ, cwd=tmp_path).settings
    async with site_door(tmp_path) as made:
        made.site.settings = lambda: shown(environ, settings)
        yield made


async def test_no_secret_reaches_the_page_nor_the_api_not_even_an_admins(site: SiteDoor, tmp_path: Path) -> None:
    cookie = await site.login(Role.ADMIN)
    assert "gateway.example/v1" in (await site.get("/settings?name=BASE_URL", cookie)).body.decode()
    assert PLANTED not in repr(shown(environ_in(tmp_path), None))  # where nothing is known to be a secret
    for path in ("/settings", "/settings?set=true", "/settings?name=KEY", "/api/v1/settings"):
        for headers in (cookie, bearer(2)):
            answer = await site.get(path, headers)
            assert answer.status == 200
            assert PLANTED not in html.unescape(answer.body.decode())


async def test_what_is_planted_would_show_if_it_were_not_masked(tmp_path: Path) -> None:
    environ = environ_in(tmp_path)
    masked = [one.name for one in shown(environ, None) if one.secret and one.value is not None]
    assert len(masked) >= 4
    assert sum(PLANTED in environ.get(name, "") for name in masked) >= 3


async def test_a_secret_is_set_or_unset_and_its_file_is_named(site: SiteDoor, tmp_path: Path) -> None:
    text = html.unescape((await site.get("/settings?name=ANTHROPIC_API_KEY", bearer(2))).body.decode())
    assert ">set<" in text
    assert f"file {tmp_path / 'key'}" in text
    assert "********" not in text
    assert ">unset<" in (await site.get("/settings?name=CLAUDE_CODE_OAUTH_TOKEN", bearer(2))).body.decode()


async def test_the_api_answers_with_what_the_command_prints(site: SiteDoor, tmp_path: Path) -> None:
    environ = environ_in(tmp_path)
    found, fault = effective(environ, cwd=tmp_path)
    assert fault is None
    assert (await site.get("/api/v1/settings", bearer(2))).json["items"] == plain(tuple(found))


async def test_only_what_an_operator_has_set_and_only_what_the_name_has_is_shown(site: SiteDoor) -> None:
    text = (await site.get("/settings?name=budget&set=true", bearer(2))).body.decode()
    assert "CLAUDEOPS_DAILY_BUDGET_USD" in text
    assert "CLAUDEOPS_CHAIN_BUDGET_USD" not in text
    assert "CLAUDEOPS_STATE_DIR" not in text
