"""What an operator asks for is done once, is done after a crash too, and is never said to be done when it is not."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from claudeops import logs
from claudeops.clock import Clock
from claudeops.domain.chains.outcome import StopCause
from claudeops.domain.commands import Command, CommandName, StopTarget
from claudeops.domain.owner import Owner
from claudeops.domain.sessions import Outcome, Session, Status
from claudeops.engine.control import RunningSessions, StopControl
from claudeops.engine.daemon.commands import CommandRunner
from claudeops.store.store import Store
from claudeops.structs import replace
from support.store_values import NOW, OTHER_OWNER, OWNER, RULES, after, alarm, claimed, ending, wanted
from support.stores import Database, opened
from support.waiting import until, until_it

pytest_plugins = ("support.store_fixtures",)
pytestmark = pytest.mark.anyio


class StandingClock(Clock):
    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class Ends:
    """Stands for the supervisor: writes the end of every session that is asked to stop, and claims what follows."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.running = RunningSessions()
        self.escalates: list[int] = []

    async def claim(self) -> Session:
        (session,) = await self.store.claims.claim(
            OWNER, rules=RULES, now=NOW, cli_session_id=lambda: "c", log_path=lambda number: f"/logs/{number}"
        )
        self.running[session.id] = (session, StopControl())
        return session

    async def run(self) -> None:
        def stopping() -> bool:
            return any(control.cause is not None for _, control in self.running.values())

        while True:
            await until(stopping)
            for session, control in list(self.running.values()):
                if control.cause is not None:
                    said = alarm() if session.id in self.escalates else None
                    end = ending(session, said, outcome=Outcome.CANCELLED)
                    await self.store.queue.finish(end, rules=RULES)
                    del self.running[session.id]


@pytest.fixture
async def store(sqlite: Database) -> AsyncIterator[Store]:
    async with opened(sqlite) as store:
        yield store


@pytest.fixture
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


@asynccontextmanager
async def daemon(store: Store, ends: Ends, *, started_at: datetime = NOW, owner: Owner = OWNER) -> AsyncIterator[None]:
    runner = CommandRunner(
        commands=store.commands,
        queue=store.queue,
        running=ends.running,
        rules=lambda: RULES,
        clock=StandingClock(),
        owner=replace(owner, process_started_at=started_at.timestamp()),
        log=logs.get_logger(),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run)
        tasks.start_soon(ends.run)
        yield
        tasks.cancel_scope.cancel()


async def asked(store: Store, target: StopTarget) -> int:
    (command,) = await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments=target.arguments)
    return command


async def ended(store: Store, command_id: int) -> Command:
    found: list[Command] = []

    async def is_over() -> bool:
        command = await store.commands.find(command_id)
        if command is not None and command.ended_at is not None:
            found.append(command)
        return bool(found)

    await until_it(is_over)
    return found[0]


async def queue(store: Store, **changes: Any) -> Session:
    session = await store.queue.enqueue(wanted(**changes), rules=RULES, now=NOW)
    assert isinstance(session, Session)
    return session


async def test_a_chain_is_stopped_with_what_runs_and_nothing_else(store: Store, logged: io.StringIO) -> None:
    ends = Ends(store)
    first, other = await queue(store), await queue(store)
    await ends.claim()
    async with daemon(store, ends):
        done = await ended(store, await asked(store, StopTarget(chain=first.id)))
    assert (done.result, done.error) == ("stopped session 1", None)
    chain = await store.records.chain(first.id)
    assert [session.outcome for session in chain] == [Outcome.CANCELLED]
    assert [session.status for session in await store.records.chain(other.id)] == [Status.QUEUED]
    assert '"order_taken"' in logged.getvalue()


async def test_the_next_session_that_a_stopped_one_has_queued_is_stopped_too(store: Store) -> None:
    ends = Ends(store)
    first = await queue(store)
    ends.escalates.append((await ends.claim()).id)
    async with daemon(store, ends):
        done = await ended(store, await asked(store, StopTarget(chain=first.id)))
    assert done.result == "stopped session 1 and took session 2 out of the queue"
    last = (await store.records.chain(first.id))[-1]
    assert (last.id, last.outcome, last.error) == (2, Outcome.CANCELLED, "cancelled: stopped by ada")


async def test_a_queued_session_is_taken_out_of_the_queue(store: Store) -> None:
    session = await queue(store)
    async with daemon(store, Ends(store)):
        done = await ended(store, await asked(store, StopTarget(session_id=session.id)))
        again = await ended(store, await asked(store, StopTarget(session_id=session.id)))
    assert done.result == "took session 1 out of the queue"
    assert again.result == "nothing of session 1 was queued or running any more"


async def test_one_that_takes_long_does_not_hold_up_the_next(store: Store) -> None:
    ends = Ends(store)
    first = await queue(store)
    await ends.claim()
    ends.running.clear()  # as while a claim is under way: the row says that it runs, and nobody here knows it yet
    async with daemon(store, ends):
        slow = await asked(store, StopTarget(chain=first.id))
        quick = await ended(store, await asked(store, StopTarget(chain=99)))
        assert quick.result == "nothing of chain 99 was queued or running any more"
        unended = await store.commands.find(slow)
        assert unended is not None
        assert (unended.taken_at, unended.ended_at) == (NOW, None)
        ends.running[first.id] = (first_as_claimed(await store.records.chain(first.id)), StopControl())
        assert (await ended(store, slow)).result == "stopped session 1"


async def test_what_came_of_a_command_that_was_taken_again_is_not_written_and_is_a_line_of_the_log(
    store: Store, logged: io.StringIO
) -> None:
    ends = Ends(store)
    first = await queue(store)
    await ends.claim()
    ends.running.clear()  # so that the command stays under way
    async with daemon(store, ends):
        slow = await asked(store, StopTarget(chain=first.id))
        await until(lambda: '"order_taken"' in logged.getvalue())
        (again,) = await store.commands.take(OTHER_OWNER.name, now=after(minutes=1))  # the first has no row: it is dead
        await store.commands.finish(
            again.id, taken_at=after(minutes=1), result="by another", error=None, now=after(minutes=2)
        )
        ends.running[first.id] = (first_as_claimed(await store.records.chain(first.id)), StopControl())
        await until(lambda: '"stale_attempt"' in logged.getvalue())
        quick = await ended(store, await asked(store, StopTarget(chain=99)))
    assert quick.result == "nothing of chain 99 was queued or running any more"
    assert (await ended(store, slow)).result == "by another"
    assert logged.getvalue().count('"stale_attempt"') == 1


def first_as_claimed(chain: Any) -> Session:
    (session,) = chain
    assert isinstance(session, Session)
    return session


@pytest.mark.parametrize("arguments", [{}, {"chain": "1"}, {"chain": 1, "session_id": 1}, {"service": 1}])
async def test_a_stop_that_names_nothing_is_refused(store: Store, arguments: dict[str, object]) -> None:
    await queue(store)
    (command,) = await store.commands.request(CommandName.STOP, by="ada", now=NOW, arguments=arguments)
    async with daemon(store, Ends(store)):
        done = await ended(store, command)
    assert (done.result, done.error) == (None, "it does not say which session or chain is meant")
    assert [session.status for session in await store.records.chain(1)] == [Status.QUEUED]


async def test_a_command_of_a_newer_release_is_refused(store: Store, sqlite: Database) -> None:
    (command,) = await store.commands.request(CommandName.STOP, by="ada", now=NOW)
    sqlite.execute("UPDATE commands SET name = 'defragment'")
    async with daemon(store, Ends(store)):
        done = await ended(store, command)
    assert done.error == "this release does not know the order"


async def test_what_a_dead_daemon_took_and_never_did_is_done_by_the_next(store: Store) -> None:
    session = await queue(store)
    command = await asked(store, StopTarget(chain=session.id))
    await store.commands.take(OTHER_OWNER.name, now=NOW)
    async with daemon(store, Ends(store), started_at=after(minutes=1)):
        done = await ended(store, command)
    assert done.result == "took session 1 out of the queue"


@pytest.mark.parametrize("taken", [False, True])
async def test_a_stop_of_whatever_ran_is_lost_with_its_daemon_and_hits_no_session_of_the_next(
    store: Store, logged: io.StringIO, taken: bool
) -> None:
    (command,) = await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
    if taken:
        await store.commands.take(OTHER_OWNER.name, now=NOW)
    ends = Ends(store)
    await queue(store)
    session = await ends.claim()
    async with daemon(store, ends, started_at=after(minutes=1)):
        done = await ended(store, command)
        assert ends.running[session.id][1].cause is None
    assert done.result is None
    assert done.error == "lost: the daemon that it was meant for ended first, and the sessions of that daemon with it"
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["order_lost"]


async def test_a_stop_of_whatever_runs_reaches_the_daemon_that_it_was_meant_for(store: Store) -> None:
    ends = Ends(store)
    await queue(store)
    _, control = ends.running[(await ends.claim()).id]
    (command,) = await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=NOW)
    async with daemon(store, ends, started_at=datetime(2026, 3, 1, 11, 59, tzinfo=UTC)):
        done = await ended(store, command)
    assert (done.result, control.cause) == ("1 sessions were asked to stop", StopCause.PAUSED)


def addressed(sqlite: Database) -> list[tuple[object, object, bool]]:
    """Return for whom each command is, who took it, and whether it has ended."""
    return [(row["for_owner"], row["taken_by"], row["ended_at"] is not None) for row in sqlite.rows("commands")]


async def test_stop_of_a_session_reaches_whoever_runs_it_and_whoever_has_taken_it_over(
    store: Store, sqlite: Database
) -> None:
    third = replace(OTHER_OWNER, name="node-3")
    for owner in (OWNER, OTHER_OWNER, third):
        await store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)
    session = await queue(store)
    command = await asked(store, StopTarget(chain=session.id))  # while it is queued: any daemon may take it
    (taken,) = await store.commands.take(OWNER.name, now=NOW)
    sqlite.execute("UPDATE commands SET taken_at = NULL, taken_by = NULL")
    assert await claimed(store, owner=OTHER_OWNER) is not None

    async with daemon(store, Ends(store)):
        await until(lambda: addressed(sqlite) == [(None, "node-1", False), ("node-2", None, False)])
        await store.recovery.reconcile(third, now=NOW, alive=lambda owner: owner.name != OTHER_OWNER.name, starts=False)
        await until(lambda: len(addressed(sqlite)) == 3)
        (own,) = [row for row in sqlite.rows("sessions") if row["id"] == session.id]
        assert own["owner"] == third.name
        (orphan,) = await store.records.chain(session.id)
        await store.queue.finish(ending(orphan, None, outcome=Outcome.CANCELLED), rules=RULES)
        done = await ended(store, command)

    assert (taken.id, done.result) == (command, "stopped session 1")
    assert addressed(sqlite)[2][0] == third.name


async def test_stop_that_is_for_another_daemon_is_left_to_it(store: Store, sqlite: Database) -> None:
    for owner in (OWNER, OTHER_OWNER):
        await store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)
    session = await queue(store)
    assert await claimed(store, owner=OTHER_OWNER) is not None
    await asked(store, StopTarget(session_id=session.id))

    async with daemon(store, Ends(store)):
        assert (await ended(store, await asked(store, StopTarget(chain=99)))).error is None

    assert addressed(sqlite) == [("node-2", None, False), (None, "node-1", True)]


async def test_stop_of_whatever_runs_that_was_for_a_dead_daemon_hits_no_session_of_another(
    store: Store, sqlite: Database
) -> None:
    for owner in (OWNER, OTHER_OWNER):
        await store.recovery.reconcile(owner, now=NOW, alive=lambda _: True)
    own, others = await store.commands.request(CommandName.STOP_SESSIONS, by="ada", now=after(minutes=1))
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: False, starts=False)
    assert [row["owner"] for row in sqlite.rows("instances")] == ["node-1"]

    async with daemon(store, Ends(store)):
        answers = [await ended(store, command) for command in (own, others)]

    assert [answer.result for answer in answers] == ["0 sessions were asked to stop", None]
    assert str(answers[1].error).startswith("lost: the daemon that it was meant for ended first")
