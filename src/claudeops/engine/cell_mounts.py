"""What a session in namespaces sees of the machine: a list of mounts, nothing that is not on it.

Order is everything: a mount covers what an earlier one put at the same place, so they go from the root to the leaves,
and what the daemon hides is covered exactly where a directory above it was shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from claudeops.engine.cell import Inside

SYSTEM: Final = ("/usr", "/nix/store")
MERGED: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Links into ``/usr`` on most systems, directories of their own on some."""

ETC: Final = (
    *("hosts", "hostname", "resolv.conf", "nsswitch.conf", "host.conf", "gai.conf", "protocols", "services"),
    *("localtime", "timezone", "locale.alias", "locale.conf", "default/locale"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld-musl-x86_64.path", "ld-musl-aarch64.path", "alternatives"),
    *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ca-certificates", "ca-certificates.conf"),
    *("pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust", "crypto-policies"),
    *("ssh/ssh_config", "ssh/ssh_config.d", "ssh/ssh_known_hosts", "krb5.conf"),
    *("bash.bashrc", "profile", "inputrc", "mime.types", "terminfo", "os-release", "debian_version"),
)
"""What programs look up, and nothing else: ``/etc`` also holds passwords, host keys and the daemon's own settings."""

_ROOT: Final = Path("/")
_TMP: Final = Path("/tmp")  # noqa: S108 - the session gets one of its own there
_NEVER_ON_PATH: Final = frozenset(map(Path, ("/", "/etc", "/root", "/home", "/var", "/proc", "/sys", "/dev", "/run")))
_OTHERS_READ: Final = 0o4


class Kind(Enum):
    """What is put at a place."""

    READ_ONLY = "--ro-bind"
    WRITABLE = "--bind"
    LINK = "--symlink"
    EMPTY = "--tmpfs"


@dataclass(frozen=True, slots=True)
class Mount:
    """One place in the session's view."""

    place: Path
    kind: Kind
    source: Path  # on the machine; for a link: where it leads; for an empty directory: the place

    @property
    def reveals(self) -> bool:
        """Whether things below the place are those that are there on the machine."""
        return self.kind is Kind.READ_ONLY and self.source == self.place

    def arguments(self) -> tuple[str, ...]:
        """Return it as bubblewrap takes it."""
        if self.kind is Kind.EMPTY:
            return (self.kind.value, str(self.place))
        return (self.kind.value, str(self.source), str(self.place))


def system_mounts() -> tuple[Mount, ...]:
    """Return what every session sees: programs, libraries, and what those look up."""
    found = [_shown(Path(name)) for name in SYSTEM if Path(name).is_dir()]
    for name in MERGED:
        place = Path(name)
        if place.is_symlink():
            found.append(Mount(place, Kind.LINK, place.readlink()))
        elif place.is_dir():
            found.append(_shown(place))
    found += [
        Mount(place, Kind.READ_ONLY, place.resolve()) for name in ETC if _for_everybody(place := Path("/etc", name))
    ]
    return tuple(found)


def session_mounts(inside: Inside, *, hidden: Sequence[Path], nothing: Path) -> tuple[Mount, ...]:
    """Return what one session sees beside the system, root first.

    ``hidden``: resolved paths of the daemon that must not be seen, whatever is shown above them. ``nothing`` is an
    empty file.
    """
    workspace = inside.workspace
    own = (workspace.home, workspace.workdir, workspace.tmpdir, workspace.state_dir)
    wanted = [
        *system_mounts(),
        *(Mount(directory, Kind.WRITABLE, directory) for directory in own),
        *(Mount(Path(place), Kind.WRITABLE, workspace.tmpdir) for place in (_TMP, "/var/tmp")),  # noqa: S108
        *(Mount(Path("/etc", name), Kind.READ_ONLY, workspace.etc / name) for name in ("passwd", "group")),
        *_both(inside.repos_dir),
        *(mount for path in _program(inside.binary) for mount in _both(path)),
    ]
    for path in (*_on_path(inside.path), *inside.shown):
        if path.exists() and _may_be_shown(path.resolve(), hidden):
            wanted += _both(path)
    return tuple(_covered(_without_repetition(wanted), hidden, nothing))


def _shown(path: Path) -> Mount:
    return Mount(path, Kind.READ_ONLY, path)


def _both(path: Path) -> tuple[Mount, ...]:
    """Return a path where it really is, and under the name it was given if that leads there by links."""
    real = path.resolve()
    return (_shown(real),) if real == path else (_shown(real), Mount(path, Kind.READ_ONLY, real))


def _for_everybody(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS_READ)
    except OSError:
        return False


def _program(binary: Path) -> tuple[Path, ...]:
    """Return what belongs to a program: itself, or the package that a script of Node's stands in."""
    real = binary.resolve()
    steps = real.parts
    if "node_modules" not in steps:
        return (binary,)
    below = len(steps) - 1 - steps[::-1].index("node_modules")
    depth = below + (3 if steps[below + 1].startswith("@") else 2)
    return (binary, Path(*steps[:depth]))


def _on_path(path: str) -> tuple[Path, ...]:
    """Return the directories of PATH, each with the libraries beside it: programs look for them there."""
    found: list[Path] = []
    for entry in path.split(":"):
        directory = Path(entry)
        if not directory.is_absolute() or directory.resolve() in _NEVER_ON_PATH:
            continue
        found.append(directory)
        if directory.name in {"bin", "sbin"} and directory.parent not in _NEVER_ON_PATH:
            found += [directory.parent / name for name in ("lib", "lib64", "libexec")]
    return tuple(found)


def _may_be_shown(path: Path, hidden: Sequence[Path]) -> bool:
    """Say whether a path neither is nor holds nor lies in anything that is hidden."""
    return path not in _NEVER_ON_PATH and not any(
        path == other or path.is_relative_to(other) or other.is_relative_to(path) for other in hidden
    )


def _without_repetition(wanted: Iterable[Mount]) -> list[Mount]:
    """Return one mount a place, root first; left out is what another one shows already, or leads to by a link."""
    chosen: dict[Path, Mount] = {}
    for mount in wanted:
        chosen.setdefault(mount.place, mount)
    kept: dict[Path, Mount] = {}
    for place, mount in sorted(chosen.items(), key=lambda item: (len(item[0].parts), item[0])):
        above = _above(place, kept)
        if above is not None and (above.kind is Kind.LINK or (above.reveals and mount.reveals)):
            continue
        if above is not None and above.reveals and mount.source == place.resolve() and mount.kind is Kind.READ_ONLY:
            continue
        kept[place] = mount
    return list(kept.values())


def _covered(mounts: Iterable[Mount], hidden: Sequence[Path], nothing: Path) -> list[Mount]:
    """Return the mounts with a cover over everything hidden that one of them would reveal."""
    chosen = {mount.place: mount for mount in mounts}
    for path in sorted(hidden, key=lambda hide: (len(hide.parts), hide)):
        above = _above(path, chosen)
        if above is None or not above.reveals or path in chosen:
            continue
        if path.is_dir():
            chosen[path] = Mount(path, Kind.EMPTY, path)
        elif path.exists():
            chosen[path] = Mount(path, Kind.READ_ONLY, nothing)
    return sorted(chosen.values(), key=lambda mount: (len(mount.place.parts), mount.place))


def _above(place: Path, mounts: dict[Path, Mount]) -> Mount | None:
    """Return the nearest mount above a place."""
    return next((mounts[parent] for parent in place.parents if parent in mounts), None)
