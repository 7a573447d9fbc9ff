"""A daemon that joins others must prove answers by their key and judge by their policy; what else differs may."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest

from claudeops.domain.owner import APPROVAL_KEY, OWNER_LEASE, POLICY, Owner
from claudeops.errors import ConfigurationError
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import NOW, OTHER_OWNER, OWNER
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)
pytestmark = [pytest.mark.anyio, pytest.mark.dialect]

ATTIC: Final = replace(OTHER_OWNER, node="attic", version="1.0")
CELLAR: Final = replace(OWNER, node="cellar", version="1.0")
OURS: Final = {APPROVAL_KEY: "key", POLICY: "policy"}


async def join(store: Store, owner: Owner, digests: Mapping[str, str], *, after: timedelta = timedelta(0)) -> None:
    await store.recovery.reconcile(owner, now=NOW + after, alive=lambda _: True, digests=digests)


def owners(database: Database) -> list[object]:
    return [row["owner"] for row in database.rows("instances")]


async def test_daemons_that_decide_alike_join_and_their_digests_are_on_record_at_once(
    store: Store, database: Database
) -> None:
    await join(store, ATTIC, OURS)
    await join(store, CELLAR, OURS)

    assert [row["digests"] for row in database.rows("instances")] == ['{"approval_key":"key","policy":"policy"}'] * 2


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (
            APPROVAL_KEY,
            "another approval key than node attic.*copy approval.key from the state directory of node attic",
        ),
        (POLICY, "another policy than node attic.*CLAUDEOPS_POLICY_PATH, or stop node attic first"),
    ],
)
async def test_a_daemon_with_another_key_or_policy_is_refused_and_leaves_no_trace(
    store: Store, database: Database, name: str, remedy: str
) -> None:
    await join(store, ATTIC, OURS)
    before = database.rows("instances")

    with pytest.raises(ConfigurationError, match=remedy):
        await join(store, CELLAR, OURS | {name: "another"})

    assert database.rows("instances") == before


async def test_the_policy_of_another_version_is_not_compared_but_its_key_is(store: Store) -> None:
    await join(store, replace(ATTIC, version="0.9"), OURS)

    await join(store, CELLAR, OURS | {POLICY: "another"})
    with pytest.raises(ConfigurationError, match="another approval key"):
        await join(store, replace(CELLAR, name="late"), OURS | {APPROVAL_KEY: "another"})


async def test_other_differences_and_what_the_other_does_not_say_keep_nobody_away(
    store: Store, database: Database
) -> None:
    await join(store, ATTIC, {"probes": "old"})

    await join(store, CELLAR, OURS | {"probes": "new"})

    assert len(owners(database)) == 2


async def test_a_daemon_that_is_dead_or_silent_for_a_lease_keeps_nobody_away(store: Store, database: Database) -> None:
    await join(store, ATTIC, OURS)
    if database.url.startswith("postgresql"):
        database.execute("UPDATE instances SET heartbeat = heartbeat - interval '1 minute'")

    await join(store, CELLAR, {APPROVAL_KEY: "another"}, after=OWNER_LEASE)
    assert len(owners(database)) == 2  # whether it is dead is another question
    await store.recovery.reconcile(
        replace(CELLAR, name="third"), now=NOW + OWNER_LEASE, alive=lambda _: False, digests=OURS
    )
    assert owners(database) == ["third"]
