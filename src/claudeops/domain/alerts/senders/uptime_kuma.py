"""Uptime Kuma's webhook: a heartbeat of one monitor, posted exactly once.

Its monitor holds passwords and tokens of what it watches (``basic_auth_pass``, ``pushToken``, …): of all its fields
only those that are named here become labels. A test message has no heartbeat. A heartbeat that is not ``important``
repeats what was said before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from claudeops.domain.alerts.model import Alert, Said
from claudeops.domain.alerts.rules import Source
from claudeops.domain.alerts.senders.common import (
    Found,
    Object,
    Post,
    Unreadable,
    as_object,
    as_objects,
    as_text,
    fingerprint_of,
    json_object,
    labels_of,
    service_of,
    severity_of,
    shown,
    time_of,
)
from claudeops.domain.text import NAME_LENGTH

_DOWN, _UP, _PENDING, _MAINTENANCE = range(4)
_SAID: Final[Mapping[int, Said]] = {_DOWN: Said.FIRING, _UP: Said.RESOLVED}
_WORDS: Final = {_PENDING: "pending", _MAINTENANCE: "in maintenance"}
_LABELS: Final = ("type", "hostname", "port", "url")
_NOWHERE: Final = frozenset({"", "https://", "http://", "null"})  # what its form holds where there is no address
_FORM: Final = b'name="data"'
_END: Final = b"\r\n--"


def read(post: Post, source: Source) -> Found:
    """Return what Uptime Kuma says. Raises `Unreadable`."""
    body = json_object(content(post.body))
    beat, monitor = as_object(body.get("heartbeat")), as_object(body.get("monitor"))
    text = shown(body.get("msg"))
    if not beat:
        if not text:
            raise Unreadable("it has neither a heartbeat nor a message")
        return Found(remark=f"Uptime Kuma says: {text}")  # a test, or a certificate that is about to expire
    status = beat.get("status")
    said = _SAID.get(status) if isinstance(status, int) and not isinstance(status, bool) else None
    if said is None:
        word = _WORDS.get(status, "") if isinstance(status, int) else ""
        if not word:
            raise Unreadable(f"its heartbeat has the unknown status {shown(status, 40)!r}")
        return Found(remark=f"the monitor {shown(monitor.get('name'), NAME_LENGTH)} is {word}")
    return Found(alerts=(_alert(body, said, post, source),))


def _alert(body: Object, said: Said, post: Post, source: Source) -> Alert:
    beat, monitor = as_object(body.get("heartbeat")), as_object(body.get("monitor"))
    name = shown(monitor.get("name"), NAME_LENGTH).strip()
    tags = {as_text(tag.get("name")): tag.get("value") for tag in as_objects(monitor.get("tags"))}
    plain = {key: monitor.get(key) for key in _LABELS if as_text(monitor.get(key)) not in _NOWHERE}
    labels: dict[str, object] = {**tags, **plain, "monitor": name, "path": monitor.get("pathName")}
    kept = {key: value for key, value in labels.items() if key and value not in (None, "")}
    at = time_of(beat.get("time"), post.received_at)
    identity = monitor.get("id") if monitor.get("id") is not None else beat.get("monitorID")
    is_change = beat.get("important") in (True, 1)
    return Alert(
        fingerprint=fingerprint_of(identity, [name, monitor.get("url")]),
        said=said,
        name=name or "monitor",
        service=service_of(source, kept, name),
        severity=severity_of(source, kept),
        labels=labels_of(kept, ("monitor", *source.service_label, *source.severity_label)),
        annotations=labels_of({"summary": body.get("msg"), "detail": beat.get("msg")}),
        starts_at=at if is_change and said is Said.FIRING else None,
        ends_at=at if said is Said.RESOLVED else None,
        said_at=at,
    )


def content(body: bytes) -> bytes:
    """Return the JSON of a body, which may be sent as the field ``data`` of a form."""
    if body.startswith(b"--") and _FORM in body:
        return body.partition(_FORM)[2].partition(b"\r\n\r\n")[2].rpartition(_END)[0].partition(_END)[0]
    if body.startswith(b"data="):
        values = parse_qs(body.decode(errors="replace"), max_num_fields=10).get("data", [""])
        return values[0].encode(errors="replace")
    return body
