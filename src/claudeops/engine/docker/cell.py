"""The cell in which the daemon runs, for an allowed call, what changes more of docker than one container.

``docker compose up`` and its like write whole containers to the engine, environments included: a filter cannot tell
what they make, and a session that sees only masks would write those. So the daemon runs them, as the gate has judged
them, with the engine's own socket: docker's client with its plugins, the directories of the project's files, the
registries' credentials from the home of the tier, and no network.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.looks import LookCall
from claudeops.engine.cell.bubblewrap import BubblewrapCell, system_mounts
from claudeops.engine.cell.look_cell import NULL, LookRefusedError, bounded
from claudeops.files import NEVER_WHOLE

_ALONE: Final = (
    *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    "--die-with-parent",
)
_SOCKET: Final = Path("/run/claudeops/engine.sock")
_HOME: Final = Path("/run/claudeops/home")
_FILES: Final = ("--file=", "--compose-file=")
_DIRECTORY: Final = "--project-directory="
_MOST_SAID: Final = 1000  # characters
_SPACES: Final = re.compile(r"\s+")


class DockerCell(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the command lines of such calls, for the sessions of one tier."""

    bubblewrap: BubblewrapCell
    path: str  # PATH, on which docker's client is
    engine: Path  # its socket
    home: Path | None  # the tier's; of it the configuration of docker's client is seen
    redact: Callable[[str], str]
    memory_mb: int = 16 * 1024  # of address space, of which programs in Go reserve much
    cpu_seconds: int = 120
    wall_seconds: float = 660.0  # the policy lets a command wait for ten minutes

    @property
    def program(self) -> Path:
        """Return where docker's client is; raises `LookRefusedError`. Accesses the disk."""
        found = shutil.which("docker", path=self.path)
        if found is None:
            raise LookRefusedError("docker's client is not installed where the daemon runs")
        return Path(found)

    def command(self, look: LookCall) -> tuple[str, ...]:
        """Return a call's command line; raises `LookRefusedError` and `OSError`. Accesses the disk."""
        options = (
            *_ALONE,
            *(word for mount in system_mounts() for word in mount.arguments()),
            *NULL,
            *(word for place in self._places(look) for word in ("--ro-bind", str(place), str(place))),
            *("--bind", str(self.engine.resolve(strict=True)), str(_SOCKET)),
            *self._configuration(),
            *("--proc", "/proc", "--remount-ro", "/proc", "--remount-ro", "/", "--chdir", "/"),
            *("--setenv", "DOCKER_HOST", f"unix://{_SOCKET}", "--setenv", "HOME", str(_HOME)),
            *("--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "LC_ALL", "C"),
        )
        launched = self.bubblewrap.launched(options, (str(self.program), *look.arguments))
        return bounded(launched, memory_mb=self.memory_mb, cpu_seconds=self.cpu_seconds)

    def sentence(self, _look: LookCall, _status: int, said: bytes) -> str:
        """Return what the client wrote beside its output: compose reports there, and so does every error."""
        return self.redact(_SPACES.sub(" ", said.decode("utf-8", "replace")).strip()[-_MOST_SAID:])

    def _places(self, look: LookCall) -> Iterator[Path]:
        """Yield the directories of the project's files."""
        for word in look.arguments:
            if word.startswith(_DIRECTORY):
                place = Path(word.removeprefix(_DIRECTORY))
            elif any(word.startswith(name) for name in _FILES):
                place = Path(word.partition("=")[2]).parent
            else:
                continue
            real = place.resolve(strict=True)
            if not place.is_absolute() or real in NEVER_WHOLE:
                raise LookRefusedError(f"{place} is no directory of a project: name it by its absolute path")
            yield place

    def _configuration(self) -> tuple[str, ...]:
        """Return the arguments that show how the client signs in to registries."""
        found = None if self.home is None else self.home / ".docker" / "config.json"
        if found is None or not found.is_file():
            return ("--dir", str(_HOME))
        return ("--ro-bind", str(found), str(_HOME / ".docker" / "config.json"))
