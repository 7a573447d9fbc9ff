"""The self-test of the gate, wired to the scripted Messages API. Part of the composition root."""

from __future__ import annotations

import importlib.metadata
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from claudeops.app_kit import SESSIONS, binaries
from claudeops.engine.cli_admission import FILE, CliAdmission
from claudeops.engine.self_test import Bench, SelfTestResult, self_test
from claudeops.errors import ConfigurationError
from claudeops.harness.registry import HARNESSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from claudeops.engine.cell import Cell
    from claudeops.engine.ports import Clock
    from claudeops.logs import Logger
    from claudeops.settings import Settings


def admission(settings: Settings, *, cell: Cell, clock: Clock, log: Logger) -> CliAdmission:
    """Return what says which CLI binaries this node may use, in the cell that its sessions get."""
    # Below the sessions' own directory: what a killed daemon left there is removed at the next start.
    bench = Bench(cell=cell, path=settings.path, root=settings.state_dir / SESSIONS / "self-test")

    async def test(binary: Path) -> SelfTestResult:
        return await try_gate(binary, bench)

    return CliAdmission(
        record=settings.state_dir / FILE,
        tester=importlib.metadata.version("claudeops"),
        test=test if settings.cli_self_test else None,
        clock=clock,
        log=log,
    )


async def admit_clis(settings: Settings, clis: CliAdmission) -> None:
    """Raise `ConfigurationError` for a CLI whose gate does not hold, before anything of ours depends on it."""
    for harness, binary in binaries(settings).items():
        if HARNESSES[harness].capabilities.gate and (refusal := await clis.refusal(binary)) is not None:
            raise ConfigurationError(refusal)


async def try_gate(binary: Path, bench: Bench) -> SelfTestResult:
    """Run the self-test with a binary."""
    return await self_test(binary, bench=bench, serve=serve_script)


@asynccontextmanager
async def serve_script(document: Mapping[str, object]) -> AsyncIterator[str]:
    """Serve a script on loopback until the block is left."""
    # A web server, for two seconds after an update: most starts do without it.
    from claudeops.rehearsal.messages_api import serve  # noqa: PLC0415 - see above
    from claudeops.rehearsal.script import Script  # noqa: PLC0415 - with it

    async with serve(Script.from_mapping(document)) as api:
        yield api.url
