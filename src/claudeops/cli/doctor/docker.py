"""The check of how the sessions of each tier reach docker's engine."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import anyio.to_thread

from claudeops.app.start.trial import surroundings
from claudeops.cli.doctor.finding import DoctorContext, Finding, doubtful, fine, skipped, together
from claudeops.engine.cell.cell import DOCKER_HOST, IsolationLevel, docker_engine
from claudeops.engine.cell.levels import choose
from claudeops.errors import ConfigurationError
from claudeops.settings import Settings

_REMEDY: Final = "Start docker, correct DOCKER_HOST, or put the daemon's user into the group of the socket."


async def docker(_case: DoctorContext, settings: Settings) -> Finding:
    """Say which engines are reached through the filter, and which are not; no engine is asked anything."""
    named: dict[str, list[str]] = {}
    for tier in settings.tiers:
        if host := {**settings.environment.inherited, **tier.env}.get(DOCKER_HOST, ""):
            named.setdefault(host, []).append(str(tier.number))
    if not named:
        return fine("No tier's sessions reach docker's engine: none of their variables names it.")
    try:
        chosen = await anyio.to_thread.run_sync(choose, settings.cell.isolation, surroundings(settings))
    except ConfigurationError:
        return skipped("Not looked at: no isolation works.")

    def look() -> list[Finding]:
        return [_way(host, tiers, chosen.cell.level) for host, tiers in named.items()]

    return together(await anyio.to_thread.run_sync(look))


def _way(host: str, tiers: list[str], level: IsolationLevel) -> Finding:
    who = f"Tier {', '.join(tiers)}"
    engine = docker_engine({DOCKER_HOST: host})
    if engine is None:
        return doubtful(
            f"{who} reaches the engine of {DOCKER_HOST} without the filter: only sockets of this machine are filtered.",
            "Name a socket, unix:///var/run/docker.sock, or give the tier an account there that may only look.",
        )
    if level is IsolationLevel.NONE:
        return doubtful(
            f"{who} may use {engine} itself, as root of this machine: at level none a session goes around the filter.",
            "Set CLAUDEOPS_ISOLATION to auto or bubblewrap.",
        )
    if why := _refusal(engine):
        return doubtful(f"{who} is to reach {engine} through the filter: {why}.", _REMEDY)
    return fine(f"{who} reaches {engine} through the filter: masked, and changed only as the gate has allowed.")


def _refusal(engine: Path) -> str | None:
    """Return why the daemon cannot connect to an engine's socket, or None."""
    try:
        found = engine.stat().st_mode
    except OSError as error:
        return f"it is not there ({error.strerror})"
    if not stat.S_ISSOCK(found):
        return "that is no socket"
    return None if os.access(engine, os.W_OK) else "the daemon's user may not use it"
