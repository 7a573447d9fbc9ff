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

from claudeops.domain.alerts.model import PROBES, Alert, Delivery, Said, Unparsed
from claudeops.domain.alerts.rules import SenderKind, Source
from claudeops.domain.alerts.senders import alertmanager, generic, grafana, healthchecks, pagerduty, uptime_kuma
from claudeops.domain.alerts.senders.common import MOST_BYTES, Found, Post, Unreadable, delivery_key, shown
from claudeops.domain.model import Level
from claudeops.domain.probe.machine import Change, Turn
from claudeops.domain.probe.model import State
from claudeops.domain.text import NAME_LENGTH, casefold_key

_READERS: Final[Mapping[SenderKind, Callable[[Post, Source], Found]]] = {
    SenderKind.ALERTMANAGER: alertmanager.read,
    SenderKind.GRAFANA: grafana.read,
    SenderKind.PAGERDUTY: pagerduty.read,
    SenderKind.UPTIME_KUMA: uptime_kuma.read,
    SenderKind.HEALTHCHECKS: healthchecks.read,
    SenderKind.GENERIC: generic.read,
}


def read(
    source: Source, body: bytes, *, received_at: datetime, query: Mapping[str, str] | None = None
) -> Delivery | Unparsed:
    """Return what a source says with a body; ``query`` of the address counts for healthchecks alone."""
    whole = body
    if not body and query:
        whole = repr(sorted(query.items())).encode(errors="replace")
    if len(body) > MOST_BYTES:
        why = f"it has {len(body)} bytes, and {MOST_BYTES} are read"
        return Unparsed(source=source.name, key=delivery_key(source.name, body, ""), why=why)
    try:
        found = _READERS[source.kind](Post(body=body, received_at=received_at, query=query or {}), source)
    except Unreadable as error:
        return Unparsed(source=source.name, key=delivery_key(source.name, whole, ""), why=str(error))
    return Delivery(
        source=source.name,
        key=delivery_key(source.name, whole, found.sender_id),
        alerts=found.alerts,
        group_key=found.group_key,
        left_out=found.left_out,
        remark=found.remark,
    )


def is_signed(
    source: Source, body: bytes, headers: Mapping[str, str], secrets: Sequence[str], *, now: datetime
) -> bool:
    """Tell whether a source has signed a body with one of its secrets; a kind that signs nothing never has.

    ``headers`` by lower-case names; ``secrets``: the values of `Source.secret_env`.
    """
    keys = [secret.encode() for secret in secrets]
    match source.kind:
        case SenderKind.GRAFANA:
            return grafana.is_signed(body, headers, keys, source=source, now=now)
        case SenderKind.PAGERDUTY:
            return pagerduty.is_signed(body, headers, keys)
        case SenderKind.GENERIC:
            return generic.is_signed(body, headers, keys, source=source, now=now)
        case _:
            return False


def storable(source: Source, body: bytes) -> str:
    """Return a body as it may be kept: without what is secret by its name. Known secrets are the redactor's business.

    Uptime Kuma sends its whole monitor, with the passwords by which it looks.
    """
    is_kuma = source.kind is SenderKind.UPTIME_KUMA
    if not is_kuma and not _may_name_secrets(body):
        return body.decode(errors="replace")
    raw = uptime_kuma.content(body) if is_kuma else body
    try:
        value = msgspec.json.decode(raw)
        return msgspec.json.encode(_scrubbed(value)).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return f"[{len(body)} bytes that are no JSON]" if is_kuma else body.decode(errors="replace")


def _may_name_secrets(body: bytes) -> bool:
    """Tell whether a name in a body may be that of a secret; for most bodies this is the only look."""
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
_MASK: Final = "[redacted]"
_SECRET: Final = (
    *("pass", "pwd", "secret", "token", "auth", "cookie", "credential", "apikey", "privatekey", "accesskey"),
    *("connectionstring", "headers", "tlskey", "tlscert", "oauth", "grpcmetadata", "snmpcommunity"),
)
"""What the names of secrets have in them, without signs between their words."""


def of_probe(change: Change) -> Delivery | None:
    """Return what a probe's change says; None where nothing is known of the service any more."""
    if change.turn is Turn.BLIND:
        return None
    fires = change.turn is Turn.WORSE
    probe, service = shown(change.probe, NAME_LENGTH), shown(change.service, NAME_LENGTH)
    alert = Alert(
        fingerprint=change.probe,
        said=Said.FIRING if fires else Said.RESOLVED,
        name=probe,
        service=service,
        severity=Level.CRITICAL if change.after in {State.DOWN, State.FLAPPING} else Level.WARNING,
        labels={"probe": probe, "service": service, "state": change.after.value},
        annotations={"summary": shown(change.detail)},
        ends_at=None if fires else change.at,
        said_at=change.at,
    )
    key = delivery_key(PROBES, b"", f"{change.probe} {change.after} {change.at.isoformat()}")
    return Delivery(source=PROBES, key=key, alerts=(alert,))
