"""Senders: what each kind of monitoring system says, read from the bytes that it sends.

`read` never raises: what cannot be read is a value, because a refused body would be lost (Alertmanager repeats after
5xx only, Uptime Kuma never). `is_signed` compares in constant time. The daemon's own probes are a sender
too (`of_probe`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import PROBES, Alert, ReportedState, SenderBody, Unparsed
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.domain.events import EventLevel
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.probes.state_machine import ProbeChange, ProbeChangeKind
from claudeops.formats.senders import alertmanager, generic, grafana, healthchecks, pagerduty, uptime_kuma
from claudeops.formats.senders.bodies import content, text_of, value_of
from claudeops.formats.senders.common import (
    MOST_ALERTS,
    Claim,
    FoundAlerts,
    Object,
    Post,
    Unreadable,
    delivery_key,
    shown,
)
from claudeops.text import NAME_LENGTH, casefold_key

_READERS: Final[Mapping[SenderKind, Callable[[Object, Post, AlertSource], FoundAlerts]]] = {
    SenderKind.ALERTMANAGER: alertmanager.read,
    SenderKind.GRAFANA: grafana.read,
    SenderKind.PAGERDUTY: pagerduty.read,
    SenderKind.UPTIME_KUMA: uptime_kuma.read,
    SenderKind.HEALTHCHECKS: healthchecks.read,
    SenderKind.GENERIC: generic.read,
}


def read(
    source: AlertSource, body: bytes, *, received_at: datetime, query: Mapping[str, str] | None = None
) -> SenderBody | Unparsed:
    """Return what a source says with a body; ``query`` of the address counts for healthchecks alone."""
    whole = body
    if not body and query:
        whole = repr(sorted(query.items())).encode(errors="replace")
    try:
        whole = text_of(whole)
        found = _found(source, whole if body else b"", Post(received_at=received_at, query=query or {}))
    except Unreadable as error:
        return _unparsed(source, whole, str(error))
    except Exception as error:  # noqa: BLE001 - see above: what we fail to read is kept as well
        return _unparsed(source, whole, f"our own code failed: {type(error).__name__}")
    return SenderBody(
        source=source.name,
        key=delivery_key(source.name, whole, found.sender_id),
        alerts=found.alerts,
        group_key=found.group_key,
        left_out=found.left_out,
        remark=found.remark,
    )


def _unparsed(source: AlertSource, whole: bytes, why: str) -> Unparsed:
    return Unparsed(source=source.name, key=delivery_key(source.name, whole, ""), why=shown(why, _MOST_WHY))


def _found(source: AlertSource, text: bytes, post: Post) -> FoundAlerts:
    """Return what is found in a body's text. Raises `Unreadable`."""
    if source.kind is SenderKind.HEALTHCHECKS and post.query:
        return _of_object(_beside(post.query, text), post, source)
    value = value_of(text)
    return _together(value, post, source) if isinstance(value, list) else _of_object(value, post, source)


def _of_object(value: object, post: Post, source: AlertSource) -> FoundAlerts:
    if not isinstance(value, dict):
        raise Unreadable("it is JSON, but neither an object nor a list of them")
    return _READERS[source.kind](value, post, source)


def _beside(query: Mapping[str, str], text: bytes) -> Object:
    """Return what a body says beside an address; where that says all there is to know, a body may be any text."""
    if not text.strip():
        return {}
    try:
        value = value_of(text)
    except Unreadable:
        if not {"status", "uuid"} <= set(query):
            raise
        return {}
    return value if isinstance(value, dict) else {}


def _together(values: Sequence[object], post: Post, source: AlertSource) -> FoundAlerts:
    """Return what the entries of a list say, each of them a body, or an alert of one. Raises `Unreadable`."""
    found, faults = [], []
    for number, value in enumerate(values[:MOST_ALERTS], 1):
        try:
            found.append(_of_object(value, post, source))
        except Unreadable as error:
            faults.append(f"entry {number} of the list: {error}")
    if not found:
        raise Unreadable(faults[0] if faults else "it is an empty list")
    alerts = [alert for each in found for alert in each.alerts]
    remarks = [*(f"{len(faults)} of {len(values)} entries cannot be read; {fault}" for fault in faults[:1])]
    left_out = sum(each.left_out for each in found) + max(0, len(alerts) - MOST_ALERTS)
    return FoundAlerts(
        alerts=tuple(alerts[:MOST_ALERTS]),
        left_out=left_out + len(faults) + max(0, len(values) - MOST_ALERTS),
        remark="; ".join([*remarks, *(each.remark for each in found[:1] if each.remark)]),
    )


def is_signed(
    source: AlertSource, body: bytes, headers: Mapping[str, str], secrets: Sequence[str], *, now: datetime
) -> bool:
    """Return whether a source has signed a body with one of its secrets; a kind that signs nothing never has.

    ``headers`` by lower-case names; ``secrets``: the values of `AlertSource.secret_env`.
    """
    presented = _claimed(source, headers, now)
    return presented is not None and presented.is_of(body, [secret.encode() for secret in secrets])


def may_be_signed(source: AlertSource, headers: Mapping[str, str], *, now: datetime) -> bool:
    """Return whether `is_signed` may hold for some body, by all that is known before it has come."""
    return _claimed(source, headers, now) is not None


def _claimed(source: AlertSource, headers: Mapping[str, str], now: datetime) -> Claim | None:
    match source.kind:
        case SenderKind.GRAFANA:
            return grafana.claimed(headers, source=source, now=now)
        case SenderKind.PAGERDUTY:
            return pagerduty.claimed(headers)
        case SenderKind.GENERIC:
            return generic.claimed(headers, source=source, now=now)
        case _:
            return None


def storable(source: AlertSource, body: bytes) -> str:
    """Return a body as it may be kept: without what is secret by its name. Known secrets are the redactor's business.

    Uptime Kuma sends its whole monitor, with the passwords by which it looks.
    """
    is_kuma = source.kind is SenderKind.UPTIME_KUMA
    try:
        text = content(text_of(body))
    except Unreadable as error:
        return f"[{len(body)} bytes: {error}]"
    if not is_kuma and not _may_name_secrets(text):
        return text.decode(errors="replace")
    try:
        value = msgspec.json.decode(text)
        return msgspec.json.encode(_scrubbed(value)).decode()
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is kept
        return f"[{len(body)} bytes that are no JSON]" if is_kuma else text.decode(errors="replace")


def _may_name_secrets(body: bytes) -> bool:
    """Return whether a name in a body may be that of a secret; for most bodies this is the only look."""
    return b"\\u" in body or _has_secret(body.decode(errors="replace"))


def _scrubbed(value: object) -> object:
    if isinstance(value, list):
        return [_scrubbed(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _MASK if _is_secret(name) and item else _scrubbed(item) for name, item in value.items()}


def _is_secret(name: str) -> bool:
    return _is_known_secret(name) if len(name) <= _USUAL else _has_secret(name)


def _has_secret(name: str) -> bool:
    plain = casefold_key(name).replace("_", "").replace("-", "")
    return any(word in plain for word in _SECRET)


_USUAL: Final = 64  # characters of a name that a sender uses again and again
_is_known_secret: Final = lru_cache(maxsize=1024)(_has_secret)
_MOST_WHY: Final = 300  # characters of a reason
_MASK: Final = "[redacted]"
_SECRET: Final = (
    *("pass", "pwd", "secret", "token", "auth", "cookie", "credential", "apikey", "privatekey", "accesskey"),
    *(
        "connectionstring",
        "routingkey",
        "servicekey",
        "headers",
        "tlskey",
        "tlscert",
        "oauth",
        "grpcmetadata",
        "snmpcommunity",
    ),
)
"""What the names of secrets have in them, without signs between their words."""


def of_probe(change: ProbeChange) -> SenderBody | None:
    """Return what a probe's change says; None where nothing is known of the service any more."""
    if change.turn is ProbeChangeKind.BLIND:
        return None
    fires = change.turn is ProbeChangeKind.WORSE
    probe, service = shown(change.probe, NAME_LENGTH), shown(change.service, NAME_LENGTH)
    alert = Alert(
        fingerprint=change.probe,
        state=ReportedState.FIRING if fires else ReportedState.RESOLVED,
        name=probe,
        service=service,
        severity=EventLevel.CRITICAL if change.after in {ProbeState.DOWN, ProbeState.FLAPPING} else EventLevel.WARNING,
        labels={"probe": probe, "service": service, "state": change.after.value},
        annotations={"summary": shown(change.detail)},
        ends_at=None if fires else change.at,
        reported_at=change.at,
    )
    key = delivery_key(PROBES, b"", f"{change.probe} {change.after} {change.at.isoformat()}")
    return SenderBody(source=PROBES, key=key, alerts=(alert,))
