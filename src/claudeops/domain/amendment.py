"""What is written late about a session that had ended already, and why nothing was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from claudeops.domain.model import Session


class Refusal(StrEnum):
    """Why a log is not taken up for a session; nothing was written then."""

    UNKNOWN_SESSION = "unknown_session"  # there is no such row
    NOT_ENDED = "not_ended"  # queued or running: its own end is still to be written
    UNKNOWN_HARNESS = "unknown_harness"  # nobody here can read what its CLI printed
    NO_LOG = "no_log"  # it was never claimed, so its row names no log
    LOG_MISSING = "log_missing"
    LOG_UNREADABLE = "log_unreadable"  # no permission, no regular file, a disk that fails
    LOG_UNDIGESTED = "log_undigested"  # our own reader failed on what it holds
    LOG_EMPTY = "log_empty"
    LOG_UNINTELLIGIBLE = "log_unintelligible"  # it holds something, and not one frame
    UNNAMED_SESSION = "unnamed_session"  # no frame says whose it is
    OTHER_SESSION = "other_session"  # some frame is of a session of another id


class Part(StrEnum):
    """What an amendment wrote."""

    FACTS = "facts"  # columns of the session's row
    REPORT = "report"  # the report with its events, memories and checks
    COST = "cost"  # the cost, and the spend that is settled with it
    TOOL_ENDS = "tool_ends"  # results of tool calls, and of the actions they carried


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """Nothing was written."""

    reason: Refusal
    message: str  # one sentence for the operator


@dataclass(frozen=True, kw_only=True, slots=True)
class Amended:
    """What was written; without parts, everything stood there already."""

    session: Session  # as it stands now
    parts: frozenset[Part]
