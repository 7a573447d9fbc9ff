"""Case memory: what earlier chains did about a service, and whether it held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.actions import PastAction, Recheck
from claudeops.domain.cases import MOST_CASES, History, PastChain, Result, cases_of
from claudeops.domain.report.report import PastCheck, ServiceStatus
from claudeops.structs import replace

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
HEALTHY, DOWN = ServiceStatus.HEALTHY, ServiceStatus.DOWN


def ago(**past: float) -> datetime:
    return NOW - timedelta(**past)


def chain(number: int, began: datetime, reason: str | None = "web answers 502", **more: bool) -> PastChain:
    return PastChain(chain=number, began=began, reason=reason, **more)


def entry(number: int, at: datetime, kind: str = "restart", *, success: bool | None = True) -> PastAction:
    return PastAction(chain=number, service="web", kind=kind, at=at, success=success)


def seen(number: int | None, status: ServiceStatus, at: datetime) -> PastCheck:
    return PastCheck(chain=number, service="web", status=status, at=at)


def results(history: History) -> list[list[tuple[str, Result, timedelta | None]]]:
    return [
        [(remedy.kind, remedy.result, remedy.lasted) for remedy in case.remedies] for case in cases_of(history, NOW)
    ]


def test_a_restart_that_held_nine_days_and_one_that_did_not_help_are_told_apart() -> None:
    history = History(
        service="web",
        chains=(chain(1, ago(days=19)), chain(2, ago(days=10))),
        entries=(
            entry(1, ago(days=19)),
            entry(2, ago(days=10)),
            entry(2, ago(days=10) + timedelta(minutes=5), "redeployment"),
        ),
        checks=(
            seen(1, HEALTHY, ago(days=19) + timedelta(minutes=1)),
            seen(2, DOWN, ago(days=10) - timedelta(minutes=1)),
            seen(2, HEALTHY, ago(days=10) + timedelta(minutes=9)),
        ),
    )
    assert results(history) == [
        [
            ("restart", Result.DID_NOT_HELP, None),
            ("redeployment", Result.HOLDS, timedelta(days=10) - timedelta(minutes=5)),
        ],
        [("restart", Result.HELD, timedelta(days=9) - timedelta(minutes=1))],
    ]


def test_an_unhealthy_check_after_the_action_says_that_it_did_not_help() -> None:
    history = History(
        service="web",
        chains=(chain(1, ago(days=2)),),
        entries=(entry(1, ago(days=2)),),
        checks=(seen(1, DOWN, ago(days=2) + timedelta(minutes=3)),),
    )
    assert results(history) == [[("restart", Result.DID_NOT_HELP, None)]]


def test_an_action_that_failed_is_not_said_to_have_held() -> None:
    history = History(
        service="web",
        chains=(chain(1, ago(days=2)),),
        entries=(entry(1, ago(days=2), success=False),),
        checks=(seen(1, HEALTHY, ago(days=1)),),
    )
    assert results(history) == [[("restart", Result.FAILED, None)]]


def test_an_action_that_nobody_looked_at_afterwards_is_unknown() -> None:
    history = History(service="web", chains=(chain(1, ago(days=2)),), entries=(entry(1, ago(days=2)),))
    assert results(history) == [[("restart", Result.UNKNOWN, None)]]


def test_a_probe_that_finds_the_service_down_ends_the_time_for_which_an_action_held() -> None:
    history = History(
        service="web",
        chains=(chain(1, ago(days=2)),),
        entries=(entry(1, ago(days=2)),),
        checks=(seen(None, HEALTHY, ago(days=1, hours=23)), seen(None, DOWN, ago(days=1))),
    )
    assert results(history) == [[("restart", Result.HELD, timedelta(days=1))]]


def followed(held: Recheck, at: datetime) -> History:
    action = replace(entry(1, ago(days=2)), held=held, held_at=at)
    return History(service="web", chains=(chain(1, ago(days=2)),), entries=(action,))


def test_what_a_follow_up_found_counts_though_nobody_else_looked() -> None:
    assert results(followed(Recheck.HELD, ago(days=1))) == [[("restart", Result.HOLDS, timedelta(days=2))]]
    assert results(followed(Recheck.RELAPSED, ago(days=1))) == [[("restart", Result.RELAPSED, timedelta(days=1))]]
    assert results(followed(Recheck.UNKNOWN, ago(days=1))) == [[("restart", Result.UNKNOWN, None)]]


def test_a_relapse_is_told_as_one_though_the_chain_itself_saw_the_service_well() -> None:
    history = replace(
        followed(Recheck.RELAPSED, ago(days=1)),
        checks=(seen(1, HEALTHY, ago(days=2) + timedelta(minutes=1)), seen(2, DOWN, ago(days=1))),
    )
    assert results(history) == [[("restart", Result.RELAPSED, timedelta(days=1))]]


def test_an_action_that_another_one_of_its_chain_followed_did_not_help_though_the_service_held() -> None:
    entries = (
        replace(entry(1, ago(days=2)), held=Recheck.HELD, held_at=ago(days=1)),
        replace(entry(1, ago(days=2) + timedelta(minutes=5), "redeployment"), held=Recheck.HELD, held_at=ago(days=1)),
    )
    (told,) = results(History(service="web", chains=(chain(1, ago(days=2)),), entries=entries))
    assert [result for _, result, _ in told] == [Result.DID_NOT_HELP, Result.HOLDS]


def test_what_was_found_is_told_even_if_nothing_was_done_and_an_empty_chain_is_not() -> None:
    broken = PastCheck(chain=1, service="web", status=DOWN, at=ago(days=3), detail="HTTP 502")
    history = History(
        service="web", chains=(chain(1, ago(days=3), None), chain(2, ago(days=1), None)), checks=(broken,)
    )
    (case,) = cases_of(history, NOW)
    assert (case.chain, case.found, case.remedies) == (1, "down: HTTP 502", ())


def test_cases_that_did_something_and_those_of_the_same_condition_come_before_newer_ones() -> None:
    chains = [chain(number, ago(days=20 - number)) for number in range(10)]
    chains[1] = chain(1, ago(days=19), same_condition=True)
    history = History(service="web", chains=tuple(chains), entries=(entry(0, ago(days=20)),))
    told = cases_of(history, NOW)
    assert [case.chain for case in told] == [9, 1, 0]
    assert len(told) == MOST_CASES


_moments = st.integers(0, 100).map(lambda hours: ago(hours=hours))


@given(
    entries=st.lists(
        st.builds(
            PastAction,
            chain=st.integers(1, 4),
            kind=st.just("restart"),
            service=st.just("web"),
            at=_moments,
            success=st.booleans(),
            held=st.none() | st.sampled_from(Recheck),
            held_at=_moments,
        )
    ),
    looks=st.lists(
        st.builds(
            PastCheck,
            service=st.just("web"),
            chain=st.none() | st.integers(1, 4),
            detail=st.none(),
            session_id=st.none(),
            status=st.sampled_from(ServiceStatus),
            at=_moments,
        )
    ),
)
def test_no_action_is_said_to_have_held_longer_than_since_it_ran(
    entries: list[PastAction], looks: list[PastCheck]
) -> None:
    history = History(
        service="web",
        chains=tuple(chain(number, ago(hours=101)) for number in range(1, 5)),
        entries=tuple(sorted(entries, key=lambda each: each.at)),
        checks=tuple(sorted(looks, key=lambda each: each.at)),
    )
    for case in cases_of(history, NOW):
        for remedy in case.remedies:
            assert (remedy.lasted is not None) == (remedy.result in {Result.HELD, Result.HOLDS, Result.RELAPSED})
            assert timedelta(0) <= (remedy.lasted or timedelta(0)) <= NOW - remedy.at
