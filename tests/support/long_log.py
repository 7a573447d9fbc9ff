"""A pytest plugin: what the long doses did stands in a file, line by line, also of a run that was broken off."""

from __future__ import annotations

import datetime as dt
import os
import platform
from pathlib import Path

import pytest

from support.doses import SEED_VARIABLE


class LongLog:
    """Appends a line for each test to a file: when it ended, how, after how many seconds, and its name."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = {}
        self._outcomes: dict[str, str] = {}

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Begin with what is run."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        arguments = " ".join(session.config.invocation_params.args)
        seed = f"{SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"
        self._write(
            f"begun on {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}: {seed} {arguments}"
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases of a test; the worst of them is its outcome."""
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.outcome != "passed" or name not in self._outcomes:
            self._outcomes[name] = report.outcome
        if report.when == "teardown":
            self._write(f"{self._outcomes.pop(name)} {self._seconds.pop(name):.1f} s {name}")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """End with pytest's own status: 0 where all passed."""
        self._write(f"ended with status {exitstatus:d}")

    def _write(self, text: str) -> None:
        with self._file.open("a", encoding="utf-8") as sink:
            sink.write(f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ} {text}\n")
