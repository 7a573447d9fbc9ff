"""Any store: what explains why nothing was done is found, of each kind, for the service alone, and without a scan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import pytest
import sqlalchemy as sa

from claudeops.domain.alerts.alert import SenderBody, Silence
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.gate.approval import Answer, ApprovalStatus, NewApproval
from claudeops.domain.holds import Hold, HoldKind
from claudeops.domain.probes.history import Bucket
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.record import Stretch
from claudeops.domain.schedules.plan import Fire, SkipReason
from claudeops.domain.sessions import Session, Trigger
from claudeops.domain.why import Reason, ReasonTone, Why, WhyKind
from claudeops.store.reading.why import reasons
from claudeops.store.store import Store
from claudeops.structs import replace
from support.alerts import SOURCE, alert, bring, rules_of
from support.probe_values import probe, turned
from support.store_values import (
    NOW,
    OWNER,
    RULES,
    after,
    alarm,
    allow,
    call,
    check,
    claimed,
    ending,
    one_session,
    queued,
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)

pytestmark = pytest.mark.dialect

HOURS: Final = 6
DENIED: Final = Verdict(kind=VerdictKind.DENY, reason="docker rm is not allowed")


def why(
    database: Database,
    service: str | None = "WEB",
    *,
    since: datetime = NOW,
    until: datetime | None = None,
    limit: int = 50,
) -> Why:
    with database.connect() as connection:
        return reasons(connection, service=service, since=since, until=until or after(hours=HOURS), limit=limit)


def of_kind(found: Why, kind: WhyKind) -> list[Reason]:
    return [reason for reason in found.reasons if reason.kind is kind]


def texts(database: Database, kind: WhyKind, service: str | None = "WEB") -> list[str]:
    return [reason.text for reason in of_kind(why(database, service), kind)]


async def alerts_came(store: Store, *bodies: tuple[str, datetime], service: str = "web") -> None:
    about = AlertFiles(alerts=rules_of(), escalation=RULES)
    for key, at in bodies:
        said = SenderBody(source=SOURCE, key=key, alerts=(alert(service=service),), group_key="g")
        posted = ReceivedBody(content=said, received_at=at)
        await bring(store.alerts, [posted], about, lambda tier, told: wanted(tier, context=told), now=at)


async def silence(store: Store, matcher: str) -> None:
    one = Silence(
        id=0, matchers=read_matchers([matcher]), starts_at=NOW, ends_at=after(hours=2), created_by="ada", comment="move"
    )
    await store.silences.add(one)


def question(session: Session) -> NewApproval:
    return NewApproval(
        session=session,
        call=call(),
        call_hash="0123",
        workdir="/work",
        redacted_input='{"command":"docker restart web"}',
        scripts=(),
        reason="restarts the database",
        requested_at=NOW,
        expires_at=after(minutes=15),
        services=("Web",),
    )


# --- one of each kind -------------------------------------------------------------------------------------------


async def test_fires_that_started_nothing_concern_every_service(store: Store, database: Database) -> None:
    hourly = Fire(schedule="hourly", due_at=NOW)
    await store.schedules.fire(hourly, wanted(), rules=RULES, now=NOW)
    await store.schedules.fire(replace(hourly, due_at=after(hours=1)), wanted(), rules=RULES, now=after(hours=1))
    unchanged = replace(hourly, schedule="probed", due_at=after(hours=2), skip=SkipReason.UNCHANGED)
    await store.schedules.fire(unchanged, wanted(), rules=RULES, now=after(hours=2))

    found = of_kind(why(database), WhyKind.FIRE)

    assert [reason.text for reason in found] == [
        "Schedule hourly fired and started chain 1.",
        "Schedule hourly started nothing: a chain of this schedule has not ended.",
        "Schedule probed started nothing: every probe is up, and nothing has changed since a model last looked.",
    ]
    assert [(reason.chain, reason.level) for reason in found] == [
        (1, ReasonTone.NEUTRAL),
        (None, ReasonTone.NEUTRAL),
        (None, ReasonTone.GOOD),
    ]


async def test_a_decision_about_an_alert_says_why_and_a_thousand_repetitions_hide_nothing(
    store: Store, database: Database
) -> None:
    await alerts_came(store, ("a", NOW), *((f"b{n}", after(minutes=n)) for n in range(1, 4)), service="Web")
    await alerts_came(store, ("other", after(minutes=9)), service="db")

    first, again = of_kind(why(database), WhyKind.ALERT)

    assert first.text.startswith("Alert Down of Web started a chain: ")
    assert (first.chain, first.incident) == (1, 1)
    assert again.text == "Alert Down of Web came 3 times more, which changed nothing."
    assert again.at == after(minutes=3)


async def test_a_silence_names_who_and_until_when_and_only_where_it_can_fit(store: Store, database: Database) -> None:
    await silence(store, 'service="web"')
    await silence(store, 'service="db"')
    await silence(store, 'alertname="Slow"')

    assert texts(database, WhyKind.SILENCE, "web") == [
        'ada silenced service="web" until 2026-03-01 14:00 UTC (silence 1): move.',
        'ada silenced alertname="Slow" until 2026-03-01 14:00 UTC (silence 3): move.',
    ]
    assert of_kind(why(database, since=after(hours=2)), WhyKind.SILENCE) == []


async def test_probes_say_what_changed_what_stands_and_what_was_too_rare(store: Store, database: Database) -> None:
    await store.probes.enrol((probe("web"), probe("db")), OWNER, now=NOW)
    down = turned(probe("web"), ProbeState.DOWN, at=after(minutes=1))
    await store.probes.observed([down], owner=OWNER, rules=RULES, now=after(minutes=1))
    few = Stretch(probe="web", start=after(hours=1), bucket=Bucket(checks=10, failures=2))
    await store.probes.add_history([few, replace(few, start=after(hours=2), bucket=Bucket(checks=10))])

    changed, rare = texts(database, WhyKind.PROBE)
    assert changed.startswith("The probes found web down: web: ")
    assert rare == "Probe web failed in 2 of 20 looks, around 2026-03-01 13:00 UTC."

    [stands] = of_kind(why(database, since=after(minutes=90)), WhyKind.PROBE)
    assert stands.text == "Probe web says down, without a change since 2026-03-01 12:01 UTC."
    assert stands.at == after(minutes=1)


async def test_a_look_of_a_session_is_a_reason_for_its_service_alone(store: Store, database: Database) -> None:
    await one_session(store, report(check("Web"), check("db")))

    [seen] = of_kind(why(database), WhyKind.CHECK)
    assert (seen.text, seen.level) == ("Session 1 found Web healthy.", ReasonTone.GOOD)
    assert (seen.session_id, seen.chain) == (1, 1)


async def test_a_session_is_followed_from_the_queue_to_what_was_concluded(store: Store, database: Database) -> None:
    await queued(store, wanted(services=("web",)))
    session = await claimed(store, at=after(hours=1))
    assert session is not None
    await store.queue.finish(ending(session, alarm("db")), rules=RULES)
    other = await queued(store, wanted(services=("db",)), at=after(hours=2))

    found = [reason.text for reason in of_kind(why(database), WhyKind.SESSION) if reason.session_id == 1]

    assert found == [
        "Session 1 (tier 1, manual) was queued.",
        "Session 1 (tier 1, manual) started after 60 min in the queue.",
        "Session 1 (tier 1, manual) ended with success: handed over to the next tier.",
    ]
    ids = {reason.session_id for reason in of_kind(why(database), WhyKind.SESSION)}
    assert other.id not in ids, "a session that was asked to look at db alone explains nothing about web"


async def test_a_round_that_says_nothing_of_the_service_is_there_and_is_no_word_about_it(
    store: Store, database: Database
) -> None:
    await one_session(store, report(check("db")), trigger=Trigger.SCHEDULED)
    found = why(database)
    assert [reason.session_id for reason in of_kind(found, WhyKind.SESSION)] == [1, 1]
    assert found.silent


async def test_a_denied_call_says_the_rule_and_one_about_something_else_is_left_out(
    store: Store, database: Database
) -> None:
    session = await started(store)
    command = '{"command":"docker rm web"}'
    await store.calls.record_call(
        session, call(), DENIED, redacted_input=command, rules=RULES, requested_at=NOW, now=NOW
    )
    await recorded(store, session, "toolu_2", allow())

    [denied] = texts(database, WhyKind.CALL)
    assert denied == "A call of session 1 was denied (Bash: docker rm web): docker rm is not allowed."
    assert texts(database, WhyKind.CALL, "nas") == []
    assert len(texts(database, WhyKind.CALL, None)) == 1


async def test_questions_without_a_yes_say_whether_a_no_or_no_answer_came(store: Store, database: Database) -> None:
    session = await started(store)
    for _ in range(4):
        await store.approvals.request_approval(question(session))
    no = Answer(status=ApprovalStatus.DENIED, decided_by="ada", decided_at=after(minutes=3), mac="proof")
    await store.approvals.close_approval(1, now=after(minutes=15))
    await store.approvals.answer_approval(2, no)
    await store.approvals.answer_approval(4, replace(no, status=ApprovalStatus.APPROVED))

    assert texts(database, WhyKind.APPROVAL) == [
        "Question 3 waits for an answer until 2026-03-01 12:15 UTC (Bash: docker restart web).",
        "Question 2 was answered with no by ada (Bash: docker restart web).",
        "No answer came to question 1 until 2026-03-01 12:15 UTC, so the call did not run (Bash: docker restart web).",
    ]
    assert texts(database, WhyKind.APPROVAL, "nas") == []


async def test_a_limit_says_what_it_held_back_and_what_was_done_says_whether_it_held(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(2))
    for number in range(3):  # two are allowed
        await recorded(store, session, f"toolu_{number}", allow(restart()), at=after(minutes=number))
    await store.queue.finish(ending(session, report(check("web")), ended_at=after(minutes=9)), rules=RULES)
    database.execute(
        "UPDATE cooldown_actions SET success = true, error = NULL, held = 'relapsed',"
        " held_checked_at = (SELECT ended_at FROM sessions) WHERE id = 1"
    )
    database.execute("UPDATE cooldown_actions SET cleared_at = (SELECT ended_at FROM sessions) WHERE id = 2")

    [limit] = texts(database, WhyKind.COOLDOWN)
    assert limit.startswith("A limit held session 1 back: restart of web refused: 2 of 2 allowed within 4 h are used")
    done, cleared, held = texts(database, WhyKind.ACTION)
    assert done == "Session 1 did a restart of web."
    assert cleared == "Session 1 did a restart of web, which failed: no result seen."
    assert held == "The restart of web by session 1 did not hold."
    assert texts(database, WhyKind.ACTION, "db") == []


async def test_a_hold_is_a_reason_for_as_long_as_it_holds_even_if_it_began_before(
    store: Store, database: Database
) -> None:
    paused = Hold(kind=HoldKind.PAUSED, reason="supper", since=NOW, by="ada")
    parked = Hold(kind=HoldKind.PARKED, reason="the rate limit is reached", since=NOW, until=after(hours=4))
    await store.holds.hold(paused, now=NOW)
    await store.holds.hold(parked, now=NOW)
    await store.holds.release(HoldKind.PAUSED, now=after(hours=3))

    found = of_kind(why(database, since=after(hours=1)), WhyKind.HOLD)
    assert {(reason.text, reason.level) for reason in found} == {
        ("No session starts until 2026-03-01 16:00 UTC (parked): the rate limit is reached.", ReasonTone.BAD),
        ("No session starts until 2026-03-01 15:00 UTC (paused): supper.", ReasonTone.NEUTRAL),
    }
    assert [reason.at for reason in found] == [NOW, NOW]
    assert "paused" not in str(of_kind(why(database, since=after(hours=3, minutes=1)), WhyKind.HOLD))


async def test_events_of_the_service_and_faults_of_the_daemon_are_reasons_and_others_are_not(
    store: Store, database: Database
) -> None:
    said = tuple(NewEvent(level=EventLevel.WARNING, message=f"{name} is slow", service=name) for name in ("Web", "db"))
    await one_session(store, report(check("db"), events=said))

    assert texts(database, WhyKind.EVENT) == ["Web: Web is slow (warning)."]
    assert "db: db is slow (warning)." in texts(database, WhyKind.EVENT, None)


# --- the answer as a whole ----------------------------------------------------------------------------------------


async def test_reasons_are_in_the_order_of_time_and_the_latest_are_kept_with_what_still_holds(
    store: Store, database: Database
) -> None:
    await store.holds.hold(Hold(kind=HoldKind.DISK, reason="a disk is full", since=NOW), now=NOW)
    for hour in range(1, 5):
        fire = Fire(schedule="hourly", due_at=after(hours=hour), skip=SkipReason.QUIET_HOURS)
        await store.schedules.fire(fire, wanted(), rules=RULES, now=after(hours=hour))

    found = why(database, None, since=after(minutes=1), limit=3)

    assert [reason.at for reason in found.reasons] == [NOW, after(hours=3), after(hours=4)]
    assert (found.cut, found.silent) == (True, False)
    assert not why(database, None, since=after(minutes=1), limit=5).cut


async def test_silence_says_what_was_last_on_record_before_it(store: Store, database: Database) -> None:
    nothing = why(database)
    assert (nothing.reasons, nothing.silent, nothing.before) == ((), True, None)

    await one_session(store, report(check("Web")))
    await one_session(store, report(check("db")), at=after(hours=1))
    found = why(database, since=after(days=5), until=after(days=5, hours=6))

    assert (found.reasons, found.silent) == ((), True)
    assert found.before is not None
    assert found.before.session_id == 1


# --- indexes ------------------------------------------------------------------------------------------------------

BIG: Final = ("events", "tool_calls", "sessions", "service_checks", "alert_decisions", "schedule_fires")
BIG_SCAN: Final = re.compile(rf"SCAN ({'|'.join((*BIG, 'cooldown_actions', 'probe_history', 'root'))})\b")


@contextmanager
def statements(connection: sa.Connection) -> Iterator[list[tuple[str, object]]]:
    """Yield the list of the statements that are run on a connection, with their values."""
    run: list[tuple[str, object]] = []

    def note(_c: object, _cursor: object, statement: str, values: object, _context: object, _many: object) -> None:
        run.append((statement, values))

    sa.event.listen(connection, "before_cursor_execute", note)
    yield run
    sa.event.remove(connection, "before_cursor_execute", note)


async def something_of_everything(database: Database) -> None:
    store = database.open()
    try:
        await store.probes.enrol((probe("web"),), OWNER, now=NOW)
        await one_session(store, alarm("web"))
        session = await claimed(store, at=after(minutes=5))
        assert session is not None
        await alerts_came(store, ("a", NOW))
        await recorded(store, session, "toolu_1", allow(restart()))
        await store.approvals.request_approval(question(session))
    finally:
        await store.close()


@pytest.mark.parametrize("service", ["web", None])
async def test_no_statement_reads_a_whole_table(sqlite: Database, service: str | None) -> None:
    await something_of_everything(sqlite)
    with sqlite.connect() as connection:
        with statements(connection) as run:
            reasons(connection, service=service, since=NOW, until=after(hours=HOURS), limit=50)
            reasons(connection, service=service, since=after(days=40), until=after(days=41), limit=50)
        plans = [
            (statement, str(line[3]))
            for statement, values in run
            for line in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)  # type: ignore[arg-type]  # as they were
        ]

    assert len(run) > 30
    assert [plan for plan in plans if BIG_SCAN.search(plan[1])] == []
    assert [statement for statement, _ in run if "LIMIT" not in statement and "RECURSIVE" not in statement] == [
        statement for statement, _ in run if "FROM flags" in statement
    ]


async def test_a_session_whose_site_has_no_daemon_says_what_it_waits_for(store: Store, database: Database) -> None:
    await queued(store, wanted(site="harbour"))
    sentence = "Session 1 (tier 1, manual) waits for a node of site harbour, and no daemon runs there."
    await store.recovery.renew_lease(OWNER, now=NOW)
    assert sentence in texts(database, WhyKind.SESSION, None)

    await store.recovery.renew_lease(replace(OWNER, name="node-3", site="harbour"), now=NOW)
    assert sentence not in texts(database, WhyKind.SESSION, None)


async def test_a_session_whose_machine_has_no_daemon_says_what_it_waits_for(store: Store, database: Database) -> None:
    await queued(store, wanted(site="main", for_node="loft"))
    sentence = (
        "Session 1 (tier 1, manual) waits for node loft, and no daemon runs there: start it, or cancel the session "
        "with `claudeops stop 1`."
    )
    await store.recovery.renew_lease(OWNER, now=NOW)
    assert sentence in texts(database, WhyKind.SESSION, None)

    await store.recovery.renew_lease(replace(OWNER, name="node-3", node="loft"), now=NOW)
    assert sentence not in texts(database, WhyKind.SESSION, None)


async def test_a_session_waits_for_no_site_where_a_daemon_is_alone(store: Store, database: Database) -> None:
    await queued(store, wanted(site="harbour"))
    await store.recovery.renew_lease(replace(OWNER, is_alone=True), now=NOW)
    assert not [text for text in texts(database, WhyKind.SESSION, None) if "waits for a node" in text]
