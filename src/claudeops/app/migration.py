"""The start's look at the revision of the database, and the process that migrates one of another revision.

Run as a program (``python -I -m claudeops.app.migration``) this is that process. What migrates takes 9 MiB that the
daemon would never get back, and is needed after an update only. Its order is a line of JSON on stdin, its answer a line
on stdout. It ends when stdin does, and its transaction with it: a migration does not outlive its daemon.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from claudeops.engine.system import Shutdown
from claudeops.errors import (
    ClaudeopsError,
    ConfigurationError,
    DatabaseUnavailableError,
    ErrorKind,
    MissingInputError,
    NewerDatabaseError,
    StoreError,
)
from claudeops.logs import LogEvent, Logger
from claudeops.settings import Settings
from claudeops.settings.files import packaged
from claudeops.store.connection.engines import parse_url, shown
from claudeops.store.connection.writer import Writer
from claudeops.store.migrate import current_revision, migrate
from claudeops.store.tables import HEAD

_ERRORS: Final = {
    error.__name__: error
    for error in (ConfigurationError, DatabaseUnavailableError, MissingInputError, NewerDatabaseError, StoreError)
}
_ABOUT: Final = ("operation", "target", "hint")  # what an error may be about
_PROGRAM: Final = (sys.executable, "-I", "-m", "claudeops.app.migration")
_LATER_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def migrate_database(settings: Settings, log: Logger, shutdown: Shutdown) -> None:
    """Bring the tables to this version, and those of the jobs where several nodes need them.

    Raises `NewerDatabaseError`, `ConfigurationError` where they are another program's, `DatabaseUnavailableError`,
    `StoreError` or `StoppedError`. A stop request lets a migration finish, unless that takes longer than a drain may.
    """
    await _migrate_own_tables(settings, log, shutdown)
    if settings.node.in_fleet:
        await _migrate_job_tables(settings, log, shutdown)


async def _migrate_own_tables(settings: Settings, log: Logger, shutdown: Shutdown) -> None:
    """Have another process migrate, in one transaction, which its end rolls back.

    The look at the revision runs in a thread for which nothing waits.
    """
    url, writer = parse_url(settings.places.database_url), Writer(wait_seconds=math.inf)
    try:
        async with shutdown.stoppable(patience_seconds=settings.timeouts.drain_seconds):
            if await writer.run(lambda: current_revision(url)) == HEAD:
                return
            order = {
                "url": settings.places.database_url,
                "migrations_dir": str(packaged("migrations")),
                "backup_dir": str(settings.places.state_dir),
            }
            answer = await _answer_of_a_process(order)
    finally:
        writer.leave()
    if answer is None:
        raise StoreError(
            f"the database {shown(url)} was not migrated: the process that does it was ended; start claudeops again.",
            operation="db.migrate",
            target=shown(url),
        )
    if "error" in answer:
        raise as_error(answer)
    if answer["backup_path"] is not None:
        log.info(LogEvent.DATABASE_BACKED_UP, path=answer["backup_path"])
    if answer["before"] != answer["now"]:  # else another process was quicker
        log.info(LogEvent.DATABASE_MIGRATED, before=answer["before"], now=answer["now"])


async def _migrate_job_tables(settings: Settings, log: Logger, shutdown: Shutdown) -> None:
    from claudeops.dispatch.procrastinate import job_tables  # noqa: PLC0415 - a daemon that is alone has no jobs
    from claudeops.store.connection.job_tables import migrate_jobs  # noqa: PLC0415 - same

    url, writer = parse_url(settings.places.database_url), Writer(wait_seconds=math.inf)
    try:
        async with shutdown.stoppable(patience_seconds=settings.timeouts.drain_seconds):
            before, now = await writer.run(lambda: migrate_jobs(url, job_tables()))
    finally:
        writer.leave()
    if before != now:
        log.info(LogEvent.DATABASE_MIGRATED, before=before, now=now, tables="procrastinate")


async def _answer_of_a_process(order: dict[str, str]) -> dict[str, object] | None:
    """Return what a process answers to an order, which holds a password and so is on no command line."""
    received = b""
    # Of a session of its own: Ctrl-C asks the daemon to stop, which lets it finish.
    async with await anyio.open_process(_PROGRAM, stderr=None, start_new_session=True) as process:
        orders, answers = cast("ByteSendStream", process.stdin), cast("ByteReceiveStream", process.stdout)
        with suppress(anyio.BrokenResourceError):  # it has ended
            await _send(order, orders)
            async for piece in answers:
                received += piece
    answer: dict[str, object] | None = json.loads(received) if received else None
    return answer


async def _send(order: dict[str, str], orders: ByteSendStream) -> None:
    await orders.send(json.dumps(order).encode() + b"\n")


def as_answer(error: ClaudeopsError) -> dict[str, object]:
    """Return what `as_error` makes the same error of."""
    return {
        "error": type(error).__name__,
        "message": str(error),
        "kind": error.kind.value,
        "retryable": error.retryable,
        "operation": error.operation,
        "target": error.target,
        "hint": error.hint if error.has_own_hint else None,
    }


def as_error(answer: Mapping[str, object]) -> ClaudeopsError:
    """Return the error that a process has answered with."""
    about: dict[str, str | None] = {key: None if answer[key] is None else str(answer[key]) for key in _ABOUT}
    return _ERRORS[str(answer["error"])](
        str(answer["message"]), kind=ErrorKind(str(answer["kind"])), retryable=bool(answer["retryable"]), **about
    )


# --- the process ----------------------------------------------------------------------------------------


def main() -> None:
    """Carry out the order that stands on stdin."""
    for number in _LATER_SIGNALS:  # they are sent to all processes of a service: the daemon says when to end
        signal.signal(number, signal.SIG_IGN)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # the daemon has died before it gave one, or in the middle of it
    order = json.loads(line)
    threading.Thread(target=_end_with_the_daemon, daemon=True).start()
    sys.stdout.write(json.dumps(_carry_out(order)))


def _carry_out(order: dict[str, str]) -> dict[str, object]:
    try:
        done = migrate(order["url"], migrations_dir=Path(order["migrations_dir"]), backup_dir=Path(order["backup_dir"]))
    except tuple(_ERRORS.values()) as error:
        return as_answer(error)
    backup = None if done.backup_path is None else str(done.backup_path)
    return {"before": done.from_revision, "now": done.to_revision, "backup_path": backup}


def _end_with_the_daemon() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing more is sent; the file object would be locked at the exit
    os._exit(1)


if __name__ == "__main__":
    main()
