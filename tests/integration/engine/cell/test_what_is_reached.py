"""A program that tries everything reaches nothing that it was not given: at each level, and all of it outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from claudeops.engine.cell import tool_shell
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.system_calls import keyctl_number, system_call_numbers
from support.levels import needs
from support.planted import Reached, what_is_reached
from support.reaching import REACHED
from support.system_call_tries import HARMLESS
from support.walls import PERHAPS, WALLS, WITHIN_ALONE, Wall

pytestmark = pytest.mark.skipif(keyctl_number() < 0, reason="there is no table of system calls for this machine")

NO_SUCH_CALL = "ENOSYS"
SCOPED = 6  # the version of Landlock that closes abstract sockets
IS_ROOT = os.geteuid() == 0
STATUS = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
HAS_ALL_RIGHTS = bool(IS_ROOT and int(STATUS["CapEff"], 16) >> 21 & 1 and int(STATUS["Seccomp"]) == 0)
"""Whether nothing stands around the test itself, as in a container: CAP_SYS_ADMIN, and no filter of system calls."""


@cache
def reached(level: IsolationLevel) -> Reached:
    needs(level)
    return what_is_reached(level)


def results(level: IsolationLevel, wall: Wall) -> Iterator[tuple[str, str, str, str]]:
    """Yield, for what is tried at a wall, its place, its name, and what came of it within and outside."""
    found = reached(level)
    for place in found.within:
        for name in found.tried[wall.what]:
            if name in found.within[place]:
                yield place, name, found.within[place][name], found.outside[place].get(name, "")


@pytest.mark.parametrize("wall", WALLS, ids=lambda wall: wall.what)
@pytest.mark.parametrize("level", list(IsolationLevel), ids=str)
def test_a_session_reaches_what_its_level_says_and_nothing_else(level: IsolationLevel, wall: Wall) -> None:
    differs = []
    for place, name, within, outside in results(level, wall):
        promised = wall.promise(level).lets_through(
            outside=outside == REACHED,
            is_tool=place == "tool",
            apart=reached(level).keeps_tools_apart,
            scoped=tool_shell.version() >= SCOPED,
        )
        if promised is not None and promised != (within == REACHED):
            differs.append(f"{name}, in the place of the {place}: {within}")
    assert differs == []


@pytest.mark.parametrize("level", list(IsolationLevel), ids=str)
def test_outside_the_same_program_reaches_all_of_it(level: IsolationLevel) -> None:
    """Where it reached nothing there either, the test above would pass without a wall."""
    missed = [
        f"{name}, in the place of the {place}: {outside}"
        for wall in WALLS
        for place, name, _, outside in results(level, wall)
        if outside != REACHED and not may_be_missed(wall, place, name, outside)
    ]
    assert missed == []


def may_be_missed(wall: Wall, place: str, name: str, outside: str) -> bool:
    """Return whether there is a reason why the program may not reach something outside."""
    if name in PERHAPS | WITHIN_ALONE or (name.startswith("call ") and outside == NO_SUCH_CALL):
        return True
    if (place, name) == ("tool", "descriptors left open"):  # the program leaves none to its tools
        return True
    return not HAS_ALL_RIGHTS and (wall.only_root or outside == "EPERM")


@pytest.mark.parametrize("level", list(IsolationLevel), ids=str)
def test_where_the_kernel_has_landlock_every_level_keeps_tools_apart(level: IsolationLevel) -> None:
    """Were it off, what it holds would be open, as the table says then."""
    if not tool_shell.holds():
        pytest.skip("this kernel has no Landlock")
    assert reached(level).keeps_tools_apart == (level is not IsolationLevel.NONE or not IS_ROOT)


def test_every_refused_call_is_tried() -> None:
    numbers = system_call_numbers(os.uname().machine)
    assert set(numbers) <= {*HARMLESS, "clone", "unshare", "socket", "ioctl", "personality", "syslog"}
