"""Every error of claudeops, as one tree.

::

    ClaudeopsError
    ├── ConfigurationError      a setting, schema, prompt or binary is wrong          exit 78
    │   ├── MissingInputError   a file that the operator named is not there          exit 78
    │   └── NewerDatabaseError  the database was written by a newer claudeops          exit 78
    ├── AlreadyRunningError     another daemon owns this database                     exit 75
    ├── NoDaemonError           no daemon runs, and the work is a daemon's           exit 75
    ├── StoppedError            a stop was requested before the work had begun        exit 0 (`run`), 1
    ├── HarnessError            a session's CLI cannot be driven as asked
    │   └── SpawnError          the child process could not be started
    ├── OutputError             a file that the operator asked for cannot be written  exit 73
    ├── RehearsalError          a rehearsal could not be set up                       exit 70
    ├── StaleTermError          a write under a lease that another owner has taken since
    └── StoreError              the database did not take or return what was asked
        ├── DatabaseUnavailableError  not reachable, locked or full: worth another try   exit 69
        │   └── DatabaseFullError     the disk of PostgreSQL's server is full            exit 69
        └── StaleAttemptError   a write for a session that has been claimed again since

What is expected to happen (a session that times out, a report that does not validate) is a value in
``claudeops.domain.sessions``, not an exception.

An error also says what a program needs to know of it: where it comes from, what was being done to what, whether the
same call may work later, and what helps. Its class answers that, and whoever raises it answers what it knows better.
Nothing is read out of the sentence.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """Where an error comes from, in the words of the envelope (`claudeops.cli.reply`)."""

    FILESYSTEM = "filesystem"
    AUTH = "auth"
    SESSION = "session"
    PARSE = "parse"
    RUNTIME = "runtime"
    MCP = "mcp"
    DELIVERY = "delivery"
    USAGE = "usage"
    POLICY = "policy"
    UNKNOWN = "unknown"


class ClaudeopsError(Exception):
    """Something in claudeops went wrong; ``str()`` is one sentence for the operator."""

    kind = ErrorKind.UNKNOWN
    retryable = False  # the same call may work later
    operation: str | None = None  # what was being done; None: what the command does
    target: str | None = None  # to what; None: what the command is about
    hint = "Look at the daemon's log, and run `claudeops doctor`."  # what helps; shown to people where it is special
    has_own_hint = False  # the hint was given where the error was raised

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind | None = None,
        operation: str | None = None,
        target: str | None = None,
        retryable: bool | None = None,
        hint: str | None = None,
    ) -> None:
        """Keep the sentence, and what is known better here than by the class."""
        super().__init__(message)
        self.kind = kind or self.kind
        self.operation = operation or self.operation
        self.target = target or self.target
        self.retryable = self.retryable if retryable is None else retryable
        self.has_own_hint = hint is not None
        self.hint = hint or self.hint


class ConfigurationError(ClaudeopsError):
    """A setting is wrong; the sentence names the variable and the remedy."""

    kind = ErrorKind.USAGE
    hint = "Do what the message says; `claudeops doctor` checks every setting."


class MissingInputError(ConfigurationError):
    """A file that the operator named is not there."""

    kind = ErrorKind.FILESYSTEM
    hint = "Correct the path, or put the file there."


class NewerDatabaseError(ConfigurationError):
    """The database was migrated by a newer claudeops; the sentence names the backup."""

    kind = ErrorKind.RUNTIME
    hint = "Run the newer claudeops, or put the backup that the message names in the database's place."


class AlreadyRunningError(ClaudeopsError):
    """Another daemon holds the lock of this database."""

    kind = ErrorKind.RUNTIME
    retryable = True
    operation = "db.lock"
    hint = "Stop the other daemon, or wait until it has ended; `claudeops health` says what it does."


class ForegroundRunningError(AlreadyRunningError):
    """What holds the lock is no daemon, but a command that ends by itself: a chain in the foreground, a migration."""


class NoDaemonError(ClaudeopsError):
    """No daemon runs on this database, and what was asked for is for one."""

    kind = ErrorKind.RUNTIME
    retryable = True
    operation = "daemon.find"
    hint = "Start one with `claudeops run`; `claudeops health` says whether it is alive."


class StoppedError(ClaudeopsError):
    """A stop was requested before the work had begun."""

    kind = ErrorKind.RUNTIME
    retryable = True
    hint = "Call it again."


class HarnessError(ClaudeopsError):
    """A session's CLI cannot be driven as asked."""

    kind = ErrorKind.SESSION
    hint = "`claudeops doctor` says which CLI each tier runs on and what is wrong with it."


class SpawnError(HarnessError):
    """The child process could not be started."""

    kind = ErrorKind.FILESYSTEM
    operation = "spawn"


class OutputError(ClaudeopsError):
    """A file that the operator asked for cannot be written."""

    kind = ErrorKind.FILESYSTEM
    retryable = True
    operation = "write"
    hint = "Make its directory, and let this user write there."


class RehearsalError(ClaudeopsError):
    """A rehearsal's own services or commands could not be set up."""

    kind = ErrorKind.RUNTIME
    hint = "Call it again; what the rehearsal left in its directory shows how far it came."


class StoreError(ClaudeopsError):
    """The database did not take or return what was asked."""

    kind = ErrorKind.RUNTIME
    operation = "db.query"
    hint = "`claudeops doctor` checks the database; the daemon's log has the whole error."


class DatabaseUnavailableError(StoreError):
    """The database is not reachable, locked or full; the same call may work later."""

    retryable = True
    operation = "db.connect"
    hint = "Look whether the database runs and its disk has room, then call again; `claudeops doctor` tries it."


class DatabaseFullError(DatabaseUnavailableError):
    """The disk of PostgreSQL's server is full; the same call works once it has room."""

    hint = "Make room on the disk of the database's server: what waits is written then, by itself."


class StaleAttemptError(StoreError):
    """A write for an attempt of a session that is no longer the current one."""


class StaleTermError(ClaudeopsError):
    """A write under a lease that another owner has taken since: whoever gets it does the lease's work no more.

    No `StoreError`, which is answered with another try.
    """

    kind = ErrorKind.RUNTIME
    operation = "db.write"
    hint = "Nothing is to be done: another daemon does this work now."
