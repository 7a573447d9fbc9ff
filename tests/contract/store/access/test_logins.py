"""Logins of people: a link is used once, and a login can be ended."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from claudeops.domain.access.logins import IDLE, LONGEST, Login, LoginLink, NewLogin, Role
from claudeops.store.store import Store
from support.store_values import NOW, after
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.dialect

LINK = LoginLink(name="ada", role=Role.ADMIN, digest="link", created_at=NOW, expires_at=NOW + timedelta(seconds=60))


async def logged_in(store: Store, digest: str = "cookie") -> Login:
    await store.logins.make_link(LINK)
    login = await store.logins.use_link("link", NewLogin(digest=digest, at=NOW))
    assert login is not None
    return login


async def test_a_link_begins_one_login_however_many_browsers_use_it_at_once(store: Store) -> None:
    await store.logins.make_link(LINK)
    begun: list[Login | None] = []

    async def use(number: int) -> None:
        begun.append(await store.logins.use_link("link", NewLogin(digest=f"cookie {number}", at=NOW)))

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(use, number)

    (login,) = [one for one in begun if one is not None]
    assert (login.name, login.role, login.expires_at) == ("ada", Role.ADMIN, NOW + LONGEST)
    assert set(await store.logins.active(NOW)) == {login.digest}


async def test_a_link_that_is_over_begins_nothing(store: Store) -> None:
    await store.logins.make_link(LINK)
    assert await store.logins.use_link("link", NewLogin(digest="cookie", at=after(minutes=1))) is None
    assert await store.logins.use_link("another", NewLogin(digest="cookie", at=NOW)) is None


async def test_a_login_that_was_ended_or_not_used_opens_nothing(store: Store) -> None:
    login = await logged_in(store)
    await store.logins.used({login.id: NOW + IDLE})
    assert "cookie" in await store.logins.active(NOW + IDLE)
    await store.logins.used({login.id: NOW})  # late news of an earlier use
    assert "cookie" in await store.logins.active(NOW + IDLE)
    assert await store.logins.active(NOW + 2 * IDLE) == {}
    await store.logins.end(login.id, now=NOW)
    assert await store.logins.active(NOW) == {}


async def test_no_secret_of_a_login_is_kept_and_old_rows_go(store: Store, database: Database) -> None:
    first = await logged_in(store)
    await store.logins.end(first.id, now=NOW)
    await logged_in(store, "another")
    assert [row["digest"] for row in database.rows("web_sessions")] == ["another"]
    assert database.rows("login_links") == []
