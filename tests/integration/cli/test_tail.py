"""A log tells afterwards, or meanwhile, what was told live; across tiers, and whatever became of the file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from claudeops.cli.tail import ChainsTail, ChainTail, current_roots
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.domain.gate.approval import Answered, ApprovalStatus, answer
from claudeops.domain.live import (
    AssistantSaid,
    CallEnded,
    CallJudged,
    EventRaised,
    LiveFact,
    SessionBegan,
    SessionEnded,
)
from claudeops.domain.sessions import DecisionReason
from claudeops.engine.control import StopControl
from claudeops.engine.session.runner import SessionRunner
from claudeops.engine.session_log import reader as old_logs
from claudeops.structs import replace
from support.estate import Estate, deliver, look, report
from support.stores import approvals_of
from support.waiting import PATIENCE_SECONDS, until

TOOLS = ("Bash", "Read", "Write")
SOMETIME = datetime(2000, 1, 1, tzinfo=UTC)
SAID = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "I look."}]}}
INIT = {"type": "system", "subtype": "init", "cwd": "{{cwd}}", "permissionMode": "dontAsk", "tools": [*TOOLS]}
KEY = b"k" * 32
FAULT = {"level": "critical", "service": "web", "message": "web is down"}


@dataclass
class Heard:
    """Where a test's tail goes."""

    facts: list[LiveFact] = field(default_factory=list)
    broken: bool = False

    def write(self, facts: Sequence[LiveFact] = ()) -> None:
        self.facts += facts

    def of(self, kind: type) -> list[LiveFact]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


def no_reboots(call: ToolCall, _workspace: object) -> Verdict:
    kind = VerdictKind.DENY if "reboot" in str(call.input) else VerdictKind.ALLOW
    return Verdict(kind=kind, reason="that is the rule")


async def tailed(estate: Estate, session_id: int = 1, *, follow: bool = False, heard: Heard | None = None) -> Heard:
    session = await estate.store.records.session(session_id)
    assert session is not None
    heard = heard or Heard()
    await ChainTail(records=estate.store.records, sink=heard, redact=estate.context.redactor.text, follow=follow).run(
        session
    )
    return heard


@asynccontextmanager
async def following(estate: Estate) -> AsyncIterator[tuple[Heard, list[int]]]:
    """Follow whatever there is beside the block; give what was heard, and how much of it whenever nothing ran."""
    heard, idle = Heard(), list[int]()
    tail = ChainTail(records=estate.store.records, sink=heard, redact=estate.context.redactor.text, follow=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ChainsTail(tail=tail, on_idle=lambda: idle.append(len(heard.facts))).run)
        yield heard, idle
        tasks.cancel_scope.cancel()


def write(path: str, tool_use_id: str) -> dict[str, object]:
    return {"tool": {"id": tool_use_id, "name": "Write", "input": {"file_path": path, "content": "x"}}}


async def run_chain(estate: Estate, *steps: Mapping[str, object], sessions: int = 1) -> list[LiveFact]:
    """Run a chain of so many sessions and return what was told of it live."""
    estate.script(*steps)
    await estate.queue()
    supervisor = estate.supervisor()
    over = f"SELECT 1 FROM sessions WHERE id = {int(sessions)} AND status = 'ended'"  # noqa: S608 - an integer
    with estate.context.hub.subscribe() as reader:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await until(lambda: bool(estate.rows(over)))
            await supervisor.drain(PATIENCE_SECONDS)
        return list(iter(reader.take, None))


def timeless(facts: Sequence[LiveFact]) -> list[LiveFact]:
    """Return facts without what only somebody who was there can know."""
    told = [replace(fact, at=SOMETIME) for fact in facts if not isinstance(fact, EventRaised)]
    return [replace(fact, duration_ms=0) if isinstance(fact, SessionEnded) else fact for fact in told]


async def test_the_log_tells_what_was_told_live(estate: Estate) -> None:
    estate.with_context(
        tiers={
            number: replace(tier, policy=replace(tier.policy, tools=TOOLS))
            for number, tier in estate.context.tiers.items()
        }
    )
    estate.with_judge(no_reboots)
    reads: dict[str, object] = {"tool": {"id": "toolu_3", "name": "Read", "input": {"file_path": "/etc/hosts"}}}
    steps: list[dict[str, object]] = [
        {"frame": INIT},
        {"frame": SAID},
        look(),
        look("toolu_2", "reboot"),
        reads,
        write("/no/such/file.py", "toolu_4"),
        write("{{cwd}}/mine.py", "toolu_5"),
        deliver(report(needed=True, events=[FAULT])),
    ]

    live = await run_chain(estate, *steps, sessions=3)
    heard = await tailed(estate)

    assert [type(fact).__name__ for fact in timeless(heard.facts)] == [type(fact).__name__ for fact in timeless(live)]
    assert timeless(heard.facts) == timeless(live)
    assert [fact.tier for fact in heard.of(SessionBegan)] == [1, 2, 3]  # type: ignore[union-attr]
    lines = [fact.line for fact in heard.of(CallJudged)]  # type: ignore[union-attr]
    assert lines[3:5] == ["Writing /no/such/file.py...", "Writing mine.py..."]
    assert "web is down" in {fact.message for fact in heard.of(EventRaised)}  # type: ignore[union-attr]


async def test_packed_it_tells_the_same(estate: Estate) -> None:
    await run_chain(estate, look(), deliver(report()))
    plain = await tailed(estate)

    old_logs.pack(Path(estate.log_path(1)), lambda: None)

    assert (await tailed(estate)).facts == plain.facts


async def test_times_are_those_of_the_arrival(estate: Estate) -> None:
    before = datetime.now(UTC)
    await run_chain(estate, {"frame": SAID}, look(), deliver(report()))
    after = datetime.now(UTC)

    heard = await tailed(estate)

    assert all(before <= fact.at <= after for fact in heard.facts)


async def test_following_goes_on_to_the_next_tiers_and_ends_with_the_chain(estate: Estate) -> None:
    estate.script(look(), deliver(report(needed=True)))
    await estate.queue()
    supervisor, heard = estate.supervisor(), Heard()

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                await tailed(estate, follow=True, heard=heard)
                await supervisor.drain(PATIENCE_SECONDS)

            tasks.start_soon(follow)  # before anything runs: it waits for that too
            tasks.start_soon(supervisor.run)

    assert [fact.session_id for fact in heard.of(SessionBegan)] == [1, 2, 3]  # type: ignore[union-attr]
    judged = heard.of(CallJudged)
    assert [fact.verdict for fact in judged] == [VerdictKind.ALLOW] * 3  # type: ignore[union-attr]
    last = heard.facts[-1]
    assert isinstance(last, SessionEnded)
    assert last.decision is DecisionReason.MAX_TIER


async def test_a_running_session_is_told_as_far_as_it_went_and_half_a_line_is_no_harm(estate: Estate) -> None:
    reached = estate.root / "reached"
    estate.script({"frame": SAID}, look(), {"raw": '{"type":"assis'}, {"touch": str(reached)}, {"hang": True})
    await estate.queue()
    supervisor = estate.supervisor()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await until(reached.exists)
        await until(lambda: b"tool_result" in Path(estate.log_path(1)).read_bytes())

        heard = await tailed(estate)

        await supervisor.drain(0)
    assert [type(fact) for fact in heard.facts] == [SessionBegan, AssistantSaid, CallJudged, CallEnded]


async def test_following_tells_a_line_as_soon_as_it_is_there(estate: Estate) -> None:
    estate.script({"frame": SAID}, {"hang": True})
    await estate.queue()
    supervisor, heard = estate.supervisor(), Heard()
    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            await tailed(estate, follow=True, heard=heard)

        tasks.start_soon(supervisor.run)
        tasks.start_soon(follow)
        await until(lambda: bool(heard.of(AssistantSaid)))  # while the session runs
        await supervisor.drain(0)
        await until(lambda: bool(heard.of(SessionEnded)))
        tasks.cancel_scope.cancel()


async def test_following_waits_for_the_log_of_a_session_that_was_only_just_claimed(estate: Estate) -> None:
    estate.script({"frame": SAID}, deliver(report()))
    await estate.queue()
    session, heard = await estate.claim(), Heard()
    assert not await anyio.Path(session.log_path or "").exists()
    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            await tailed(estate, follow=True, heard=heard)

        tasks.start_soon(follow)
        await until(lambda: bool(heard.of(SessionBegan)))
        await anyio.wait_all_tasks_blocked()  # it has looked for the log
        await SessionRunner(context=estate.context).run(session, StopControl())
        await until(lambda: bool(heard.of(AssistantSaid)))
        tasks.cancel_scope.cancel()
    assert heard.of(EventRaised) == []


async def test_a_log_that_was_removed_is_said_to_be_gone_and_the_row_still_tells(estate: Estate) -> None:
    await run_chain(estate, look(), deliver(report()))
    old_logs.remove(Path(estate.log_path(1)))

    heard = await tailed(estate)

    began, gone, ended = heard.facts
    assert isinstance(began, SessionBegan)
    assert isinstance(gone, EventRaised)
    assert gone.message.endswith("cannot be read: No such file or directory")
    assert isinstance(ended, SessionEnded)


@pytest.mark.parametrize("follow", [False, True])
async def test_nobody_who_reads_any_more_is_noticed(estate: Estate, *, follow: bool) -> None:
    await run_chain(estate, look(), deliver(report(needed=True)), sessions=3)

    heard = await tailed(estate, follow=follow, heard=Heard(broken=True))

    assert heard.of(SessionBegan) == []


async def test_log_of_a_running_session_on_another_machine_is_named_and_not_waited_for(estate: Estate) -> None:
    await estate.queue()
    (session,) = await estate.store.claims.claim(
        replace(estate.owner, node="cellar"),
        rules=estate.context.rules,
        now=estate.context.clock.now(),
        cli_session_id=lambda: "x",
        log_path=lambda _: "/elsewhere/session-000001.ndjson",
    )
    heard = Heard()
    tail = ChainTail(records=estate.store.records, sink=heard, redact=str, follow=True, node="attic")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tail.run, session)
        await until(lambda: bool(heard.of(EventRaised)))
        tasks.cancel_scope.cancel()

    (said,) = [fact.message for fact in heard.facts if isinstance(fact, EventRaised)]
    assert said == (
        "The log of session 1 is on node cellar, at /elsewhere/session-000001.ndjson, and this is node attic: look "
        "there, or have both use one results directory."
    )


async def test_a_secret_that_became_known_later_is_not_told(estate: Estate) -> None:
    await run_chain(estate, look(command="echo later-known"), deliver(report()))
    session = await estate.store.records.session(1)
    assert session is not None
    heard = Heard()

    def redact(text: str) -> str:
        return text.replace("later-known", "[redacted]")

    await ChainTail(records=estate.store.records, sink=heard, redact=redact, follow=False).run(session)

    assert "later-known" not in repr(heard.facts)


# --- a wait for a person --------------------------------------------------------------------------------


def asks_first(call: ToolCall, _workspace: object) -> Verdict:
    kind = VerdictKind.ASK if "restart" in str(call.input) else VerdictKind.ALLOW
    return Verdict(kind=kind, reason="restarts the database")


async def test_a_wait_for_a_person_is_told_while_it_lasts_and_stands_where_its_time_is(estate: Estate) -> None:
    estate.with_context(approval_key=KEY, approval_seconds=PATIENCE_SECONDS)
    estate.with_judge(asks_first)
    estate.script({"frame": SAID}, look(command="restart db"), look("toolu_2"), deliver(report()))
    await estate.queue()
    supervisor, heard = estate.supervisor(), Heard()
    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            await tailed(estate, follow=True, heard=heard)

        tasks.start_soon(supervisor.run)
        tasks.start_soon(follow)
        await until(lambda: bool(heard.of(EventRaised)))
        assert [type(fact) for fact in heard.facts] == [SessionBegan, AssistantSaid, CallJudged, EventRaised]
        assert heard.facts[2].verdict is VerdictKind.ASK  # type: ignore[union-attr]
        (asked,) = await approvals_of(estate.store)
        said = answer(KEY, asked, status=ApprovalStatus.APPROVED, decided_by="ada", at=estate.context.clock.now())
        assert await estate.store.approvals.answer_approval(asked.id, said) is Answered.DECIDED
        await until(lambda: bool(heard.of(SessionEnded)))
        await supervisor.drain(PATIENCE_SECONDS)
    afterwards = await tailed(estate)

    for told in (heard, afterwards):
        steps = [(fact.tool_use_id, fact.verdict) for fact in told.of(CallJudged)]  # type: ignore[union-attr]
        assert steps == [
            ("toolu_1", VerdictKind.ASK),
            ("toolu_1", VerdictKind.ALLOW),
            ("toolu_2", VerdictKind.ALLOW),
        ]
    assert [fact.at for fact in afterwards.facts] == sorted(fact.at for fact in afterwards.facts)
    assert timeless(afterwards.facts) == timeless(heard.facts)
    kinds = [type(fact) for fact in afterwards.facts]
    assert kinds[2:6] == [CallJudged, EventRaised, CallJudged, CallEnded]


async def test_no_time_puts_what_was_said_of_a_call_before_the_call_or_behind_its_result(estate: Estate) -> None:
    await run_chain(estate, look(), {"frame": SAID}, deliver(report()))
    with estate.connect() as connection:  # as after a clock that was set
        columns = "session_id, tool_use_id, tool_name, input, reason, requested_at, previous_hash, hash"
        for verdict, moment in (("deny", "2000-01-01 00:00:00.000000"), ("ask", "2100-01-01 00:00:00.000000")):
            connection.exec_driver_sql(
                f"INSERT INTO tool_calls ({columns}, verdict, decided_at)"  # noqa: S608 - our own words
                f" SELECT {columns}, '{verdict}', '{moment}' FROM tool_calls WHERE id = 1"
            )

    heard = await tailed(estate)

    kinds = [type(fact) for fact in heard.facts]
    assert kinds[:5] == [SessionBegan, CallJudged, CallJudged, CallJudged, CallEnded]
    verdicts = [fact.verdict.value for fact in heard.of(CallJudged)]  # type: ignore[union-attr]
    assert verdicts == ["allow", "deny", "ask"]


async def test_without_its_index_a_log_is_told_in_its_order(estate: Estate) -> None:
    await run_chain(estate, look(), {"frame": SAID}, deliver(report(events=[FAULT])))
    whole = await tailed(estate)
    Path(estate.log_path(1)).with_suffix(".index").unlink()

    assert timeless((await tailed(estate)).facts) == timeless(whole.facts)


# --- every chain ----------------------------------------------------------------------------------------


async def test_without_a_name_all_chains_that_run_are_told_and_those_that_start_later(estate: Estate) -> None:
    gate = estate.root / "go"
    estate.script({"frame": SAID}, {"await": str(gate)}, deliver(report()))
    for _ in range(2):
        await estate.queue()
    supervisor = estate.supervisor()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(supervisor.run)
        await until(lambda: len(estate.rows("SELECT 1 FROM sessions WHERE status = 'running'")) == 2)
        async with following(estate) as (heard, idle):
            await until(lambda: len(heard.of(AssistantSaid)) == 2)
            gate.touch()
            await until(lambda: bool(idle))
            await estate.queue()
            await estate.dispatcher.announce()
            await until(lambda: len(heard.of(SessionEnded)) == 3)
            await until(lambda: len(idle) == 2)
        await supervisor.drain(PATIENCE_SECONDS)

    assert {fact.session_id for fact in heard.of(SessionEnded)} == {1, 2, 3}  # type: ignore[union-attr]
    assert len(heard.of(SessionBegan)) == 3  # each of them once


async def test_where_nothing_runs_the_newest_chain_is_told_whole_and_then_what_starts(estate: Estate) -> None:
    await run_chain(estate, look(), deliver(report()))
    await run_chain(estate, look(), deliver(report(needed=True)), sessions=4)
    async with following(estate) as (heard, idle):
        await until(lambda: bool(idle))
        assert [fact.session_id for fact in heard.of(SessionBegan)] == [2, 3, 4]  # type: ignore[union-attr]
        await run_chain(estate, look(), deliver(report()), sessions=5)  # may be over before anybody looks
        await until(lambda: len(heard.of(SessionEnded)) == 4)

    tail = ChainTail(records=estate.store.records, sink=Heard(), redact=str, follow=False)
    assert [session.id for session in await current_roots(tail.records)] == [5]


async def test_before_the_first_session_it_is_waited_for(estate: Estate) -> None:
    async with following(estate) as (heard, idle):
        await until(lambda: bool(idle))
        await run_chain(estate, look(), deliver(report()))
        await until(lambda: bool(heard.of(SessionEnded)))
    assert idle[0] == 0


async def test_what_waits_in_the_queue_while_others_come_and_go_is_not_forgotten(estate: Estate) -> None:
    await estate.queue(tier=2)
    await estate.queue()
    async with following(estate) as (heard, _):
        estate.script(look(), deliver(report()))
        supervisor = estate.supervisor(slots=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await until(lambda: len(heard.of(SessionEnded)) == 2)
            await supervisor.drain(PATIENCE_SECONDS)

    assert {fact.session_id for fact in heard.of(SessionBegan)} == {1, 2}  # type: ignore[union-attr]


async def test_what_was_over_before_is_not_told_because_something_older_still_waits(estate: Estate) -> None:
    await estate.queue(tier=2)
    for number in (2, 3):
        await estate.finished(look(f"toolu_{number}"), deliver(report()))
    async with following(estate) as (heard, idle):
        await until(lambda: bool(idle))
        supervisor = estate.supervisor()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await until(lambda: len(heard.of(SessionEnded)) == 2)
            await supervisor.drain(PATIENCE_SECONDS)

    assert [fact.session_id for fact in heard.of(SessionBegan)] == [3, 1]  # type: ignore[union-attr]
