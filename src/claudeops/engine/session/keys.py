"""The ssh keys of a session: where its cell can keep them from it, they are in an agent of the daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import Cell
from claudeops.engine.cell.reach import Needs, Reach, list_of
from claudeops.engine.cell.ssh_keys import TemplateKeys, find_keys
from claudeops.engine.cell.workspace import LOOK_SECONDS, SESSION_FILES, Workspace
from claudeops.engine.process.ssh_agent import SshAgent, open_agent
from claudeops.engine.session.context import TierSetup
from claudeops.logs import LogEvent, Logger

AGENT_VARIABLE: Final = "SSH_AUTH_SOCK"
OTHER_AGENT: Final = f"the tier's {AGENT_VARIABLE} names an agent of its own: add it there, or unset that"


async def keys_of(cell: Cell, tier: TierSetup) -> TemplateKeys | None:
    """Return the private keys that sessions of a tier do not get as files; raises `OSError`.

    None: they get all files. At other levels than ``bubblewrap`` a session reaches the operator's directory, or its
    agent, by itself.
    """
    home = tier.template_home
    if home is None or not isinstance(cell, BubblewrapCell):
        return None
    found = await SESSION_FILES.run(partial(find_keys, home), seconds=LOOK_SECONDS, what=f"looking for keys in {home}")
    return found if found.found else None


@asynccontextmanager
async def open_keys(
    cell: Cell,
    tier: TierSetup,
    workspace: Workspace,
    keys: TemplateKeys | None,
    *,
    reached: tuple[Needs, Reach | None],
    log: Logger,
) -> AsyncIterator[SshAgent | None]:
    """Hold the agent of a session for the length of the block, where it has keys; raises `OSError`."""
    if keys is None or not isinstance(cell, BubblewrapCell):
        yield None
        return
    if AGENT_VARIABLE in tier.passed_env:
        for name in keys.names:
            log.warning(LogEvent.KEY_NOT_IN_AGENT, key=name, reason=OTHER_AGENT)
        yield None
        return
    needs, reach = reached
    listed = await list_of(needs) if reach is None else reach.listed
    async with open_agent(cell, workspace, keys, listed, log) as agent:
        yield agent
