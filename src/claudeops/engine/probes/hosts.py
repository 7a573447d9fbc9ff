"""The hosts of the operator's probes file, for the estate: those of the declaration that serves.

A file that is not there names none. One that is wrong, or cannot be read, leaves what it said before, as it does for
the probes themselves; a process that never saw it right knows no hosts of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from claudeops.domain.estate.estate import ProbedPlaces
from claudeops.engine.probes.declared import Signature, allow_all, read_file, signature_of
from claudeops.formats.probes.hosts import probed_by


@dataclass(kw_only=True, slots=True)
class ProbedHosts:
    """Reads the hosts with their ports, and those of a file that has not changed only once."""

    file: Path
    refuse_command: Callable[[str], str | None] = allow_all
    _signature: Signature | None = None
    _found: ProbedPlaces = field(default_factory=ProbedPlaces)

    def read(self) -> ProbedPlaces:
        """Return the hosts and their ports; blocks. Raises `OSError`."""
        signature = signature_of(self.file)
        if signature is None:
            self._found = ProbedPlaces()
        elif signature != self._signature:
            found = read_file(self.file, refuse_command=self.refuse_command)
            self._found = self._found if isinstance(found, str) else probed_by(found.probes)
        self._signature = signature
        return self._found
