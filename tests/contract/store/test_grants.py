"""Any store: who may act on a service, whose word clears its counters, and how a chain ends that was held back."""

from __future__ import annotations

from datetime import datetime

import pytest

from claudeops.domain.calls import ToolEnd, Verdict, VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.report.report import Escalation, Report, ServiceStatus
from claudeops.domain.sessions import DecisionReason, Handover, Outcome, Session
from claudeops.store.store import Store
from claudeops.structs import replace
from support.probe_values import observed, probe, turned
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
    recorded,
    report,
    restart,
    started,
    wanted,
)
from support.stores import Database

pytest_plugins = ("support.store_fixtures",)


async def restarted(store: Store, session: Session, service: str, name: str = "toolu_1") -> Verdict:
    return await recorded(store, session, name, allow(restart(service)))


@pytest.mark.parametrize(
    ("request_text", "service", "kind"),
    [
        pytest.param(None, "web", VerdictKind.DENY, id="nobody named anything"),
        pytest.param("web is down", "web", VerdictKind.ALLOW, id="by the request"),
        pytest.param("Restart WEB, please.", "web", VerdictKind.ALLOW, id="whatever its case"),
        pytest.param("the webhook is down", "web", VerdictKind.DENY, id="not as part of a word"),
        pytest.param("web-2 is down", "web", VerdictKind.DENY, id="not as part of another name"),
        pytest.param("web.old is down", "web", VerdictKind.DENY, id="nor of a dotted one"),
        pytest.param("db is down. Look at web.", "web", VerdictKind.ALLOW, id="at the end of a sentence"),
        pytest.param("something is down", " ", VerdictKind.DENY, id="a name of nothing"),
        pytest.param("web is down", "web1/web", VerdictKind.DENY, id="not the one on another host"),
        pytest.param("web1/web is down", "web", VerdictKind.DENY, id="the one on another host is not ours"),
        pytest.param("web1/web is down", "web1", VerdictKind.DENY, id="a host is no service"),
        pytest.param("web1/web is down", "web1/web", VerdictKind.ALLOW, id="by its whole name"),
        pytest.param("web1/web is down", "web2/web", VerdictKind.DENY, id="not on a third host"),
        pytest.param("web on web1 is down", "web1/web", VerdictKind.ALLOW, id="by each part of its name"),
        pytest.param("web on web1 is down", "web2/web", VerdictKind.DENY, id="not by some of the parts"),
        pytest.param("namespace:media/web is down", "web", VerdictKind.DENY, id="not one of a namespace"),
        pytest.param("namespace:media/web is down", "media", VerdictKind.DENY, id="a namespace is no service"),
        pytest.param("media/web is down", "namespace:media/web", VerdictKind.DENY, id="a host is no namespace"),
        pytest.param("web in media is down", "namespace:media/web", VerdictKind.ALLOW, id="parts without their kinds"),
        pytest.param("web in media", "context:prod/namespace:media/web", VerdictKind.DENY, id="not in another cluster"),
        pytest.param("http://web/health fails", "web", VerdictKind.ALLOW, id="as the host of an address"),
        pytest.param("web web " * 20_000, "webs", VerdictKind.DENY, id="a long text takes no long time"),
    ],
)
async def test_who_starts_a_chain_says_what_it_may_act_on(
    store: Store, request_text: str | None, service: str, kind: VerdictKind
) -> None:
    session = await started(store, wanted(2, prompt_text=request_text))

    verdict = await restarted(store, session, service)

    assert verdict.kind is kind
    assert verdict.kind is VerdictKind.ALLOW or "found" in verdict.reason


async def test_earlier_session_of_the_chain_says_what_a_later_one_may_act_on(store: Store, database: Database) -> None:
    first = await started(store)
    await store.queue.finish(ending(first, alarm("web")), rules=RULES)
    second = await claimed(store, at=after(minutes=2))
    assert second is not None

    assert (await restarted(store, second, "web")).kind is VerdictKind.ALLOW
    refused = await restarted(store, second, "db", "toolu_2")
    assert refused.kind is VerdictKind.DENY
    assert "(found unhealthy: web)" in refused.reason
    assert len(database.rows("cooldown_actions")) == 1


async def test_what_was_found_on_one_host_is_no_leave_to_act_on_another(store: Store, database: Database) -> None:
    await store.queue.finish(ending(await started(store), alarm("web")), rules=RULES)
    second = await claimed(store, at=after(minutes=2))
    assert second is not None

    for number, elsewhere in enumerate(("web1/web", "namespace:media/web", "context:prod/web", "project:media/web")):
        refused = await restarted(store, second, elsewhere, f"toolu_{number}")
        assert refused.kind is VerdictKind.DENY
        assert elsewhere in refused.reason
    assert database.rows("cooldown_actions") == []
    assert (await restarted(store, second, "web", "toolu_9")).kind is VerdictKind.ALLOW


@pytest.mark.dialect
async def test_a_limit_holds_for_one_host_and_leaves_the_other_its_own(store: Store, database: Database) -> None:
    session = await started(store, wanted(2, prompt_text="web1/web and web2/web are down"))

    for number in range(RULES.limits["restart"].count):
        assert (await restarted(store, session, "web1/web", f"toolu_{number}")).kind is VerdictKind.ALLOW
    assert (await restarted(store, session, "WEB1/web", "toolu_8")).kind is VerdictKind.DENY
    assert (await restarted(store, session, "web2/web", "toolu_9")).kind is VerdictKind.ALLOW
    assert {row["service"] for row in database.rows("cooldown_actions")} == {"web1/web", "web2/web"}


async def test_another_name_counts_for_the_place_it_names_alone(store: Store) -> None:
    session = await started(store, wanted(2, prompt_text="web1/web is down"))
    rules = replace(RULES, other_names={"web1/web": "shop"})

    for service, name, kind in (("shop", "toolu_1", VerdictKind.ALLOW), ("web", "toolu_2", VerdictKind.DENY)):
        verdict = await store.calls.record_call(
            session, call(name), allow(restart(service)), redacted_input="{}", rules=rules, requested_at=NOW, now=NOW
        )
        assert verdict.kind is kind


@pytest.mark.dialect
async def test_handover_that_started_a_chain_says_it_too(store: Store) -> None:
    told = Handover(reason="alert", findings="", service_status=(check("web", ServiceStatus.DEGRADED), check("db")))
    session = await started(store, wanted(2, prompt_text=None, context=told))

    assert (await restarted(store, session, "web")).kind is VerdictKind.ALLOW
    assert (await restarted(store, session, "db", "toolu_2")).kind is VerdictKind.DENY


async def test_a_service_is_found_by_any_of_its_names(store: Store) -> None:
    session = await started(store, wanted(2, prompt_text="media-web-1 is down"))
    rules = replace(RULES, other_names={"media-web-1": "web", "media-db-1": "db"})

    for service, name, kind in (("web", "toolu_1", VerdictKind.ALLOW), ("db", "toolu_2", VerdictKind.DENY)):
        verdict = await store.calls.record_call(
            session, call(name), allow(restart(service)), redacted_input="{}", rules=rules, requested_at=NOW, now=NOW
        )
        assert verdict.kind is kind


async def test_what_another_chain_found_is_no_leave_to_act(store: Store) -> None:
    await store.queue.finish(ending(await started(store), report(check("web", ServiceStatus.DOWN))), rules=RULES)
    session = await started(store, wanted(2, prompt_text=None), at=after(minutes=10))

    assert (await restarted(store, session, "web")).kind is VerdictKind.DENY


async def test_lowest_tier_acts_by_its_policy_alone(store: Store) -> None:
    assert (await restarted(store, await started(store), "web")).kind is VerdictKind.ALLOW


async def healthy_chain(store: Store, at: datetime, **changes: object) -> None:
    session = await started(store, at=at)
    await store.queue.finish(ending(session, report(check("web")), **changes), rules=RULES)


async def counted(database: Database) -> int:
    return len([row for row in database.rows("cooldown_actions") if row["cleared_at"] is None])


async def test_two_looks_of_the_chain_that_acted_clear_nothing(store: Store, database: Database) -> None:
    """Tier 2 restarts, then tier 2 and tier 3 of the same chain call the service healthy."""
    await store.queue.finish(ending(await started(store), alarm()), rules=RULES)
    second = await claimed(store, at=after(minutes=2))
    assert second is not None
    await restarted(store, second, "web")
    goes_on = report(check("web"), escalation=Escalation(needed=True, reason="look again", failed_checks=("db",)))
    await store.queue.finish(ending(second, goes_on), rules=RULES)
    third = await claimed(store, at=after(minutes=4))
    assert third is not None
    await store.queue.finish(ending(third, report(check("web"))), rules=RULES)
    assert await counted(database) == 1

    await healthy_chain(store, after(minutes=10))
    assert await counted(database) == 1
    await healthy_chain(store, after(minutes=20))
    assert await counted(database) == 0


async def test_chain_that_began_to_look_before_the_action_is_no_witness(store: Store, database: Database) -> None:
    early = await started(store, at=after(minutes=-5))
    acting = await started(store, wanted(2))
    await restarted(store, acting, "web")
    await store.queue.finish(ending(acting, report()), rules=RULES)
    await store.queue.finish(ending(early, report(check("web")), ended_at=after(minutes=5)), rules=RULES)
    await healthy_chain(store, after(minutes=10))

    assert await counted(database) == 1


async def held_back(store: Store, said: Report, tier: int = 3) -> DecisionReason:
    """Let a chain of one session use the limit up, ask once more in vain, look, and end with a report."""
    session = await started(store, wanted(tier))
    for number in range(3):
        await restarted(store, session, "web", f"toolu_{number}")
    ends = tuple(
        ToolEnd(tool_use_id=f"toolu_{number}", ended_at=after(minutes=1), is_error=number == 2) for number in range(3)
    )
    look = EvidenceLook(names=frozenset({"web"}), results_before=3)
    end = ending(session, said, tool_ends=ends, looks=(look,))
    return (await store.queue.finish(end, rules=RULES)).decision.reason


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(alarm(), id="it asks for more at the last tier"),
        pytest.param(report(check("web", ServiceStatus.DOWN)), id="it stands down over a broken service"),
        pytest.param(report(check("web", ServiceStatus.DEGRADED)), id="it stands down over a degraded one"),
    ],
)
async def test_chain_that_its_cooldown_held_back_ends_as_cooldown(
    store: Store, database: Database, said: Report
) -> None:
    assert await held_back(store, said) is DecisionReason.COOLDOWN

    assert (EventLevel.CRITICAL, "web") in [(row["level"], row["service"]) for row in database.rows("events")]


async def test_chain_whose_service_recovered_all_the_same_is_healthy(store: Store) -> None:
    assert await held_back(store, report(check("web"))) is DecisionReason.HEALTHY


async def test_chain_that_failed_says_so_first(store: Store) -> None:
    session = await started(store, wanted(3))
    for number in range(3):
        await restarted(store, session, "web", f"toolu_{number}")
    finished = await store.queue.finish(
        ending(session, report(check("web", ServiceStatus.DOWN)), outcome=Outcome.TIMEOUT), rules=RULES
    )

    assert finished.decision.reason is DecisionReason.SESSION_FAILED


async def test_earlier_session_that_was_held_back_counts_for_the_end_of_its_chain(store: Store) -> None:
    await store.queue.finish(ending(await started(store), alarm()), rules=RULES)
    second = await claimed(store, at=after(minutes=2))
    assert second is not None
    for number in range(3):
        await restarted(store, second, "web", f"toolu_{number}")
    # Another kind of action is left to tier 3, so the chain goes on.
    assert (await store.queue.finish(ending(second, alarm()), rules=RULES)).decision.reason is DecisionReason.ESCALATED
    third = await claimed(store, at=after(minutes=4))
    assert third is not None

    assert (await store.queue.finish(ending(third, alarm()), rules=RULES)).decision.reason is DecisionReason.COOLDOWN


# --- the daemon's own probes ------------------------------------------------------------------------------


async def test_a_service_may_be_acted_upon_while_a_probe_of_it_is_down(store: Store) -> None:
    await store.probes.enrol((probe("web"), probe("db")), OWNER, now=NOW)
    session = await started(store, wanted(2, prompt_text=None))

    down = turned(probe("web"), ProbeState.DOWN)
    await store.probes.observed([down], owner=OWNER, rules=RULES, now=NOW)
    assert (await restarted(store, session, "web")).kind is VerdictKind.ALLOW
    assert (await restarted(store, session, "db", "toolu_2")).kind is VerdictKind.DENY

    up = turned(probe("web"), ProbeState.UP, at=after(minutes=1))
    await store.probes.observed([up], owner=OWNER, rules=RULES, now=after(minutes=1))
    assert (await restarted(store, session, "web", "toolu_3")).kind is VerdictKind.DENY


async def test_a_healthy_report_about_a_service_whose_probe_is_down_is_no_evidence(
    store: Store, database: Database
) -> None:
    await store.probes.enrol((probe("web"),), OWNER, now=NOW)
    session = await started(store)
    down = turned(probe("web"), ProbeState.DOWN, at=after(minutes=0.5))
    await store.probes.observed([down], owner=OWNER, rules=RULES, now=NOW)

    finished = await store.queue.finish(ending(session, report(check("web"))), rules=RULES)

    assert finished.decision.reason is DecisionReason.NO_EVIDENCE
    (event,) = finished.decision.events
    assert "the probe web sees web down" in event.message
    assert [row["status"] for row in database.rows("service_checks")] == ["down"]  # the probe's; the report's is none


async def test_a_session_and_a_probe_are_two_looks(store: Store, database: Database) -> None:
    await store.probes.enrol((probe("web"),), OWNER, now=NOW)
    first = await started(store, wanted(2))
    await restarted(store, first, "web")
    ended = ToolEnd(tool_use_id="toolu_1", ended_at=NOW, is_error=False)
    look = EvidenceLook(names=frozenset({"web"}), results_before=1)
    end = ending(first, report(check("web")), tool_ends=(ended,), looks=(look,))
    await store.queue.finish(end, rules=RULES)
    assert database.rows("cooldown_actions")[0]["cleared_at"] is None

    up = observed(probe("web"), at=after(minutes=5))
    await store.probes.observed([up], owner=OWNER, rules=RULES, now=after(minutes=5))
    assert database.rows("cooldown_actions")[0]["cleared_at"] is None
    later = await started(store, at=after(minutes=6))
    await store.queue.finish(ending(later, report(check("web"))), rules=RULES)
    assert database.rows("cooldown_actions")[0]["cleared_at"] == after(minutes=7)
