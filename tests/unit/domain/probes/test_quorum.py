"""What is feared of several sites: one that is blind takes a service down, or a silent one is taken for a witness."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.probes.probe import Probe, ProbeState, Saw, Standing
from claudeops.domain.probes.quorum import agreed, seen_in, together
from claudeops.domain.probes.record import Observed, StoredProbe, fingerprint_of
from claudeops.domain.probes.state_machine import ProbeFlapRules, wavers
from claudeops.structs import replace
from support.probe_values import probe, standing
from support.store_values import NOW, after

SEEN = (Saw.UP, Saw.DEGRADED, Saw.DOWN)
THREE = probe("shop", sites=("attic", "cabin", "dock"), quorum=2)
TWO = probe("shop", sites=("attic", "cabin"), quorum=2)
ROW = StoredProbe(name="shop", service="shop", kind="http", standing=Standing(since=NOW), interval=30.0)

seen = st.lists(st.sampled_from(list(Saw)), min_size=1, max_size=6)


def view(
    site: str, state: ProbeState, *, at: datetime = NOW, healthy_since: datetime | None = None, **changes: object
) -> Observed:
    found = replace(standing(state, at=at), detail=f"as {site} sees it")
    return Observed(probe=THREE, site=site, standing=replace(found, **changes), healthy_since=healthy_since)  # type: ignore[arg-type]


def stands(of: Probe, *views: Observed, row: StoredProbe = ROW, at: datetime = NOW) -> StoredProbe:
    """Return a probe's row after one more look at any site."""
    found = together(row, views, of, now=at)
    return replace(row, standing=found.standing, healthy_since=found.healthy_since)


UP_AT_ALL = stands(THREE, *(view(site, ProbeState.UP, healthy_since=NOW) for site in THREE.sites))


# --- what a quorum sees -----------------------------------------------------------------------------------


@given(seen, st.data())
def test_what_all_agree_on_is_what_they_would_whatever_the_silent_ones_saw(
    votes: list[Saw], data: st.DataObject
) -> None:
    quorum = data.draw(st.integers(1, len(votes)))
    silent = votes.count(Saw.NOTHING)
    filled = set()
    for guesses in product(SEEN, repeat=silent):
        guess = iter(guesses)
        filled.add(agreed([next(guess) if vote is Saw.NOTHING else vote for vote in votes], quorum))

    assert agreed(votes, quorum) == (filled.pop() if len(filled) == 1 else Saw.NOTHING)


@given(seen, st.data())
def test_it_is_down_where_a_quorum_sees_it_down_and_nowhere_else(votes: list[Saw], data: st.DataObject) -> None:
    quorum = data.draw(st.integers(1, len(votes)))

    assert (agreed(votes, quorum) is Saw.DOWN) is (votes.count(Saw.DOWN) >= quorum)


@given(seen, st.data())
def test_it_is_up_only_where_those_that_do_not_see_it_up_are_no_quorum(votes: list[Saw], data: st.DataObject) -> None:
    quorum = data.draw(st.integers(1, len(votes)))

    assert (agreed(votes, quorum) is Saw.UP) is (len(votes) - votes.count(Saw.UP) < quorum)


@pytest.mark.parametrize(
    ("state", "changes", "saw"),
    [
        (ProbeState.UP, {}, Saw.UP),
        (ProbeState.DOWN, {}, Saw.DOWN),
        (ProbeState.UNKNOWN, {"beneath": ProbeState.DOWN}, Saw.NOTHING),  # it can look no more
        (ProbeState.UNKNOWN, {}, Saw.NOTHING),  # it has not looked yet
        (ProbeState.FLAPPING, {"beneath": ProbeState.DOWN}, Saw.DOWN),
        (ProbeState.SILENCED, {"beneath": ProbeState.UP}, Saw.UP),
    ],
)
def test_a_site_sees_what_its_looks_have_agreed_on(state: ProbeState, changes: dict[str, object], saw: Saw) -> None:
    assert seen_in(replace(standing(state), **changes)) is saw  # type: ignore[arg-type]


# --- how a probe stands by it -----------------------------------------------------------------------------


def test_one_of_three_that_sees_it_down_takes_nothing_down() -> None:
    found = together(
        UP_AT_ALL, [view("attic", ProbeState.DOWN), *map(up, ("cabin", "dock"))], THREE, now=after(minutes=1)
    )

    assert found.standing.state is ProbeState.UP
    assert found.tellings == ()
    assert found.standing.detail == "down at attic, up at cabin, dock: as cabin sees it"
    assert not wavers(found.standing, THREE)


def up(site: str) -> Observed:
    return view(site, ProbeState.UP)


def test_two_of_three_take_it_down_at_once_and_say_who_sees_it_and_who_does_not() -> None:
    views = [up("attic"), view("cabin", ProbeState.DOWN), view("dock", ProbeState.DOWN, at=after(minutes=-1))]
    found = together(UP_AT_ALL, views, THREE, now=after(minutes=1))

    assert (found.standing.state, found.site, found.healthy_since) == (ProbeState.DOWN, "cabin", None)
    (telling,) = found.tellings
    assert [event.message for event in telling.events] == [
        "shop is down, by its probe shop: down at cabin, dock, up at attic: as dock sees it"
    ]
    assert found.standing.last_checked_at == after(minutes=-1)  # what it says is no newer


def test_it_is_up_again_when_fewer_than_a_quorum_see_it_down_and_that_is_told() -> None:
    down = stands(THREE, view("attic", ProbeState.DOWN), view("cabin", ProbeState.DOWN), up("dock"), row=UP_AT_ALL)
    down = replace(down, standing=replace(down.standing, incident="probe:1"))
    found = together(down, [view("attic", ProbeState.DOWN), up("cabin"), up("dock")], THREE, now=after(minutes=2))

    assert (found.standing.state, found.standing.incident, found.site) == (ProbeState.UP, "", "")
    assert [(telling.over, telling.events) for telling in found.tellings] == [((fingerprint_of("shop"),), ())]


def test_degraded_at_one_and_down_at_another_is_degraded_for_both() -> None:
    views = [view("attic", ProbeState.DEGRADED, degradations=3), view("cabin", ProbeState.DOWN)]

    assert stands(TWO, *views, row=UP_AT_ALL).standing.state is ProbeState.DEGRADED


@pytest.mark.parametrize("failures", [1, 3, 5])
def test_what_cannot_be_known_is_unknown_after_some_looks_never_down_and_said_once(failures: int) -> None:
    lone, row, told = replace(TWO, failures=failures), UP_AT_ALL, []
    states = []
    for look in range(failures + 3):
        found = together(row, [view("attic", ProbeState.DOWN, at=after(minutes=look))], lone, now=after(minutes=look))
        row = replace(row, standing=found.standing, healthy_since=found.healthy_since)
        told += [event.message for telling in found.tellings for event in telling.events]
        states.append(found.standing.state)

    assert states == [ProbeState.UP] * (failures - 1) + [ProbeState.UNKNOWN] * 4
    (message,) = told
    assert message.startswith("nothing is known of shop any more, by its probe shop: down at attic, not known at cabin")


def test_what_is_down_is_not_up_again_because_a_witness_is_gone() -> None:
    down = stands(TWO, view("attic", ProbeState.DOWN), view("cabin", ProbeState.DOWN))
    for _ in range(5):
        down = stands(TWO, view("attic", ProbeState.DOWN), row=down)

    assert down.standing.state is ProbeState.UNKNOWN


def test_a_lone_site_that_sees_it_work_is_enough_where_both_would_have_to_see_it_down() -> None:
    assert stands(TWO, up("cabin")).standing.state is ProbeState.UP


def test_a_view_that_is_too_old_is_no_witness() -> None:
    late = timedelta(seconds=3 * TWO.interval + TWO.timeout + 60)
    for age, state in ((late, ProbeState.DOWN), (late + timedelta(seconds=1), ProbeState.UP)):
        views = [view("attic", ProbeState.DOWN, at=NOW + age), view("cabin", ProbeState.DOWN, at=NOW)]
        assert stands(TWO, *views, row=UP_AT_ALL, at=NOW + age).standing.state is state, age


def test_a_site_that_is_not_named_has_no_say() -> None:
    views = [view("attic", ProbeState.DOWN), view("elsewhere", ProbeState.DOWN), up("cabin"), up("dock")]

    assert stands(THREE, *views, row=UP_AT_ALL).standing.state is ProbeState.UP


def test_a_service_has_been_well_for_as_long_as_all_that_say_so_have_seen() -> None:
    views = [
        view("attic", ProbeState.UP, healthy_since=NOW),
        view("cabin", ProbeState.UP, healthy_since=after(minutes=5)),
    ]

    assert stands(TWO, *views, at=after(minutes=1)).healthy_since == after(minutes=5)
    assert stands(TWO, views[0], up("cabin"), at=after(minutes=1)).healthy_since is None  # its last look failed


def test_what_explains_the_failure_at_a_site_explains_it() -> None:
    views = [view("attic", ProbeState.DOWN, explained_by="db"), view("cabin", ProbeState.DOWN)]
    explained = stands(TWO, *views, row=UP_AT_ALL)
    alone = together(explained, [view(site, ProbeState.DOWN) for site in TWO.sites], TWO, now=after(minutes=1))

    assert explained.standing.explained_by == "db"
    assert alone.standing.explained_by == ""
    assert [event.message.partition(",")[0] for told in alone.tellings for event in told.events] == ["shop is down"]


def test_a_probe_of_several_sites_flaps_by_what_they_say_together() -> None:
    row, rules = UP_AT_ALL, ProbeFlapRules()
    for turn in range(rules.changes):
        state, at = ProbeState.UP if turn % 2 else ProbeState.DOWN, after(minutes=turn)
        row = stands(THREE, *(view(site, state, at=at) for site in THREE.sites), row=row, at=at)

    assert row.standing.state is ProbeState.FLAPPING


def test_a_silenced_probe_says_nothing() -> None:
    found = together(UP_AT_ALL, [view(s, ProbeState.DOWN) for s in THREE.sites], replace(THREE, silenced=True), now=NOW)

    assert found.standing.state is ProbeState.SILENCED
    assert [event for telling in found.tellings for event in telling.events] == []
