"""The words of notices: about events, the ends of sessions and incidents, and how a message reads.

Pure. A message is level, service, one sentence, what was done and denied, the cost, the tier, and a link. Whatever a
model, a log line or a sender of alerts has put into it is redacted, made visible, kept to its bounds, and calls no one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import Incident
from claudeops.domain.alerts.incidents import lasted
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.notice import PLAIN, Announcement, Notice, Pending, Topic
from claudeops.domain.sessions import NewSession, Session
from claudeops.structs import replace
from claudeops.text import clip, join_names, one_line, regex, unique
from claudeops.text.escapes import visible

MOST_CHARACTERS: Final = 1000
"""Of a message without its link."""

_MOST_TITLE: Final = 120
_MOST_CALL: Final = 500  # characters of a command
_MOST_ITEMS: Final = 5  # that were done or denied, before they are only counted
_CUT: Final = " …"
_REMINDER: Final = ":reminder"
_CALLS: Final = regex.Pattern(r"@(?:everyone|here|channel|all)|<[!@#]")
"""What wakes everybody in a room of some chat, wherever it stands in a text."""


class NoticeMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent."""

    title: str
    body: str
    level: EventLevel
    approval_id: int | None = None  # of the question that it is, where it is about that alone
    reminds: bool = False  # the question was sent before


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """How texts become safe to be sent, and what links begin with."""

    redact: Callable[[str], str]
    public_url: str = ""  # "": there are no links


# --- which there are ---------------------------------------------------------------------------------------


def of_event(event: NewEvent, *, event_id: int, session_id: int | None, about: Announcement = PLAIN) -> Notice:
    """Return the notice of an event that was opened."""
    own = Topic.SELF if session_id is None and event.service is None else Topic.EVENT
    return Notice(
        topic=about.topic or own,
        level=event.level,
        text=event.message,
        key=clip(about.key or f"event:{event_id}"),
        service=event.service or about.service,
        session_id=session_id,
        tier=about.tier,
        done=about.done,
        denied=about.denied,
        cost_usd=about.cost_usd,
        approval_id=about.approval_id,
        besides=about.besides,
        call=about.call,
        also=about.also,
        probe=about.probe,
    )


def escalated(
    session: Session,
    following: NewSession,
    services: Sequence[str],
    cost_usd: float | None,
    *,
    incident: int | None = None,
) -> Notice:
    """Return the notice that the next tier takes over."""
    reason = one_line(following.context.reason) if following.context else ""
    return Notice(
        topic=Topic.INCIDENT,
        level=EventLevel.WARNING,
        text=f"tier {following.tier} looks into it" + (f": {reason}" if reason else "."),
        key=f"escalated:{session.id}",
        service=join_names(services),
        session_id=session.root_session_id,
        tier=session.tier,
        cost_usd=cost_usd,
        incident=incident,
    )


def call_in_words(tool: str, redacted_input: str, *, hidden: bool = False) -> str:
    """Return a call as a message shows it: the tool, and its command or else its whole input, up to a bound.

    ``hidden``: redaction took parts out of it that only have the shape of a secret.
    """
    try:
        given = msgspec.json.decode(redacted_input)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        given = None
    command = given.get("command") if isinstance(given, dict) else None
    shown = " ".join((command if isinstance(command, str) else redacted_input).split())
    left = len(shown) - _MOST_CALL
    more = f"{_CUT} ({left} characters more)" if left > 0 else ""
    masked = " (not whole: parts that look like secrets are hidden, and run too)" if hidden else ""
    return f"{tool}{masked}: {shown[:_MOST_CALL]}{more}"


def reminder(notice: Notice, *, needed: int = 1) -> Notice:
    """Return the second notice of a question that waits for an answer, or for ``needed`` ones."""
    waits = "still nobody has answered" if needed == 1 else f"still fewer than {needed} people have said yes"
    return replace(notice, key=f"{notice.key}{_REMINDER}", text=f"{waits}: {notice.text}")


def incident_opened(incident: Incident, sentence: str, end: Announcement = PLAIN) -> Notice:
    """Return the notice of an incident that is open, for the first time or again."""
    again = f"incident {incident.number} is open again" if incident.reopened else f"incident {incident.number}"
    return _of_incident(incident, "opened", incident.severity, f"{again}: {one_line(sentence)}", end)


def incident_worse(incident: Incident, sentence: str) -> Notice:
    """Return the notice of an incident that is more severe than its last notice says."""
    text = f"incident {incident.number} is {incident.severity} now: {one_line(sentence)}"
    return _of_incident(incident, f"worse:{incident.severity}", incident.severity, text)


def incident_acknowledged(incident: Incident) -> Notice:
    """Return the notice that a person has taken an incident; it reaches whoever got that of its beginning."""
    text = f"incident {incident.number}: {one_line(incident.acked_by)} is on it."
    return _of_incident(incident, "acknowledged", incident.severity, text)


def incident_unresolved(incident: Incident, why: str, sentence: str, level: EventLevel, end: Announcement) -> Notice:
    """Return the notice that a chain has ended without an end of its incident; ``why`` in one word."""
    most = max(level, incident.severity, key=list(EventLevel).index)
    text = f"incident {incident.number} is unresolved: {one_line(sentence)}"
    return _of_incident(incident, f"unresolved:{why}", most, text, end)


def incident_resolved(incident: Incident, *, now: datetime, cost_usd: float | None, done: Iterable[str] = ()) -> Notice:
    """Return the notice of an incident that is over; it reaches whoever got that of its beginning."""
    took = in_words(lasted(incident, now))
    names = unique(one_line(witness.name) for witness in incident.witnesses if witness.name)
    whose = f", says {join_names(names)}" if names else ""
    text = f"incident {incident.number} is resolved after {took}{whose}."
    return _of_incident(
        incident, "resolved", incident.severity, text, Announcement(cost_usd=cost_usd, done=tuple(done))
    )


def _of_incident(incident: Incident, what: str, level: EventLevel, text: str, end: Announcement = PLAIN) -> Notice:
    return Notice(
        topic=Topic.INCIDENT,
        level=level,
        text=text,
        key=f"incident:{incident.number}:{what}:{incident.reopened}",
        service=join_names(incident.services),
        session_id=incident.root_session_id,
        tier=end.tier,
        done=end.done,
        denied=end.denied,
        cost_usd=end.cost_usd,
        incident=incident.number,
    )


def in_words(span: timedelta) -> str:
    """Return a duration as people say it: its two largest units."""
    seconds = int(span.total_seconds())
    parts = (("d", seconds // 86_400), ("h", seconds // 3_600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60))
    units = [f"{amount} {unit}" for unit, amount in parts if amount]
    return " ".join(units[:2]) or "0 s"


# --- how it reads -----------------------------------------------------------------------------------------


def message(notices: Sequence[Notice], wording: Wording) -> NoticeMessage:
    """Return the message of one notice, or of several together."""
    if len(notices) == 1:
        return _single(notices[0], wording)
    level = max((notice.level for notice in notices), key=list(EventLevel).index)
    lines: list[str] = []
    room = MOST_CHARACTERS
    for notice in notices:
        line = f"{notice.level.upper()} · {_sentence(notice, wording)}"
        left = len(notices) - len(lines)
        if len(line) > room - len(_more(left)) - 1:
            lines.append(_more(left))
            break
        lines.append(line)
        room -= len(line) + 1
    return NoticeMessage(title=f"{level.upper()} · {len(notices)} notices", body="\n".join(lines), level=level)


def folded(waiting: Sequence[Pending], wording: Wording) -> NoticeMessage:
    """Return the message of what waits for one target."""
    return message([pending.notice for pending in waiting], wording)


def safe(text: str, wording: Wording) -> str:
    """Return a text from anywhere as one line that holds no secret, hides nothing and calls no one."""
    shown = wording.redact(visible(" ".join(wording.redact(text).split())))
    return _CALLS.sub(lambda found: f"{found[0][:1]} {found[0][1:]}", shown)


def _single(notice: Notice, wording: Wording) -> NoticeMessage:
    named = f" · {safe(notice.service, wording)}" if notice.service else ""
    again = "(again) " if notice.again else ""
    title = f"{again}{notice.level.upper()}{named}"
    parts = [safe(notice.text, wording), *([safe(notice.call, wording)] if notice.call else [])]
    parts += _listed("done", notice.done, wording)
    parts += _listed("denied", notice.denied, wording)
    tail = [f"${notice.cost_usd:.2f}"] if notice.cost_usd is not None else []
    tail += [f"tier {notice.tier}"] if notice.tier is not None else []
    end = "".join(f" · {part}" for part in tail)
    body = _cut(" · ".join(parts), MOST_CHARACTERS - min(len(title), _MOST_TITLE) - len(end)) + end
    return NoticeMessage(
        title=_cut(title, _MOST_TITLE),
        body="\n".join((body, *_link(notice, wording))),
        level=notice.level,
        approval_id=notice.approval_id,
        reminds=notice.key.endswith(_REMINDER),
    )


def _sentence(notice: Notice, wording: Wording) -> str:
    named = f"{safe(notice.service, wording)}: " if notice.service else ""
    return _cut(f"{'(again) ' if notice.again else ''}{named}{safe(notice.text, wording)}", MOST_CHARACTERS // 4)


def _listed(what: str, items: Sequence[str], wording: Wording) -> list[str]:
    if not items:
        return []
    left = len(items) - _MOST_ITEMS
    shown = ", ".join(safe(item, wording) for item in items[:_MOST_ITEMS])
    return [f"{what}: {shown}" + (f" and {left} more" if left > 0 else "")]


def _link(notice: Notice, wording: Wording) -> list[str]:
    base = wording.public_url.rstrip("/")
    if base and notice.session_id is not None:
        return [f"{base}/s/{notice.session_id}"]
    return [f"{base}/incidents/{notice.incident}"] if base and notice.incident is not None else []


def _more(left: int) -> str:
    return f"and {left} more."


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT
