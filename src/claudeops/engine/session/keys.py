"""The ssh keys of a session: where its cell can keep them from it, they are in an agent of the daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import msgspec

from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import Cell
from claudeops.engine.cell.reach import Needs, list_of
from claudeops.engine.cell.workspace import MAKE_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.session.context import TierSetup
from claudeops.engine.ssh.agent import MOST_NAMED, open_agent
from claudeops.engine.ssh.keys import TemplateKeys, find_keys
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import open_tasks

AGENT_VARIABLE: Final = "SSH_AUTH_SOCK"
OTHER_AGENT: Final = f"the tier's {AGENT_VARIABLE} names an agent of its own: add it there, or unset that"


class SessionKeys(msgspec.Struct):
    """The keys of a session, whose agent starts while the session's other things are made."""

    _opened: anyio.Event = msgspec.field(default_factory=anyio.Event)
    _socket: Path | None = None
    _error: OSError | None = None

    async def socket(self) -> Path | None:
        """Return where their agent listens, once it has them; None: there is none. Raises `OSError`."""
        await self._opened.wait()
        if self._error is not None:
            raise self._error
        return self._socket

    async def has_agent(self) -> bool:
        """Return whether there is an agent, once that is known; raises `OSError`."""
        return await self.socket() is not None

    async def hold(
        self, cell: BubblewrapCell, workspace: Workspace, keys: TemplateKeys, needs: Needs, log: Logger
    ) -> None:
        """Run the agent, until cancelled."""
        try:
            async with open_agent(cell, workspace, keys, partial(list_of, needs), log) as agent:
                self._socket = agent.socket
                self._opened.set()
                await anyio.sleep_forever()
        except OSError as error:  # raised to whoever waits: the session does not start
            self._error = error
            self._opened.set()

    def lack_agent(self) -> None:
        """Say that there is none."""
        self._opened.set()


async def keys_of(cell: Cell, tier: TierSetup) -> TemplateKeys | None:
    """Return the private keys that sessions of a tier do not get as files; raises `OSError`.

    None: they get all files. At other levels than ``bubblewrap`` a session reaches the operator's directory, or its
    agent, by itself.
    """
    home = tier.template_home
    if home is None or not isinstance(cell, BubblewrapCell):
        return None
    found = await SESSION_FILES.run(partial(find_keys, home), seconds=MAKE_SECONDS, what=f"looking for keys in {home}")
    return found if found.found or found.outside else None


@asynccontextmanager
async def open_keys(
    cell: Cell, tier: TierSetup, place: tuple[Workspace, TemplateKeys | None], needs: Needs, log: Logger
) -> AsyncIterator[SessionKeys]:
    """Hold the keys of a session for the length of the block, in an agent if there are any; does not wait for it."""
    workspace, keys = place
    opening = SessionKeys()
    async with open_tasks() as tasks:
        if keys is None or not isinstance(cell, BubblewrapCell):
            opening.lack_agent()
        elif AGENT_VARIABLE in tier.passed_env:
            opening.lack_agent()
            for name in keys.names[:MOST_NAMED]:
                log.warning(LogEvent.KEY_NOT_IN_AGENT, key=name, reason=OTHER_AGENT)
        else:
            tasks.start_soon(opening.hold, cell, workspace, keys, needs, log)
        try:
            yield opening
        finally:
            tasks.cancel_scope.cancel()
