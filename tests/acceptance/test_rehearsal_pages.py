"""Rehearsals on a terminal: their pages are open for whoever sits there, while they play and afterwards."""

from __future__ import annotations

import os
import pty
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from support.loopback_http import ask
from support.operating import COMMAND
from support.rehearsals import environment, processes_about
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

LINK = re.compile(r"(http://localhost:\d+)(/setup/[\w-]{43})")


@dataclass
class Terminal:
    """What a process has written to its terminal so far."""

    process: Process
    written: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        return self.written.decode(errors="replace")


@asynccontextmanager
async def on_a_terminal(root: Path, *arguments: str) -> AsyncIterator[Terminal]:
    """Run the command on a terminal of its own for the length of the block."""
    here, there = pty.openpty()
    try:
        process = await anyio.open_process(
            [*COMMAND, *arguments],
            stdin=there,
            stdout=there,
            stderr=there,
            cwd=root,
            env=environment(root, TERM="dumb"),
            start_new_session=True,
        )
        terminal = Terminal(process)
        async with process, anyio.create_task_group() as tasks:
            tasks.start_soon(_read, here, terminal.written)
            yield terminal
            tasks.cancel_scope.cancel()
    finally:
        os.close(here)
        os.close(there)


async def _read(descriptor: int, written: bytearray) -> None:
    while True:
        await anyio.wait_readable(descriptor)
        written += os.read(descriptor, 65536)


async def test_the_pages_of_rehearsals_have_one_address_and_one_login_until_ctrl_c(tmp_path: Path) -> None:
    async with on_a_terminal(tmp_path, "rehearse", "--pace", "0", "service-down", "healthy-estate") as terminal:
        await until(lambda: LINK.search(terminal.text) is not None)
        found = LINK.search(terminal.text)
        assert found is not None
        url, path = found.groups()
        logged_in = await ask(url + path, method="POST", raw=b"next=%2F", headers={})
        cookie = {"cookie": logged_in.headers["set-cookie"].partition(";")[0]}
        assert (await ask(f"{url}/", method="GET", headers=cookie)).status == 200
        await until(lambda: "stay open; Ctrl-C ends them" in terminal.text)
        page = await ask(f"{url}/sessions/1", method="GET", headers=cookie)
        assert page.status == 200
        assert "healthy" in page.body.decode()
        more = (await ask(f"{url}/more", method="GET", headers=cookie)).body.decode()
        targets = re.findall(r'class="card" href="(/\w+)"', more)
        led = {target: (await ask(f"{url}{target}", method="GET", headers=cookie)).status for target in targets}
        assert (await ask(f"{url}/", method="GET", headers={})).status == 303
        os.killpg(terminal.process.pid, signal.SIGINT)
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await terminal.process.wait() == 0
        assert len(LINK.findall(terminal.text)) == 1
    assert "2 of 2 rehearsals went as expected" in terminal.text
    assert "/api" in led
    assert set(led.values()) == {200}, led
    assert processes_about(tmp_path) == {}
    logs = "".join(file.read_text() for file in tmp_path.glob(".claudeops/rehearsals/*/daemon.log"))
    assert path.removeprefix("/setup/") not in logs
