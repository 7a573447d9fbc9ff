"""Any store: what a session is told of the past is what happened, and of no other service."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from claudeops.domain.calls import ToolEnd, Verdict, VerdictKind
from claudeops.domain.cases import Result
from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.looks import EvidenceLook
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.report.report import ServiceStatus
from claudeops.domain.sessions import Outcome, Session
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.wording.prompt.knowledge import KnownFacts
from support.probe_values import observed, probe, standing
from support.store_values import (
    OWNER,
    RULES,
    after,
    alarm,
    allow,
    check,
    claimed,
    ending,
    recorded,
    report,
    restart,
    started,
    wanted,
)

pytest_plugins = ("support.store_fixtures",)

DAYS = timedelta(days=1)


async def told(
    store: Store, session: Session, *about: str, rules: EscalationRules = RULES, days: float = 1
) -> KnownFacts:
    return await store.briefings.on_record(
        session, about=about, kinds=("restart", "redeployment"), rules=rules, now=after(days=days)
    )


async def escalated(store: Store, service: str = "web", *, days: float = 0) -> tuple[Session, Session]:
    """Run a chain whose first session finds a service down; return it and the second, which runs."""
    first = await started(store, wanted(1), at=after(days=days))
    await store.queue.finish(ending(first, alarm(service)), rules=RULES)
    second = await claimed(store, at=after(days=days, minutes=2))
    assert second is not None
    assert second.root_session_id == first.id
    return first, second


async def repaired(
    store: Store, service: str = "web", *, days: float = 0, status: ServiceStatus = ServiceStatus.HEALTHY
) -> Session:
    """Run a chain whose second session restarts a service and sees it again; return that session."""
    _, second = await escalated(store, service, days=days)
    at = after(days=days, minutes=2, hours=0)
    verdict = await recorded(store, second, "toolu_1", allow(restart(service)), at=at)
    assert verdict.kind is VerdictKind.ALLOW, verdict.reason
    ended = ToolEnd(tool_use_id="toolu_1", ended_at=at, is_error=False)
    said = report(check(service, status))
    seen = EvidenceLook(names=frozenset({service}), results_before=1)
    await store.queue.finish(ending(second, said, tool_ends=(ended,), looks=(seen,)), rules=RULES)
    return second


async def test_the_next_chain_is_told_what_the_last_one_found_and_did_and_that_it_holds(store: Store) -> None:
    acting = await repaired(store)
    _, second = await escalated(store, days=9)
    (case,) = (await told(store, second, "web", days=9.01)).cases
    assert (case.service, case.chain, case.found) == ("web", acting.root_session_id, "web answers 502")
    ((kind, result, lasted),) = [(each.kind, each.result, each.lasted) for each in case.remedies]
    assert (kind, result) == ("restart", Result.HOLDS)
    assert lasted is not None
    assert lasted // DAYS == 9


async def test_a_chain_that_began_in_between_ends_the_time_for_which_an_action_held(store: Store) -> None:
    await repaired(store)
    await repaired(store, days=3)
    _, running = await escalated(store, days=9)
    cases = (await told(store, running, "web", days=9.01)).cases
    assert [[remedy.result for remedy in case.remedies] for case in cases] == [[Result.HOLDS], [Result.HELD]]
    held = cases[1].remedies[0].lasted
    assert held is not None
    assert held // timedelta(hours=1) == 3 * 24 - 1


async def test_a_restart_after_which_the_service_was_still_down_did_not_help(store: Store) -> None:
    await repaired(store, status=ServiceStatus.DOWN)
    _, second = await escalated(store, days=2)
    (case,) = (await told(store, second, "web", days=2.01)).cases
    assert [remedy.result for remedy in case.remedies] == [Result.DID_NOT_HELP]


async def test_an_action_that_only_a_later_round_saw_work_held_until_the_next_trouble(store: Store) -> None:
    _, second = await escalated(store)
    await recorded(store, second, "toolu_1", allow(restart()), at=after(minutes=3))
    await store.queue.finish(ending(second, outcome=Outcome.TIMEOUT), rules=RULES)  # nobody looked afterwards
    following = await started(store, wanted(1), at=after(hours=1))
    web = EvidenceLook(names=frozenset({"web"}))
    await store.queue.finish(ending(following, report(check("web")), looks=(web,)), rules=RULES)
    last = await started(store, wanted(1), at=after(days=2))
    (case,) = (await told(store, last, "web", days=2)).cases
    assert [remedy.result for remedy in case.remedies] == [Result.HOLDS]
    await store.queue.finish(ending(last, alarm()), rules=RULES)
    third = await claimed(store, at=after(days=2, minutes=5))
    assert third is not None
    await store.queue.finish(ending(third, report(check("web"), check("db"))), rules=RULES)
    again = await started(store, wanted(1), at=after(days=4))
    cases = (await told(store, again, "web", days=4)).cases
    assert [remedy.result for case in cases for remedy in case.remedies] == [Result.HELD]


async def test_nothing_is_told_of_another_service_or_of_the_chain_itself(store: Store) -> None:
    await repaired(store, "db")
    _, second = await escalated(store, "web", days=2)
    assert (await told(store, second, "web", days=2.01)).cases == ()


async def test_a_case_is_found_under_every_name_of_its_service(store: Store) -> None:
    await repaired(store, "shop")
    _, second = await escalated(store, "web", days=2)
    rules = replace(RULES, other_names={"web": "shop"})
    (case,) = (await told(store, second, "web", rules=rules, days=2.01)).cases
    assert case.service == "shop"


async def test_a_case_is_found_by_the_condition_where_the_name_is_another(store: Store) -> None:
    condition = NewEvent(level=EventLevel.WARNING, message="the disk is full", service="web1", fingerprint="disk:full")
    first = await started(store, wanted(1))
    await store.queue.finish(ending(first, alarm("web1"), events=(condition,)), rules=RULES)
    acting = await claimed(store, at=after(minutes=2))
    assert acting is not None
    healthy = report(check("web1"))
    await store.queue.finish(ending(acting, healthy), rules=RULES)
    again = await started(store, wanted(1), at=after(days=2))
    other = replace(condition, service="web2")
    await store.queue.finish(ending(again, alarm("web2"), events=(other,)), rules=RULES)
    following = await claimed(store, at=after(days=2, minutes=2))
    assert following is not None
    cases = (await told(store, following, "web2", days=2.01)).cases
    assert [(case.service, case.same_condition) for case in cases] == [("web1", True)]


async def test_a_round_is_told_of_services_that_are_unwell_or_were_acted_upon_lately(store: Store) -> None:
    await repaired(store, "web")
    following = await started(store, wanted(1), at=after(days=2))
    assert [case.service for case in (await told(store, following, days=2.01)).cases] == ["web"]
    assert (await told(store, following, days=60)).cases == ()


@pytest.mark.dialect
async def test_limits_that_were_used_are_told_with_what_is_left(store: Store) -> None:
    await repaired(store)
    _, second = await escalated(store, days=0.1)
    (left,) = (await told(store, second, "web", days=0.1)).cooldowns
    assert (left.service, left.kind, left.used, left.count, left.free_at) == ("web", "restart", 1, 2, None)
    assert (await told(store, second, "web", days=1)).cooldowns == ()


async def test_the_last_verdict_on_every_service_is_told(store: Store) -> None:
    await repaired(store)
    first, second = await escalated(store, "db", days=1)
    verdicts = (await told(store, second, "db", days=1.01)).last_verdicts
    assert [(each.service, each.status.value, each.detail) for each in verdicts] == [
        ("db", "down", "502"),
        ("web", "healthy", None),
    ]
    assert first.id != second.id


SHOP: EscalationRules = replace(RULES, other_names={"web": "shop", "Web1/shop": "shop"})


async def looked(
    store: Store, state: ProbeState, *, minutes: float, name: str = "web1/SHOP", watches: str = "front"
) -> None:
    """Have a probe of the shop, under another name of it, look without a change."""
    about = probe(watches, service=name)
    await store.probes.enrol((about,), OWNER, now=after())
    seen = replace(observed(about, at=after(minutes=minutes)), standing=standing(state, at=after(minutes=minutes)))
    await store.probes.observed([seen], owner=OWNER, rules=SHOP, now=after(minutes=minutes))


def shown(known: KnownFacts) -> list[tuple[str, str, bool, datetime]]:
    return [(each.service, each.status.value, each.by_probe, each.at) for each in known.last_verdicts]


@pytest.mark.dialect
async def test_a_service_is_last_seen_under_any_of_its_names_and_told_by_the_one_it_is_counted_by(store: Store) -> None:
    first = await started(store, wanted(1), at=after())
    await store.queue.finish(
        ending(first, report(check("web", ServiceStatus.DOWN)), ended_at=after(minutes=3)), rules=SHOP
    )
    second = await started(store, wanted(1), at=after(minutes=10))
    await store.queue.finish(ending(second, report(check("SHOP")), ended_at=after(minutes=12)), rules=SHOP)
    third = await started(store, wanted(1), at=after(minutes=20))

    assert shown(await told(store, third, rules=SHOP)) == [("shop", "healthy", False, after(minutes=12))]


async def test_a_look_of_a_probe_is_the_last_sight_where_a_session_said_the_same(store: Store) -> None:
    first = await started(store, wanted(1), at=after())
    await store.queue.finish(ending(first, report(check("web")), ended_at=after(minutes=3)), rules=SHOP)
    await looked(store, ProbeState.UP, minutes=2)
    second = await started(store, wanted(1), at=after(minutes=10))
    before = shown(await told(store, second, rules=SHOP))
    await looked(store, ProbeState.UP, minutes=9)

    assert before == [("shop", "healthy", False, after(minutes=3))]
    assert shown(await told(store, second, rules=SHOP)) == [("shop", "healthy", True, after(minutes=9))]


async def test_what_a_session_found_stands_beside_what_a_probe_sees_otherwise(store: Store) -> None:
    first = await started(store, wanted(1), at=after())
    await store.queue.finish(
        ending(first, report(check("web", ServiceStatus.DOWN, "no orders")), ended_at=after(minutes=3)), rules=SHOP
    )
    await looked(store, ProbeState.UP, minutes=9)
    second = await started(store, wanted(1), at=after(minutes=10))

    assert shown(await told(store, second, rules=SHOP)) == [
        ("shop", "down", False, after(minutes=3)),
        ("shop", "healthy", True, after(minutes=9)),
    ]


@pytest.mark.parametrize("state", [ProbeState.UNKNOWN, ProbeState.SILENCED])
async def test_a_probe_that_does_not_know_says_nothing(store: Store, state: ProbeState) -> None:
    await looked(store, state, minutes=9)
    second = await started(store, wanted(1), at=after(minutes=10))

    assert shown(await told(store, second, rules=SHOP)) == []


async def test_the_worst_of_a_services_probes_counts_with_its_words(store: Store) -> None:
    both = (probe("front", service="web"), probe("back", service="shop"))
    await store.probes.enrol(both, OWNER, now=after())
    batch = [
        replace(
            observed(about, at=after(minutes=at)), standing=standing(state, at=after(minutes=at), detail=f"says {at}")
        )
        for about, state, at in zip(both, (ProbeState.DOWN, ProbeState.UP), (5, 6), strict=True)
    ]
    await store.probes.observed(batch, owner=OWNER, rules=SHOP, now=after(minutes=6))
    session = await started(store, wanted(1), at=after(minutes=10))

    (verdict,) = (await told(store, session, rules=SHOP)).last_verdicts
    assert (verdict.service, verdict.status, verdict.detail) == ("shop", ServiceStatus.DOWN, "front: says 5")


async def test_the_next_tier_is_told_what_its_chain_did_and_what_was_denied(store: Store) -> None:
    _, second = await escalated(store)
    at = after(minutes=3)
    await recorded(store, second, "toolu_1", allow(restart()), at=at)
    denied = Verdict(kind=VerdictKind.DENY, reason="not for this tier")
    await recorded(store, second, "toolu_2", denied, at=at)
    ended = ToolEnd(tool_use_id="toolu_1", ended_at=at, is_error=True)
    await store.queue.finish(ending(second, alarm(), tool_ends=(ended,)), rules=RULES)
    third = await claimed(store, at=after(minutes=5))
    assert third is not None
    tried = (await told(store, third, "web")).tried
    assert [(each.session_id, each.what.partition(" {")[0], each.result.partition(" (")[0]) for each in tried] == [
        (second.id, "restart of web", "failed"),
        (second.id, "Bash", "denied: not for this tier"),
    ]
    assert (await told(store, second, "web")).tried == ()
