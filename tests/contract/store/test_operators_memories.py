"""Any store: operators add, forget, restore and confirm memories, and everything can be undone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from claudeops.domain.looks import EvidenceLook
from claudeops.domain.memories.memory import KnownMemory, Trust
from claudeops.domain.memories.operator_changes import LONGEST, Declined
from claudeops.domain.report.report import Report, ReportedMemory, ServiceStatus
from claudeops.store.store import Store
from support.store_values import NOW, after, check, one_session, report
from support.stores import Database, opened

pytest_plugins = ("support.store_fixtures",)

FACT = "starts within 30 s"
AT_WEB = (EvidenceLook(names=frozenset({"web"})),)


@pytest.fixture
async def ours(database: Database) -> AsyncIterator[Store]:
    async with opened(database) as store:
        yield store


def fact(observation: str = FACT, supersedes: int | None = None) -> ReportedMemory:
    return ReportedMemory(category="timing", observation=observation, service="web", supersedes=supersedes)


def learnt(observation: str = FACT, *, status: ServiceStatus = ServiceStatus.HEALTHY) -> Report:
    return report(check("web", status), memories=(fact(observation),))


def first(changed: Sequence[KnownMemory] | Declined) -> KnownMemory:
    assert not isinstance(changed, Declined)
    return changed[0]


def sentence(changed: Sequence[KnownMemory] | Declined) -> str:
    assert isinstance(changed, Declined)
    return changed.sentence


async def shown(store: Store) -> list[tuple[int, float]]:
    return [(memory.id, memory.confidence) for memory in await store.records.memories()]


async def test_an_operators_memory_is_certain_and_no_session_changes_it(ours: Store, database: Database) -> None:
    stated = first(await ours.memories.add(fact(), by="ada", now=after(days=-900)))
    for day, text in ((-3, FACT), (-2, "starts within 60 s")):
        await one_session(ours, learnt(text), at=after(days=day), looks=AT_WEB)

    assert (stated.tier, stated.trust, stated.changed_by, stated.session_id) == (0, Trust.OPERATOR, "ada", None)
    assert await shown(ours) == [(1, 1.0)]
    assert [(row["confidence"], row["trust"], row["active"]) for row in database.rows("memories")] == [
        (1.0, "operator", True),
        (0.7, "quarantined", True),
    ]


async def test_what_contradicts_an_operator_is_put_out_of_use(ours: Store) -> None:
    await one_session(ours, learnt("starts within 60 s"), at=after(days=-2))

    changed = await ours.memories.add(fact(), by="ada", now=NOW)

    assert not isinstance(changed, Declined)
    assert [(one.id, one.active, one.supersedes) for one in changed] == [(2, True, 1), (1, False, None)]
    assert await shown(ours) == [(2, 1.0)]


async def test_what_a_session_learnt_becomes_the_operators_when_he_says_it(ours: Store) -> None:
    await one_session(ours, learnt(), at=after(days=-200))

    stated = first(await ours.memories.add(fact("Starts within  30 s."), by="ada", now=NOW))

    assert (stated.id, stated.trust, stated.confidence, stated.tier) == (1, Trust.OPERATOR, 1.0, 0)
    assert "says so already" in sentence(await ours.memories.add(fact(), by="ada", now=NOW))


@pytest.mark.parametrize(
    ("memory", "why"),
    [
        (fact(" "), "Nothing"),
        (fact("x" * (LONGEST + 1)), "at most"),
        (fact("the password is hunter2"), "secret"),
        (fact(supersedes=77), "no memory 77"),
    ],
    ids=["blank", "long", "secret", "unknown"],
)
async def test_what_cannot_be_stated_is_declined(
    ours: Store, database: Database, memory: ReportedMemory, why: str
) -> None:
    assert why in sentence(await ours.memories.add(memory, by="ada", now=NOW))
    assert database.rows("memories") == []


async def test_what_is_forgotten_does_not_come_back_until_it_is_restored(ours: Store) -> None:
    await one_session(ours, learnt(), at=after(days=-9))
    forgotten = first(await ours.memories.forget(1, by="ada", now=after(days=-8)))
    await one_session(ours, learnt(), at=after(days=-7), looks=AT_WEB)
    gone = await shown(ours)

    restored = first(await ours.memories.restore(1, by="bob", now=after(days=-6)))

    assert (forgotten.active, forgotten.forgotten_at, forgotten.changed_by) == (False, after(days=-8), "ada")
    assert gone == []
    assert await shown(ours) == [(1, 0.7)]
    assert (restored.updated_at, restored.forgotten_at, restored.changed_by) == (after(days=-9, minutes=1), None, "bob")
    assert "in use" in sentence(await ours.memories.restore(1, by="bob", now=NOW))


async def test_a_replacement_is_undone(ours: Store) -> None:
    await one_session(ours, learnt(), at=after(days=-9))
    await ours.memories.add(fact("is ready when the log says so", supersedes=1), by="ada", now=NOW)
    assert await shown(ours) == [(2, 1.0)]

    await ours.memories.restore(1, by="ada", now=NOW)
    await ours.memories.forget(2, by="ada", now=NOW)

    assert await shown(ours) == [(1, 0.7)]


async def test_what_has_faded_is_just_active_when_it_is_restored(ours: Store) -> None:
    await one_session(ours, learnt(), at=after(days=-300))
    await one_session(ours, report(check("web")), at=after(days=-2))

    await ours.memories.restore(1, by="ada", now=NOW)

    assert await shown(ours) == [(1, 0.3)]


async def test_an_operator_lets_out_of_quarantine(ours: Store) -> None:
    await one_session(ours, learnt("starts within 60 s"), at=after(days=-5))
    await one_session(ours, learnt(status=ServiceStatus.DEGRADED), at=after(days=-4), looks=AT_WEB)
    before = await shown(ours)

    changed = await ours.memories.confirm(2, by="ada", now=NOW)

    assert before == [(1, 0.7)]
    assert not isinstance(changed, Declined)
    assert [(one.id, one.trust, one.confidence) for one in changed] == [
        (2, Trust.CONFIRMED, 0.7),
        (1, Trust.CONFIRMED, 0.5),
    ]
    assert await shown(ours) == [(2, 0.7), (1, 0.5)]
    assert "not in quarantine" in sentence(await ours.memories.confirm(2, by="ada", now=NOW))


async def test_unknown_ids_are_answered(ours: Store) -> None:
    for operation in (ours.memories.forget, ours.memories.restore, ours.memories.confirm):
        assert sentence(await operation(9, by="ada", now=NOW)) == "There is no memory 9."


@pytest.mark.dialect
async def test_list_is_narrowed_by_service_and_shows_what_is_out_of_use_on_request(ours: Store) -> None:
    await ours.memories.add(fact(), by="ada", now=NOW)
    general = ReportedMemory(category="other", observation="the lab has no UPS")
    await ours.memories.add(general, by="ada", now=NOW)
    await ours.memories.forget(1, by="ada", now=NOW)

    assert [one.id for one in await ours.memories.known()] == [2]
    assert [one.id for one in await ours.memories.known(everything=True)] == [1, 2]
    assert [one.id for one in await ours.memories.known(service="WEB", everything=True)] == [1]
