"""The control groups of this very machine, for tests that put processes into them."""

from __future__ import annotations

import os

import pytest

from claudeops.engine.cell.cgroups import Groups, find, prepare


def groups_here() -> Groups | None:
    """Return where sessions of this process have control groups, if this machine leaves any to it."""
    found = find(f"tests-{os.getpid()}")
    return None if isinstance(found, str) or prepare(found) is not None else found


def groups_or_skip() -> Groups:
    """Return the same; skips where there are none."""
    found = groups_here()
    if found is None:
        pytest.skip("this machine leaves no control groups to this process")
    return found
