"""A scrape is answered whatever the database does; what the database knows is left out then, never an old figure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import anyio
import pytest

from claudeops.app.metrics import Scrape
from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.events import EventLevel
from claudeops.domain.figures import Figures
from claudeops.domain.spending.budget import Budgets
from claudeops.errors import DatabaseUnavailableError, StoreError
from claudeops.metrics import KnownSets, Metrics
from claudeops.store.reading.scraped import FiguresReader
from support.store_values import NOW, RULES

FIGURES = Figures(
    at=NOW,
    queued=2,
    queued_since=None,
    approvals=0,
    incidents=dict.fromkeys(EventLevel, 0),
    outbox=0,
    outbox_since=None,
    memories=0,
    spent_usd=None,
    is_paused=False,
    parked_until=None,
    healthy_at=None,
)


@dataclass
class Reader(FiguresReader):
    """Reads as a test wants it."""

    does: Callable[[], Awaitable[Figures]]

    async def read(self, *, lowest_tier: int, budgets: Budgets | None, now: datetime) -> Figures:
        assert (lowest_tier, budgets) == (RULES.lowest.number, RULES.budgets)
        assert now is not None
        return await self.does()


async def known() -> Figures:
    return FIGURES


async def away() -> Figures:
    raise DatabaseUnavailableError("the database is away.")


async def broken() -> Figures:
    raise StoreError("the database cannot be read.")


async def hangs() -> Figures:
    await anyio.sleep_forever()
    raise AssertionError


def scrape(reader: Reader, rules: EscalationRules = RULES) -> Scrape:
    return Scrape(metrics=Metrics(KnownSets(version="1")), figures=reader, rules=rules, clock=Clock())


async def test_what_the_database_knows_is_there_while_it_answers() -> None:
    assert b"claudeops_sessions_queued 2.0" in await scrape(Reader(known))()


@pytest.mark.parametrize("does", [away, broken, hangs])
async def test_a_database_that_does_not_answer_leaves_out_its_own_and_nothing_else(
    does: Callable[[], Awaitable[Figures]],
) -> None:
    reader = Reader(known)
    scraper = scrape(reader)
    await scraper()
    reader.does, scraper.read_seconds = does, 0.0
    text = await scraper()
    assert b"claudeops_sessions_queued" not in text
    assert b"claudeops_build_info" in text
    assert b"process_resident_memory_bytes" in text
