"""Uptime Kuma's webhook: a heartbeat of one monitor, posted exactly once.

Its monitor holds passwords and tokens of what it watches (``basic_auth_pass``, ``pushToken``, …): of all its fields
only those that are named here become labels. A heartbeat that is not ``important`` repeats an earlier one.

A message has no heartbeat where it is a test, a warning about a certificate or a domain, or the text of a template of
the user's. Such a text names its monitor in brackets, ``[Shop] [✅ Up] 200 - OK``, or is known by its words alone; only
a test, and a monitor that is pending or in maintenance, is no alert.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from claudeops.domain.alerts.alert import Alert, ReportedState
from claudeops.domain.alerts.rules import AlertSource
from claudeops.domain.events import EventLevel
from claudeops.formats.senders.common import (
    FoundAlerts,
    Object,
    Post,
    Unreadable,
    as_object,
    as_objects,
    as_text,
    digest,
    fingerprint_of,
    key_labels,
    labels_of,
    severity_of,
    shown,
    subject_of,
    time_of,
    url_of,
)
from claudeops.formats.senders.words import Words, state_in, without_state, words_of
from claudeops.text import NAME_LENGTH, regex

_DOWN, _UP, _PENDING, _MAINTENANCE = range(4)
_STATES: Final[Mapping[int, ReportedState]] = {_DOWN: ReportedState.FIRING, _UP: ReportedState.RESOLVED}
_WORDS: Final = {_PENDING: "pending", _MAINTENANCE: "in maintenance"}
_LABELS: Final = ("type", "hostname", "port", "url")
_NOWHERE: Final = frozenset({"", "https://", "http://", "null"})  # what its form holds where there is no address
_TEXTS: Final = ("msg", "message", "text", "body", "Body", "summary")
_TESTING: Final = " Testing"  # the end of what its test button sends: the notification's name, and this

_SIGN: Final = r"\p{So}\x{fe0f}?\s?"
_PAUSE: Final = r"(?:pending|(?:(?:in|under)\s)?maintenance)"
_STATE: Final = r"[🔴❌✅🟢]\x{fe0f}?\s?(?:Down|DOWN|Up|UP)"
_STATED: Final = regex.Pattern(rf"(?:\bis\s+)?(?:[\[(]({_STATE})[\])]|({_STATE})\b)")
"""Finds a state as Uptime Kuma writes it, wherever a template has put it."""

_NAMED: Final = regex.Pattern(
    r"^\[(.+?)\]\s*(?:\[(https?://[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]"
    rf"|(\[(?:{_SIGN})?(?i:up|down|{_PAUSE})\s*\]))\s*(.*)$"
)
"""Finds a name, which may have brackets of its own, before an address or a state."""

_IS_PAUSED: Final = regex.Pattern(rf"(?i)^\[(?:{_SIGN})?{_PAUSE}\s*\]")
_PAUSED: Final = regex.Pattern(rf"(?i){_SIGN}{_PAUSE}\s*(?:$|[\]):;,|]|[-\x{{2013}}\x{{2014}}]\s)")
_ENDS_PAUSED: Final = regex.Pattern(
    rf"(?i)(?:^|[:|(\[\x{{2013}}\x{{2014}}]\s*|\s-\s+|\bis\s(?:in|under)\s){_PAUSE}[\])\s.!]*$"
)
_NUMBER: Final = regex.Pattern(r"(?i)[-+]?[0-9]+(?:[.,][0-9]+)?(%|ms|s|m|h|d)?")
_CLOCK: Final = regex.Pattern(r"[0-9]{1,2}(?::[0-9]{2}){1,2}")
_UNITS: Final = frozenset(
    {"%", "percent", "ms", "s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minute", "minutes", "h"}
    | {"hour", "hours", "d", "day", "days", "week", "weeks", "month", "months", "year", "years"}
)
_BEFORE: Final = frozenset({"in", "within", "after", "for", "since"})
_MARKS: Final = "().,;:!?"


def read(body: Object, post: Post, source: AlertSource) -> FoundAlerts:
    """Return what Uptime Kuma says. Raises `Unreadable`."""
    beat, monitor = as_object(body.get("heartbeat")), as_object(body.get("monitor"))
    if not beat:
        return _of_text(body, source)
    status = beat.get("status")
    state = _STATES.get(status) if isinstance(status, int) and not isinstance(status, bool) else None
    if state is None:
        word = _WORDS.get(status, "") if isinstance(status, int) else ""
        if not word:
            raise Unreadable(f"its heartbeat has the unknown status {shown(status, 40)!r}")
        return FoundAlerts(remark=f"the monitor {shown(monitor.get('name'), NAME_LENGTH)} is {word}")
    return FoundAlerts(alerts=(_alert(body, state, post, source),))


def _alert(body: Object, state: ReportedState, post: Post, source: AlertSource) -> Alert:
    beat, monitor = as_object(body.get("heartbeat")), as_object(body.get("monitor"))
    name = shown(monitor.get("name"), NAME_LENGTH).strip()
    tags = {as_text(tag.get("name")): tag.get("value") for tag in as_objects(monitor.get("tags"))}
    plain = {key: monitor.get(key) for key in _LABELS if as_text(monitor.get(key)) not in _NOWHERE}
    labels: dict[str, object] = {**tags, **plain, "monitor": name, "path": monitor.get("pathName")}
    kept = {key: value for key, value in labels.items() if key and value not in (None, "")}
    at = time_of(beat.get("time"), post.received_at)
    identity = monitor.get("id") if monitor.get("id") is not None else beat.get("monitorID")
    is_change = beat.get("important") in (True, 1)
    about = subject_of(source, kept, name)
    return Alert(
        fingerprint=fingerprint_of(identity, [name, monitor.get("url")]),
        state=state,
        name=name or "monitor",
        service=about.service,
        service_by=about.by,
        severity=severity_of(source, kept),
        labels=labels_of(kept, ("monitor", *key_labels(source, kept))),
        annotations=labels_of({"summary": body.get("msg"), "detail": beat.get("msg")}),
        starts_at=at if is_change and state is ReportedState.FIRING else None,
        ends_at=at if state is ReportedState.RESOLVED else None,
        reported_at=at,
    )


def _of_text(body: Object, source: AlertSource) -> FoundAlerts:
    """Return what a message without a heartbeat says; one that says no state warns of something, as of a certificate.

    No message ends such a warning: only a person does, or the next look.
    """
    text = shown(next((body[name] for name in _TEXTS if as_text(body.get(name)).strip()), "")).strip()
    if not text:
        raise Unreadable("it has neither a heartbeat nor a message")
    if text.endswith(_TESTING):
        return FoundAlerts(remark=f"Uptime Kuma says: {text}")
    words = words_of(source)
    name, url, what = _parts(_STATED.sub(lambda found: f"[{found[1] or found[2]}]", text), words)
    state = state_in([what], words)
    if (name and _IS_PAUSED.search(what)) or (state is None and (_PAUSED.search(what) or _ENDS_PAUSED.search(what))):
        return FoundAlerts(remark=f"Uptime Kuma says: {text}")
    left = without_state(what, words)
    known_by = _lasting(left, is_named=bool(name)) if state is None else left
    if name and state is not None and _begins_with_state(what, words):
        known_by = ""  # the state is that of the monitor, and what follows is what it saw
    called = _innermost(name) or (left if state is not None else "")
    labels: dict[str, object] = {**({"monitor": called} if called else {}), **({"url": url} if url else {})}
    about = subject_of(source, labels, called or known_by)
    alert = Alert(
        fingerprint=digest([name, url, known_by]),
        state=state or ReportedState.FIRING,
        name=(called or left)[:NAME_LENGTH] or "monitor",
        service=about.service,
        service_by=about.by,
        severity=EventLevel.WARNING if state is None else severity_of(source, labels),
        labels=labels_of(labels, ("monitor",)),
        annotations=labels_of({"summary": text}),
        url=url_of(url),
    )
    return FoundAlerts(alerts=(alert,))


def _parts(text: str, words: Words) -> tuple[str, str, str]:
    """Return the monitor that a text names in brackets, its address, and what the text says of it, else all of it."""
    found = _NAMED.search(text)
    if found is not None:
        name, url, state, rest = (as_text(found[group]).strip() for group in (1, 2, 3, 4))
        return name, url, f"{state} {rest}".strip()
    end = _closing(text)
    name, what = text[1:end].strip(), text[end + 1 :].strip()
    is_state = not without_state(f"[{name}]", words) or _PAUSED.search(name) is not None
    if end < 0 or not name or not what or is_state:
        return "", "", text
    is_of_it = state_in([what], words) is None or _begins_with_state(what, words) or not without_state(what, words)
    return (name, "", what) if is_of_it else ("", "", text)  # `[prod] shop is down`


def _innermost(name: str) -> str:
    """Return the name alone, where a template has put brackets before those of the name: `Uptime Kuma] [shop`."""
    while (end := _closing(f"[{name}")) > 0 and (rest := name[end:].lstrip()).startswith("["):
        name = rest[1:]
    return name


def _closing(text: str) -> int:
    """Return where the bracket closes with which a text begins; -1: nowhere."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth == 0:
            return at or -1
    return -1


def _begins_with_state(text: str, words: Words) -> bool:
    """Return whether the first word of a text, or what it begins with in brackets, says a state."""
    end = _closing(text)
    head = text[1:end] if end > 0 else next(iter(text.split(maxsplit=1)), "").strip(_MARKS)
    return state_in([f"[{head}]"], words) is not None


def _lasting(text: str, *, is_named: bool) -> str:
    """Return a text without the numbers that pass, such as days that are left; of a named monitor all of them do."""
    found = text.split()
    plain = [word.strip(_MARKS).lower() for word in found]
    around = zip(found, ["", *plain], plain, [*plain[1:], ""], strict=False)
    return " ".join(
        word
        for word, before, core, behind in around
        if not _passes(core, is_measured=is_named or before in _BEFORE or behind in _UNITS)
    )


def _passes(word: str, *, is_measured: bool) -> bool:
    number = _NUMBER.fullmatch(word)
    if number is None:
        return _CLOCK.fullmatch(word) is not None
    return is_measured or bool(number[1])
