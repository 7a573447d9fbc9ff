"""What CI makes of a red test: unreliable or broken."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Final

import pytest

from support.red import KNOWN, Judgement, RedList, judge, known_names

TODAY: Final = dt.date(2026, 3, 4)
SENTENCE: Final = "assert 1 == 2"


def judged(*red: str, known: tuple[str, ...] = (), red_again: tuple[str, ...] = (), status: int = 1) -> Judgement:
    run = {"status": status, "red": dict.fromkeys(red, SENTENCE)}
    return judge(run, known, lambda name: name not in red_again, TODAY)


def test_a_test_that_passes_alone_is_reported_by_a_line_for_the_file_and_fails_nothing() -> None:
    found = judged("a.py::test_a")
    assert found == Judgement((f"a.py::test_a\t2026-03-04\t{SENTENCE}",), ())
    assert known_names(found.unreliable[0]) == ["a.py::test_a"]


def test_a_broken_test_fails_also_beside_an_unreliable_one() -> None:
    found = judged("a.py::test_a", "a.py::test_b", red_again=("a.py::test_b",))
    assert [line.split("\t")[0] for line in found.unreliable] == ["a.py::test_a"]
    assert found.reasons == ("a.py::test_b is red again, alone",)


def test_a_name_that_the_file_has_already_is_no_surprise_and_fails() -> None:
    assert judged("a.py::test_a", known=("a.py::test_a",)).reasons


def test_more_than_two_at_once_are_no_chance() -> None:
    assert not judged("a", "b").reasons
    assert judged("a", "b", "c").reasons


def test_many_red_tests_are_not_all_run_again() -> None:
    def never(_: str) -> bool:
        raise AssertionError

    assert judge({"status": 1, "red": dict.fromkeys("abcdef", SENTENCE)}, (), never, TODAY).reasons


@pytest.mark.parametrize("status", [0, 2, 3, 5])
def test_a_run_that_ended_for_another_reason_fails(status: int) -> None:
    assert judged(status=status).reasons
    assert judged("a", status=status).reasons


def test_the_committed_file_can_be_read() -> None:
    assert all("::" in name for name in known_names(KNOWN.read_text(encoding="utf-8")))


def test_the_sentence_of_a_failure_stands_on_one_line(tmp_path: object) -> None:
    red = RedList(tmp_path / "red.json")  # type: ignore[operator]
    crash = SimpleNamespace(message="assert  1 ==\t2\n  +  where 1")
    red.pytest_runtest_logreport(SimpleNamespace(failed=True, nodeid="a", longrepr=SimpleNamespace(reprcrash=crash)))
    red.pytest_runtest_logreport(SimpleNamespace(failed=False, nodeid="b", longrepr=None))
    red.pytest_runtest_logreport(SimpleNamespace(failed=True, nodeid="a", longrepr="the teardown, too"))
    assert red._red == {"a": SENTENCE}
