"""What holds for every test: its backend, its surroundings, and that it leaves nothing behind.

Fixtures of one folder stand in that folder's own ``conftest.py``; helpers in ``tests/support``.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import ipaddress
import os
import re
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import hypothesis
import psutil
import pytest

from support.doses import SEED_VARIABLE
from support.forks import allow, processes_below
from support.long_log import LongLog
from support.passable import let_pass
from support.red import RedList
from support.seen_at_once import SeenAtOnce

# Before anything reads them: the developer's own settings and credentials have no place in a test. The time zone is
# one that no machine here is in, 45 minutes off the hour, so that local time taken for UTC shows.
for _name in tuple(os.environ):
    if _name.startswith(("CLAUDEOPS_", "ANTHROPIC_", "CLAUDE_", "OPENAI_", "OTEL_", "PG")):
        del os.environ[_name]
os.environ["TZ"] = "Asia/Kathmandu"
time.tzset()

# What `support.doses.drawn` draws by: the day, or the number that a run of another day is repeated with. Set before the
# workers begin, which inherit it.
os.environ.setdefault(SEED_VARIABLE, dt.datetime.now(dt.UTC).strftime("%Y%m%d"))

allow()  # forked daemons and commands

# The same examples in every run and on every machine; no stopwatch on an example (the test's own limit holds).
hypothesis.settings.register_profile("claudeops", derandomize=True, deadline=None)
hypothesis.settings.load_profile("claudeops")

_SLOWEST_FIRST = ("kill_matrix", "acceptance", "conformance", "integration", "migration", "contract", "unit")
_LEFTOVER_GRACE_SECONDS = 30.0  # at most, for what is ending already when its test returns

_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)

_strangers: list[str] = []  # addresses that the code under test tried to reach


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def tmp_path(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the test's directory. As root its parents are opened too: pytest closes them to the users of sessions."""
    if os.geteuid() == 0:
        base = tmp_path_factory.getbasetemp()
        for directory in (tmp_path, base, *(parent for parent in base.parents if "pytest-of-" in str(parent))):
            let_pass(directory)
    return tmp_path


@pytest.fixture(autouse=True)
def no_address_but_loopback_is_reached() -> Generator[None]:
    """Fail a test whose own process tried to leave the machine, also where the code took the refusal calmly."""
    _strangers.clear()
    yield
    assert not _strangers, f"tests stay on loopback, and this one tried to reach {', '.join(_strangers)}"


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Generator[None]:
    """Fail a test that leaves a child process or a thread behind. What it left is ended, for the sake of the next."""
    threads, children = set(threading.enumerate()), set(_children())
    yield
    deadline = time.monotonic() + _LEFTOVER_GRACE_SECONDS
    left = [_describe(child) for child in _still_running(children, deadline)]
    left += [f"thread {thread.name}" for thread in _still_alive(threads, deadline)]
    # A command that ran in this process has made it the reaper of orphans: a database server that a later test starts
    # would become its child, and be taken for something that a session has left.
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert not left, f"left running: {', '.join(left)}"


def _children() -> list[psutil.Process]:
    """Return all processes below this one. Most tests start none, and the kernel's own list says so at once.

    psutil would look at every process of the machine, twice a test.
    """
    try:
        if not any((task / "children").read_bytes() for task in Path("/proc/self/task").iterdir()):
            return []
    except OSError:  # a thread that ended meanwhile, or a kernel without these lists
        pass
    return processes_below()


def _still_running(before: set[psutil.Process], deadline: float) -> list[psutil.Process]:
    new = [child for child in _children() if child not in before and not _is_of(child, before)]
    _, alive = psutil.wait_procs(new, timeout=max(0.0, deadline - time.monotonic()))
    for child in alive:
        child.kill()
    return alive


def _is_of(process: psutil.Process, before: set[psutil.Process]) -> bool:
    """Tell whether what was there before a test has started it: a browser starts some of its processes late."""
    try:
        return any(parent in before for parent in process.parents())
    except psutil.Error:  # it has ended
        return False


def _still_alive(before: set[threading.Thread], deadline: float) -> list[threading.Thread]:
    # Daemon threads end with the process by their nature; whoever starts one has decided that.
    new = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in new:
        thread.join(timeout=max(0.0, deadline - time.monotonic()))
    return [thread for thread in new if thread.is_alive()]


def _describe(process: psutil.Process) -> str:
    try:
        return f"process {process.pid} ({' '.join(process.cmdline())[:200]})"
    except psutil.Error:
        return f"process {process.pid}"


def _stay_on_loopback(event: str, args: tuple[object, ...]) -> None:
    match event, args:
        case ("socket.connect", (_, (str() as host, *_))) | ("socket.getaddrinfo", (str() as host, *_)):
            if not _is_loopback(host):
                _strangers.append(host)
                raise PermissionError(f"tests stay on loopback: {host}")


def _is_loopback(host: str) -> bool:
    if host in {"", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


sys.addaudithook(_stay_on_loopback)  # cannot be removed again, which is the point


def pytest_report_header() -> list[str]:
    """Say before the first test what is missing on this machine, and what brings it."""
    refusal = _refusal_of_postgresql()
    return [
        f"{refusal} Without them they are skipped." if refusal else "PostgreSQL's server programs are here.",
        f"cases are drawn by {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}",
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--red", metavar="FILE", help="write to FILE which tests were red, for support/red.py")
    parser.addoption("--long", metavar="FILE", help="run the long doses alone, and write to FILE what each of them did")


def pytest_configure(config: pytest.Config) -> None:
    """Show failures at once, where the reports of all processes come together."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SeenAtOnce(config), "seen-at-once")
        if file := config.getoption("--red"):
            config.pluginmanager.register(RedList(Path(file)), "red-list")
        if file := config.getoption("--long"):
            config.pluginmanager.register(LongLog(Path(file)), "long-log")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose between the daily and the long doses, bring slow files to the front, skip what lacks a PostgreSQL."""
    _choose(config, items)
    items.sort(key=lambda item: _slowness(item.nodeid))  # keeps the order within a folder
    concerned = [item for item in items if _needs_postgresql(item)]
    refusal = _refusal_of_postgresql() if concerned else None
    if refusal:
        for item in concerned:
            item.add_marker(pytest.mark.skip(reason=refusal))


def _choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the long doses alone where they are wanted, else all others; a test that is named by itself is wanted."""
    long_wanted = bool(config.getoption("--long"))
    named = tuple(argument for argument in config.args if "::" in argument)
    left_out = []
    for item in items:
        # On PostgreSQL a test of the store runs daily if a dialect, a lock or a type decides what it sees.
        other_database = item.get_closest_marker("postgres") and "database" in getattr(item, "fixturenames", ())
        is_long = item.get_closest_marker("long") or (other_database and not item.get_closest_marker("dialect"))
        is_named = any(item.nodeid == name or item.nodeid.startswith((f"{name}[", f"{name}::")) for name in named)
        if bool(is_long) is not long_wanted and not is_named:
            left_out.append(item)
    if left_out:
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left_out)


def _slowness(nodeid: str) -> int:
    """Return the place of a test's folder: a slow file that begins last keeps everybody waiting at the end."""
    folder = nodeid.removeprefix("tests/").partition("/")[0]
    return _SLOWEST_FIRST.index(folder) if folder in _SLOWEST_FIRST else len(_SLOWEST_FIRST)


def _needs_postgresql(item: pytest.Item) -> bool:
    """Return whether a test is marked for PostgreSQL or a fixture of it starts a server, marked or not."""
    return bool(item.get_closest_marker("postgres")) or "postgres" in getattr(item, "fixturenames", ())


def _refusal_of_postgresql() -> str | None:
    """Return the sentence that says what is missing and which package has it, or None where nothing is."""
    from support import postgres  # noqa: PLC0415 - with its driver; not every worker needs that

    try:
        postgres._binaries()
    except RuntimeError as error:
        return str(error)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where everything is meant to be installed (``NO_SKIPS=1``).

    ``MAY_SKIP`` is an expression for the reasons that are no failure, where a program is missing on purpose.
    """
    report = yield
    refused = os.environ.get("NO_SKIPS") == "1" and not hasattr(report, "wasxfail")
    expected = os.environ.get("MAY_SKIP")
    if report.skipped and refused and not (expected and re.search(expected, str(report.longrepr))):
        report.outcome = "failed"
        report.longrepr = f"skipped although nothing may be: {call.excinfo.value if call.excinfo else 'marked'}"
    return report
