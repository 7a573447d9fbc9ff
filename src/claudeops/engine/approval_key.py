"""The key that proves an operator's answer: a file in the state directory that no session can read.

It is readable by its owner alone, stands in a directory that the policy never opens and that a cell does not show, and
is made once: a key that is older than a row is what makes the row's proof worth something.
"""

from __future__ import annotations

import os
import secrets
import stat
from typing import TYPE_CHECKING, Final

from claudeops.domain.approval import KEY_BYTES
from claudeops.errors import ConfigurationError, MissingInputError

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "approval.key"


def ensure_key(state_dir: Path) -> bytes:
    """Return the key, made now if there is none; raises `ConfigurationError` for one that others can read."""
    path = state_dir / NAME
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return read_key(state_dir)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be made: {error.strerror}.") from error
    key = secrets.token_bytes(KEY_BYTES)
    try:
        os.write(descriptor, key)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return key


def read_key(state_dir: Path) -> bytes:
    """Return the key; raises `ConfigurationError` with the remedy when it is not there or not as it should be."""
    path = state_dir / NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise MissingInputError(
            f"{path} is not there: set CLAUDEOPS_STATE_DIR to the daemon's, and start the daemon once."
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}; answer as the user that the daemon runs as."
        ) from error
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        key = os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if mode & 0o077:
        raise ConfigurationError(f"{path} can be read by others than its owner (mode {mode:o}): remove it and restart.")
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"{path} is damaged: remove it and restart the daemon.")
    return key
