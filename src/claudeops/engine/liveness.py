"""Whether the daemon behind a status file lives; no database is asked, and no lock is taken."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 - msgspec looks it up when it decodes
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.domain.model import Owner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HUNG_SECONDS: Final = 90.0
"""A daemon that has written no status for so long does nothing any more. It writes one every ten seconds, and while
its database hangs every forty."""


class RunningSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the status file names it."""

    session_id: int
    tier: int


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why no session is started."""

    kind: str  # a `claudeops.domain.holds.HoldKind`, perhaps a later version's
    reason: str
    until: datetime | None = None  # UTC; None: until it is released


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What of the status file is needed here."""

    ready: bool
    pid: int
    owner: str
    process_started_at: float  # seconds since the epoch
    boot_id: str
    written_monotonic: float  # seconds
    reason: str | None = None  # why not ready
    running: tuple[RunningSession, ...] = ()
    holds: tuple[Held, ...] | None = None  # None: its database did not say


@dataclass(frozen=True, kw_only=True, slots=True)
class Liveness:
    """The answer, with its reason."""

    lives: bool
    says: str  # one sentence
    status: Status | None = None  # of the daemon that lives, or has hung


def look(file: Path, *, alive: Callable[[Owner], bool], monotonic: float) -> Liveness:
    """Return whether the daemon that writes ``file`` lives; ``monotonic`` is now, in the seconds it writes down."""
    try:
        status = msgspec.json.decode(file.read_bytes(), type=Status)
    except FileNotFoundError:
        says = (
            f"No daemon runs here, or it has only begun to start: there is no {file}. "
            "Where one runs with another state directory, set CLAUDEOPS_STATE_DIR to that."
        )
        return Liveness(lives=False, says=says)
    except OSError as error:
        return Liveness(lives=False, says=f"{file} cannot be read ({error.strerror}): ask as the daemon's user.")
    except msgspec.DecodeError:
        return Liveness(lives=False, says=f"{file} is no status of this version of claudeops: restart the daemon.")
    owner = Owner(
        name=status.owner,
        pid=status.pid,
        process_started_at=status.process_started_at,
        boot_id=status.boot_id,
    )
    if not alive(owner):
        return Liveness(lives=False, says=f"The daemon (pid {status.pid}) has died without a word: start it again.")
    silent = monotonic - status.written_monotonic
    if silent > HUNG_SECONDS:
        says = f"The daemon (pid {status.pid}) runs, but has done nothing for {silent:.0f} s: restart it."
        return Liveness(lives=False, says=says, status=status)
    return Liveness(lives=True, says=_words(status), status=status)


def _words(status: Status) -> str:
    count = len(status.running)
    sessions = "1 session runs" if count == 1 else f"{count} sessions run"
    if status.ready and not status.holds:
        return f"The daemon (pid {status.pid}) is ready; {sessions}."
    if status.ready:
        why = "; ".join(map(_hold, status.holds or ()))
        return f"The daemon (pid {status.pid}) is ready, but starts no session: {why}; {sessions}."
    reason = status.reason or "it does not say why"
    return f"The daemon (pid {status.pid}) lives and is not ready: {reason}; {sessions}."


def _hold(hold: Held) -> str:
    until = "" if hold.until is None else f" (until {hold.until:%Y-%m-%d %H:%M:%S} UTC)"
    return f"{hold.reason.rstrip('.')}{until}"
