"""The private keys in the operator's directory for a tier: no session gets them, an agent of the daemon does.

They are recognised by what they begin with, below ``.ssh`` and where ssh's configuration names them. What stands beside
them for everybody (``.pub``, ``-cert.pub``) is no private key, and ssh chooses among an agent's keys by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from claudeops.domain.network.ssh_config import identity_files
from claudeops.engine.cell.reach import read_text, ssh_text
from claudeops.tasks import check_abandoned

_SSH: Final = ".ssh"
_BEGINNING: Final = re.compile(r"^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----", re.MULTILINE)


@dataclass(frozen=True, order=True, slots=True)
class SshKey:
    """A private key; both paths are below the directory."""

    name: Path  # by which ssh knows it
    file: Path  # in which it is: another one where the name is a link


@dataclass(frozen=True, slots=True)
class TemplateKeys:
    """The private keys of a directory."""

    home: Path
    found: tuple[SshKey, ...] = ()

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
    found = {SshKey(name, file) for name in _names(top) if (file := _file(top, name)) is not None}
    return TemplateKeys(top, tuple(sorted(found)))


def _names(home: Path) -> Iterator[Path]:
    for directory, _, files in os.walk(home / _SSH, onerror=_raise):
        check_abandoned()
        yield from (Path(directory, name).relative_to(home) for name in files)
    for named in identity_files(ssh_text(home, read_text)):
        yield Path(os.path.normpath(named))


def _file(home: Path, name: Path) -> Path | None:
    """Return the file that holds a key by this name; None where there is no key, or none of this directory."""
    try:
        file = (home / name).resolve(strict=True)
    except (OSError, RuntimeError):  # it is not there, or links go round
        return None
    is_key = file.is_relative_to(home) and _BEGINNING.search(read_text(file)) is not None
    return file.relative_to(home) if is_key else None


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
