"""The key that proves an operator's answer: a file in the state directory that no session can read.

Only its owner may read it, and the policy never opens its directory, nor does a cell show it. It is made once, because
a row's proof is worth something only if the key is older than the row.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from claudeops.domain.gate.approval import KEY_BYTES
from claudeops.errors import ConfigurationError, ErrorKind, MissingInputError

_NAME: Final = "approval.key"


def ensure_key(state_dir: Path) -> bytes:
    """Return the key, and make it if there is none; raises `ConfigurationError` for one that others can read."""
    path = state_dir / _NAME
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return read_key(state_dir)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be made: {error.strerror}.", kind=ErrorKind.FILESYSTEM, target=str(path)
        ) from error
    key = secrets.token_bytes(KEY_BYTES)
    try:
        os.write(descriptor, key)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return key


def read_key(state_dir: Path) -> bytes:
    """Return the key; raises `ConfigurationError` with the remedy if it is missing, damaged or readable by others."""
    path = state_dir / _NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise MissingInputError(
            f"{path} is not there: set CLAUDEOPS_STATE_DIR to the daemon's, and start the daemon once.",
            target=str(path),
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}; answer as the user that the daemon runs as.",
            kind=ErrorKind.FILESYSTEM,
            target=str(path),
        ) from error
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        key = os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if mode & 0o077:
        raise ConfigurationError(
            f"{path} can be read by others than its owner (mode {mode:o}): remove it and restart.",
            kind=ErrorKind.FILESYSTEM,
            target=str(path),
        )
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"{path} is damaged: remove it and restart the daemon.", kind=ErrorKind.FILESYSTEM, target=str(path)
        )
    return key
