"""The filters of a session, and what it was granted to change behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from claudeops.domain.granted import Grants
from claudeops.engine.cell.workspace import Workspace
from claudeops.engine.docker.filter import open_filter
from claudeops.engine.session.context import SessionContext, TierSetup
from claudeops.logs import Logger


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """What stands before the engines that a tier's sessions reach."""

    grants: Grants = field(default_factory=Grants)
    docker: Path | None = None  # the socket of the one before docker's engine


@asynccontextmanager
async def open_filters(
    context: SessionContext, tier: TierSetup, workspace: Workspace, log: Logger
) -> AsyncIterator[Filters]:
    """Serve a session's filters for the length of the block; raises `OSError`."""
    grants = Grants()
    async with open_filter(tier.docker, workspace, context.secrets, grants, log) as docker:
        yield Filters(grants=grants, docker=docker)
