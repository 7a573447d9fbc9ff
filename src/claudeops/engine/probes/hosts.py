"""The hosts of the operator's probes file, for the estate: those of the declaration that serves.

A file that is not there names none. One that is wrong, or cannot be read, leaves what it said before, as it does for
the probes themselves; a process that never saw it right knows no hosts of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from claudeops.domain.probe.hosts import hosts_of
from claudeops.engine.probes.declared import Signature, allow_all, read_file, signature_of


@dataclass(kw_only=True, slots=True)
class ProbedHosts:
    """Reads the hosts, and those of a file that has not changed only once."""

    file: Path
    refuse_command: Callable[[str], str | None] = allow_all
    _signature: Signature | None = None
    _hosts: tuple[str, ...] = ()

    def read(self) -> tuple[str, ...]:
        """Return the hosts; blocks. Raises `OSError`."""
        signature = signature_of(self.file)
        if signature is None:
            self._hosts = ()
        elif signature != self._signature:
            found = read_file(self.file, refuse_command=self.refuse_command)
            self._hosts = self._hosts if isinstance(found, str) else hosts_of(found.probes)
        self._signature = signature
        return self._hosts
