"""An attempt to connect during which this process stood still says nothing about the server, and is made once more."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat

import psycopg
import pytest

from claudeops.store.connection.engines import connected

SECONDS = 5.0  # for an attempt
CONNECTION = "a connection"
TIMED_OUT = psycopg.errors.ConnectionTimeout("connection timeout expired")
REFUSED = psycopg.OperationalError("connection refused")


def attempts(*outcomes: Exception | str) -> Callable[[], str]:
    """Return an attempt that ends in one way after the other."""
    left = iter(outcomes)

    def attempt() -> str:
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return attempt


def clock(lasted: float) -> Callable[[], float]:
    """Return a clock for an attempt that lasts so many seconds."""
    times = chain([100.0], repeat(100.0 + lasted))
    return lambda: next(times)


def test_an_attempt_that_this_process_slept_through_is_made_once_more() -> None:
    assert connected(attempts(TIMED_OUT, CONNECTION), seconds=SECONDS, clock=clock(18.0)) == CONNECTION


def test_it_is_made_once_more_and_not_again() -> None:
    with pytest.raises(psycopg.errors.ConnectionTimeout):
        connected(attempts(TIMED_OUT, TIMED_OUT, CONNECTION), seconds=SECONDS, clock=clock(18.0))


@pytest.mark.parametrize(
    ("error", "lasted"),
    [
        pytest.param(TIMED_OUT, 5.1, id="the server has not answered in time"),
        pytest.param(REFUSED, 18.0, id="the server has answered"),
    ],
)
def test_what_an_attempt_has_found_out_stands(error: Exception, lasted: float) -> None:
    with pytest.raises(type(error)):
        connected(attempts(error, CONNECTION), seconds=SECONDS, clock=clock(lasted))
