"""The self-test of the gate, wired to the scripted Messages API. Part of the composition root."""

from __future__ import annotations

import importlib.metadata
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from claudeops.engine.cli_admission import FILE, CliAdmission
from claudeops.engine.self_test import SelfTestResult, self_test

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from claudeops.engine.ports import Clock
    from claudeops.logs import Logger
    from claudeops.settings import Settings


def admission(settings: Settings, *, clock: Clock, log: Logger) -> CliAdmission:
    """Return what says which CLI binaries this node may use."""

    async def test(binary: Path) -> SelfTestResult:
        return await try_gate(binary, path=settings.path)

    return CliAdmission(
        record=settings.state_dir / FILE,
        tester=importlib.metadata.version("claudeops"),
        test=test if settings.cli_self_test else None,
        clock=clock,
        log=log,
    )


async def try_gate(binary: Path, *, path: str) -> SelfTestResult:
    """Run the self-test with a binary; ``path`` is the ``PATH`` of its sessions."""
    return await self_test(binary, path=path, serve=serve_script)


@asynccontextmanager
async def serve_script(document: Mapping[str, object]) -> AsyncIterator[str]:
    """Serve a script on loopback until the block is left."""
    # A web server, for two seconds after an update: most starts do without it.
    from claudeops.rehearsal.messages_api import serve  # noqa: PLC0415 - see above
    from claudeops.rehearsal.script import Script  # noqa: PLC0415 - with it

    async with serve(Script.from_mapping(document)) as api:
        yield api.url
