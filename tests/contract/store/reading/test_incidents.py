"""Any store: an incident with its timeline, silences, sources and questions, as commands, pages and API answer."""

from __future__ import annotations

import pytest

from claudeops.domain.alerts.alert import IncidentStatus, SenderBody, Silence
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.answers import document
from claudeops.domain.events import EventLevel
from claudeops.domain.gate.approval import Approval, ApprovalStatus
from claudeops.domain.listing import Listing
from claudeops.store.reading import silences, sources
from claudeops.store.reading.approvals import to_entry
from claudeops.store.reading.incidents import entries
from claudeops.store.reading.incidents import story as stories
from claudeops.store.store import Store
from claudeops.structs import replace
from support.alerts import SOURCE, alert, bring, rules_of
from support.store_values import NOW, RULES, after, claimed, ending, report, wanted
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)


@pytest.fixture
async def alarmed(store: Store) -> None:
    """Have an alert start a chain, whose only session has ended, and a person on its incident."""
    posted = ReceivedBody(content=SenderBody(source=SOURCE, key="a", alerts=(alert(),), group_key="g"), received_at=NOW)
    about = AlertFiles(alerts=rules_of(), escalation=RULES)
    await bring(store.alerts, [posted], about, lambda tier, said: wanted(tier, context=said), now=NOW)
    session = await claimed(store, at=after(minutes=1))
    assert session is not None
    await store.queue.finish(ending(session, report(), cost_usd=0.5), rules=RULES)
    await store.incidents.acknowledge(1, by="alice", now=after(minutes=5))


@pytest.mark.dialect
@pytest.mark.usefixtures("alarmed")
async def test_an_incident_is_the_same_in_the_list_and_alone(database: Database) -> None:
    now = after(minutes=90)
    with database.connect() as connection:
        [entry] = entries.listed(connection, Listing(), everything=False, now=now).items
        story = stories.story(connection, 1, now=now)
        assert stories.story(connection, 2, now=now) is None
        assert stories.awaits_look(connection, 2) is False

    assert story is not None
    assert (entry.incident, entry.status, entry.services) == (1, IncidentStatus.ACKNOWLEDGED, ("shop",))
    assert (entry.lasted_s, entry.acked_by, entry.chain, entry.spend_usd) == (90 * 60, "alice", 1, 0.5)
    head = document(entry)
    assert {name: value for name, value in document(story).items() if name in head} == head
    assert list(document(story))[: len(head)] == list(head)


@pytest.mark.dialect
@pytest.mark.usefixtures("alarmed")
async def test_a_timeline_has_every_kind_of_entry_and_the_order_of_time(database: Database) -> None:
    with database.connect() as connection:
        story = stories.story(connection, 1, now=after(hours=1))
    assert story is not None
    found = stories.timeline(story)

    assert [one.at for one in found] == sorted(one.at for one in found)
    assert {one.kind for one in found} >= {"alert", "session", "notice"}
    [start, end] = [one for one in found if one.kind == "session"]
    assert (start.at, start.text) == (story.sessions[0].started_at, "session 1 (tier 1) starts")
    assert (end.at, end.text.startswith("session 1 (tier 1): ")) == (story.sessions[0].ended_at, True)


def test_what_has_not_begun_is_in_no_timeline() -> None:
    waiting = stories.StorySession(
        id=1,
        chain=1,
        tier=1,
        status="queued",
        outcome=None,
        decision_reason=None,
        started_at=None,
        ended_at=None,
        cost_usd=None,
        summary=None,
    )
    action = stories.StoryAction(at=NOW, action_type="restart", service="web", success=None, session=1)
    notice = stories.StoryNotice(at=NOW, target="ops", text="web is down", result=None)
    event = stories.StoryEvent(at=after(minutes=1), level="info", message="later", resolved_at=None)
    story = stories.IncidentStory(
        incident=1,
        status=IncidentStatus.OPEN,
        severity=EventLevel.WARNING,
        services=("web",),
        opened_at=NOW,
        resolved_at=None,
        lasted_s=0,
        reopened=0,
        acked_by=None,
        acked_at=None,
        chain=None,
        spend_usd=None,
        last_action_at=None,
        witnesses=(),
        alerts=(),
        decisions=(),
        sessions=(waiting,),
        actions=(action,),
        events=(event,),
        notices=(notice,),
    )
    assert [(one.kind, one.text) for one in stories.timeline(story)] == [
        ("action", "session 1: restart of web"),
        ("notice", "on its way to ops: web is down"),
        ("event", "later"),
    ]


@pytest.mark.dialect
async def test_a_silence_that_is_over_is_listed_only_among_all(store: Store, database: Database) -> None:
    matchers = read_matchers(['service="web"'])
    silence = Silence(id=0, matchers=matchers, starts_at=NOW, ends_at=after(minutes=30), created_by="alice")
    kept = await store.silences.add(silence)

    with database.connect() as connection:
        assert silences.listed(connection, after(hours=1), everything=False) == ()
        [found] = silences.listed(connection, after(hours=1), everything=True)
        assert list(silences.listed(connection, NOW, everything=False)) == [found]
    assert found == silences.to_entry(replace(silence, id=kept.id))
    assert (found.matchers, found.ended_by) == (('service="web"',), None)


@pytest.mark.dialect
@pytest.mark.usefixtures("alarmed")
async def test_sources_that_are_declared_come_first_and_those_that_never_sent_are_among_them(
    database: Database,
) -> None:
    quiet = AlertSource(name="quiet", kind=SenderKind.GENERIC)
    with database.connect() as connection:
        found = sources.listed(connection, [quiet])
        [known] = sources.listed(connection, [AlertSource(name=SOURCE, kind=SenderKind.ALERTMANAGER)])

    assert [(one.source, one.declared, one.kind) for one in found] == [
        ("quiet", True, SenderKind.GENERIC),
        (SOURCE, False, None),
    ]
    assert (found[0].bodies, found[0].readable, found[0].heard_at) == (0, True, None)
    assert (known.source, known.declared, known.bodies) == (SOURCE, True, 1)


def test_nothing_of_a_call_hides_from_whoever_lets_it_run() -> None:
    asked = Approval(
        id=1,
        session_id=1,
        tool_use_id="toolu_1",
        call_hash="x",
        status=ApprovalStatus.PENDING,
        requested_at=NOW,
        expires_at=after(minutes=5),
        input='{"command": ["rm \\u202e", {"\\u200b": "\\u2764\\ufe0f"}]}',
        scripts='[{"path": "/x\\u202e", "sha256": "ab", "text": "echo \\ufe0f"}]',
    )
    entry = to_entry(asked)
    assert entry.input == {"command": ["rm \\u202e", {"\\u200b": "\u2764\\ufe0f"}]}
    assert [(script.path, script.text) for script in entry.scripts] == [("/x\\u202e", "echo \\ufe0f")]
    assert to_entry(replace(asked, input="no JSON", scripts="nor this")).input == {"input": "no JSON"}
    assert document(entry)["input"] == entry.input
