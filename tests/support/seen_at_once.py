"""A pytest plugin: what fails is shown when it fails, and a long run says now and then how far it is.

Many processes run the tests, and their reports come together in one, which has this plugin. The summary at the end
shows every failure once more.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, cast

import psutil
import pytest

STATUS_SECONDS: Final = 20.0
_NAMES: Final = 4  # of tests that run at the moment


class SeenAtOnce:
    """Writes to the terminal between the dots."""

    def __init__(self, config: pytest.Config, *, status_seconds: float = STATUS_SECONDS) -> None:
        self._plugins = config.pluginmanager
        self._status_seconds = status_seconds
        self._began = time.monotonic()
        self._running: dict[str, float] = {}  # since when, monotonic
        self._total = self._done = self._failed = 0
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._most = config.getoption("maxfail", default=0)  # so many failures end the run; 0: none does
        self._workers = bool(config.getoption("numprocesses", default=None))
        # With one process the dots say enough, and a debugger may be on the terminal.
        if self._workers:
            threading.Thread(target=self._tell_status, name="status of the tests", daemon=True).start()

    # --- what is told -----------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)  # behind the letter F
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Show a failure."""
        if not report.failed or hasattr(report, "wasxfail"):
            return
        self._failed += 1
        with self._on_new_line() as terminal:
            terminal.write_sep("_", f"{report.nodeid} ({report.when})", red=True)
            terminal.write_line(report.longreprtext)
            for name, text in report.sections:
                terminal.write_sep("-", name)
                terminal.write_line(text.rstrip())
        if self._workers and self._failed == self._most:
            self._end()

    def _end(self) -> None:
        """End the run, the other workers too: each of them would go on with its file, slow as it may be."""
        for worker in psutil.Process().children():
            with suppress(psutil.Error):
                worker.send_signal(signal.SIGINT)
        pytest.exit(f"stopped after {self._failed} red", returncode=int(pytest.ExitCode.TESTS_FAILED))

    def status(self) -> str:
        """Return how far it is."""
        now = time.monotonic()
        minutes, seconds = divmod(round(now - self._began), 60)
        longest = sorted(self._running.items(), key=lambda one: one[1])[:_NAMES]
        names = ", ".join(f"{nodeid.removeprefix('tests/')} ({now - since:.0f} s)" for nodeid, since in longest)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"[{minutes}:{seconds:02}] {self._done} of {self._total} tests{failed}; now: {names or 'none'}"

    def _tell_status(self) -> None:
        while not self._over.wait(self._status_seconds):
            if self._total:
                with self._on_new_line() as terminal:
                    terminal.write_line(self.status())

    @contextmanager
    def _on_new_line(self) -> Iterator[pytest.TerminalReporter]:
        # Not there yet while plugins are set up.
        terminal = cast("pytest.TerminalReporter", self._plugins.getplugin("terminalreporter"))
        with self._writing:
            terminal.write("\n", flush=True)
            yield terminal

    # --- what is noted ----------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note how many tests there are; every process says the same."""
        self._total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note that a test begins."""
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note that a test is over."""
        if self._running.pop(nodeid, None) is not None:
            self._done += 1

    def pytest_sessionfinish(self) -> None:
        """Say nothing more."""
        self._over.set()
