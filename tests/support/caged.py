"""A session of the real CLI in a cell of a given level, with a gate that allows everything.

What holds here holds for the cell alone. Run as a program (``python -m support.caged LEVEL ROOT COMMAND…``) it is the
daemon of one such session, to be killed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import psutil

from claudeops.domain.sessions import Ending
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import Cell, IsolationLevel, UserCell
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.control import StopControl
from claudeops.engine.process.tree import become_subreaper
from claudeops.engine.session.runner import SessionRunner
from claudeops.harness.protocol import CredentialKind, ModelAccess
from claudeops.scripted_api.script import Script
from claudeops.scripted_api.server import MessagesApi, serve
from claudeops.structs import replace
from support import cli
from support.checkout import TESTS
from support.estate import Estate, open_estate
from support.levels import PATH, needs
from support.operating import conclude, look
from support.waiting import PATIENCE_SECONDS

KEY: Final = "sk-ant-the-real-key-of-the-daemon"


@dataclass
class Caged:
    """An estate whose sessions are locked in."""

    estate: Estate
    api: MessagesApi

    async def run(self, prompt_text: str | None = None, control: StopControl | None = None) -> Ending:
        """Run one session, whose steps were given to `caged`."""
        await self.estate.queue(prompt_text=prompt_text)
        session = await self.estate.claim()
        return await SessionRunner(context=self.estate.context).run(session, control or StopControl())

    def share_network(self) -> None:
        """Give sessions the machine's network, as an operator can."""
        cell = self.estate.context.confinement.cell
        assert isinstance(cell, BubblewrapCell)
        self.estate.with_context(cell=replace(cell, has_network=False))

    def requests(self) -> str:
        """Return everything that was sent to the model."""
        return json.dumps([request.body for request in self.api.requests], default=str)

    def outputs(self, session_id: int = 1) -> list[str]:
        """Return what the tools of a session printed, as the model saw it."""
        found: list[str] = []
        for frame in self.estate.frames(session_id):
            message = frame.get("message")
            content = message.get("content") if isinstance(message, dict) and frame["type"] == "user" else None
            found += [str(block["content"]) for block in content or () if block.get("type") == "tool_result"]
        return found


def working_cell(level: IsolationLevel, binary: Path, *, repos: Path, hidden: tuple[Path, ...]) -> Cell:
    """Return a cell of a level; skips where there is none here, fails where it does not work with that CLI."""
    needs(level)
    found = try_level(level, HostContext(path=PATH, binaries=(binary,), repos_dir=repos, hidden=hidden))
    assert not isinstance(found, str), found
    return found


def forget_workspaces(root: Path) -> None:
    """Remove the directory of other users' workspaces, which is not below ``root``; a daemon does that at its start."""
    shutil.rmtree(UserCell().workspaces(root / "state" / "sessions"), ignore_errors=True)


@asynccontextmanager
async def caged(
    root: Path,
    level: IsolationLevel,
    *commands: str,
    steps: Sequence[Mapping[str, object]] = (),
    second: Sequence[Mapping[str, object]] = (),
    binary: Path | None = None,
    **passed: str,
) -> AsyncIterator[Caged]:
    """Open an estate below ``root`` in which the model does ``steps``, or ``commands`` by Bash, and then concludes.

    A second session does what ``second`` says.
    """
    done = [*steps, *(look(command) for command in commands), conclude()]
    script = Script.from_mapping(
        {"tiers": {"haiku": {"sessions": [{"steps": done}, {"steps": [*second, conclude()]}]}}}
    )
    program = binary or Path(cli.binary())
    async with serve(script) as api, open_estate(root) as estate:
        hidden = (root / "state", root / "results")
        tiers = {
            number: replace(tier, passed_env=passed, max_turns=50) for number, tier in estate.context.tiers.items()
        }
        estate.with_context(
            cell=working_cell(level, program, repos=root / "repos", hidden=hidden),
            binaries={"claude": program},
            path=PATH,
            tiers=tiers,
            timeouts=replace(estate.context.timeouts, session=240, startup=120, silence=120),
            access=ModelAccess(base_url=api.url, credential=CredentialKind.API_KEY, secret=KEY),
        )
        try:
            yield Caged(estate, api)
        finally:
            forget_workspaces(root)


async def daemon_output(root: Path, command: str, *, binary: str | Path) -> str:
    """Run a daemon whose one session, in no cell, runs a command; return what it printed."""
    with anyio.fail_after(PATIENCE_SECONDS):
        done = await anyio.run_process(
            [sys.executable, "-m", "support.caged", IsolationLevel.NONE.value, str(root), command],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS), "CAGED_CLI": str(binary)},
            cwd=root,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return done.stdout.decode()


async def _be_a_daemon(level: str, root: str, commands: list[str]) -> None:
    become_subreaper()
    home = Path(os.environ["CAGED_HOME"]) if "CAGED_HOME" in os.environ else None
    async with caged(Path(root), IsolationLevel(level), *commands, binary=Path(os.environ["CAGED_CLI"])) as cage:
        tiers = cage.estate.context.tiers
        cage.estate.with_context(tiers={**tiers, 1: replace(tiers[1], template_home=home)})
        ending = await cage.run()
        print("outputs:", cage.outputs())  # noqa: T201 - for whoever started this
    print(ending.outcome, ending.exit_code)  # noqa: T201 - for whoever started this
    print("children left:", [child.as_dict(["pid", "status", "cmdline"]) for child in psutil.Process().children()])  # noqa: T201


if __name__ == "__main__":
    anyio.run(_be_a_daemon, sys.argv[1], sys.argv[2], sys.argv[3:])
