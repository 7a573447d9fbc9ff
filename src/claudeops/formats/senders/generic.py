"""Any other sender: a JSON object, or a list of alerts in one, with the usual names of fields; our own signature.

Read are ``alerts`` (or ``events``, ``items``, a chat's ``attachments`` or ``embeds``), else the object itself as one
alert; in it ``status`` or ``state``, ``name``/``title``/``alertname``, ``message``/``summary``/``description``,
``labels``/``tags``, ``starts_at`` and ``ends_at``, ``url``. All other plain fields are labels too. The body of Claude
Ops' webhook is such an object.

A sender without a status says in its texts that something is over; what its texts say beside that names the alert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from claudeops.domain.alerts.alert import Alert, ReportedState
from claudeops.domain.alerts.rules import AlertSource
from claudeops.formats.senders.common import (
    MOST_ALERTS,
    Claim,
    FoundAlerts,
    Object,
    Post,
    Unreadable,
    as_object,
    as_objects,
    as_text,
    claim,
    digest,
    fingerprint_of,
    is_past,
    is_recent,
    key_labels,
    labels_of,
    severity_of,
    shown,
    subject_of,
    time_of,
    url_of,
)
from claudeops.formats.senders.pagerduty import is_event, of_event
from claudeops.formats.senders.words import MOST_LOOKED_AT, Words, state_in, status_of, without_state, words_of
from claudeops.text import NAME_LENGTH, casefold_key, regex

SIGNATURE_HEADER: Final = "x-claudeops-signature"
_LISTS: Final = ("alerts", "events", "items", "attachments", "embeds")
_OWN_LISTS: Final = frozenset({"alerts", "events"})
"""Lists that hold alerts; what is in the others may be a decoration of the body's own text."""

_NAMES: Final = ("alertname", "name", "title", "check", "monitor", "event", "subject")
_TEXTS: Final = ("summary", "message", "description", "text", "body", "msg", "content")
_STATES: Final = ("status", "state", "event_action", "action")
_OTHER_STATES: Final = (
    *("result", "health", "alert_status", "alert_state", "alertstate", "event_status", "current_state", "new_state"),
    *("monitor_status", "alertTypeFriendlyName", "eventType", "event_type", "alert_transition", "transition"),
)
"""Fields that hold a state where what they hold is a word for one."""

_KUMA: Final = regex.Pattern(r"^\s*\[([^\[\]]+)\]\s*\[(?:✅ Up|🔴 Down)\]")
"""What Uptime Kuma writes by way of other services: behind the state stands what it saw, which changes."""

_VERB: Final = r"(?:(?:is|are|at|to|has|have|reached|over|above|below|exceeds|under|than)\s|[<>=]\s?)"
_UNIT: Final = r"\s?(?:%|°?[CF]|ms|min|[smhd]|[kKMGTP]?i?B|[KMGTP])"
_MEASURE: Final = regex.Pattern(
    rf"(?:^|\s)[(]?(?:{_VERB}?(?:[0-9]+(?:[.,][0-9]+)?{_UNIT}|[0-9]+[.,][0-9]+|[0-9]+:[0-9]{{2}}(?::[0-9]{{2}})?)"
    rf"|{_VERB}[0-9]+)[).,;]?(?:$|\s)"
)
"""What is measured: with a unit, a fraction or a verb. Any other number names something: `VM 101`, `port 443`."""

_STARTS: Final = ("starts_at", "startsAt", "started_at", "start", "since")
_ENDS: Final = ("ends_at", "endsAt", "ended_at", "resolved_at", "end")
_OVER_SINCE: Final = ("ends_at", "endsAt", "ended_at", "resolved_at")
_TIMES: Final = ("said_at", "timestamp", "time", "at", "occurred_at", "date")
_URLS: Final = ("url", "link", "html_url", "generatorURL")
_IDS: Final = ("delivery_id", "event_id", "request_id", "message_id")
_LOOKS: Final = ("color", "colour", "emoji", "icon", "footer", "fallback")
_CHANGING: Final = (
    "previous_state",
    "last_state",
    "old_state",
    "previous_status",
    "output",
    "duration",
    "alertDetails",
)
_PASSING: Final = frozenset(
    {*_TEXTS, *_STATES, *_STARTS, *_ENDS, *_TIMES, *_URLS, *_IDS, *_LOOKS, *_CHANGING}
)  # do not identify an alert
_MOST_SIGNATURES: Final = 10
_MOST_NOTES: Final = 10  # annotations that are looked through
_KINDS: Final = ("eventType", "event_type", "event")
_TESTS: Final = frozenset({"test", "ping", "testing"})
_TEST_NAMES: Final = frozenset({"test notification", "test message", "test alert", "test_alarm", "test subject"})
_TEST_SENTENCES: Final = (
    *("this is a test notification", "this is a test message", "this is a test alert", "this is the test message"),
    "this is a test of the notification",
)


def read(body: Object, post: Post, source: AlertSource) -> FoundAlerts:
    """Return what a sender says. Raises `Unreadable`."""
    if is_event(body):
        return of_event(body, post, source)
    listed = _listed(body)
    alerts = [body] if listed is None else as_objects(listed)
    sender_id = shown(_first(body, _IDS), NAME_LENGTH)
    if listed is None and _is_test(body, words_of(source)):
        return FoundAlerts(sender_id=sender_id, remark="the sender tests its connection")
    if listed is None and not _is_alert(body):
        raise Unreadable(f"it has no alerts: write a list of them, or one of {', '.join((*_NAMES, *_TEXTS))}")
    if listed and not alerts:
        raise Unreadable("its list of alerts holds no objects: write each as one, with a name or a text")
    return FoundAlerts(
        alerts=tuple(_alert(each, post, source) for each in alerts[:MOST_ALERTS]),
        group_key=shown(body.get("group_key") if listed is not None else None),
        left_out=len(alerts if listed is None else listed) - len(alerts[:MOST_ALERTS]),
        sender_id=sender_id,
    )


def _listed(body: Object) -> list[object] | None:
    """Return a body's list of alerts; ``None``: the body is one itself, whatever lists it has beside its text."""
    for name in _LISTS:
        found = body.get(name)
        if not isinstance(found, list):
            continue
        if any(map(_is_alert, as_objects(found))):
            return [each for each in found if name in _OWN_LISTS or (isinstance(each, dict) and _is_alert(each))]
        if name in _OWN_LISTS and not _is_alert(body):
            return found
    return None


def _is_alert(each: Object) -> bool:
    """Return whether an object has anything by which an alert is known."""
    return any(each.get(name) for name in (*_NAMES, *_TEXTS, "labels"))


def _is_test(body: Object, words: Words) -> bool:
    """Return whether a sender's test button has sent a body; what says a state may be called so, and is none."""
    says_no_state = _status(body, _states(body, words), words) is None
    if says_no_state and any(casefold_key(as_text(body.get(name))[:NAME_LENGTH]) in _TESTS for name in _KINDS):
        return True
    texts = [casefold_key(as_text(body.get(name))[:NAME_LENGTH]) for name in (*_NAMES, *_TEXTS)]
    return any(text.rstrip(".!") in _TEST_NAMES or text.startswith(_TEST_SENTENCES) for text in texts)


def _alert(each: Object, post: Post, source: AlertSource) -> Alert:
    words = words_of(source)
    given = {**as_object(each.get("tags")), **as_object(each.get("labels"))}
    plain = {key: value for key, value in each.items() if isinstance(value, str | int | float)}
    states = _states(each, words)
    status = _status(each, states, words)
    state = status or _by_texts(each, given, post, words)
    stateless = _stateless(each, words)
    named = each if status is not None else stateless
    kept = {key: value for key, value in plain.items() if key not in _PASSING and key not in states}
    name = shown(_first({**named, **given}, _NAMES) or _first(each, _NAMES), NAME_LENGTH).strip()
    texts = {key: each[key] for key in _TEXTS if each.get(key)}
    at = time_of(_first(each, _TIMES), post.received_at)
    ends_at = time_of(_first(each, _ENDS), post.received_at)
    about = subject_of(source, {**plain, **given}, name)
    return Alert(
        fingerprint=_fingerprint(stateless, given, source, states),
        state=state,
        name=name or shown(_first(named, _TEXTS), NAME_LENGTH).strip() or "alert",
        service=about.service,
        service_by=about.by,
        severity=severity_of(source, {**plain, **given}),
        labels=labels_of({**kept, **given}, ("alertname", *key_labels(source, {**kept, **given}))),
        annotations=labels_of({**texts, **as_object(each.get("annotations"))}, ("summary", "description")),
        starts_at=time_of(_first(each, _STARTS), post.received_at),
        ends_at=(ends_at or at) if state is ReportedState.RESOLVED else None,
        reported_at=at,
        url=url_of(_first(each, _URLS)),
    )


def _stateless(each: Object, words: Words) -> Object:
    """Return an alert whose names and texts say no state: the same while it fires and when it is over."""
    texts = {name: text for name in (*_NAMES, *_TEXTS) if isinstance(text := each.get(name), str)}
    return {**each, **{name: _subject(text, words) for name, text in texts.items()}}


def _subject(text: str, words: Words) -> str:
    found = _KUMA.search(text[:MOST_LOOKED_AT])
    return without_state(text, words) if found is None else str(found[1]).strip()


def _states(each: Object, words: Words) -> frozenset[str]:
    """Return the fields that hold a state: the usual ones, and those that hold a word of the operator's."""
    own = (name for name, value in each.items() if isinstance(value, str) and casefold_key(value[:100]) in words.own)
    others = (name for name in _OTHER_STATES if status_of(each.get(name), words) is not None)
    return frozenset((*_STATES, *own, *others))


def _status(each: Object, states: Iterable[str], words: Words) -> ReportedState | None:
    """Return what the fields of a state say; one that says it fires, goes before one that says it is over."""
    found = {status_of(each.get(name), words) for name in states}
    if ReportedState.FIRING in found:
        return ReportedState.FIRING
    return ReportedState.RESOLVED if ReportedState.RESOLVED in found else None


def _by_texts(each: Object, given: Object, post: Post, words: Words) -> ReportedState:
    """Return what the texts of an alert without a status say, else its times; what says nothing fires."""
    texts = [as_text({**each, **given}.get(name)) for name in (*_NAMES, *_TEXTS)]
    notes = [as_text(value) for value in as_object(each.get("annotations")).values()]
    state = state_in([*texts, *notes[:_MOST_NOTES]], words)
    if state is None and is_past(_first(each, _OVER_SINCE), post.received_at):
        return ReportedState.RESOLVED
    return state or ReportedState.FIRING


def _fingerprint(each: Object, given: Object, source: AlertSource, states: frozenset[str]) -> str:
    """Return what identifies an alert: the fields that the operator named, the sender's own, else its labels.

    Without labels, all other texts identify it; numbers are measurements. A severity that changes makes no other alert.
    What has nothing but a sentence is known by that, without what is measured in it.
    """
    if source.fingerprint:
        return digest([[name, as_text(given.get(name, each.get(name)))] for name in source.fingerprint])
    passing = _PASSING | states
    texts = {name: value for name, value in each.items() if isinstance(value, str) and name not in passing}
    names = {name: as_text(each[name]) for name in _NAMES if isinstance(each.get(name), str)}
    identity = {**(names if given else texts), **{name: as_text(value) for name, value in given.items()}}
    plain = {name: value for name, value in identity.items() if name not in source.severity_label}
    if not any(plain.values()):
        plain = {"text": _MEASURE.sub(" ", as_text(_first(each, _TEXTS)))}
    return fingerprint_of(each.get("fingerprint") or each.get("dedup_key"), plain)


def _first(each: Object, names: Iterable[str]) -> object:
    return next((each[name] for name in names if each.get(name) not in (None, "")), None)


def claimed(headers: Mapping[str, str], *, source: AlertSource, now: datetime) -> Claim | None:
    """Return our own signature, of now: ``t=<seconds>,v1=<hex>``, HMAC-SHA256 of ``t.body``.

    Several ``v1=`` may stand there while secrets are exchanged. ``headers`` by lower-case names.
    """
    header = headers.get((source.signature_header or SIGNATURE_HEADER).lower(), "")
    pairs = [part.strip().partition("=") for part in header.split(",")[: _MOST_SIGNATURES + 1]]
    stamps = [value for key, _, value in pairs if key == "t"]
    if len(stamps) != 1 or not is_recent(stamps[0], now):
        return None
    return claim(stamps[0].encode() + b".", [value for key, _, value in pairs if key == "v1"])
