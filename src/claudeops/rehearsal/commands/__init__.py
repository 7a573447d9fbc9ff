"""The stand-in commands of a rehearsal, which really act on its services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from claudeops.rehearsal.commands.answer import CommandOutput
from claudeops.rehearsal.commands.containers import docker, kubectl
from claudeops.rehearsal.commands.host import curl, journalctl, systemctl
from claudeops.rehearsal.environment import Environment

__all__ = ["COMMANDS", "CommandOutput"]

COMMANDS: Final[Mapping[str, Callable[[Environment, tuple[str, ...]], Awaitable[CommandOutput]]]] = {
    "docker": docker,
    "kubectl": kubectl,
    "systemctl": systemctl,
    "journalctl": journalctl,
    "curl": curl,
}
"""The commands by their names on the sessions' ``PATH``."""

ONLY_WHERE_MISSING: Final = frozenset({"curl"})
"""The machine's own commands are better, where they exist."""
