"""What the gate allows is executed: a look starts its own program, writes nothing, and opens and asks what it names."""

from __future__ import annotations

from typing import Final

import pytest

from claudeops.settings.policy import default_text
from support.doses import drawn
from support.rule_cell import cell_fault, run
from support.rule_runs import LEAST, Tally, draw, execute

SEEDS: Final = 7  # of which a day draws one
DAILY: Final = 1  # calls of each rule
SEED: Final = 0
ENOUGH: Final = 45  # calls of a bad rule, to show what is wrong with it

# Rules that let too much through.
HOLES: Final = """
[tiers.1]
tools = ["Bash"]

[[commands]]
name = "cat"
arguments = "text*"

[[commands]]
name = "sort"
options = "-o=one:/session/tmp/out,/srv/data/out -T -k=text"
arguments = "file*"

[[commands]]
name = "tar"
reading = "bundle"
options = "-t -I=one:/srv/trap/canary -f=archive"

[[commands]]
name = "date"
arguments = "re:[01]{8}"

[[commands]]
name = "getent"
arguments = "one:ahosts one:trap.example,trap"
"""


@pytest.fixture(scope="module", autouse=True)
def cell() -> None:
    """Skip where nothing can be traced."""
    fault = cell_fault()
    if fault is not None:
        pytest.skip(fault)


def shown(tally: Tally) -> list[str]:
    return [f"{call.given}\n{call.runs}\n{what}" for call, what in tally.findings]


@pytest.mark.parametrize("seed", drawn(range(SEEDS)))
def test_a_look_does_nothing_beside_its_task(seed: int) -> None:
    tally = draw(default_text(), seed, DAILY)
    execute(tally)
    assert shown(tally) == []
    assert len(tally.rules()) > 300


@pytest.mark.long
def test_many_looks_do_nothing_beside_their_task() -> None:
    tally = draw(default_text(), SEED, LEAST)
    execute(tally)
    assert shown(tally) == []


def test_rules_that_let_too_much_through_are_found() -> None:
    tally = draw(HOLES, SEED, ENOUGH)
    execute(tally)
    found = {(call.program, what.partition(": ")[0]) for call, what in tally.findings}
    assert ("cat", "opens /srv/trap/plain") in found
    assert ("cat", "prints a secret") in found
    assert any(program == "sort" and what.endswith("for writing") for program, what in found), found
    assert any(program == "tar" and what.startswith("executes /srv/trap/canary") for program, what in found), found
    assert ("sort", "opens /srv/trap/plain") in found  # -T takes -k for its value
    assert ("date", "changes something") in found
    assert ("getent", "connects to trap.example:53") in found


def test_the_cell_has_no_rights_and_lets_nothing_be_written() -> None:
    seen = run(
        [
            "/bin/cat /proc/self/status",
            "for file in /proc/sys/kernel/hostname /session/work/x /usr/x /etc/x /srv/x; do echo x > $file; done",
            "/bin/cat /etc/shadow",
        ]
    )
    assert not isinstance(seen, str), seen
    status, written, shadow = (each.printed.decode() for each in seen)
    assert "CapEff:\t0000000000000000" in status
    assert "CapBnd:\t0000000000000000" in status
    assert written.count("Read-only file system") + written.count("Permission denied") == 5
    assert "root:marker-" in shadow  # not the machine's own
