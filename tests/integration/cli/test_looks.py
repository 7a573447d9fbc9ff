"""What a person at a terminal sees, and what a quick command imports."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from claudeops.cli.text.layout import Layout
from claudeops.cli.text.screen import watch
from claudeops.domain.events import EventLevel, NewEvent
from support.migrated import write_migrated
from support.operating import COMMAND
from support.store_values import one_session, report
from support.stores import Database, opened
from support.waiting import PATIENCE_SECONDS

SLOW = ("sqlalchemy", "alembic", "pydantic", "structlog", "rich", "anyio", "psycopg", "jsonschema")


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    """Return the state directory of a node with thirty events, one of them long and hostile."""
    directory = tmp_path / "state"
    directory.mkdir()
    url = f"sqlite:///{directory / 'claudeops.db'}"
    write_migrated(directory / "claudeops.db")
    messages = [f"the {number}. thing" for number in range(29)] + ["\x1b[2J" + "a long story " * 20]
    events = tuple(NewEvent(level=EventLevel.CRITICAL, message=message, service="web") for message in messages)
    async with opened(Database(url)) as store:
        await one_session(store, report(events=events))
    return directory


def on_terminal(state: Path, *arguments: str, lines: int = 100, **environment: str) -> str:
    """Run a command on a terminal of 60 columns; return what arrives there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 60, 0, 0))
    settings = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "CLAUDEOPS_STATE_DIR": str(state), **environment}
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=settings, cwd=state, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # EIO: nobody writes any more
        while part := terminal.read(65536):
            printed += part
    assert process.wait(PATIENCE_SECONDS) == 0
    return printed.decode().replace("\r\n", "\n")


async def test_on_a_terminal_tables_fit_it_and_have_colours(state: Path) -> None:
    text = on_terminal(state, "list-events")
    assert "\x1b[1;31mcritical\x1b[0m" in text
    assert "\x1b[2J" not in text
    plain = on_terminal(state, "list-events", NO_COLOR="1")
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 60
    assert "…" in plain
    assert "SESSION" not in plain  # the message matters more


async def test_what_is_longer_than_the_terminal_goes_through_a_pager(state: Path) -> None:
    assert on_terminal(state, "list-events", lines=10, PAGER="sed s/^/paged:/").count("paged:") > 30
    assert "paged:" not in on_terminal(state, "list-events", lines=100, PAGER="sed s/^/paged:/")


async def test_a_pipe_gets_everything_in_full(state: Path) -> None:
    settings = {"PATH": os.environ["PATH"], "CLAUDEOPS_STATE_DIR": str(state)}
    done = await anyio.run_process([*COMMAND, "list-events"], env=settings, cwd=state)
    assert b"a long story a long story " * 5 in done.stdout
    assert b"\x1b" not in done.stdout


def test_watching_prints_what_has_changed_until_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    states = iter(["one", "one", "two"])

    def draw(_: Layout) -> Sequence[str]:
        if (found := next(states, None)) is None:
            raise KeyboardInterrupt
        return [found]

    with pytest.raises(KeyboardInterrupt):
        watch(draw, utc=False, seconds=0.0)
    assert capsys.readouterr().out == "one\ntwo\n"


@pytest.mark.parametrize("module", ["claudeops.cli.commands", "claudeops.cli.status"])
def test_what_must_answer_at_once_imports_nothing_slow(module: str) -> None:
    asked = f"import {module}, sys; print(*sorted({set(SLOW)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
