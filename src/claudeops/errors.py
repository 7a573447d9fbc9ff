"""Every error of claudeops, as one tree.

::

    ClaudeopsError
    ├── ConfigurationError      a setting, schema, prompt or binary is wrong          exit 78
    │   ├── MissingInputError   a file that the operator named is not there          exit 78
    │   └── NewerDatabaseError  the database was written by a newer claudeops          exit 78
    ├── AlreadyRunningError     another daemon owns this database                     exit 75
    ├── StoppedError            a stop was requested before the work had begun        exit 0 (`run`), 1
    ├── HarnessError            a session's CLI cannot be driven as asked
    │   └── SpawnError          the child process could not be started
    ├── RehearsalError          a rehearsal could not be set up                       exit 70
    └── StoreError              the database did not take or return what was asked
        ├── DatabaseUnavailableError  not reachable, locked or full: worth another try   exit 69
        └── StaleAttemptError   a write for a session that has been claimed again since

What is expected to happen (a session that times out, a report that does not validate) is a value in
``claudeops.domain.model``, not an exception.
"""

from __future__ import annotations


class ClaudeopsError(Exception):
    """Something in claudeops went wrong; ``str()`` is one sentence for the operator."""


class ConfigurationError(ClaudeopsError):
    """A setting is wrong; the sentence names the variable and the remedy."""


class MissingInputError(ConfigurationError):
    """A file that the operator named is not there."""


class NewerDatabaseError(ConfigurationError):
    """The database was migrated by a newer claudeops; the sentence names the backup."""


class AlreadyRunningError(ClaudeopsError):
    """Another daemon holds the lock of this database."""


class StoppedError(ClaudeopsError):
    """A stop was requested before the work had begun."""


class HarnessError(ClaudeopsError):
    """A session's CLI cannot be driven as asked."""


class SpawnError(HarnessError):
    """The child process could not be started."""


class RehearsalError(ClaudeopsError):
    """A rehearsal's own services or commands could not be set up."""


class StoreError(ClaudeopsError):
    """The database did not take or return what was asked."""


class DatabaseUnavailableError(StoreError):
    """The database is not reachable, locked or full; the same call may work later."""


class StaleAttemptError(StoreError):
    """A write for an attempt of a session that is no longer the current one."""
