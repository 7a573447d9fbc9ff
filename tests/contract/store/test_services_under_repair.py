"""Any store: one chain at a time changes a service, keeps it until it ends, and leaves it behind when it dies."""

from __future__ import annotations

from typing import Final

import anyio
import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.commands import StopTarget
from claudeops.domain.gate.granted import GRANT_SECONDS
from claudeops.domain.owner import SERVICE_SECONDS
from claudeops.domain.sessions import Session
from claudeops.store.acts.services import held
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import (
    NOW,
    OTHER_OWNER,
    RULES,
    after,
    alarm,
    allow,
    call,
    check,
    claimed,
    ending,
    gone,
    queued,
    recorded,
    report,
    restart,
    rules,
    started,
    wanted,
)
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

ENDED_LONG_AGO: Final = "UPDATE leases SET ends_at = '2000-01-01 00:00:00.000000'"


async def acting(store: Store, *, at: float = 0) -> Session:
    return await started(store, wanted(2), at=after(minutes=at))


async def restarts(store: Store, session: Session, *services: str, number: int = 1, at: float = 0) -> Verdict:
    actions = tuple(map(restart, services or ("web",)))
    return await recorded(store, session, f"toolu_{session.id}_{number}", allow(*actions), at=after(minutes=at))


async def in_hand(store: Store, *, at: float = 0) -> dict[str, int]:
    found = await store.database.read(lambda connection: held(connection, now=after(minutes=at)))
    return {each.service: each.chain for each in found}


async def test_two_chains_that_race_for_a_service_are_not_both_allowed(database: Database) -> None:

    async def act(store: Store, session: Session, verdicts: list[Verdict]) -> None:
        verdicts.append(await restarts(store, session))

    async with opened(database) as one, opened(database) as other:
        for _ in range(10):
            first, second = await acting(one), await acting(one)
            given: list[Verdict] = []

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(act, one, first, given)
                tasks.start_soon(act, other, second, given)
            assert sorted(each.kind for each in given) == [VerdictKind.ALLOW, VerdictKind.DENY]
            for session in (first, second):
                await one.queue.finish(ending(session, report(check("web"))), rules=RULES)
            database.execute("UPDATE cooldown_actions SET cleared_at = timestamp")
            database.execute("DELETE FROM sessions WHERE status = 'queued'")  # a look at what was changed


async def test_the_second_chain_reads_who_has_the_service_since_when_and_what_to_do(
    store: Store, database: Database
) -> None:
    first, second = await acting(store), await acting(store)
    await restarts(store, first, at=1)
    denied = await restarts(store, second, at=7)

    assert denied.kind is VerdictKind.DENY
    assert denied.reason == (
        "restart of web refused: chain 1 has it under repair since 2026-03-01 12:01 UTC, and one chain at a time "
        "changes a service; wait until that chain has ended, or escalate to people with what you see."
    )
    assert [(row["session_id"], row["verdict"]) for row in database.rows("tool_calls")] == [(1, "allow"), (2, "deny")]
    assert [row["session_id"] for row in database.rows("cooldown_actions")] == [1]
    (event,) = database.rows("events")
    assert (event["level"], event["service"], event["message"]) == ("info", "web", denied.reason)
    assert await in_hand(store) == {"web": 1}


async def test_a_chain_gives_its_services_back_when_it_ends(store: Store) -> None:
    first, second = await acting(store), await acting(store)
    await restarts(store, first, "web", "db")
    assert await in_hand(store) == {"db": 1, "web": 1}
    await store.queue.finish(ending(first, report(check("web"), check("db"))), rules=RULES)

    assert await in_hand(store) == {}
    assert (await restarts(store, second)).kind is VerdictKind.ALLOW
    assert await in_hand(store) == {"web": 2}


async def test_the_next_tier_of_a_chain_keeps_its_services(store: Store) -> None:
    first, second = await acting(store), await acting(store)
    await restarts(store, first)
    done = await store.queue.finish(ending(first, alarm()), rules=RULES)
    assert done.next_session_id is not None
    assert await in_hand(store) == {"web": 1}
    assert (await restarts(store, second)).kind is VerdictKind.DENY
    higher = await claimed(store, at=after(minutes=3))
    assert higher is not None
    assert higher.root_session_id == first.id
    assert (await restarts(store, higher, at=3)).kind is VerdictKind.ALLOW


async def test_a_lease_ends_by_itself_and_is_longer_than_any_call(store: Store, database: Database) -> None:
    first, second = await acting(store), await acting(store)
    await restarts(store, first)
    assert SERVICE_SECONDS > GRANT_SECONDS
    database.execute(ENDED_LONG_AGO)

    assert await in_hand(store) == {}
    assert (await restarts(store, second)).kind is VerdictKind.ALLOW
    assert (await restarts(store, first, number=2)).kind is VerdictKind.DENY, "it is the other chain's by now"


async def test_a_chain_that_was_taken_over_keeps_its_services(store: Store, database: Database) -> None:
    first, second = await acting(store), await acting(store)
    await restarts(store, first)
    orphans = (await store.recovery.reconcile(OTHER_OWNER, now=after(minutes=5), alive=lambda _: False)).sessions
    taken, other = orphans
    assert (taken.id, other.id) == (first.id, second.id)
    assert (await restarts(store, other, number=2, at=5)).kind is VerdictKind.DENY

    database.execute(ENDED_LONG_AGO)
    await store.recovery.renew_lease(OTHER_OWNER, now=after(minutes=20))
    assert (await restarts(store, other, number=3, at=21)).kind is VerdictKind.DENY
    assert (await restarts(store, taken, number=2, at=21)).kind is VerdictKind.ALLOW


async def test_a_chain_that_is_lost_leaves_its_service_until_no_call_of_it_can_run(
    store: Store, database: Database
) -> None:
    first = await acting(store)
    await restarts(store, first)
    for minute in (1, 2):  # its recovery is lost as well
        await gone(store, at=after(minutes=minute), owner=replace(OTHER_OWNER, name=f"node-{minute + 2}"))
        await claimed(store, at=after(minutes=minute))
    assert {(row["root_session_id"], row["outcome"]) for row in database.rows("sessions")[:2]} == {(1, "lost")}
    second = await acting(store, at=3)
    assert (await restarts(store, second, at=3)).kind is VerdictKind.DENY
    database.execute(ENDED_LONG_AGO)
    assert (await restarts(store, second, number=2, at=3)).kind is VerdictKind.ALLOW


async def test_a_chain_whose_next_tier_is_cancelled_gives_its_services_back(store: Store) -> None:
    first = await acting(store)
    await restarts(store, first)
    await store.queue.finish(ending(first, alarm()), rules=RULES)
    assert await in_hand(store) == {"web": 1}
    await store.queue.end_queued(StopTarget(chain=first.id), why="by alice", rules=RULES, now=after(minutes=2))
    assert await in_hand(store) == {}


async def test_a_cancelled_session_takes_nothing_from_one_of_its_chain_that_runs(store: Store) -> None:
    first = await acting(store)
    await restarts(store, first)
    beside = await queued(store, wanted(1, parent_session_id=first.id))
    await store.queue.end_queued(StopTarget(session_id=beside.id), why="by alice", rules=RULES, now=NOW)
    assert await in_hand(store) == {"web": 1}


async def test_of_several_services_all_are_taken_or_none(store: Store) -> None:
    first, second = await acting(store), await acting(store)
    await restarts(store, first, "db")
    assert (await restarts(store, second, "web", "db")).kind is VerdictKind.DENY
    assert await in_hand(store) == {"db": 1}
    assert (await restarts(store, first, "web", "db", number=2)).kind is VerdictKind.ALLOW


async def test_nobody_is_asked_about_what_another_chain_has_in_hand(store: Store) -> None:
    first, second = await acting(store), await acting(store)
    asks = replace(allow(restart()), kind=VerdictKind.ASK)
    assert (await recorded(store, first, "toolu_1", asks)).kind is VerdictKind.ASK
    assert await in_hand(store) == {}, "a question takes nothing"
    await restarts(store, second)
    assert (await recorded(store, first, "toolu_2", asks)).kind is VerdictKind.DENY


async def test_a_dry_run_takes_no_service(store: Store) -> None:
    session = await acting(store)
    dry = rules(dry_run=True)
    made = {"redacted_input": "{}", "rules": dry, "requested_at": NOW, "now": NOW}
    await store.calls.record_call(session, call(), allow(restart()), **made)  # type: ignore[arg-type]
    assert await in_hand(store) == {}
