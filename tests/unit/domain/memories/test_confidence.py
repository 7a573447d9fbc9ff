"""How confidence fades, and what is believed."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.memories.confidence import believed, faded, has_faded, is_believed, standing
from claudeops.domain.memories.memory import KnownMemory, Learner, Trust
from claudeops.domain.memories.merge import merge
from claudeops.domain.report.report import ReportedMemory
from support.memories import known
from support.store_values import NOW, after


@pytest.mark.parametrize(
    ("now", "left"),
    [
        pytest.param(after(), 0.7, id="at once"),
        pytest.param(after(days=36.9), 0.7, id="before a full week after thirty days"),
        pytest.param(after(days=37), 0.6, id="a week after"),
        pytest.param(after(days=58), 0.3, id="four weeks after: not a hair below"),
        pytest.param(after(days=65), 0.2, id="five weeks after"),
        pytest.param(after(days=900), 0.0, id="never below nothing"),
        pytest.param(after(days=-5), 0.7, id="the clock was set back"),
    ],
)
def test_memory_fades_by_a_tenth_a_week_after_thirty_days(now: datetime, left: float) -> None:
    assert faded(0.7, NOW, now) == left


def test_four_weeks_of_fading_leave_a_memory_just_active() -> None:
    assert not has_faded(known(), after(days=58))
    assert has_faded(known(), after(days=65))
    assert not has_faded(known(active=False), after(days=65))


def test_what_is_believed_now_comes_best_first() -> None:
    old = known(id=1, confidence=0.9, updated_at=after(days=-44))
    memories = (old, known(id=2, confidence=0.8), known(id=3, active=False), known(id=4, confidence=0.29))

    assert [(item.id, item.confidence) for item in believed(memories, NOW, 10)] == [(2, 0.8), (1, 0.7)]
    assert [item.id for item in believed(memories, NOW, 1)] == [2]


def test_what_an_operator_said_never_fades_and_comes_first() -> None:
    stated = known(id=5, trust=Trust.OPERATOR, confidence=1.0, updated_at=after(days=-3000))

    assert not has_faded(stated, NOW)
    assert [item.id for item in believed((known(confidence=1.0), stated), NOW, 10)] == [5, 1]


def test_what_is_in_quarantine_is_not_believed() -> None:
    assert believed((known(trust=Trust.QUARANTINED, confidence=1.0),), NOW, 10) == ()


def test_a_year_in_the_life_of_a_memory() -> None:
    """Said at the start, again after a month, then no more; then once after half a year."""
    memory = known()
    said = [ReportedMemory(category="timing", service="web", observation="starts within 30 s")]

    def told(at: datetime, chain: int) -> KnownMemory:
        (change,) = merge((memory,), said, now=at, by=Learner(chain=chain)).changes
        return known(confidence=change.confidence, active=change.active, updated_at=at)

    memory = told(after(days=30), 2)
    course = [standing(memory, after(days=30 + days)) for days in (0, 30, 36.9, 37, 44, 51, 58, 65, 72)]
    assert course == [0.8, 0.8, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]
    assert [is_believed(memory, after(days=30 + days)) for days in (65, 72)] == [True, False]
    memory = told(after(days=180), 3)
    assert (standing(memory, after(days=180)), is_believed(memory, after(days=217))) == (0.3, False)


@given(st.floats(0, 1), st.integers(-100, 5000))
def test_what_is_left_stays_within_bounds(confidence: float, days: int) -> None:
    assert 0 <= faded(confidence, NOW, after(days=days)) <= round(confidence, 4)
