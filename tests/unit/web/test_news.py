"""Many who wait for the same news: all are woken, and nobody else waits for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest

from claudeops.web.news import AT_ONCE, NewsFeed
from support.waiting import until

MANY = 10 * AT_ONCE + 3


@asynccontextmanager
async def waiting(news: NewsFeed, woken: list[int], count: int = MANY) -> AsyncIterator[None]:
    """Have so many wait, each of whom writes down that it was woken."""

    async def wait(number: int) -> None:
        await news.wait()
        woken.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        yield


async def steps(woken: list[int], count: int) -> list[int]:
    """Return how many were woken between one turn of somebody else and the next, until so many were."""
    seen = [len(woken)]
    while len(woken) < count:
        await anyio.lowlevel.checkpoint()
        seen.append(len(woken))
    return [after - before for before, after in pairwise(seen)]


async def test_what_else_is_to_be_done_comes_between_those_who_are_woken() -> None:
    news, woken = NewsFeed(), list[int]()
    async with waiting(news, woken):
        news.tell()
        assert max(await steps(woken, MANY)) <= AT_ONCE
    assert woken == list(range(MANY))


async def test_news_while_some_are_still_to_be_woken_wakes_each_once_and_those_who_came_since() -> None:
    news, woken = NewsFeed(), list[int]()
    async with waiting(news, woken):
        news.tell()
        async with waiting(news, woken):
            assert len(woken) < MANY
            news.tell()
            assert max(await steps(woken, 2 * MANY)) <= AT_ONCE
    assert woken == [*range(MANY), *range(MANY)]


async def test_whoever_comes_after_the_news_waits_for_the_next() -> None:
    news, woken = NewsFeed(), list[int]()
    news.tell()
    async with waiting(news, woken, count=1):
        assert woken == []
        news.tell()
    assert woken == [0]


@pytest.mark.parametrize("is_told", [True, False])
async def test_one_who_has_gone_is_not_waited_for(is_told: bool) -> None:
    news, woken = NewsFeed(), list[int]()
    async with waiting(news, woken, count=AT_ONCE), anyio.create_task_group() as leaving:
        leaving.start_soon(news.wait)
        await anyio.wait_all_tasks_blocked()
        if is_told:
            news.tell()
        leaving.cancel_scope.cancel()
        news.tell()
    assert woken == list(range(AT_ONCE))


async def test_the_one_who_is_woken_is_not_one_who_has_gone() -> None:
    news, woken = NewsFeed(), list[int]()
    with anyio.move_on_after(0):
        await news.wait()
    async with waiting(news, woken, count=1):
        news.tell_one()
    assert woken == [0]


async def test_one_alone_is_woken_the_first_who_came() -> None:
    news, woken = NewsFeed(), list[int]()
    async with waiting(news, woken, count=3):
        news.tell_one()
        await until(lambda: bool(woken))
        await anyio.wait_all_tasks_blocked()
        assert woken == [0]
        news.tell()
    news.tell_one()  # nobody is there
    assert woken == [0, 1, 2]
