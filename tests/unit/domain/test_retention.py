"""Steps of the removal shrink where they take long, and grow again."""

from __future__ import annotations

from claudeops.domain.retention import MOST_ROWS, next_rows


def test_a_slow_disk_gets_smaller_steps_but_never_none() -> None:
    sizes = [MOST_ROWS]
    while (smaller := next_rows(sizes[-1], 0.2)) < sizes[-1]:
        sizes.append(smaller)

    assert len(sizes) > 3
    assert sizes[-1] > 0


def test_quick_steps_grow_up_to_a_bound() -> None:
    rows = 10
    for _ in range(20):
        rows = next_rows(rows, 0.001)

    assert rows == MOST_ROWS


def test_a_step_that_took_its_time_stays_as_large() -> None:
    assert next_rows(100, 0.02) == 100
