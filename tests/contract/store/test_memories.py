"""Any store: memories grow when they are seen again and fade when they are not."""

from __future__ import annotations

from claudeops.domain.model import Report, ReportedMemory
from claudeops.engine.ports import Store
from support.store_values import after, check, one_session, report
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)


def remembered(observation: str, service: str | None = "web", category: str = "timing") -> Report:
    memory = ReportedMemory(category=category, observation=observation, service=service)
    return report(check("web"), memories=(memory,))


async def test_memory_said_again_is_stronger_and_not_there_twice(store: Store, database: Database) -> None:
    await one_session(store, remembered("answers within 40 ms"), at=after(days=-2))
    await one_session(store, remembered("Answers  within 40 ms."), at=after(days=-1))

    (row,) = database.rows("memories")
    assert (row["confidence"], row["observation"]) == (0.8, "answers within 40 ms")
    assert (row["created_at"], row["updated_at"]) == (after(days=-2, minutes=1), after(days=-1, minutes=1))


async def test_two_true_facts_in_one_category_do_not_fight(store: Store) -> None:
    for day in range(4):
        await one_session(store, remembered("starts within 30 s"), at=after(days=day - 9))
        await one_session(store, remembered("its library scan is slow"), at=after(days=day - 9, hours=1))

    assert [memory.confidence for memory in await store.records.memories()] == [1.0, 1.0]


async def test_contradicted_memory_is_weaker_and_the_new_one_stands_beside_it(store: Store) -> None:
    await one_session(store, remembered("starts within 30 s"), at=after(days=-2))
    await one_session(store, remembered("starts within 60 s"), at=after(days=-1))

    assert [(memory.observation, memory.confidence) for memory in await store.records.memories()] == [
        ("starts within 60 s", 0.7),
        ("starts within 30 s", 0.5),
    ]


async def test_memories_fade_with_time_and_not_with_looking(store: Store) -> None:
    await one_session(store, remembered("starts within 30 s"), at=after(days=-45))
    await one_session(store, remembered("answers within 40 ms", category="speed"), at=after(days=-29))

    for _ in range(5):
        assert [memory.confidence for memory in await store.records.memories()] == [0.7, 0.5]


async def test_memory_nobody_confirms_is_given_up_and_comes_back_when_somebody_does(
    store: Store, database: Database
) -> None:
    await one_session(store, remembered("starts within 30 s"), at=after(days=-90))
    assert await store.records.memories() == ()
    await one_session(store, report(check("web")), at=after(days=-2))
    (row,) = database.rows("memories")
    given_up = row["active"]

    await one_session(store, remembered("starts within 30 s"), at=after(days=-1))

    assert given_up is False
    (memory,) = await store.records.memories()
    assert memory.confidence == 0.3


async def test_memories_are_limited_to_the_best(store: Store) -> None:
    for number in range(3):
        await one_session(store, remembered(f"fact {'abc'[number]}"), at=after(days=number - 9))
    await one_session(store, remembered("fact a"), at=after(days=-1))

    assert [memory.observation for memory in await store.records.memories(2)] == ["fact a", "fact c"]
