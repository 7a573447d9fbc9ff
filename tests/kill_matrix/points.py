"""Where a daemon can be struck: before or after a call of its own, by name, from its start to its stop.

A daemon of a trial is struck from within, at the n-th time that it comes to a place. The calls themselves are made as
they are; only in the process that is to be struck stands something in front of one of them, or behind it.
"""

from __future__ import annotations

import fcntl
import functools
import importlib
import inspect
import itertools
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from sqlalchemy import Connection

from claudeops.store.database import Database
from kill_matrix.victims import session_processes

if TYPE_CHECKING:
    from kill_matrix.plan import Strike  # which is planned from the points

STRUCK: Final = "struck"
"""A file beside the trial's other ones; each strike adds a line."""

T = TypeVar("T")


class Moment(StrEnum):
    """On which side of the call."""

    BEFORE = "before"
    AFTER = "after"


class Phase(StrEnum):
    """When a daemon comes by."""

    START = "start"  # before and between sessions
    SESSION = "session"  # while a session's processes live
    END = "end"  # when they have gone
    RESTART = "restart"  # only where an earlier daemon was killed
    STOP = "stop"  # only when it is asked to stop
    WATCH = "watch"  # only where it has probes
    FOLLOW = "follow"  # only where it looks again at what was changed


@dataclass(frozen=True, slots=True)
class Place:
    """One call, and the label of its two sides."""

    label: str
    target: str  # module:name, where it is made; or a module that imports it, where that one alone is meant
    phase: Phase
    moments: tuple[Moment, ...] = (Moment.BEFORE, Moment.AFTER)
    uncommitted: bool = False  # after the statements of what the method writes, and not after the method


@dataclass(frozen=True, slots=True)
class Point:
    """One side of a place."""

    place: Place
    moment: Moment

    @property
    def label(self) -> str:
        """Return what a plan and a failure call it."""
        return f"{self.moment} {self.place.label}"


_ENGINE: Final = "claudeops.engine"
_STORE: Final = "claudeops.store"
_RECORD_CALL: Final = f"{_STORE}.calls:Calls.record_call"
_BEGIN_CALL: Final = f"{_STORE}.spend:ModelCalls.begin_model_call"
_OBSERVED: Final = f"{_STORE}.probes:Probes.observed"
_QUEUE_FAILURES: Final = f"{_STORE}.alerts.alerts:Alerts.queue_failures"
_DECIDE: Final = f"{_STORE}.alerts.alerts:Alerts.decide"
_AFTER: Final = (Moment.AFTER,)
_BEFORE: Final = (Moment.BEFORE,)

# A transaction has three sides: before it, with its statements made but not committed (after the job that is handed to
# the database), and committed (after the port's method).
PLACES: Final[tuple[Place, ...]] = (
    # --- the start
    Place("settings read", "claudeops.cli.run:read_settings", Phase.START, _AFTER),
    Place("directories made", "claudeops.app.start.checks:prepare_directories", Phase.START, _AFTER),
    Place("cell chosen", "claudeops.app.node:choose_cell", Phase.START),
    Place("CLIs admitted", "claudeops.app.node:admit_clis", Phase.START),
    Place("migration", "claudeops.app.node:migrate_database", Phase.START),
    Place("migration's order", "claudeops.app.migration:_send", Phase.START),  # its process goes on meanwhile
    Place("leftovers cleared", "claudeops.app.node:clear_leftovers", Phase.START),
    Place("ids of logs skipped", f"{_STORE}.recovery:Recovery.skip_ids", Phase.START, _AFTER),
    Place("reconcile", f"{_STORE}.recovery:Recovery.reconcile", Phase.START),
    Place("reconcile's statements", f"{_STORE}.recovery:Recovery.reconcile", Phase.START, _AFTER, uncommitted=True),
    # --- due, queued, claimed
    Place("last fire looked up", f"{_STORE}.schedules:Schedules.last_fires", Phase.START),
    Place("fire", f"{_STORE}.schedules:Schedules.fire", Phase.START),
    Place("fire's statements", f"{_STORE}.schedules:Schedules.fire", Phase.START, _AFTER, uncommitted=True),
    Place("wake", "claudeops.dispatch.local:LocalDispatcher.announce", Phase.START),
    Place("claim", f"{_STORE}.claims:Claims.claim", Phase.START),
    Place("claim's statements", f"{_STORE}.claims:Claims.claim", Phase.START, _AFTER, uncommitted=True),
    # --- the spawn
    Place("workspace", f"{_ENGINE}.cell.workspace:create", Phase.START),
    Place("account with the meter", f"{_ENGINE}.meter.meter:Meter.access_of", Phase.START, _AFTER),
    Place("log opened", f"{_ENGINE}.session_log.writer:SessionLog.__init__", Phase.START, _AFTER),
    Place("spawn", f"{_ENGINE}.process.child:spawn", Phase.START),
    Place("process noted", f"{_ENGINE}.process.child:own", Phase.SESSION),
    Place("written to the child", f"{_ENGINE}.process.channel:Channel.send", Phase.SESSION),
    # --- the stream
    Place("frame", f"{_ENGINE}.session.conversation:Conversation._take", Phase.SESSION),
    Place("lines in the log", f"{_ENGINE}.session_log.writer:SessionLog._write_lines", Phase.SESSION),
    Place(
        "index entries made, lines written", f"{_ENGINE}.session_log.writer:SessionLog._entries", Phase.SESSION, _AFTER
    ),
    Place("fsync", f"{_ENGINE}.session_log.writer:SessionLog._fsync", Phase.SESSION),
    # --- tool calls
    Place("verdict", _RECORD_CALL, Phase.SESSION),
    Place("verdict's statements", _RECORD_CALL, Phase.SESSION, _AFTER, uncommitted=True),
    Place("gate's answer", f"{_ENGINE}.gate.gate:Gate.answer", Phase.SESSION),
    Place("tool's end noted", f"{_ENGINE}.gate.gate:CallWatch.ended", Phase.SESSION, _AFTER),
    # --- model calls
    Place("model call opened", _BEGIN_CALL, Phase.SESSION),
    Place(
        "model call's statements",
        f"{_STORE}.spend:ModelCalls.begin_model_call",
        Phase.SESSION,
        _AFTER,
        uncommitted=True,
    ),
    Place("request to the API", f"{_ENGINE}.meter.call:_Booking.sending", Phase.SESSION),
    Place("API's answer begun", f"{_ENGINE}.meter.call:_Booking.answered", Phase.SESSION),
    Place("piece of the API's answer", f"{_ENGINE}.meter.call:_Booking.push", Phase.SESSION),
    Place("model call noted", f"{_ENGINE}.meter.account:MeterAccount.note", Phase.SESSION),
    Place("model call booked", f"{_ENGINE}.meter.account:MeterAccount.end", Phase.SESSION),
    Place("booking's statements", f"{_STORE}.spend:book_call", Phase.SESSION, _AFTER),
    # --- the result line
    Place("result heeded", f"{_ENGINE}.session.conversation:Conversation._after_result", Phase.SESSION),
    Place("result on disk", f"{_ENGINE}.session_log.writer:SessionLog.sync", Phase.SESSION),
    Place("child cleaned up", f"{_ENGINE}.session.conversation:Conversation._clean_up", Phase.END),
    Place("log closed", f"{_ENGINE}.session_log.writer:SessionLog.aclose", Phase.END, _AFTER),
    Place("workspace removed", f"{_ENGINE}.cell.workspace:remove", Phase.END),
    # --- the end
    Place("end", f"{_STORE}.queue:Queue.finish", Phase.END),
    Place("end's statements", f"{_STORE}.queue:Queue.finish", Phase.END, _AFTER, uncommitted=True),
    Place("calls closed", f"{_STORE}.spend:close_calls", Phase.END),
    Place("spend settled", f"{_STORE}.spend:settle", Phase.END),
    Place("event inserted", f"{_STORE}.finish:raise_event", Phase.END),
    Place("next tier inserted", f"{_STORE}.queue:_queue_next", Phase.END),
    Place("end told", f"{_ENGINE}.session.supervisor:log_result", Phase.END),
    # --- probes
    Place("probes enrolled", f"{_STORE}.probes:Probes.enrol", Phase.WATCH),
    Place("enrolment's statements", f"{_STORE}.probes:Probes.enrol", Phase.WATCH, _AFTER, uncommitted=True),
    Place("probe's look", f"{_ENGINE}.probes.watch:ProbeWatch._look", Phase.WATCH),
    Place("pings heard", f"{_STORE}.probes:Probes.pings", Phase.WATCH),
    Place("probe's change", _OBSERVED, Phase.WATCH),
    Place("change's statements", _OBSERVED, Phase.WATCH, _AFTER, uncommitted=True),
    Place("failures queued", _QUEUE_FAILURES, Phase.WATCH),
    Place("failures' statements", _QUEUE_FAILURES, Phase.WATCH, _AFTER, uncommitted=True),
    Place("probes' chain", _DECIDE, Phase.WATCH),
    Place("chain's statements", _DECIDE, Phase.WATCH, _AFTER, uncommitted=True),
    # --- looks at what was changed
    Place("follow-up planned", f"{_STORE}.changes:plan_follow_up", Phase.FOLLOW),
    Place("follow-up answered by probes", f"{_STORE}.follow_ups:_answer", Phase.FOLLOW),
    Place("answer of a follow-up written", f"{_STORE}.changes:write_held", Phase.FOLLOW),
    # --- recovery
    Place("taking over", f"{_ENGINE}.recovery.recovery:SessionRecovery.take_up", Phase.RESTART),
    Place("log of a dead daemon read", f"{_ENGINE}.recovery.recovery:read_log", Phase.RESTART),
    Place("lose", f"{_STORE}.recovery:Recovery.mark_lost", Phase.RESTART),
    Place("lose's statements", f"{_STORE}.recovery:Recovery.mark_lost", Phase.RESTART, _AFTER, uncommitted=True),
    Place("recovery inserted", f"{_STORE}.recovery:add_session", Phase.RESTART),
    Place("loss told", f"{_STORE}.alerts.announcements:left", Phase.RESTART),
    Place("amend", f"{_STORE}.recovery:Recovery.backfill", Phase.RESTART),
    Place("amend's statements", f"{_STORE}.recovery:Recovery.backfill", Phase.RESTART, _AFTER, uncommitted=True),
    Place("recovered end", f"{_ENGINE}.recovery.recovery:commit_result", Phase.RESTART),
    Place("lost ones looked for", f"{_ENGINE}.recovery.recovery:SessionRecovery.look_again", Phase.RESTART),
    # --- the stop
    Place("drain", f"{_ENGINE}.session.supervisor:Supervisor.drain", Phase.STOP),
    Place("departure", f"{_STORE}.recovery:Recovery.depart", Phase.STOP),
    Place("store closed", f"{_STORE}.store:Store.close", Phase.STOP, _BEFORE),
)

POINTS: Final = tuple(Point(place, moment) for place in PLACES for moment in place.moments)
BY_LABEL: Final = {point.label: point for point in POINTS}


def arm(strikes: Sequence[Strike], directory: Path) -> None:
    """Prepare this process to be struck as planned; ``directory`` is where the trial lives.

    Strikes come one after the other, each of them once, whichever process comes by first. Those that come after a time
    are dealt from outside.
    """
    for number, strike in enumerate(strikes):
        if strike.label is not None:
            _arm(number, strike, BY_LABEL[strike.label], directory)


def _arm(number: int, strike: Strike, point: Point, directory: Path) -> None:
    owner, name = find(point.place.target)
    visits, turn = itertools.count(1), threading.Lock()

    def come_by() -> None:
        with turn:
            is_its_turn = len(dealt(directory)) == number and next(visits) >= strike.visit
            if is_its_turn and claim(directory, number, point.label):
                _deal(strike)

    call = inspect.getattr_static(owner, name)
    if point.place.uncommitted:
        setattr(owner, name, _uncommitted(call, come_by))
        return
    for place in _callers(owner, name, call):
        setattr(place, name, _guarded(call, point.moment, come_by))


def dealt(directory: Path) -> list[str]:
    """Return what each strike of a trial came to, as far as they have come: a point's label, or what else."""
    try:
        return (directory / STRUCK).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def claim(directory: Path, number: int, word: str) -> bool:
    """Note what a strike came to; ``False``: somebody else was first, or it is not its turn."""
    with (directory / STRUCK).open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if len(dealt(directory)) != number:
            return False
        file.write(f"{word}\n")
        return True


def find(target: str) -> tuple[object, str]:
    """Return where a target's last name is looked up: a module or a class, and that name."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: object = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    getattr(owner, name)
    return owner, name


def _callers(owner: object, name: str, call: object) -> list[object]:
    """Return where a call is to be struck: everywhere where its own module is named, else in that place alone."""
    if not isinstance(owner, ModuleType) or getattr(call, "__module__", None) != owner.__name__:
        return [owner]
    ours = [module for path, module in sys.modules.items() if path.startswith("claudeops.")]
    return [module for module in ours if getattr(module, name, None) is call]


def _guarded(call: Callable[..., T], moment: Moment, come_by: Callable[[], None]) -> Callable[..., T]:
    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def awaited(*args: object, **kwargs: object) -> object:
            if moment is Moment.BEFORE:
                come_by()
            result = await call(*args, **kwargs)
            if moment is Moment.AFTER:
                come_by()
            return result

        return cast("Callable[..., T]", awaited)

    @functools.wraps(call)
    def called(*args: object, **kwargs: object) -> T:
        if moment is Moment.BEFORE:
            come_by()
        result = call(*args, **kwargs)
        if moment is Moment.AFTER:
            come_by()
        return result

    return called


def _uncommitted(call: Callable[..., Awaitable[object]], come_by: Callable[[], None]) -> Callable[..., object]:
    """Have every transaction that a method hands to the database come by when its statements are made."""
    within, write = ContextVar("within", default=False), Database.write

    async def written(database: Database, job: Callable[[Connection], T], **given: Any) -> T:
        def struck(connection: Connection) -> T:
            result = job(connection)
            come_by()
            return result

        return await write(database, struck if within.get() else job, **given)

    @functools.wraps(call)
    async def called(*args: object, **kwargs: object) -> object:
        token = within.set(True)
        try:
            return await call(*args, **kwargs)
        finally:
            within.reset(token)

    Database.write = written  # type: ignore[method-assign,assignment]  # in the process that is to be struck
    return called


def _deal(strike: Strike) -> None:
    for pid in strike.hits(session_processes(os.getpid())):
        os.kill(pid, signal.SIGKILL)
    if strike.hits_daemon:
        for number in strike.blow.signals:
            os.kill(os.getpid(), number)
