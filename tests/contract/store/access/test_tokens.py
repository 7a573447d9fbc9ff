"""Any store: who may call the daemon."""

from __future__ import annotations

from datetime import datetime

import pytest

from claudeops.domain.access.tokens import NewToken, TokenState
from claudeops.store.store import Store
from support.store_values import NOW, after
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)


def new(name: str = "am", *, expires_at: datetime | None = None) -> NewToken:
    return NewToken(
        name=name,
        scopes=("alerts:prometheus", "read"),
        digest="0123",
        created_at=NOW,
        created_by="ada",
        expires_at=expires_at,
    )


async def test_a_token_is_kept_as_it_was_made(database: Database) -> None:
    async with opened(database) as store:
        made = await store.tokens.create(new(expires_at=after(days=1)))

        assert list(await store.tokens.known()) == [made]
        assert (made.scopes, made.digest, made.expires_at) == (("alerts:prometheus", "read"), "0123", after(days=1))
        assert made.state(NOW) is TokenState.ACTIVE


async def test_only_what_opens_something_is_active(database: Database) -> None:
    async with opened(database) as store:
        forever, short, gone = [
            await store.tokens.create(new(name, expires_at=end))
            for name, end in (("forever", None), ("short", after(minutes=1)), ("gone", None))
        ]
        revoked = await store.tokens.revoke(gone.id, by="ada", now=NOW)

        assert revoked is not None
        assert (revoked.revoked_at, revoked.revoked_by) == (NOW, "ada")
        assert set(await store.tokens.active(NOW)) == {forever.id, short.id}
        assert set(await store.tokens.active(after(minutes=1))) == {forever.id}


async def test_what_is_revoked_or_unknown_is_not_revoked_again(database: Database) -> None:
    async with opened(database) as store:
        made = await store.tokens.create(new())
        await store.tokens.revoke(made.id, by="ada", now=NOW)

        assert await store.tokens.revoke(made.id, by="eve", now=after(minutes=1)) is None
        assert await store.tokens.revoke(99, by="eve", now=NOW) is None
        assert [one.revoked_by for one in await store.tokens.known()] == ["ada"]


@pytest.mark.dialect
async def test_the_last_use_never_goes_back(database: Database) -> None:
    async with opened(database) as store:
        one, other = await store.tokens.create(new()), await store.tokens.create(new())
        await store.tokens.used({})
        await store.tokens.used({one.id: after(minutes=2), 99: NOW})
        await store.tokens.used({one.id: after(minutes=1)})

        assert [used.last_used_at for used in await store.tokens.known()] == [after(minutes=2), None]
        assert other.last_used_at is None


@pytest.mark.dialect
async def test_an_id_is_never_given_twice(store: Store) -> None:
    assert [(await store.tokens.create(new())).id for _ in range(3)] == [1, 2, 3]
