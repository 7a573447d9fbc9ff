"""Whether a daemon lives, as ``<state>/daemon.json`` and its process say: no database is asked, and no lock is taken.

Commands for people in a hurry read it, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from claudeops.domain.owner import ROLES, Owner

STATUS_FILE: Final = "daemon.json"
"""The file's name in the state directory."""

HUNG_SECONDS: Final = 90.0
"""A daemon that has written no status for this long hangs. It writes one every half a minute, and every minute while
its database hangs."""


class RunningSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the status file names it."""

    session_id: int
    tier: int
    chain: int | None = None  # these are missing in files of older versions
    trigger: str | None = None
    started_at: datetime | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A hold as the status file names it: a reason why no session is started."""

    kind: str  # a `claudeops.domain.holds.HoldKind`, perhaps a later version's
    reason: str
    until: datetime | None = None  # UTC; None: until it is released


class NextFire(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule starts its next chain."""

    name: str
    next_fire: datetime | None = None  # None: it is switched off


class DayBudget(msgspec.Struct, frozen=True, kw_only=True):
    """What all sessions of a day may spend."""

    day_usd: float
    timezone: str = "UTC"  # IANA name; the day ends at midnight there


class StatusFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the status file that are needed here."""

    ready: bool
    pid: int
    owner: str
    process_started_at: float  # seconds since the epoch
    boot_id: str
    written_monotonic: float  # seconds
    reason: str | None = None  # why not ready
    running: tuple[RunningSession, ...] = ()
    holds: tuple[Held, ...] | None = None  # None: the daemon's database did not say
    started_at: datetime | None = None
    isolation: str | None = None  # of its sessions
    node: str = ""  # the machine's name; this, its site and the version are missing in files of older versions
    site: str = ""
    version: str = ""  # of claudeops
    schedules: tuple[NextFire, ...] = ()
    budgets: DayBudget | None = None
    untold_since: datetime | None = None  # since then the oldest notice waits; None: none waits
    roles: tuple[str, ...] | None = None  # what it does for all that work on the database; None: it does not say

    def missing_roles(self) -> Sequence[str]:
        """Return the kinds of work that another daemon does, or none."""
        return sorted(ROLES - {name.partition(":")[0] for name in self.roles}) if self.roles is not None else ()


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a daemon lives, with the reason."""

    lives: bool
    says: str  # one sentence
    status: StatusFields | None = None  # of a daemon that lives, or hangs


_STATUS: Final = msgspec.json.Decoder(StatusFields)


def look(file: Path, *, alive: Callable[[Owner], bool], monotonic: float) -> Liveness:
    """Return whether the daemon that writes ``file`` lives; ``monotonic`` is now, on the clock of the file."""
    try:
        status = _STATUS.decode(file.read_bytes())
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


def _words(status: StatusFields) -> str:
    count = len(status.running)
    sessions = "1 session runs" if count == 1 else f"{count} sessions run"
    if status.untold_since is not None:
        sessions += f"; a notice waits since {status.untold_since:%Y-%m-%d %H:%M:%S} UTC"
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
