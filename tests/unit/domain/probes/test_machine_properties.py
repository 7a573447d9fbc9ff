"""The state machine against a model that keeps every look and counts them as text; 100 000 random looks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from claudeops.domain.probes.probe import Probe, ProbeState, Standing
from claudeops.domain.probes.state_machine import step
from support.probes import NOON, probe, saw

EXAMPLES, LOOKS = 200, 500


@dataclass
class Model:
    """What a probe's state is, as its documentation defines it; nothing is counted up here."""

    failures: int
    successes: int
    looks: str = ""  # since the probe was last blind: U, D, F
    blind: int = 0
    shown: ProbeState = ProbeState.UNKNOWN
    known: ProbeState = ProbeState.UNKNOWN
    flips: list[datetime] = field(default_factory=list)

    def look(self, letter: str, at: datetime, *, silenced: bool) -> ProbeState:
        self.blind = self.blind + 1 if letter == "?" else 0
        self.looks += letter.replace("?", "")
        if self.blind >= self.failures:
            self.looks = ""
        agreed = self.agreed(ProbeState.UNKNOWN if self.shown is ProbeState.UNKNOWN else self.known)
        if agreed is not ProbeState.UNKNOWN:
            if self.known is not ProbeState.UNKNOWN and (self.known is ProbeState.UP) != (agreed is ProbeState.UP):
                self.flips.append(at)
            self.known = agreed
        self.flips = [flip for flip in self.flips if timedelta(0) <= at - flip < timedelta(hours=1)][-6:]
        flapped = self.shown is ProbeState.FLAPPING
        self.shown = self.shown_at(at, agreed, silenced=silenced)
        if flapped and self.shown in {ProbeState.UP, ProbeState.DEGRADED, ProbeState.DOWN}:
            self.flips = []
        return self.shown

    def agreed(self, known: ProbeState) -> ProbeState:
        poor = self.after_good_run(self.looks, "U")
        working = self.looks.replace("D", "U")
        failed = self.after_good_run(working, "U").count("F")
        is_up, works = self.looks.endswith("U" * self.successes), working.endswith("U" * self.successes)
        if failed >= self.failures or (known is ProbeState.DOWN and not works):
            return ProbeState.DOWN
        if poor.count("D") + poor.count("F") >= self.failures:
            return ProbeState.DEGRADED
        if known in {ProbeState.DOWN, ProbeState.DEGRADED} and not is_up:
            return ProbeState.DEGRADED
        return ProbeState.UP if self.looks.endswith("U") and set(poor) <= {"U"} else known

    def after_good_run(self, looks: str, letter: str) -> str:
        return looks.rpartition(letter * self.successes)[2]

    def shown_at(self, at: datetime, agreed: ProbeState, *, silenced: bool) -> ProbeState:
        if silenced:
            return ProbeState.SILENCED
        if self.blind >= self.failures:
            return ProbeState.UNKNOWN
        restless = bool(self.flips) and at - self.flips[-1] < timedelta(minutes=15)
        many = len(self.flips) >= 6
        return ProbeState.FLAPPING if restless and (many or self.shown is ProbeState.FLAPPING) else agreed


def moods(draw: random.Random) -> str:
    """Return looks as services are: well for a while, ill for a while, or neither."""
    looks = ""
    while len(looks) < LOOKS:
        letters = draw.choice(("U", "F", "D", "?", "UF", "UD", "FD", "UFD?", "UUUUF", "FFFU"))
        looks += "".join(draw.choice(letters) for _ in range(draw.randint(1, 12)))
    return looks[:LOOKS]


def later(draw: random.Random, at: datetime) -> datetime:
    """Return the time of the next look, by a clock that is now and then set."""
    if draw.random() < 0.005:
        return NOON + timedelta(days=draw.choice((-9000, -1, 0, 1, 9000)))
    return at + timedelta(seconds=draw.choice((5, 30, 30, 300)))


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), failures=st.integers(1, 4), successes=st.integers(1, 4))
def test_the_machine_does_what_its_documentation_says(seed: int, failures: int, successes: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    model = Model(failures=failures, successes=successes)
    plain = probe(failures=failures, successes=successes)
    muted = probe(failures=failures, successes=successes, silenced=True)
    standing, at, silenced = Standing(), NOON, False
    for letter in moods(draw):
        at = later(draw, at)
        silenced = silenced is not (draw.random() < 0.01)
        about = muted if silenced else plain
        before = standing
        made = step(before, saw(letter, at), about)
        standing = made.standing

        assert standing.state is model.look(letter, at, silenced=silenced)
        assert standing.beneath is model.known
        assert_holds_always(before, standing, letter, about)
        assert made.wait_seconds in {about.interval, about.retry_interval}
        assert (made.change is None) or (not silenced and made.change.after is standing.state)


def assert_holds_always(before: Standing, after: Standing, letter: str, about: Probe) -> None:
    if letter == "?":
        assert after.beneath is before.beneath
    if letter == "U":
        assert after.state is not ProbeState.DOWN or before.beneath is ProbeState.DOWN
    if letter == "F" and before.state is not ProbeState.UP:
        assert after.state is not ProbeState.UP or before.state in {ProbeState.SILENCED, ProbeState.FLAPPING}
    assert len(after.changes) <= 6
    assert (after.since == after.last_checked_at) or after.state is before.state
    assert after.failures <= after.degradations
    assert after.ups <= after.successes
    assert about.silenced is (after.state is ProbeState.SILENCED)


@given(seed=st.integers(0, 2**32))
def test_an_explanation_changes_no_state_and_ends(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    alone = explained = sometimes = Standing()
    failed_alone = 0  # looks in a row that failed while nothing explained it
    for count, letter in enumerate(moods(draw)[:100]):
        seen = saw(letter, NOON + timedelta(seconds=30 * count))
        cause = draw.choice(("", "", "db"))
        alone = step(alone, seen, probe()).standing
        explained = step(explained, seen, probe(), explained_by="db").standing
        sometimes = step(sometimes, seen, probe(), explained_by=cause).standing
        failed_alone = failed_alone + 1 if letter == "F" and not cause else 0

        assert (explained.state, explained.beneath) == (alone.state, alone.beneath)
        for standing in (explained, sometimes):
            if standing.state in {ProbeState.UP, ProbeState.UNKNOWN}:
                assert standing.explained_by == ""
        assert failed_alone < 2 * probe().failures or sometimes.explained_by == ""
