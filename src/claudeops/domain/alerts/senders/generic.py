"""Any other sender: a JSON object, or a list of alerts in one, with the usual names of fields; our own signature.

Read are ``alerts`` (or ``events``, ``items``), else the object itself as one alert; in it ``status`` or ``state``,
``name``/``title``/``alertname``, ``message``/``summary``/``description``, ``labels``/``tags``, ``starts_at`` and
``ends_at``, ``url``. All other plain fields are labels too. The body of Claude Ops' webhook is such an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from claudeops.domain.alerts.model import Alert, Said
from claudeops.domain.alerts.rules import Source
from claudeops.domain.alerts.senders.common import (
    MOST_ALERTS,
    Found,
    Object,
    Post,
    Unreadable,
    as_object,
    as_objects,
    as_text,
    digest,
    fingerprint_of,
    is_recent,
    json_object,
    labels_of,
    proves,
    said_of,
    service_of,
    severity_of,
    shown,
    time_of,
    url_of,
)
from claudeops.domain.text import NAME_LENGTH

SIGNATURE_HEADER: Final = "x-claudeops-signature"
_LISTS: Final = ("alerts", "events", "items")
_NAMES: Final = ("alertname", "name", "title", "check", "monitor", "event", "subject")
_TEXTS: Final = ("summary", "message", "description", "text", "body", "msg")
_STATES: Final = ("status", "state", "event_action", "action")
_STARTS: Final = ("starts_at", "startsAt", "started_at", "start", "since")
_ENDS: Final = ("ends_at", "endsAt", "ended_at", "resolved_at", "end")
_TIMES: Final = ("said_at", "timestamp", "time", "at", "occurred_at", "date")
_URLS: Final = ("url", "link", "html_url", "generatorURL")
_IDS: Final = ("delivery_id", "event_id", "request_id", "message_id")
_PASSING: Final = frozenset({*_TEXTS, *_STATES, *_STARTS, *_ENDS, *_TIMES, *_URLS, *_IDS})  # do not identify an alert
_MOST_SIGNATURES: Final = 10


def read(post: Post, source: Source) -> Found:
    """Return what a sender says. Raises `Unreadable`."""
    body = json_object(post.body)
    listed = next((as_objects(body[name]) for name in _LISTS if isinstance(body.get(name), list)), None)
    alerts = [body] if listed is None else listed
    if not body or (listed is None and not any(body.get(name) for name in (*_NAMES, *_TEXTS, "labels"))):
        raise Unreadable(f"it has no alerts: write a list of them, or one of {', '.join((*_NAMES, *_TEXTS))}")
    return Found(
        alerts=tuple(_alert(each, post, source) for each in alerts[:MOST_ALERTS]),
        group_key=shown(body.get("group_key") if listed is not None else None),
        left_out=max(0, len(alerts) - MOST_ALERTS),
        sender_id=shown(_first(body, _IDS), NAME_LENGTH),
    )


def _alert(each: Object, post: Post, source: Source) -> Alert:
    given = {**as_object(each.get("tags")), **as_object(each.get("labels"))}
    plain = {key: value for key, value in each.items() if isinstance(value, str | int | float)}
    labels: dict[str, object] = {**{key: value for key, value in plain.items() if key not in _PASSING}, **given}
    said = next((found for name in _STATES if (found := said_of(each.get(name)))), Said.FIRING)
    name = shown(_first({**each, **given}, _NAMES), NAME_LENGTH).strip()
    texts = {key: each[key] for key in _TEXTS if each.get(key)}
    at = time_of(_first(each, _TIMES), post.received_at)
    ends_at = time_of(_first(each, _ENDS), post.received_at)
    return Alert(
        fingerprint=_fingerprint(each, given, source),
        said=said,
        name=name or "alert",
        service=service_of(source, {**plain, **given}, name),
        severity=severity_of(source, {**plain, **given}),
        labels=labels_of(labels, ("alertname", *source.service_label, *source.severity_label)),
        annotations=labels_of({**texts, **as_object(each.get("annotations"))}, ("summary", "description")),
        starts_at=time_of(_first(each, _STARTS), post.received_at),
        ends_at=(ends_at or at) if said is Said.RESOLVED else None,
        said_at=at,
        url=url_of(_first(each, _URLS)),
    )


def _fingerprint(each: Object, given: Object, source: Source) -> str:
    """Return what identifies an alert: the fields that the operator named, the sender's own, else its labels.

    Without labels, all other texts identify it; numbers are measurements. A severity that changes makes no other alert.
    """
    if source.fingerprint:
        return digest([[name, as_text(given.get(name, each.get(name)))] for name in source.fingerprint])
    texts = {name: value for name, value in each.items() if isinstance(value, str) and name not in _PASSING}
    names = {name: as_text(each[name]) for name in _NAMES if isinstance(each.get(name), str)}
    identity = {**(names if given else texts), **{name: as_text(value) for name, value in given.items()}}
    plain = {name: value for name, value in identity.items() if name not in source.severity_label}
    return fingerprint_of(each.get("fingerprint") or each.get("dedup_key"), plain)


def _first(each: Object, names: Iterable[str]) -> object:
    return next((each[name] for name in names if each.get(name) not in (None, "")), None)


def is_signed(
    body: bytes, headers: Mapping[str, str], secrets: Iterable[bytes], *, source: Source, now: datetime
) -> bool:
    """Tell whether a body is signed with one of the secrets, now: ``t=<seconds>,v1=<hex>``, HMAC-SHA256 of ``t.body``.

    Several ``v1=`` may stand there while secrets are exchanged. ``headers`` by lower-case names.
    """
    header = headers.get((source.signature_header or SIGNATURE_HEADER).lower(), "")
    pairs = [part.strip().partition("=") for part in header.split(",")[: _MOST_SIGNATURES + 1]]
    stamps = [value for key, _, value in pairs if key == "t"]
    given = [value for key, _, value in pairs if key == "v1"]
    if len(stamps) != 1 or not is_recent(stamps[0], now):
        return False
    return proves(stamps[0].encode() + b"." + body, given, secrets)
