"""Small doses for `make test`, the whole for `make test-long`: which cases of a dear test run every time.

A case that is not drawn carries the marker ``long``. Every run of a day draws the same cases; the header of a run names
the number that draws them again.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable
from typing import Final

import pytest
from _pytest.mark import ParameterSet

SEED_VARIABLE: Final = "TESTS_SEED"

_ADDRESS: Final = re.compile(r"0x[0-9a-f]+")


def drawn(cases: Iterable[object], *, count: int = 1, always: Iterable[object] = ()) -> list[ParameterSet]:
    """Return all cases as parameters, in their order; ``count`` of them drawn, and ``always``, are the daily dose.

    A case is a value, a tuple of values, or what `pytest.param` made.
    """
    given = [_parameters(case) for case in cases]
    kept = [_parameters(case).values for case in always]
    open_places = [place for place, each in enumerate(given) if each.values not in kept]
    # Another draw for each table. Where a function lies differs between processes, which must draw the same.
    seed = f"{os.environ[SEED_VARIABLE]} {_ADDRESS.sub('', str([each.id or each.values for each in given]))}"
    daily = set(random.Random(seed).sample(open_places, min(count, len(open_places))))  # noqa: S311 - no secret
    return [
        each if place in daily or each.values in kept else pytest.param(*each.values, marks=_long(each), id=each.id)
        for place, each in enumerate(given)
    ]


def _parameters(case: object) -> ParameterSet:
    if isinstance(case, ParameterSet):
        return case
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)


def _long(case: ParameterSet) -> list[pytest.MarkDecorator | pytest.Mark]:
    return [*case.marks, pytest.mark.long]
