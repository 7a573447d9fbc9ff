"""The rules for tests that a program can hold: no clock in an assert, no sleep, no budget in seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.waiting import PATIENCE_SECONDS

TESTS: Final = Path(__file__).parents[2]
ROOMS: Final = ("acceptance", "conformance", "contract", "integration", "kill_matrix", "migration", "unit")

CLOCKS: Final = {
    *("current_time", "monotonic", "monotonic_ns", "perf_counter", "process_time", "thread_time", "time", "time_ns"),
    *("cpu_times", "getrusage", "memory_full_info", "memory_info", "resource_usage"),
}
"""Calls that answer with time, processor time or memory, whatever they are called on."""

OWN_CLOCKS: Final = {"clock", "_clock", "self"}
"""What a test's own clock is named: it stands still unless the test moves it."""

SLEEPERS: Final = {
    "kill_matrix/trial.py": "a strike comes so long after the start: that is what is drawn",
}
"""Files that sleep, with the reason. Waiting for something is `support.waiting.until` or `wait_until`."""

GENEROUS_SECONDS: Final = 60


def files(*rooms: str) -> list[Path]:
    return sorted(file for room in rooms for file in (TESTS / room).rglob("*.py"))


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def owner_of(call: ast.Call) -> str:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")


def measures(node: ast.AST, measured: set[str]) -> bool:
    """Return whether an expression reads a clock, or a name that holds what a clock said."""
    return any(
        # What takes an argument reads no clock: `datetime.time(12)`, `file.time(1)`.
        (isinstance(part, ast.Call) and not part.args and name_of(part) in CLOCKS and owner_of(part) not in OWN_CLOCKS)
        or (isinstance(part, ast.Name) and part.id in measured)
        for part in ast.walk(node)
    )


def asserts_on_a_clock(function: ast.AST) -> Iterator[int]:
    """Yield the lines of asserts that compare what a clock said, by itself or through a name of the function."""
    measured: set[str] = set()
    nodes = sorted((node for node in ast.walk(function) if hasattr(node, "lineno")), key=lambda node: node.lineno)
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if measures(value, measured):
                measured.add(name)
            case ast.Assert(test=test) if any(isinstance(part, ast.Compare) for part in ast.walk(test)):
                compared = [part for part in ast.walk(test) if isinstance(part, ast.Compare)]
                if any(measures(part, measured) for part in compared):
                    yield node.lineno


def sleeps(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(args=[ast.Constant(value=0)]) if name_of(node) == "sleep":
                pass  # a turn of the event loop
            case ast.Call() if name_of(node) == "sleep" and owner_of(node) in {"anyio", "asyncio", "time", ""}:
                yield node.lineno


def budgets(tree: ast.AST) -> Iterator[tuple[int, float]]:
    """Yield line and seconds of guards that a busy machine would reach."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(args=[ast.Constant(value=int() | float() as seconds), *_]) if (
                name_of(node) in {"fail_after", "timeout"} and seconds < GENEROUS_SECONDS
            ):
                yield node.lineno, seconds


def found(check: object, *rooms: str) -> list[str]:
    assert callable(check)
    return [
        f"{file.relative_to(TESTS)}:{line}"
        for file in files(*rooms)
        for line in check(ast.parse(file.read_text(encoding="utf-8")))
    ]


def functions(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from asserts_on_a_clock(node)


def test_no_test_is_red_because_the_machine_is_slow() -> None:
    assert found(functions, *ROOMS, "support") == [], "compare counts of work; durations are lines of the card"


def test_no_test_sleeps_where_it_could_wait_for_an_event() -> None:
    asleep = [place for place in found(sleeps, *ROOMS) if place.rpartition(":")[0] not in SLEEPERS]
    assert asleep == [], "wait for what is to happen: support.waiting.until"


def test_no_test_has_a_budget_in_seconds() -> None:
    tight = found(lambda tree: (line for line, _ in budgets(tree)), *ROOMS, "support")
    assert tight == [], f"a guard against hanging is generous: support.waiting.PATIENCE_SECONDS, {PATIENCE_SECONDS} s"


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("def test_x() -> None:\n    assert time.monotonic() - began < 3", True),
        ("def test_x() -> None:\n    took = monotonic() - began\n    assert took < 3", True),
        ("def test_x() -> None:\n    a = time.time()\n    b = a - 1\n    assert b < limit", True),
        ("def test_x() -> None:\n    used = process.memory_info().rss\n    assert used < 100", True),
        ("def test_x() -> None:\n    assert self.clock.monotonic() == 5", False),
        ("def test_x() -> None:\n    looks = count()\n    assert looks < 3", False),
        ("def test_x() -> None:\n    assert FILE.time(1) == 'noon'", False),
    ],
)
def test_the_rule_sees_a_clock_in_an_assert(text: str, *, is_refused: bool) -> None:
    assert bool(list(functions(ast.parse(text)))) is is_refused


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [("time.sleep(1)", True), ("anyio.sleep(0.1)", True), ("anyio.sleep(0)", False), ("anyio.sleep_forever()", False)],
)
def test_the_rule_sees_a_sleep(text: str, *, is_refused: bool) -> None:
    assert bool(list(sleeps(ast.parse(text)))) is is_refused


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [("anyio.fail_after(20)", True), ("pytest.mark.timeout(30)", True), ("anyio.fail_after(PATIENCE_SECONDS)", False)],
)
def test_the_rule_sees_a_budget(text: str, *, is_refused: bool) -> None:
    assert bool(list(budgets(ast.parse(text)))) is is_refused
