"""Users: a role and a password, whose changes count for the logins that there are."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from claudeops.domain.access.logins import Login, LoginLink, NewLogin, Role
from claudeops.domain.access.users import NewUser, User
from claudeops.store.store import Store
from support.store_values import NOW, after
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.dialect


async def added(store: Store, name: str = "Bea", role: Role = Role.OPERATOR, hashed: str | None = "hash") -> User:
    new = NewUser(name=name, role=role, password_hash=hashed, created_at=NOW, created_by="ada")
    user = await store.users.add(new)
    assert user is not None
    return user


async def logged_in(store: Store, user: User, digest: str = "cookie") -> Login:
    login = await store.logins.log_in(user, NewLogin(digest=digest, at=NOW))
    assert login is not None
    return login


def link_for(user: User, digest: str = "link") -> LoginLink:
    end = NOW + timedelta(seconds=60)
    return LoginLink(name=user.name, role=user.role, digest=digest, created_at=NOW, expires_at=end, user_id=user.id)


def deeds(database: Database) -> list[object]:
    return [row["message"] for row in database.rows("events")]


async def test_no_two_users_differ_by_capitals_alone_even_if_they_are_added_at_once(store: Store) -> None:
    done: list[User | None] = []

    async def add(name: str) -> None:
        new = NewUser(name=name, role=Role.VIEWER, created_at=NOW, created_by="ada")
        done.append(await store.users.add(new))

    async with anyio.create_task_group() as tasks:
        for name in ("bea", "Bea", "BEA"):
            tasks.start_soon(add, name)

    assert len([user for user in done if user is not None]) == 1
    assert list(await store.users.active()) == ["bea"]


async def test_a_changed_role_counts_for_the_logins_and_the_links_that_there_are(store: Store) -> None:
    user = await added(store, role=Role.ADMIN)
    await logged_in(store, user)
    await store.logins.make_link(link_for(user))
    changed = await store.users.change("BEA", role=Role.VIEWER, password_hash=None, by="ada", now=NOW)
    assert changed is not None
    assert (await store.logins.active(NOW))["cookie"].role is Role.VIEWER
    login = await store.logins.use_link("link", NewLogin(digest="another", at=NOW))
    assert login is not None
    assert (login.name, login.role, login.user_id) == ("Bea", Role.VIEWER, user.id)


async def test_a_removed_user_has_no_login_and_no_link_any_more_and_its_name_is_free(
    store: Store, database: Database
) -> None:
    user, other = await added(store), await added(store, "cleo")
    await logged_in(store, user)
    await logged_in(store, other, "cleos")
    await store.logins.make_link(link_for(user))
    removed = await store.users.remove("bea", by="ada", now=after(minutes=0.5))
    assert removed is not None
    assert (removed.disabled_by, removed.password_hash) == ("ada", None)
    assert set(await store.logins.active(after(minutes=0.5))) == {"cleos"}
    assert await store.logins.use_link("link", NewLogin(digest="late", at=NOW)) is None
    assert await store.logins.log_in(user, NewLogin(digest="late", at=NOW)) is None
    assert await store.users.remove("bea", by="ada", now=NOW) is None
    again = await added(store)
    assert again.id != user.id
    assert set(await store.logins.active(after(minutes=0.5))) == {"cleos"}
    assert "ada has removed the user Bea" in deeds(database)


async def test_a_link_of_a_removed_user_that_was_left_over_begins_nothing(store: Store) -> None:
    user = await added(store)
    await store.users.remove("bea", by="ada", now=NOW)
    await store.logins.make_link(link_for(user))
    assert await store.logins.use_link("link", NewLogin(digest="cookie", at=NOW)) is None


async def test_a_new_password_ends_the_logins_and_an_old_one_that_was_just_verified_begins_none(
    store: Store, database: Database
) -> None:
    user = await added(store)
    await logged_in(store, user)
    changed = await store.users.change("bea", role=None, password_hash="new", by="ada", now=NOW)
    assert changed is not None
    assert changed.password_hash == "new"
    assert await store.logins.active(NOW) == {}
    assert await store.logins.log_in(user, NewLogin(digest="late", at=NOW)) is None
    assert await store.logins.log_in(changed, NewLogin(digest="late", at=NOW)) is not None
    assert "ada has given the user Bea a new password" in deeds(database)
    assert "Bea has logged in as operator" in deeds(database)


async def test_a_user_without_a_password_has_none_that_could_be_right(store: Store) -> None:
    user = await added(store, hashed=None)
    assert await store.logins.log_in(user, NewLogin(digest="cookie", at=NOW)) is None


async def test_a_provider_vouches_for_a_user_with_or_without_a_password_and_the_event_names_it(
    store: Store, database: Database
) -> None:
    for name, hashed in (("Bea", None), ("Cleo", "hash")):
        user = await added(store, name, hashed=hashed)
        before = store.logins.changes
        login = await store.logins.log_in_by("id.example.com", user, NewLogin(digest=name, at=NOW))
        assert login is not None
        assert (login.name, login.user_id, store.logins.changes) == (name, user.id, before + 1)
        assert f"{name} has logged in as operator by id.example.com" in deeds(database)
    assert set(await store.logins.active(NOW)) == {"Bea", "Cleo"}


async def test_no_provider_vouches_for_a_user_who_was_removed(store: Store) -> None:
    user = await added(store, hashed=None)
    await store.users.remove("bea", by="ada", now=NOW)
    await added(store, hashed=None)  # another person of that name
    assert await store.logins.log_in_by("id.example.com", user, NewLogin(digest="late", at=NOW)) is None


async def test_what_may_look_only_stays_so(store: Store) -> None:
    user = await added(store, role=Role.ADMIN)
    await store.logins.log_in(user, NewLogin(digest="cookie", at=NOW, look_only=True))
    assert (await store.logins.active(NOW))["cookie"].look_only


async def test_who_is_not_there_is_not_changed(store: Store) -> None:
    assert await store.users.change("nope", role=Role.ADMIN, password_hash=None, by="ada", now=NOW) is None
    assert await store.users.named("nope") is None
