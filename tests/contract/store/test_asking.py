"""Whoever asks the daemon for something learns what came of it, at once where there is no daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from claudeops.domain.commands import Command, CommandName
from claudeops.domain.owner import Owner
from claudeops.store.acts.commands import ShellAnswer, ShellRequest, ask_daemon, served_by_another
from claudeops.store.locks import claim_database
from claudeops.store.store import Store
from support.store_values import NOW, OTHER_OWNER, OWNER
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS, until, until_it

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Standing:
    """A database, and who may stand on it."""

    store: Store
    database: Database
    state_dir: Path

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the lock as a daemon does."""
        with claim_database(self.database.url, self.state_dir):
            yield

    async def ask(self, *, taken: float = 0.5, done: float = 0.5, name: CommandName = CommandName.STOP) -> ShellRequest:
        async with served_by_another(self.database.url) as served:
            return await ask_daemon(
                self.store.commands,
                name,
                by="ada",
                served=served,
                now=lambda: NOW,
                arguments={"chain": 7},
                taken_seconds=taken,
                done_seconds=done,
            )


@pytest.fixture
async def standing(sqlite: Database, tmp_path: Path) -> AsyncIterator[Standing]:
    async with opened(sqlite) as store:
        yield Standing(store, sqlite, tmp_path)


async def test_without_a_daemon_nothing_is_asked(standing: Standing) -> None:
    asked = await standing.ask()
    assert (asked.answer, asked.acknowledged, asked.command_id) == (ShellAnswer.NO_DAEMON, False, None)
    assert asked.says == "No daemon runs on this database: nothing was asked of it."
    assert standing.database.rows("commands") == []


async def test_what_nobody_takes_up_is_withdrawn(standing: Standing) -> None:
    with standing.claimed():
        asked = await standing.ask()
    assert (asked.answer, asked.acknowledged) == (ShellAnswer.NOT_TAKEN, False)
    assert "withdrawn and nothing was done" in asked.says
    assert await standing.store.commands.take(OWNER.name, now=NOW, again=True) == ()


@pytest.mark.parametrize(
    ("end", "answer", "says"),
    [
        (("stopped session 7", None), ShellAnswer.DONE, "stopped session 7"),
        ((None, "this release does not know the order"), ShellAnswer.FAILED, "this release does not know the order"),
        (None, ShellAnswer.UNDER_WAY, "The daemon has taken this up and is still at it."),
    ],
)
async def test_the_asker_learns_what_came_of_it(
    standing: Standing, end: tuple[str | None, str | None] | None, answer: ShellAnswer, says: str
) -> None:
    async def daemon() -> None:
        taken: list[Command] = []

        async def take() -> bool:
            taken.extend(await standing.store.commands.take(OWNER.name, now=NOW))
            return bool(taken)

        await until_it(take)
        assert [dict(command.arguments) for command in taken] == [{"chain": 7}]
        if end is not None:
            await standing.store.commands.finish(taken[0].id, taken_at=NOW, result=end[0], error=end[1], now=NOW)

    with standing.claimed():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(daemon)
            asked = await standing.ask(taken=PATIENCE_SECONDS, done=PATIENCE_SECONDS if end is not None else 0.3)
    assert (asked.answer, asked.says, asked.acknowledged) == (answer, says, True)


@pytest.mark.parametrize("taken", [False, True])
async def test_a_daemon_that_goes_away_meanwhile_leaves_no_false_hope(standing: Standing, taken: bool) -> None:
    lock = standing.claimed()
    lock.__enter__()

    async def daemon() -> None:
        await until(lambda: bool(standing.database.rows("commands")))
        if taken:
            await standing.store.commands.take(OWNER.name, now=NOW)
        lock.__exit__(None, None, None)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(daemon)
        asked = await standing.ask(taken=PATIENCE_SECONDS, done=PATIENCE_SECONDS)
    if taken:
        assert (asked.answer, asked.acknowledged) == (ShellAnswer.DAEMON_GONE, False)
        assert "the next one does it when it starts" in asked.says
    else:
        assert asked.says == "The daemon ended before it had taken this up: nothing was done."


@pytest.mark.parametrize(
    ("ends", "answer", "says"),
    [
        ((OWNER, OTHER_OWNER), ShellAnswer.DONE, "stopped at node-1 stopped at node-2"),
        ((OWNER,), ShellAnswer.NOT_TAKEN, "so it was withdrawn and nothing was done"),
    ],
)
async def test_of_several_daemons_the_worst_answer_counts_and_each_is_heard(
    standing: Standing, ends: Sequence[Owner], answer: ShellAnswer, says: str
) -> None:
    for owner in (OWNER, OTHER_OWNER):
        await standing.store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)

    async def daemon(owner: Owner) -> None:
        taken: list[Command] = []

        async def take() -> bool:
            taken.extend(await standing.store.commands.take(owner.name, now=NOW))
            return bool(taken)

        await until_it(take)
        for command in taken:
            done = f"stopped at {owner.name}"
            await standing.store.commands.finish(command.id, taken_at=NOW, result=done, error=None, now=NOW)

    patience = PATIENCE_SECONDS if len(ends) > 1 else 0.5
    with standing.claimed():
        async with anyio.create_task_group() as tasks:
            for owner in ends:
                tasks.start_soon(daemon, owner)
            asked = await standing.ask(taken=patience, done=PATIENCE_SECONDS, name=CommandName.STOP_SESSIONS)

    assert (asked.answer, asked.acknowledged) == (answer, answer is ShellAnswer.DONE)
    assert says in asked.says
    if answer is ShellAnswer.NOT_TAKEN:
        assert "stopped at node-1" in asked.says
