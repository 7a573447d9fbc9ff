"""Exit statuses of the operator's commands (sysexits.h where a number has a name there)."""

from __future__ import annotations

from enum import IntEnum

from claudeops.errors import (
    AlreadyRunningError,
    ClaudeopsError,
    ConfigurationError,
    DatabaseUnavailableError,
    StoppedError,
)


class Exit(IntEnum):
    """What a caller may conclude."""

    OK = 0  # clean stop; healthy or resolved
    UNRESOLVED = 1  # a session failed, or nobody could mend what was found
    USAGE = 64  # the command line is wrong
    NO_INPUT = 66  # a file named on the command line is not there
    UNAVAILABLE = 69  # the database cannot be reached
    SOFTWARE = 70  # a fault of ours
    TRY_LATER = 75  # parked, paused, or another daemon is in the way
    CONFIGURATION = 78  # a setting, schema, prompt or binary is wrong


def exit_for(error: ClaudeopsError) -> Exit:
    """Return the exit status that an error ends a command with."""
    match error:
        case ConfigurationError():
            return Exit.CONFIGURATION
        case AlreadyRunningError():
            return Exit.TRY_LATER
        case DatabaseUnavailableError():
            return Exit.UNAVAILABLE
        case StoppedError():
            return Exit.UNRESOLVED
        case _:
            return Exit.SOFTWARE
