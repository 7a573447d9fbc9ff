"""Any store: the daily sum counts incidents, what the noisiest alert has cost, and the daemon's own health."""

from __future__ import annotations

from datetime import timedelta

import pytest

from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.notices.notice import DeliveryOutcome, Notice, Settlement, Target, Topic
from claudeops.domain.sessions import Outcome
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.wording.notices.digest import NoisiestAlert
from support.alerts import alert, over
from support.store_values import NOW, RULES, after, check, claimed, ending, report
from support.told import taken

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

SINCE = after(hours=-24)


async def test_what_an_alert_has_cost_is_what_its_chains_have_spent(store: Store) -> None:
    for number, (name, usd) in enumerate((("Down", 0.5), ("Slow", 2.0))):
        await taken(store, alert(name, f"s{number}"), key=name, minutes=number)
        for repeat in range(number * 3):
            await taken(store, alert(name, f"s{number}"), key=f"{name}{repeat}", minutes=number + 0.1)
        session = await claimed(store, at=after(minutes=number + 0.5))
        assert session is not None
        end = ending(session, report(check(f"s{number}")), cost_usd=usd, ended_at=after(minutes=number + 0.6))
        await store.queue.finish(end, rules=RULES)
    await taken(store, over("Down", "s0"), key="end", minutes=5)

    sums = await store.outbox.sums(SINCE, now=after(minutes=10))

    assert sums.noisiest == NoisiestAlert(name="Slow", service="s1", usd=2.0, decisions=4)
    assert (sums.incidents_opened, sums.incidents_resolved, sums.incidents_open) == (2, 1, 1)
    assert (await store.outbox.sums(after(hours=1), now=after(hours=2))).noisiest is None  # that was before


async def test_the_daemons_own_health_is_counted(store: Store) -> None:
    await taken(store, alert())
    session = await claimed(store, at=after(minutes=1))
    assert session is not None
    await store.queue.finish(ending(session, outcome=Outcome.STALLED, error="silent"), rules=RULES)
    await store.holds.hold(Hold(kind=HoldKind.DISK, reason="full", since=NOW), now=NOW)
    phone = Target(name="phone")
    await store.outbox.add(Notice(topic=Topic.EVENT, level=phone.min_level, text="x", key="k"), now=NOW)
    await store.outbox.route([phone], now=after(minutes=3), most=100)
    claims = await store.outbox.claim("phone", now=after(minutes=3), until=after(minutes=4), most=1)
    dead = [Settlement(id=each.id, result=DeliveryOutcome.FAILED, error="no") for each in claims]
    await store.outbox.settle("phone", dead, until=after(minutes=4), now=after(minutes=3))

    sums = await store.outbox.sums(SINCE, now=after(hours=1))

    assert (sums.failed_sessions, sums.holds, sums.dead_targets) == (1, ("disk",), ("phone",))
    assert sums.unsent_since is not None
    assert after(hours=1) - sums.unsent_since >= timedelta(minutes=50)


async def test_of_an_empty_database_nothing_is_counted(store: Store) -> None:
    sums = await store.outbox.sums(SINCE, now=NOW)

    assert replace(sums, open_events={}, now=None) == type(sums)(since=SINCE)
