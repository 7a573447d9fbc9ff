"""The cell in which the daemon runs, for an allowed call, what writes whole objects to a cluster.

``kubectl apply`` and its like write what no filter can judge, and what a session sees of the cluster is masked. So the
daemon runs them, as the gate has judged them, with the tier's own kubeconfig and the keys that it names, the machine's
network, of the operator's repositories what the command names, and a home that is empty. kubectl starts no other
program there. Of what it prints only names of objects go back.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.looks import LookCall
from claudeops.engine.cell.bubblewrap import BubblewrapCell, system_mounts
from claudeops.engine.cell.look_cell import NULL, LookRefusedError, bounded
from claudeops.engine.kubernetes.kubeconfig import TierClusters, read_clusters
from claudeops.policy.kubernetes_api.printed import complaint, named_line
from claudeops.policy.programs.kubectl import CONTEXT, FILE, KUSTOMIZE, PATCH_FILE, options_of

_ALONE: Final = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent")
_PROGRAM: Final = Path("/run/claudeops/kubectl")
_HOME: Final = Path("/run/claudeops/home")
_CACHE_BYTES: Final = 64 * 1024 * 1024
_NO_PROGRAMS: Final = "/nonexistent"


class KubectlCell(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the command lines of such calls, for the sessions of one tier."""

    bubblewrap: BubblewrapCell
    path: str  # PATH, on which kubectl is
    kubeconfigs: tuple[Path, ...]  # the tier's
    repos_dir: Path
    redact: Callable[[str], str]
    memory_mb: int = 16 * 1024  # of address space, of which programs in Go reserve much
    cpu_seconds: int = 120
    wall_seconds: float = 660.0  # the policy lets a command wait for ten minutes

    @property
    def program(self) -> Path:
        """Return where kubectl is; raises `LookRefusedError`. Accesses the disk."""
        found = shutil.which("kubectl", path=self.path)
        if found is None:
            raise LookRefusedError("kubectl is not installed where the daemon runs")
        return Path(found)

    def command(self, look: LookCall) -> tuple[str, ...]:
        """Return a call's command line; raises `LookRefusedError` and `OSError`. Accesses the disk."""
        clusters = read_clusters(self.kubeconfigs)
        _refuse_context(look, clusters)
        # By their own names, behind which there may be links, as those of a mounted secret are.
        credentials = sorted(file for file in clusters.files | clusters.authorities if file.is_file())
        shown = [(file.resolve(), file) for file in credentials]
        shown += [(self.program.resolve(strict=True), _PROGRAM), *self._places(look)]
        options = (
            *_ALONE,
            *(word for mount in system_mounts() for word in mount.arguments()),
            *NULL,
            *(word for source, place in shown for word in ("--ro-bind", str(source), str(place))),
            *("--size", str(_CACHE_BYTES), "--tmpfs", str(_HOME), "--remount-ro", "/", "--chdir", "/"),
            *("--clearenv", "--setenv", "KUBECONFIG", ":".join(map(str, self.kubeconfigs))),
            *("--setenv", "HOME", str(_HOME), "--setenv", "PATH", _NO_PROGRAMS, "--setenv", "LC_ALL", "C"),
        )
        launched = self.bubblewrap.launched(options, (str(_PROGRAM), *look.arguments))
        return bounded(launched, memory_mb=self.memory_mb, cpu_seconds=self.cpu_seconds)

    def printed(self, line: bytes) -> bytes:
        """Return what the session reads of a line of the output: an object's name and what was done, or a mask."""
        return self.redact(named_line(line.decode("utf-8", "replace"))).encode()

    def sentence(self, _look: LookCall, _status: int, said: bytes) -> str:
        """Return what kubectl wrote beside its output, without what could be a value."""
        return complaint(self.redact(said.decode("utf-8", "replace")))

    def _places(self, look: LookCall) -> Iterator[tuple[Path, Path]]:
        """Yield what the command names of the repositories, each with its place in the cell."""
        for name, value in options_of(look.arguments):
            if name in {FILE, KUSTOMIZE, PATCH_FILE}:
                place, root = Path(value), self.repos_dir.resolve(strict=True)
                real = place.resolve()
                if not place.is_absolute() or not real.is_relative_to(root) or real == root:
                    raise LookRefusedError(f"{place} is not below {self.repos_dir}: name it by its absolute path there")
                if not real.exists():
                    raise LookRefusedError(f"{place} is not there")
                yield real, place
                if name == KUSTOMIZE:  # an overlay names what lies beside it
                    top = _repository(real, root)
                    yield top, top


def _repository(place: Path, root: Path) -> Path:
    """Return the repository that holds a directory below the root of all: the nearest, else the root's own entry."""
    above = [each for each in (place, *place.parents) if each.is_relative_to(root)]
    return next((each for each in above if (each / ".git").exists()), above[-2])


def _refuse_context(look: LookCall, clusters: TierClusters) -> None:
    """Raise `LookRefusedError` for a context that sessions do not see."""
    named = [value for name, value in options_of(look.arguments) if name == CONTEXT]
    context = named[-1] if named else clusters.current
    if context not in {each.name for each in clusters.contexts}:
        raise LookRefusedError(
            f"the context {context!r} is none that is served: kubectl config get-contexts lists those that are"
            if context
            else "the kubeconfig chooses no context: name one with --context"
        )
