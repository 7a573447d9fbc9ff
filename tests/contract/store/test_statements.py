"""Any store: a session of a burst costs no statement, commit or thread that it does not need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio.to_thread
import pytest
import sqlalchemy as sa

from claudeops.domain.briefing import BriefingText, TextKind
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.holds import Capacity, Hold, HoldKind
from claudeops.domain.spending.budget import Budgets
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import observed, probe
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
    started,
    wanted,
)
from support.stores import Database, has_clock, opened

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

PAID: Final = replace(
    RULES,
    tiers=tuple(replace(tier, max_budget_usd=0.5) for tier in RULES.tiers),
    budgets=Budgets(chain_usd=3, day_usd=400),
)

QUEUED: Final = ("INSERT sessions", "UPDATE sessions", "COMMIT")
CLAIMED: Final = ("SELECT flags", "SELECT sessions", "UPDATE sessions", "UPDATE instances", "COMMIT")
ENDED: Final = ("SELECT sessions", "SELECT what is there", "UPDATE sessions", "INSERT service_checks", "COMMIT")

BRIEFED: Final = (
    *("SELECT sessions", "DELETE session_memories", "DELETE session_texts", "INSERT session_texts", "COMMIT"),
)
CLAIMED_FOR_MONEY: Final = (
    *("SELECT flags", "SELECT sessions", "SELECT budget_entries", "UPDATE sessions", "INSERT budget_entries"),
    *("UPDATE instances", "COMMIT"),
)
ENDED_FOR_MONEY: Final = (
    *("SELECT sessions", "SELECT what is there", "UPDATE sessions", "INSERT budget_entries", "INSERT service_checks"),
    "COMMIT",
)

_FIRST_TABLE: Final = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+(\w+)")
_BEGINS: Final = ("BEGIN", "SELECT pg_advisory")


@dataclass
class Costs:
    """The statements and commits of a block, and how many turns of a thread they took."""

    steps: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)  # as they were sent
    threads: int = 0

    def note(self, _: object, __: object, statement: str, *___: object) -> None:
        if not statement.startswith(_BEGINS):
            self.statements.append(" ".join(statement.split()))
            verb = statement.split(maxsplit=1)[0]
            found = _FIRST_TABLE.search(statement)
            table = "what is there" if " AS chain_started_at" in statement else found and found[1]
            self.steps.append(f"{verb} {table}")

    def committed(self, _: object) -> None:
        self.steps.append("COMMIT")

    def gone_to(self, _: object) -> None:
        self.threads += 1

    def __str__(self) -> str:
        return "\n".join(self.statements)


@contextmanager
def costs(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Costs]:
    """Yield what the block costs; each transaction is one turn of the writer's thread."""
    counted, run_sync = Costs(), anyio.to_thread.run_sync

    async def counting(*args: Any, **kwargs: Any) -> Any:
        counted.threads += 1
        return await run_sync(*args, **kwargs)

    writing, reading = store.database._writing, store.database._reading
    listened: list[tuple[sa.Engine, str, Callable[..., Any]]] = [
        *((engine, "before_cursor_execute", counted.note) for engine in (writing, reading)),
        (writing, "commit", counted.committed),
        (writing, "begin", counted.gone_to),
    ]
    for engine, event, listener in listened:
        sa.event.listen(engine, event, listener)
    with monkeypatch.context() as patched:
        patched.setattr(anyio.to_thread, "run_sync", counting)
        yield counted
    for engine, event, listener in listened:
        sa.event.remove(engine, event, listener)


@pytest.mark.parametrize(
    ("rules", "of_claim", "of_end"),
    [(RULES, CLAIMED, ENDED), (PAID, CLAIMED_FOR_MONEY, ENDED_FOR_MONEY)],
    ids=["without-budgets", "with-budgets"],
)
async def test_a_session_of_a_burst_takes_no_more_statements_commits_and_threads(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    rules: EscalationRules,
    of_claim: tuple[str, ...],
    of_end: tuple[str, ...],
) -> None:
    async with opened(database) as store:
        for _ in range(3):
            await queued(store)
        assert await claimed(store, with_rules=rules) is not None  # looks, and sees the others

        with costs(store, monkeypatch) as queueing:
            await queued(store)
        with costs(store, monkeypatch) as claim:
            session = await claimed(store, with_rules=rules)
        assert session is not None
        with costs(store, monkeypatch) as end:
            await store.queue.finish(ending(session, report(check("web"))), rules=rules)

    assert tuple(queueing.steps) == QUEUED, str(queueing)
    assert tuple(claim.steps) == of_claim, str(claim)
    assert tuple(end.steps) == of_end, str(end)
    assert [each.threads for each in (queueing, claim, end)] == [1, 1, 1]


async def test_looks_that_sites_share_are_written_together_and_cost_the_others_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [probe(f"web-{number}") for number in range(3)]
    shared = [probe(f"shop-{number}", sites=("main", "dock"), quorum=2) for number in range(3)]
    async with opened(database) as store:
        await store.probes.enrol((*plain, *shared), OWNER, now=NOW)
        first = list(map(observed, (*plain, *shared)))
        await store.probes.observed(first, owner=OWNER, rules=RULES, now=NOW)  # those of several sites become up
        with costs(store, monkeypatch) as of_one:
            await store.probes.observed([observed(each) for each in plain], owner=OWNER, rules=RULES, now=NOW)
        with costs(store, monkeypatch) as of_several:
            await store.probes.observed([observed(each) for each in shared], owner=OWNER, rules=RULES, now=NOW)

    assert of_one.steps == ["UPDATE probes", "SELECT cooldown_actions", "COMMIT"], str(of_one)
    assert of_several.steps == [
        *("SELECT probes", "UPDATE probe_views", "SELECT instances", "SELECT probe_views"),
        *of_one.steps,
    ], str(of_several)


async def test_the_record_of_what_a_session_reads_takes_one_statement_for_all_of_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [BriefingText(kind=TextKind.CHECK, name=f"{number}", origin="here", digest="d") for number in range(5)]
    async with opened(database) as store:
        await queued(store)
        session = await claimed(store)
        assert session is not None
        with costs(store, monkeypatch) as recording:
            await store.briefings.record(session.id, attempt=session.attempt, memory_ids=(), texts=texts)
    assert tuple(recording.steps) == BRIEFED, str(recording)


async def test_a_look_in_vain_takes_no_lock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(database) as store:
        await queued(store)
        assert await claimed(store) is not None

        with costs(store, monkeypatch) as first:
            assert await claimed(store) is None
        with costs(store, monkeypatch) as second:
            assert await claimed(store) is None

    assert [each.steps for each in (first, second)] == [["SELECT sessions"]] * 2, f"{first}\n{second}"


async def test_what_a_look_saw_long_ago_is_looked_for_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database) as store:
        first, second = await queued(store), await queued(store)
        taken = await claimed(store)

        with costs(store, monkeypatch) as claim:
            later = await claimed(store, at=after(minutes=1))

    assert (taken and taken.id, later and later.id) == (first.id, second.id)
    assert tuple(claim.steps) == ("SELECT sessions", "SELECT flags", *CLAIMED), str(claim)


async def test_a_pause_counts_though_the_look_was_before_it(database: Database) -> None:
    async with opened(database) as store:
        for _ in range(2):
            await queued(store)
        assert await claimed(store) is not None
        await store.holds.hold(Hold(kind=HoldKind.PAUSED, reason="maintenance", since=NOW), now=NOW)

        assert await claimed(store) is None
        await store.holds.release(HoldKind.PAUSED, now=NOW)
        assert await claimed(store) is not None


async def test_what_another_claimer_has_taken_since_the_look_is_not_taken_twice(database: Database) -> None:
    async with opened(database) as store, opened(database) as other:
        ids = [(await queued(store)).id for _ in range(4)]
        taken = [await claimed(store), await claimed(other, owner=OTHER_OWNER)]
        taken += [await claimed(store), await claimed(other, owner=OTHER_OWNER), await claimed(store)]

    assert [each and each.id for each in taken] == [*ids, None]


async def test_what_one_claim_had_no_room_for_is_looked_for_by_the_next(database: Database) -> None:
    async with opened(database) as store:
        older = await queued(store, wanted(2))
        younger = [await queued(store) for _ in range(2)]
        only_the_lowest = await taken_within(store, Capacity(sessions=1, above=0))
        any_tier = await taken_within(store, Capacity(sessions=1, above=1))

    assert (only_the_lowest, any_tier) == ([younger[0].id], [older.id])


async def test_sqlite_is_opened_once_for_all_that_is_written(sqlite: Database) -> None:
    opens: list[object] = []
    async with opened(sqlite) as store:
        sa.event.listen(store.database._writing, "connect", lambda connection, _: opens.append(connection))
        for _ in range(3):
            await queued(store)

    assert len(opens) == 1


async def taken_within(store: Store, room: Capacity) -> list[int]:
    taken = await store.claims.claim(OWNER, rules=RULES, now=NOW, cli_session_id=str, log_path=str, room=room)
    return [session.id for session in taken]


async def test_sign_of_life_looks_for_dead_owners_without_a_statement_of_its_own(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)

    with costs(store, monkeypatch) as counted:
        await store.recovery.renew_lease(OWNER, now=NOW)

    clock = ["SELECT None"] if has_clock(database) else []
    looks = ["UPDATE instances", "SELECT leases"]  # the last is of revision, owners, and whether a session runs
    assert counted.steps == [*looks, *clock, "COMMIT"], counted


async def test_sign_of_life_renews_sessions_where_there_are_some(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)
    session = await started(store)

    with costs(store, monkeypatch) as counted:
        life = await store.recovery.renew_lease(OWNER, now=NOW)

    clock = ["SELECT None"] if has_clock(database) else []
    looks = ["UPDATE instances", "SELECT leases", "UPDATE sessions", "SELECT sessions"]
    assert counted.steps == [*looks, *clock, "COMMIT"], counted
    assert life.running == {(session.id, session.attempt)}


async def test_sign_of_life_says_again_only_what_has_changed_of_what_a_node_decides_by(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    await store.recovery.reconcile(OWNER, now=NOW, alive=lambda _: True)
    for policy in ("first", "first", "edited", "first"):
        with costs(store, monkeypatch) as counted:
            await store.recovery.renew_lease(OWNER, now=NOW, digests={"policy": policy})
        written.append("digests=" in counted.statements[0])

    assert written == [True, False, True, True]


async def test_a_service_under_repair_costs_one_statement_of_the_call_that_changes_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(database) as store:
        await store.recovery.renew_lease(OWNER, now=NOW)
        session = await started(store, wanted(2))
        with costs(store, monkeypatch) as look:
            await recorded(store, session, "toolu_1", allow())
        with costs(store, monkeypatch) as change:
            await recorded(store, session, "toolu_2", allow(restart()))
        with costs(store, monkeypatch) as repairing:
            await store.recovery.renew_lease(OWNER, now=NOW)
        await store.queue.finish(ending(session, report(check("web"))), rules=RULES)
        with costs(store, monkeypatch) as quiet:
            await store.recovery.renew_lease(OWNER, now=NOW)

    assert look.steps == ["SELECT sessions", "INSERT tool_calls", "UPDATE sessions", "COMMIT"]
    assert [step for step in change.steps if step.endswith("leases")] == ["INSERT leases"]
    of_sessions = ["UPDATE sessions", "SELECT sessions"]  # one runs
    assert sorted(repairing.steps) == sorted([*quiet.steps, *of_sessions, "UPDATE leases"])
