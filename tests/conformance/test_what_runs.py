"""Bash itself executes and opens what was judged: the literal words, and nothing that they hide."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from support.doses import drawn
from support.executed import compare, compare_texts, strace_fault, traced, traced_parts

COMMANDS: Final = 1_000  # a seed; `make what-runs` runs as many as one likes
TEXTS: Final = 300
SEEDS: Final = 5  # of which a day draws one


@pytest.fixture(scope="module")
def strace() -> None:
    """Skip where nothing can be traced."""
    fault = strace_fault()
    if fault is not None:
        pytest.skip(fault)


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("seed", drawn(range(SEEDS)))
def test_bash_executes_exactly_the_programs_and_arguments_of_the_steps(seed: int, tmp_path: Path) -> None:
    tally = compare(seed, COMMANDS, tmp_path)
    assert tally.differences == []
    assert tally.commands >= COMMANDS


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("seed", drawn(range(SEEDS)))
def test_a_plain_text_executes_and_opens_what_was_judged_and_what_was_meant(seed: int, tmp_path: Path) -> None:
    tally = compare_texts(seed, TEXTS, tmp_path, beyond=0.2)
    assert tally.differences == []
    assert tally.rendered > TEXTS / 10


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("seed", drawn(range(SEEDS)))
def test_no_text_reads_a_secret_through_variables_loops_directories_or_functions(seed: int, tmp_path: Path) -> None:
    """Only literal words are judged, so a secret that flows past them would be opened here."""
    tally = compare_texts(seed, TEXTS, tmp_path, beyond=0.8)
    assert tally.differences == []
    assert tally.rendered > TEXTS / 20


@pytest.mark.usefixtures("strace")
def test_a_difference_between_the_steps_and_what_ran_would_be_seen(tmp_path: Path) -> None:
    """The tracer sees what bash executes on its own account, and what is opened."""
    assert traced("test -v 'a[$(/bin/echo hidden)]'; /bin/true 'x\ny' é", tmp_path) == [
        ("/bin/echo", "/bin/echo", "hidden"),
        ("/bin/true", "/bin/true", "x\ny", "é"),
    ]
    (tmp_path / "secret").write_text("", encoding="utf-8")
    hidden = "f=x; eval 'f=secret'; : < $f"
    (run,) = traced_parts([hidden], tmp_path, tmp_path)
    assert run.opened == {str(tmp_path / "secret")}
