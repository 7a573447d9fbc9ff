"""Live facts as lines of text, for readers who see a session for the first time.

A line has a tag (who), a label (what kind of step) and a body. Texts come from models and their tools: whatever a
terminal would obey, or that would reverse the reading direction of a line, is written as an escape.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from claudeops.domain.actions import Recheck
from claudeops.domain.calls import VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.live import (
    ActionFollowedUp,
    AssistantSaid,
    CallEnded,
    CallJudged,
    CallStarted,
    EventRaised,
    LinesLost,
    LiveFact,
    ResultCame,
    SessionBegan,
    SessionEnded,
)
from claudeops.domain.sessions import DecisionReason, Outcome
from claudeops.engine.live.hub import COMMAND_CHARACTERS
from claudeops.text import signs

DAEMON: Final = "daemon"

MEANINGS: Final[dict[DecisionReason, str]] = {
    DecisionReason.HEALTHY: "healthy: there is nothing left to do",
    DecisionReason.ESCALATED: "escalated",
    DecisionReason.MAX_TIER: "wants to hand over, but no tier is left: somebody has to look",
    DecisionReason.DRY_RUN: "would hand over, but this is a dry run",
    DecisionReason.COOLDOWN: "would hand over, but what may be done was done too often lately",
    DecisionReason.BUDGET: "no money is left for going on",
    DecisionReason.NO_REPORT: "left no valid report: somebody has to look",
    DecisionReason.NO_EVIDENCE: "says that all is well, but nothing shows it",
    DecisionReason.SESSION_FAILED: "the session failed, so nothing is known",
    DecisionReason.PAUSED: "paused: nothing is started",
    DecisionReason.MAINTENANCE: "would hand over, but within a maintenance window nobody is asked",
}

_ASKS: Final = "asks"


class Tone(StrEnum):
    """How a line is coloured where there are colours."""

    HEAD = "head"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    PLAIN = "plain"
    QUIET = "quiet"


class LiveLine(msgspec.Struct, frozen=True, kw_only=True):
    """One step; all texts are safe to print."""

    at: datetime
    tag: str
    label: str
    body: str
    detail: str = ""  # shown after the body, less bright
    tone: Tone = Tone.PLAIN
    whole: bool = True  # wrapped if it is too long for the terminal; otherwise cut


_VERDICTS: Final = {
    VerdictKind.ALLOW: ("allowed", Tone.GOOD),
    VerdictKind.DENY: ("denied", Tone.BAD),
    VerdictKind.ASK: (_ASKS, Tone.WARN),
}
_FOUND: Final[dict[Recheck | None, tuple[str, Tone]]] = {
    Recheck.HELD: ("well by the look of {}", Tone.GOOD),
    Recheck.RELAPSED: ("did not hold, by the look of {}", Tone.BAD),
    Recheck.UNKNOWN: ("whether it held was not to be seen at {}", Tone.WARN),
    None: ("looked at again from {} on", Tone.PLAIN),
}
_LEVELS: Final = {EventLevel.INFO: Tone.PLAIN, EventLevel.WARNING: Tone.WARN, EventLevel.CRITICAL: Tone.BAD}


class LiveLines(msgspec.Struct):
    """Turns facts into lines; remembers which call and which tier a later fact is about."""

    doing: str = ""  # what is going on right now, for a progress display; "" for nothing
    _tiers: dict[int, int] = msgspec.field(default_factory=dict)
    _denied: set[str] = msgspec.field(default_factory=set)
    _last_call: str = ""
    _running: set[int] = msgspec.field(default_factory=set)  # sessions that began and have not ended

    def of(self, fact: LiveFact) -> tuple[LiveLine, ...]:  # noqa: C901, PLR0911 - one case a fact
        """Return the lines of one fact, in order; none if another fact says it better."""
        match fact:
            case SessionBegan():
                return self._began(fact)
            case CallStarted():
                return self._call(fact, "runs", Tone.PLAIN)
            case CallJudged():
                return self._judged(fact)
            case CallEnded():
                return self._call_ended(fact)
            case AssistantSaid():
                tag = self._tag(fact.session_id, fact.tier)
                return (LiveLine(at=fact.at, tag=tag, label="says", body=escaped(fact.text)),)
            case ResultCame():
                self._now(f"{_tier(fact.tier)} has finished, its report is taken up")
                return ()  # the end says what it cost
            case EventRaised():
                return (self._event(fact),)
            case SessionEnded():
                return self._ended(fact)
            case ActionFollowedUp():
                return (self._followed_up(fact),)
            case LinesLost():
                return (LiveLine(at=fact.at, tag="", label="", body=f"… {fact.count} lines lost", tone=Tone.WARN),)
            case _:
                assert_never(fact)

    def _tag(self, session_id: int, tier: int) -> str:
        """Return the name of the tier, with the session's id when several sessions run side by side."""
        return f"{_tier(tier)} #{session_id}" if self._running - {session_id} else _tier(tier)

    def _began(self, fact: SessionBegan) -> tuple[LiveLine, ...]:
        self._tiers[fact.session_id] = fact.tier
        self._running.add(fact.session_id)
        self._now(f"{_tier(fact.tier)} starts")
        by = f" by {escaped(fact.started_by)}" if fact.started_by else ""
        body = f"session {fact.session_id} · {escaped(fact.model)} · {fact.trigger}{by}"
        line = LiveLine(
            at=fact.at,
            tag=self._tag(fact.session_id, fact.tier),
            label="starts",
            body=body,
            detail=escaped(fact.reason or ""),
            tone=Tone.HEAD,
        )
        return (line,)

    def _call(self, fact: CallStarted | CallJudged, label: str, tone: Tone, reason: str = "") -> tuple[LiveLine, ...]:
        self._last_call = fact.tool_use_id
        doing = _doing(fact.line)
        waits = "waits for a person's yes: " if label == _ASKS else ""
        self._now(f"{_tier(fact.tier)} · {waits}{doing}")
        line = LiveLine(
            at=fact.at,
            tag=self._tag(fact.session_id, fact.tier),
            label=label,
            body=doing,
            detail=escaped(reason),
            tone=tone,
            whole=tone is not Tone.GOOD,
        )
        return (line,)

    def _judged(self, fact: CallJudged) -> tuple[LiveLine, ...]:
        label, tone = _VERDICTS[fact.verdict]
        if fact.verdict is VerdictKind.DENY:
            self._denied.add(fact.tool_use_id)
        return self._call(fact, label, tone, fact.reason)

    def _call_ended(self, fact: CallEnded) -> tuple[LiveLine, ...]:
        self._now(f"{_tier(fact.tier)} · thinking")
        if fact.tool_use_id in self._denied:
            self._denied.remove(fact.tool_use_id)
            return ()  # its result is our own refusal
        # Calls may run side by side: a result names its call, unless that is the line above.
        of = "" if fact.tool_use_id == self._last_call or not fact.line else f"{_doing(fact.line)} → "
        more = f"… {fact.characters} characters" if fact.characters > len(fact.text) + 1 else ""
        line = LiveLine(
            at=fact.at,
            tag=self._tag(fact.session_id, fact.tier),
            label="error" if fact.is_error else "answer",
            body=escaped(of + (fact.text or "no output")),
            detail=more,
            tone=Tone.WARN if fact.is_error else Tone.QUIET,
            whole=False,
        )
        return (line,)

    def _event(self, fact: EventRaised) -> LiveLine:
        session_id = fact.session_id
        tier = None if session_id is None else self._tiers.get(session_id)
        return LiveLine(
            at=fact.at,
            tag=DAEMON if session_id is None or tier is None else self._tag(session_id, tier),
            label=fact.level.value,
            body=escaped(fact.message if fact.service is None else f"{fact.service}: {fact.message}"),
            tone=_LEVELS[fact.level],
        )

    def _ended(self, fact: SessionEnded) -> tuple[LiveLine, ...]:
        self._now("")
        tag, succeeded = self._tag(fact.session_id, fact.tier), fact.outcome is Outcome.SUCCESS
        self._running.discard(fact.session_id)
        finds = escaped(fact.summary or "")
        ended = " · ".join(_figures(fact))
        going_on = fact.decision in {DecisionReason.HEALTHY, DecisionReason.ESCALATED}
        lines = [
            LiveLine(
                at=fact.at,
                tag=tag,
                label="ended",
                body=ended,
                detail=escaped(fact.error or ""),
                tone=Tone.PLAIN if succeeded else Tone.BAD,
            ),
            LiveLine(at=fact.at, tag=tag, label="next", body=_next(fact), tone=Tone.HEAD if going_on else Tone.WARN),
        ]
        if finds:
            lines.insert(0, LiveLine(at=fact.at, tag=tag, label="finds", body=finds, tone=Tone.HEAD))
        return tuple(lines)

    def _followed_up(self, fact: ActionFollowedUp) -> LiveLine:
        when = f"{fact.at:%Y-%m-%d %H:%M} UTC"
        found, tone = _FOUND[fact.held]
        return LiveLine(
            at=fact.at,
            tag=self._tag(fact.session_id, fact.tier),
            label="later" if fact.held is None else fact.held.value,
            body=escaped(f"{fact.action} of {fact.service}: {found.format(when)}"),
            tone=tone,
        )

    def _now(self, doing: str) -> None:
        self.doing = doing


def escaped(text: str) -> str:
    """Return text in which whatever moves a cursor, breaks a line or turns its direction is a visible escape."""
    if text.isascii() and text.isprintable():
        return text
    drawn = signs.presentations(text)
    return "".join(
        sign if sign.isprintable() and (at in drawn or not signs.is_unseen(sign)) else _visible(sign)
        for at, sign in enumerate(text)
    )


def _visible(character: str) -> str:
    if unicodedata.category(character) == "Zs":
        return " "  # a space of another width
    return character.encode("unicode_escape").decode("ascii")


def _tier(number: int) -> str:
    return f"tier {number}"


def _doing(line: str) -> str:
    """Return a call's line without the dots that always end it, unless it was cut there."""
    return escaped(line if len(line) > COMMAND_CHARACTERS else line.removesuffix("..."))


def _figures(fact: SessionEnded) -> list[str]:
    figures = [fact.outcome.value, "cost unknown" if fact.cost_usd is None else f"${fact.cost_usd:.4f}"]
    if fact.num_turns is not None:
        figures.append(f"{fact.num_turns} turn{'' if fact.num_turns == 1 else 's'}")
    if fact.duration_ms is not None:
        figures.append(f"{fact.duration_ms / 1000:.1f} s")
    return figures


def _next(fact: SessionEnded) -> str:
    if fact.next_tier is None:
        return MEANINGS[fact.decision]
    if fact.next_tier == fact.tier:
        return f"{MEANINGS[fact.decision]}; it is tried once more (session {fact.next_session_id})"
    return f"hands over to tier {fact.next_tier} (session {fact.next_session_id})"
