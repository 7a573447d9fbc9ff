"""Red tests: a pytest plugin that writes their names to a file, and a program that runs each of them again, alone.

``python tests/support/red.py FILE`` reads what ``pytest --red=FILE`` wrote. A test that passes when it runs alone is
unreliable: it is printed as a line for ``tests/unreliable.txt``, and the exit status is 0. It is 1 where a test is red
again, where the file already names it, where more than two are unreliable at once, and where pytest ended for another
reason than a red test.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

TESTS: Final = Path(__file__).parents[1]
KNOWN: Final = TESTS / "unreliable.txt"
MOST: Final = 2
"""Unreliable tests of one run that may pass; with more of them something else is wrong."""

_TESTS_FAILED: Final = 1  # pytest's exit status for red tests and nothing worse
_SENTENCE: Final = 200  # characters


class RedList:
    """Collects the names of red tests with the sentence of their failure, and writes them at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._red: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: object) -> None:
        """Note a failure in any phase of a test; the first one counts."""
        if getattr(report, "failed", False):
            self._red.setdefault(report.nodeid, _sentence(report))  # type: ignore[attr-defined]

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the file."""
        self._file.write_text(json.dumps({"status": int(exitstatus), "red": self._red}), encoding="utf-8")


def _sentence(report: object) -> str:
    """Return the line that says what failed, without what varies in white space."""
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    text = str(crash.message if crash is not None else getattr(report, "longrepr", ""))
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "no sentence")[:_SENTENCE]


class Judgement(NamedTuple):
    """What comes of the red tests of a run."""

    unreliable: tuple[str, ...]  # lines for the file
    reasons: tuple[str, ...]  # why the run fails; none: it passes


def judge(
    run: Mapping[str, object], known: Iterable[str], passes_alone: Callable[[str], bool], today: dt.date
) -> Judgement:
    """Decide about a run by running its red tests again. ``known``: names that the committed file has."""
    red = run["red"]
    assert isinstance(red, dict)
    if run["status"] != _TESTS_FAILED or not red:
        return Judgement((), (f"pytest ended with status {run['status']}",))
    known = set(known)
    if fatal := [name for name in red if name in known]:
        return Judgement((), tuple(f"{name} is red and known to be unreliable: it is to be mended" for name in fatal))
    if len(red) > 2 * MOST:
        return Judgement((), (f"{len(red)} tests are red",))
    passing = [name for name in red if passes_alone(name)]
    reasons = [f"{name} is red again, alone" for name in red if name not in passing]
    if len(passing) > MOST:
        reasons.append(f"{len(passing)} tests are unreliable, and at most {MOST} may be")
    lines = (f"{name}\t{today.isoformat()}\t{red[name]}" for name in passing)
    return Judgement(tuple(lines), tuple(reasons))


def known_names(text: str) -> list[str]:
    """Return the names in the text of the file; what begins with # is a remark."""
    return [line.split("\t")[0] for line in text.splitlines() if line.strip() and not line.startswith("#")]


def main(file: Path) -> int:
    """Judge the run and print the section of its own; return the exit status."""
    try:
        run = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        run = {"status": "none: it wrote nothing", "red": {}}
    judged = judge(run, known_names(KNOWN.read_text(encoding="utf-8")), _passes_alone, dt.datetime.now(dt.UTC).date())
    write = sys.stdout.write
    if judged.unreliable:
        write("\n=== unreliable: red, and green when run again, alone ===\n")
        write("Commit these lines to tests/unreliable.txt, and mend the tests:\n")
        write("".join(f"{line}\n" for line in judged.unreliable))
    write("".join(f"CI fails: {reason}\n" for reason in judged.reasons))
    return 1 if judged.reasons else 0


def _passes_alone(name: str) -> bool:
    """Return whether a test passes in a run of its own; what it prints goes to stderr."""
    command = [
        sys.executable,
        str(TESTS / "support" / "whole_run.py"),
        "-n",
        "0",
        f"tests/{name.removeprefix('tests/')}",
    ]
    return subprocess.run(command, cwd=TESTS.parent, stdout=sys.stderr, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
