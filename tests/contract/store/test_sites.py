"""Any store: a session runs where it can reach what it is about, and so does all that follows from it."""

from __future__ import annotations

from typing import Final

import pytest

from claudeops.domain.actions import Action
from claudeops.domain.calls import ToolEnd
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.sessions import Outcome, Session, Trigger
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import probe, turned
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    alarm,
    allow,
    check,
    claimed,
    ending,
    gone,
    queued,
    recorded,
    report,
    wanted,
)
from support.stores import Database, opened
from support.told import failed

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

HARBOUR: Final = replace(OTHER_OWNER, name="node-3", node="crane", site="harbour")
"""A node elsewhere; `OWNER` and `OTHER_OWNER` are of one site."""

FOLLOWED: Final = replace(RULES, follow_up_seconds=900.0)


async def claimed_id(store: Store, owner: object = OWNER, *, minutes: float = 0) -> int | None:
    taken = await claimed(store, owner=owner, at=after(minutes=minutes))  # type: ignore[arg-type]  # as given
    return taken.id if taken else None


async def follower(store: Store, session: Session) -> Session:
    return (await store.records.chain(session.root_session_id))[-1]


async def test_a_daemon_that_is_alone_leaves_nothing_to_sites_that_have_no_nodes(store: Store) -> None:
    there, machine = await queued(store, wanted(site="harbour")), await queued(store, wanted(for_node="crane"))
    alone = replace(OWNER, is_alone=True)

    assert await store.claims.next_due(OWNER, rules=RULES) is None
    assert await store.claims.next_due(alone, rules=RULES) is not None
    assert [await claimed_id(store), await claimed_id(store, alone), await claimed_id(store, alone)] == [
        None,
        there.id,
        machine.id,
    ]


async def test_a_session_of_another_site_is_left_to_the_nodes_there(store: Store) -> None:
    there = await queued(store, wanted(site="harbour"))
    anywhere = await queued(store)
    here = await queued(store, wanted(site="main"))

    assert (there.site, anywhere.site, here.site) == ("harbour", None, "main")
    assert [await claimed_id(store), await claimed_id(store), await claimed_id(store)] == [anywhere.id, here.id, None]
    assert await store.claims.next_due(OWNER, rules=RULES) is None
    assert await store.claims.next_due(HARBOUR, rules=RULES) == NOW
    assert [await claimed_id(store, HARBOUR), await claimed_id(store, HARBOUR)] == [there.id, None]


async def test_a_node_whose_site_has_no_name_takes_what_any_node_may(store: Store) -> None:
    await queued(store, wanted(site="main"))
    anywhere = await queued(store)
    unnamed = replace(OWNER, site="", node="")

    assert [await claimed_id(store, unnamed), await claimed_id(store, unnamed)] == [anywhere.id, None]


async def test_a_crowd_of_another_site_keeps_no_own_session_waiting(store: Store) -> None:
    for _ in range(60):  # more than a look takes
        await queued(store, wanted(site="harbour"))
    own = await queued(store)

    assert await claimed_id(store) == own.id


async def test_a_conversation_goes_on_at_the_machine_that_has_its_log_alone(store: Store) -> None:
    resumed = await queued(store, wanted(for_node="cellar"))

    assert resumed.for_node == "cellar"
    assert await claimed_id(store) is None
    assert await store.claims.next_due(OWNER, rules=RULES) is None
    assert await claimed_id(store, OTHER_OWNER) == resumed.id


async def test_the_next_tier_stays_at_the_site_and_is_bound_to_no_machine(store: Store) -> None:
    await queued(store, wanted(site="harbour", for_node="crane"))
    session = await claimed(store, owner=HARBOUR)
    assert session is not None
    await store.queue.finish(ending(session, alarm()), rules=RULES)

    next_tier = await follower(store, session)
    assert (next_tier.trigger, next_tier.site, next_tier.for_node) == (Trigger.ESCALATION, "harbour", None)
    assert [await claimed_id(store), await claimed_id(store, HARBOUR)] == [None, next_tier.id]


async def test_a_retry_and_a_recovery_stay_at_the_site(store: Store) -> None:
    await queued(store, wanted(site="harbour"))
    first = await claimed(store, owner=HARBOUR)
    assert first is not None
    await store.queue.finish(ending(first, outcome=Outcome.NO_RESULT), rules=RULES)
    retry = await follower(store, first)
    second = await claimed(store, owner=HARBOUR, at=after(minutes=30))
    assert second == replace(await store.records.session(retry.id) or retry, allowance_usd=None)
    await queued(store, wanted(site="harbour"), at=after(minutes=31))
    third = await claimed(store, owner=HARBOUR, at=after(minutes=31))
    assert third is not None
    await gone(store, at=after(hours=1))
    recovery = await follower(store, third)

    assert (retry.trigger, retry.site) == (Trigger.RETRY, "harbour")
    assert (recovery.trigger, recovery.site) == (Trigger.RECOVERY, "harbour")


async def acted(store: Store, site: str | None, service: str) -> Session:
    """Run a chain that restarts something, to its end."""
    await queued(store, wanted(2, site=site))
    session = await claimed(store, owner=HARBOUR if site == "harbour" else OWNER)
    assert session is not None
    await recorded(store, session, "toolu_1", allow(Action(kind="restart", service=service)))
    end = ToolEnd(tool_use_id="toolu_1", ended_at=after(minutes=1), is_error=False)
    await store.queue.finish(ending(session, report(check(service)), tool_ends=(end,)), rules=FOLLOWED)
    return session


async def test_the_look_at_whether_a_repair_holds_is_made_where_the_repair_was(
    store: Store, database: Database
) -> None:
    await acted(store, "harbour", "web")
    await acted(store, None, "db")

    looks = {row["services"]: row["site"] for row in database.rows("sessions") if row["trigger"] == "follow_up"}
    assert looks == {'["web"]': "harbour", '["db"]': None}


@pytest.mark.parametrize(
    ("sites", "of_chain"),
    [(("harbour",), "harbour"), (("harbour", "harbour"), "harbour"), (("harbour", "main"), None), ((None,), None)],
)
async def test_a_failure_is_looked_into_where_the_probe_saw_it(
    store: Store, database: Database, sites: tuple[str | None, ...], of_chain: str | None
) -> None:
    names = [f"probe-{number}" for number, _ in enumerate(sites)]
    await store.probes.enrol([probe(name) for name in names], OWNER, now=NOW)
    for name, site in zip(names, sites, strict=True):
        database.execute("UPDATE probes SET site = :site WHERE name = :name", site=site, name=name)
    down = [turned(probe(name), ProbeState.DOWN) for name in names]
    await store.probes.observed(down, owner=OWNER, rules=RULES, now=NOW)

    result = await failed(store.alerts, names, "incident-1", now=NOW)

    ((chain, _),) = result.started
    assert chain.site == of_chain


async def test_the_trial_of_a_hold_may_run_at_any_site(database: Database) -> None:
    async with opened(database) as store:
        await queued(store, wanted(2, site="harbour"))
        hold = Hold(kind=HoldKind.BREAKER, reason="refused", since=NOW, until=after(minutes=1))
        await store.holds.hold(hold, now=NOW)

        assert await claimed_id(store, minutes=2) is None  # nothing waits here that a trial would be for
        trial = await claimed(store, owner=HARBOUR, at=after(minutes=2))
        assert trial is not None
        assert (trial.tier, trial.site) == (1, None)
