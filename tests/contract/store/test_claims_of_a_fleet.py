"""Any store: several nodes share a queue, each takes what it has the tier for, and together they keep their limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import anyio
import pytest

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.holds import Capacity
from claudeops.domain.owner import Owner
from claudeops.domain.sessions import Session, Trigger, turn_of
from claudeops.store.store import Store
from claudeops.store.tables import HEAD
from claudeops.structs import replace
from support.store_values import NOW, OTHER_OWNER, OWNER, RULES, after, check, ending, queued, report, wanted
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

LOW: Final = replace(RULES, max_tier=1)
HARBOUR: Final = replace(OTHER_OWNER, name="node-3", node="crane", site="harbour", max_tier=3)
ATTIC: Final = replace(OWNER, max_tier=1)
CELLAR: Final = replace(OTHER_OWNER, max_tier=3)


async def live(store: Store, *owners: Owner) -> None:
    for owner in owners:
        await store.recovery.renew_lease(owner, now=NOW)


async def taken(
    store: Store, owner: Owner, *, rules: EscalationRules = RULES, room: int = 1, above: int | None = None
) -> Sequence[Session]:
    return await store.claims.claim(
        owner,
        rules=rules,
        now=after(minutes=5),
        cli_session_id=lambda: "5e0b1bd8-0000-4000-8000-000000000001",
        log_path=lambda session_id: f"/results/session-{session_id:06}.ndjson",
        room=Capacity(sessions=room, above=above),
    )


# --- a newer release --------------------------------------------------------------------------------------


async def test_daemon_claims_nothing_once_a_newer_release_has_migrated(store: Store, database: Database) -> None:
    await queued(store)

    def migrated(session_id: int) -> str:  # after the look, before the transaction
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        return f"/results/session-{session_id:06}.ndjson"

    try:
        claim = {"rules": RULES, "now": NOW, "cli_session_id": lambda: "5e0b1bd8-0000-4000-8000-000000000001"}
        assert not await store.claims.claim(OWNER, **claim, log_path=migrated)  # type: ignore[arg-type]
        assert not await taken(store, OWNER)
        assert await store.claims.next_due(OWNER, rules=RULES) is None
    finally:
        database.execute("UPDATE alembic_version SET version_num = :head", head=HEAD)
    assert len(await taken(store, OWNER)) == 1


# --- tiers ------------------------------------------------------------------------------------------------


async def test_a_node_leaves_a_tier_that_it_lacks_to_the_node_that_has_it(store: Store, database: Database) -> None:
    await live(store, ATTIC, CELLAR)
    high = await queued(store, wanted(3))
    low = await queued(store)

    assert [each.id for each in await taken(store, ATTIC, rules=LOW, room=2)] == [low.id]
    assert await store.claims.next_due(ATTIC, rules=LOW) is None
    assert database.rows("sessions")[0]["status"] == "queued"
    assert [each.id for each in await taken(store, CELLAR)] == [high.id]


@pytest.mark.parametrize(
    "others", [(), (replace(CELLAR, max_tier=2),), (replace(CELLAR, max_tier=None),)], ids=["alone", "lower", "unknown"]
)
async def test_a_tier_that_no_node_has_ends_as_blocked(
    store: Store, database: Database, others: tuple[Owner, ...]
) -> None:
    await live(store, ATTIC, *others)
    await queued(store, wanted(3))

    assert not await taken(store, ATTIC, rules=LOW)
    (row,) = database.rows("sessions")
    assert (row["outcome"], row["decision_reason"]) == ("blocked", "max_tier")
    assert "the highest tier allowed is 1" in str(row["error"])


async def test_a_node_that_cannot_reach_the_service_does_not_keep_its_session_waiting(
    store: Store, database: Database
) -> None:
    await live(store, ATTIC, HARBOUR)
    await queued(store, wanted(3, site="main"))
    await queued(store, wanted(3, for_node="attic"))

    assert not await taken(store, ATTIC, rules=LOW, room=2)
    assert {row["outcome"] for row in database.rows("sessions")} == {"blocked"}


async def test_a_tier_is_blocked_once_the_node_that_had_it_is_gone(store: Store, database: Database) -> None:
    await live(store, ATTIC, CELLAR)
    await queued(store, wanted(3))
    assert not await taken(store, ATTIC, rules=LOW)
    assert database.rows("sessions")[0]["outcome"] is None
    await store.recovery.depart(CELLAR)

    assert not await taken(store, ATTIC, rules=LOW)
    assert database.rows("sessions")[0]["outcome"] == "blocked"


# --- the order --------------------------------------------------------------------------------------------


async def test_haste_goes_first_among_those_that_became_due_together(store: Store) -> None:
    triggers = (Trigger.SCHEDULED, Trigger.FOLLOW_UP, Trigger.ESCALATION, Trigger.MANUAL, Trigger.ALERT)
    for trigger in triggers:
        await queued(store, wanted(trigger=trigger))

    assert [each.trigger for each in await taken(store, OWNER, room=9)] == list(reversed(triggers))


async def test_a_storm_of_alerts_keeps_no_schedule_waiting_for_more_than_two_minutes(store: Store) -> None:
    scheduled = await queued(store, wanted(trigger=Trigger.SCHEDULED))
    for second in range(0, 240, 60):
        await queued(store, wanted(trigger=Trigger.ALERT), at=NOW + timedelta(seconds=second + 1))

    order = [each.id for each in await taken(store, OWNER, room=9)]
    assert order.index(scheduled.id) == 2  # behind those of the first two minutes


async def test_a_session_that_waits_for_its_time_gets_its_turn_by_that(store: Store) -> None:
    later = await queued(store, wanted(trigger=Trigger.ALERT, not_before=after(minutes=4)))
    sooner = await queued(store, wanted(trigger=Trigger.SCHEDULED), at=after(minutes=1))

    assert [each.id for each in await taken(store, OWNER, room=9)] == [sooner.id, later.id]


def test_no_trigger_waits_longer_than_a_schedule_and_none_goes_before_its_time() -> None:
    turns = {trigger: turn_of(trigger, NOW) - NOW for trigger in Trigger}
    assert min(turns.values()) == turns[Trigger.ALERT] == timedelta()
    assert max(turns.values()) == turns[Trigger.SCHEDULED]
    assert turns[Trigger.MANUAL] == turns[Trigger.API] < turns[Trigger.ESCALATION] < turns[Trigger.FOLLOW_UP]


# --- limits -----------------------------------------------------------------------------------------------


async def test_nodes_together_run_no_more_than_the_limit_in_all(store: Store) -> None:
    await live(store, OWNER, OTHER_OWNER, HARBOUR)
    limited = replace(RULES, most_in_all=3)
    for _ in range(9):
        await queued(store)

    first = await taken(store, OWNER, rules=limited, room=2)
    second = await taken(store, HARBOUR, rules=limited, room=2)
    assert [len(first), len(second), len(await taken(store, OTHER_OWNER, rules=limited, room=2))] == [2, 1, 0]
    await store.queue.finish(ending(first[0], report(check("web"))), rules=limited)
    assert len(await taken(store, OTHER_OWNER, rules=limited, room=2)) == 1


async def test_nodes_of_a_site_run_no_more_than_its_limit_whatever_runs_elsewhere(store: Store) -> None:
    await live(store, OWNER, OTHER_OWNER, HARBOUR)
    limited = replace(RULES, most_of_site=2)
    for _ in range(9):
        await queued(store)

    counts = [len(await taken(store, each, rules=limited, room=4)) for each in (HARBOUR, OWNER, OTHER_OWNER)]
    assert counts == [2, 2, 0]


async def test_a_limit_keeps_a_place_for_the_lowest_tier(store: Store) -> None:
    await live(store, OWNER, OTHER_OWNER)
    limited = replace(RULES, most_in_all=2)
    high = [await queued(store, wanted(2)) for _ in range(3)]
    low = await queued(store, at=after(minutes=1))

    assert [each.id for each in await taken(store, OWNER, rules=limited, room=2)] == [high[0].id, low.id]
    assert not await taken(store, OTHER_OWNER, rules=limited, room=2)


async def test_a_session_whose_owner_is_dead_counts_until_it_is_ended(store: Store) -> None:
    await live(store, OWNER, OTHER_OWNER)
    for _ in range(3):
        await queued(store, wanted(site="main"))
    limited = replace(RULES, most_of_site=1, most_in_all=1)
    assert len(await taken(store, OTHER_OWNER, rules=limited)) == 1
    await store.recovery.depart(OTHER_OWNER)

    assert not await taken(store, OWNER, rules=limited)


async def test_nodes_that_claim_at_once_do_not_pass_the_limit_together(database: Database) -> None:
    limited = replace(RULES, most_in_all=3, most_of_site=3)
    async with opened(database) as one, opened(database) as other:
        await live(one, OWNER, OTHER_OWNER)
        for _ in range(12):
            await queued(one)
        given: list[Session] = []

        async def claim(store: Store, owner: Owner) -> None:
            for _ in range(3):
                given.extend(await taken(store, owner, rules=limited))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(claim, one, OWNER)
            tasks.start_soon(claim, other, OTHER_OWNER)
        assert len({each.id for each in given}) == len(given) == 3
