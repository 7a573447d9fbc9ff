"""A log tells afterwards, or meanwhile, what was told live; across tiers, and whatever became of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
import pytest

from claudeops.cli.tail import Tail
from claudeops.domain.live import (
    AssistantSaid,
    CallEnded,
    CallJudged,
    EventRaised,
    LiveFact,
    SessionBegan,
    SessionEnded,
)
from claudeops.domain.model import DecisionReason, Verdict, VerdictKind
from claudeops.engine import old_logs
from claudeops.engine.control import Control
from claudeops.engine.session import SessionRunner
from support.estate import deliver, look, report
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from claudeops.domain.model import ToolCall
    from support.estate import Estate

SOMETIME = datetime(2000, 1, 1, tzinfo=UTC)
SAID = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "I look."}]}}
FAULT = {"level": "critical", "service": "web", "message": "web is down"}


@dataclass
class Heard:
    """Where a test's tail goes."""

    facts: list[LiveFact] = field(default_factory=list)
    broken: bool = False

    def tell(self, facts: Sequence[LiveFact] = ()) -> None:
        self.facts += facts

    def of(self, kind: type) -> list[LiveFact]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


def no_reboots(call: ToolCall, _workspace: object) -> Verdict:
    kind = VerdictKind.DENY if "reboot" in str(call.input) else VerdictKind.ALLOW
    return Verdict(kind=kind, reason="that is the rule")


async def tailed(estate: Estate, session_id: int = 1, *, follow: bool = False, heard: Heard | None = None) -> Heard:
    session = await estate.store.session(session_id)
    assert session is not None
    heard = heard or Heard()
    await Tail(store=estate.store, sink=heard, redact=estate.kit.redactor.text, follow=follow).run(session)
    return heard


async def run_chain(estate: Estate, *steps: Mapping[str, object], sessions: int = 1) -> list[LiveFact]:
    """Run a chain of so many sessions and return what was told of it live."""
    estate.script(*steps)
    await estate.queue()
    supervisor = estate.supervisor()
    over = f"SELECT 1 FROM sessions WHERE id = {int(sessions)} AND status = 'ended'"  # noqa: S608 - an integer
    with estate.kit.hub.subscribe() as reader:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await until(lambda: bool(estate.rows(over)))
            await supervisor.drain(20)
        return list(iter(reader.take, None))


def timeless(facts: Sequence[LiveFact]) -> list[LiveFact]:
    """Return facts without what only somebody who was there can know."""
    told = [msgspec.structs.replace(fact, at=SOMETIME) for fact in facts if not isinstance(fact, EventRaised)]
    return [msgspec.structs.replace(fact, duration_ms=0) if isinstance(fact, SessionEnded) else fact for fact in told]


async def test_the_log_tells_what_was_told_live(estate: Estate) -> None:
    estate.with_judge(no_reboots)
    reads: dict[str, object] = {"tool": {"id": "toolu_3", "name": "Read", "input": {"file_path": "/etc/hosts"}}}
    steps: list[dict[str, object]] = [
        {"frame": SAID},
        look(),
        look("toolu_2", "reboot"),
        reads,
        deliver(report(needed=True, events=[FAULT])),
    ]

    live = await run_chain(estate, *steps, sessions=3)
    heard = await tailed(estate)

    assert [type(fact).__name__ for fact in timeless(heard.facts)] == [type(fact).__name__ for fact in timeless(live)]
    assert timeless(heard.facts) == timeless(live)
    assert [fact.tier for fact in heard.of(SessionBegan)] == [1, 2, 3]  # type: ignore[union-attr]
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

    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                await tailed(estate, follow=True, heard=heard)
                await supervisor.drain(20)

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
        await SessionRunner(kit=estate.kit).run(session, Control())
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


async def test_a_secret_that_became_known_later_is_not_told(estate: Estate) -> None:
    await run_chain(estate, look(command="echo later-known"), deliver(report()))
    session = await estate.store.session(1)
    assert session is not None
    heard = Heard()

    def redact(text: str) -> str:
        return text.replace("later-known", "[redacted]")

    await Tail(store=estate.store, sink=heard, redact=redact, follow=False).run(session)

    assert "later-known" not in repr(heard.facts)
