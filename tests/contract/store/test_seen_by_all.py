"""Any store: what one node, or a person at one, has decided binds the next claim, verdict and round of every other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import pytest

from claudeops.domain.alerts.alert import AlertDecision, Silence
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.calls import VerdictKind
from claudeops.domain.holds import ApiRefusal, Hold, HoldKind
from claudeops.domain.sessions import FailureKind
from claudeops.domain.spending.budget import Budgets
from claudeops.store.store import Store
from claudeops.structs import replace
from support.alerts import alert
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    allow,
    check,
    claimed,
    ending,
    queued,
    recorded,
    report,
    restart,
    wanted,
)
from support.stores import Database, opened
from support.told import taken

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

PAID: Final = replace(
    RULES,
    tiers=tuple(replace(tier, max_budget_usd=0.5) for tier in RULES.tiers),
    budgets=Budgets(chain_usd=1, day_usd=1),
)
PAUSE: Final = Hold(kind=HoldKind.PAUSED, reason="maintenance", since=NOW)


@asynccontextmanager
async def two_nodes(database: Database) -> AsyncIterator[tuple[Store, Store]]:
    """Open the database twice; the second has looked at the queue, and keeps what it saw."""
    async with opened(database) as one, opened(database) as other:
        for _ in range(4):
            await queued(one)
        assert await claimed(other, owner=OTHER_OWNER) is not None
        yield one, other


async def test_a_pause_at_one_node_binds_the_next_claim_of_the_other(database: Database) -> None:
    async with two_nodes(database) as (one, other):
        await one.holds.hold(PAUSE, now=NOW)
        assert await claimed(other, owner=OTHER_OWNER) is None

        await one.holds.release(HoldKind.PAUSED, now=NOW)
        assert await claimed(other, owner=OTHER_OWNER) is not None


async def test_the_breaker_that_one_node_opens_stops_the_other(database: Database) -> None:
    async with two_nodes(database) as (one, other):
        await one.holds.refused(ApiRefusal(kind=FailureKind.AUTH, message="no such key"), now=NOW)

        assert await claimed(other, owner=OTHER_OWNER) is None


async def test_money_that_one_node_has_promised_is_not_promised_by_the_other(database: Database) -> None:
    async with opened(database) as one, opened(database) as other:
        for _ in range(3):
            await queued(one)
        given = [
            await claimed(one, with_rules=PAID),
            await claimed(other, owner=OTHER_OWNER, with_rules=PAID),
            await claimed(one, with_rules=PAID),
            await claimed(other, owner=OTHER_OWNER, with_rules=PAID),
        ]
    assert [each and each.allowance_usd for each in given] == [0.5, 0.5, None, None]


async def test_an_action_at_one_node_uses_up_the_others_limit(database: Database) -> None:
    async with opened(database) as one, opened(database) as other:
        verdicts = []
        for number, store in enumerate((one, other, one, other)):
            at = after(minutes=10 * number)
            await queued(store, wanted(2), at=at)
            session = await claimed(store, owner=OWNER if store is one else OTHER_OWNER, at=at)
            assert session is not None
            verdicts.append(await recorded(store, session, f"toolu_{number}", allow(restart("web")), at=at))
            await store.queue.finish(ending(session, report(check("web"))), rules=RULES)
    allowed, denied = VerdictKind.ALLOW, VerdictKind.DENY
    assert [each.kind for each in verdicts] == [allowed, allowed, denied, denied]


async def test_a_silence_at_one_node_binds_the_next_round_of_the_other(database: Database) -> None:
    async with opened(database) as one, opened(database) as other:
        await taken(other, alert(service="web"), key="first")  # its round has begun to keep alerts in memory
        silence = Silence(
            id=0,
            matchers=read_matchers(['service="db"']),
            starts_at=NOW,
            ends_at=NOW + timedelta(hours=1),
            created_by="ada",
            comment="moved",
        )
        await one.silences.add(silence)
        result = await taken(other, alert(service="db"), key="second", minutes=1)
    assert [ruling.decision for ruling in result.rulings] == [AlertDecision.SILENCED]
