"""The hosts of the operator's probes file, for the estate: those of the declaration that serves.

A file that is not there names none. One that is wrong, or cannot be read, leaves what it said before, as it does for
the probes themselves; a process that never saw it right knows no hosts of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from claudeops.domain.estate.estate import ProbedPlaces
from claudeops.engine.last_good import LastGood, look_again
from claudeops.engine.probes.declared import NO_FILE, allow_all, read_file
from claudeops.formats.probes.declaration import Declaration
from claudeops.formats.probes.hosts import probed_by


class ProbedHosts(msgspec.Struct, kw_only=True):
    """Reads the hosts with their ports; a file that has not changed is read only once."""

    file: Path
    refuse_command: Callable[[str], str | None] = allow_all
    _last: LastGood[Declaration] = NO_FILE

    def read(self) -> ProbedPlaces:
        """Return the hosts and their ports; blocks. Raises `OSError`."""
        read = partial(read_file, refuse_command=self.refuse_command)
        self._last = look_again(self._last, self.file, read, absent=NO_FILE)
        return probed_by(self._last.value.probes)
