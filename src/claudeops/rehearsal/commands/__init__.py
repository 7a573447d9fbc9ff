"""The stand-in commands of a rehearsal: what they really do with its services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.rehearsal.commands.answer import Answer
from claudeops.rehearsal.commands.curl import curl
from claudeops.rehearsal.commands.docker import docker
from claudeops.rehearsal.commands.kubectl import kubectl
from claudeops.rehearsal.commands.systemd import journalctl, systemctl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from claudeops.rehearsal.estate import Estate

__all__ = ["COMMANDS", "Answer"]

COMMANDS: Final[Mapping[str, Callable[[Estate, tuple[str, ...]], Awaitable[Answer]]]] = {
    "docker": docker,
    "kubectl": kubectl,
    "systemctl": systemctl,
    "journalctl": journalctl,
    "curl": curl,
}
"""By the name under which they stand on the sessions' ``PATH``."""

ONLY_WHERE_MISSING: Final = frozenset({"curl"})
"""The machine's own are better, where it has them."""
