"""The private keys of ssh in the operator's directory for a tier: no session gets them, an agent of the daemon does.

They are recognised by what they hold: below ``.ssh``, and where ssh's configuration names a file, whatever is a private
key; elsewhere what OpenSSH's own form begins with, or PuTTY's, which no other program's keys have. What stands beside a
key for everybody (``.pub``, ``-cert.pub``) is no private key, and ssh chooses among an agent's keys by it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from glob import escape, has_magic, iglob
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from claudeops.engine.cell.reach import ssh_text
from claudeops.files import read_text
from claudeops.formats.network.ssh_config import identity_files
from claudeops.formats.network.ssh_key import OWN_FORM_CHARACTERS, PrivateKey, has_own_form, private_key
from claudeops.tasks import check_abandoned

_SSH: Final = ".ssh"
_MOST_BY_A_PATTERN: Final = 200  # files that one line of the configuration names


@dataclass(frozen=True, order=True, slots=True)
class SshKey:
    """A private key; both paths are below the directory."""

    name: Path  # by which ssh knows it
    file: Path  # in which it is: another one where the name is a link
    key: PrivateKey = field(default_factory=PrivateKey, compare=False)


class TemplateKeys(msgspec.Struct, frozen=True):
    """The private keys of a directory."""

    home: Path
    found: tuple[SshKey, ...] = ()
    outside: tuple[str, ...] = ()  # keys that the configuration names, or a link leads to, and that lie elsewhere

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which ssh knows them."""
        return tuple(str(key.name) for key in self.found)

    @property
    def files(self) -> frozenset[Path]:
        """The files that hold them."""
        return frozenset(key.file for key in self.found)


def find_keys(home: Path) -> TemplateKeys:
    """Return the private keys of a directory. Accesses the disk; raises `OSError` where it cannot be read."""
    top = home.resolve()
    found: dict[Path, SshKey] = {}
    outside: dict[str, None] = {}
    for name in _names(top):
        check_abandoned()
        file = _resolved(top / name)
        if file is None or (key := private_key(read_text(file))) is None:
            continue
        if not file.is_relative_to(top):
            outside[os.path.normpath(top / name)] = None
            continue
        inside = file.relative_to(top)
        name = inside if name.parts[0] == os.pardir else name  # noqa: PLW2901 - the directory has several names
        found[name] = SshKey(name, inside, key)
    by_name = {key.file for name, key in found.items() if name.parts[0] == _SSH}
    kept = (key for name, key in found.items() if name.parts[0] == _SSH or key.file not in by_name)
    return TemplateKeys(top, tuple(sorted(kept)), tuple(sorted(outside)))


def is_ssh_key(path: Path) -> bool:
    """Whether a file, and no link to one, is a private key in a form that only those of ssh have."""
    return not path.is_symlink() and has_own_form(read_text(path, most=OWN_FORM_CHARACTERS))


def _names(home: Path) -> Iterator[Path]:
    """Yield the paths of what may be a key, from the home on; those that lie elsewhere begin with ``..``."""
    for directory, _, files in os.walk(home, onerror=_raise):
        check_abandoned()
        place = Path(directory).relative_to(home)
        yield from (place / name for name in files if place.parts[:1] == (_SSH,) or is_ssh_key(home / place / name))
    if (home / _SSH).is_symlink():
        for directory, _, files in os.walk(home / _SSH, onerror=_raise):
            yield from (Path(directory, name).relative_to(home) for name in files)
    for pattern in identity_files(ssh_text(home, read_text)):
        whole = os.path.join(escape(str(home)), pattern)  # noqa: PTH118 - of pathlib's globs none is absolute
        places = iglob(whole) if has_magic(pattern) else iter((str(home / pattern),))  # noqa: PTH207 - as above
        yield from (Path(os.path.relpath(place, home)) for place in islice(places, _MOST_BY_A_PATTERN))


def _resolved(path: Path) -> Path | None:
    """Return where a path leads; None where it leads nowhere."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # it is not there, may not be looked at, goes round, or is no path
        return None


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
