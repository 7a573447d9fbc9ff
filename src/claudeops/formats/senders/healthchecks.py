"""healthchecks' webhook, whose body and address its user writes; and its own JSON of a check.

What it sends is a template of the operator's. These are understood, in the body as JSON or in the query of the address
(then the method may be GET): ``uuid`` or ``code`` (``$CODE``), ``status`` (``$STATUS``), ``name`` (``$NAME``), ``tags``
(``$TAGS``), ``now`` (``$NOW``), and ``$JSON`` as the whole body or under ``check``. Its own JSON names the check in its
addresses where it has no ``uuid``; a body with a name alone is identified by that.
"""

from __future__ import annotations

from typing import Final

from claudeops.domain.alerts.alert import Alert, ReportedState
from claudeops.domain.alerts.rules import AlertSource
from claudeops.formats.senders.common import (
    FoundAlerts,
    Object,
    Post,
    Unreadable,
    as_object,
    as_text,
    fingerprint_of,
    key_labels,
    labels_of,
    severity_of,
    shown,
    subject_of,
    time_of,
)
from claudeops.formats.senders.words import state_in, status_of, words_of
from claudeops.text import NAME_LENGTH, regex

_ADDRESSES: Final = ("ping_url", "update_url", "pause_url", "resume_url")
_UUID: Final = regex.Pattern(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LABELS: Final = ("slug", "tags", "desc", "schedule", "tz", "timeout", "grace", "last_ping", "exitstatus")
_MOST_TAGS: Final = 20
_TEXTS: Final = ("title", "summary", "message", "text", "body", "msg")
_TEST: Final = "TEST"  # the name of the check that its test button makes up


def read(body: Object, post: Post, source: AlertSource) -> FoundAlerts:
    """Return what healthchecks says, in the body or the address's query. Raises `Unreadable`."""
    given = {**post.query, **body}
    check = {**as_object(given.get("check")), **{key: value for key, value in given.items() if key != "check"}}
    status = as_text(check.get("status")).strip()
    identity = _identity(check)
    if not identity:
        raise Unreadable("it names no check: put $CODE as 'uuid' into the body or the address")
    words = words_of(source)
    state = status_of(status, words) if status else state_in([as_text(check.get(name)) for name in _TEXTS], words)
    if state is None:
        if not status:
            raise Unreadable("it says no status: put $STATUS as 'status' into the body or the address")
        return FoundAlerts(remark=f"the check {shown(identity, NAME_LENGTH)} is {shown(status, 40)}")
    if check.get("name") == _TEST and not check.get("tags"):
        return FoundAlerts(remark="healthchecks tests its integration")
    return FoundAlerts(alerts=(_alert(check, identity, state, post, source),))


def _identity(check: Object) -> str:
    for key in ("uuid", "code", "unique_key"):
        if text := as_text(check.get(key)).strip():
            return fingerprint_of(text, text)
    for key in _ADDRESSES:
        if found := _UUID.search(as_text(check.get(key))):
            return str(found[0]).lower()
    name = as_text(check.get("name")).strip()
    return fingerprint_of(name, name) if name else ""


def _alert(check: Object, identity: str, state: ReportedState, post: Post, source: AlertSource) -> Alert:
    name = shown(check.get("name"), NAME_LENGTH).strip()
    tags = as_text(check.get("tags")).split()[:_MOST_TAGS]
    marked = dict(tag.split("=", 1) for tag in tags if "=" in tag)  # a tag ``service=shop`` is a label
    plain = {key: check.get(key) for key in _LABELS if check.get(key) not in (None, "")}
    labels: dict[str, object] = {**plain, **marked, "check": name or identity}
    at = time_of(check.get("now"), post.received_at)
    about = subject_of(source, labels, name, check.get("slug"), identity)
    return Alert(
        fingerprint=identity,
        state=state,
        name=name or identity,
        service=about.service,
        service_by=about.by,
        severity=severity_of(source, labels),
        labels=labels_of(labels, ("check", *key_labels(source, labels))),
        annotations=labels_of({key: check[key] for key in _TEXTS if check.get(key)}, ("summary", "message")),
        starts_at=at if state is ReportedState.FIRING else None,
        ends_at=at if state is ReportedState.RESOLVED else None,
        reported_at=at,
    )
