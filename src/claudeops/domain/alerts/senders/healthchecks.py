"""healthchecks' webhook, whose body and address its user writes; and its own JSON of a check.

What it sends is a template of the operator's. These are understood, in the body as JSON or in the query of the address
(then the method may be GET): ``uuid`` or ``code`` (``$CODE``), ``status`` (``$STATUS``), ``name`` (``$NAME``), ``tags``
(``$TAGS``), ``now`` (``$NOW``), and ``$JSON`` as the whole body or under ``check``. Its own JSON names the check in its
addresses where it has no ``uuid``.
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
    as_text,
    fingerprint_of,
    json_object,
    labels_of,
    service_of,
    severity_of,
    shown,
    time_of,
)
from claudeops.domain.text import NAME_LENGTH, regex

_STATUSES: Final[Mapping[str, Said]] = {"down": Said.FIRING, "up": Said.RESOLVED}
_ADDRESSES: Final = ("ping_url", "update_url", "pause_url", "resume_url")
_UUID: Final = regex.Pattern(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LABELS: Final = ("slug", "tags", "desc", "schedule", "tz", "timeout", "grace", "last_ping", "exitstatus")
_MOST_TAGS: Final = 20
_MOST_FIELDS: Final = 50


def read(post: Post, source: Source) -> Found:
    """Return what healthchecks says. Raises `Unreadable`."""
    said = _body(post)
    check = {**as_object(said.get("check")), **{key: value for key, value in said.items() if key != "check"}}
    status = as_text(check.get("status")).strip().lower()
    identity = _identity(check)
    if not identity:
        raise Unreadable("it names no check: put $CODE as 'uuid' into the body or the address")
    if status not in _STATUSES:
        if not status:
            raise Unreadable("it says no status: put $STATUS as 'status' into the body or the address")
        return Found(remark=f"the check {identity} is {shown(status, 40)}")
    return Found(alerts=(_alert(check, identity, _STATUSES[status], post, source),))


def _body(post: Post) -> Object:
    """Return what was said: the body's JSON or form, else the address's query."""
    if not post.body.strip():
        if not post.query:
            raise Unreadable("it is empty, and so is the address's query")
        return dict(post.query)
    try:
        return {**post.query, **json_object(post.body)}
    except Unreadable:
        fields = _form(post.body)
        if "status" not in fields and not {"status", "uuid"} <= set(post.query):
            raise
        return {**post.query, **fields}


def _form(body: bytes) -> dict[str, str]:
    try:
        return {key: values[0] for key, values in parse_qs(body.decode(), max_num_fields=_MOST_FIELDS).items()}
    except ValueError:
        return {}


def _identity(check: Object) -> str:
    for key in ("uuid", "code", "unique_key"):
        if text := as_text(check.get(key)).strip():
            return fingerprint_of(text, text)
    for key in _ADDRESSES:
        if found := _UUID.search(as_text(check.get(key))):
            return str(found[0]).lower()
    return ""


def _alert(check: Object, identity: str, said: Said, post: Post, source: Source) -> Alert:
    name = shown(check.get("name"), NAME_LENGTH).strip()
    tags = as_text(check.get("tags")).split()[:_MOST_TAGS]
    marked = dict(tag.split("=", 1) for tag in tags if "=" in tag)  # a tag ``service=shop`` is a label
    plain = {key: check.get(key) for key in _LABELS if check.get(key) not in (None, "")}
    labels: dict[str, object] = {**plain, **marked, "check": name or identity}
    at = time_of(check.get("now"), post.received_at)
    return Alert(
        fingerprint=identity,
        said=said,
        name=name or identity,
        service=service_of(source, labels, name, check.get("slug"), identity),
        severity=severity_of(source, labels),
        labels=labels_of(labels, ("check", *source.service_label, *source.severity_label)),
        annotations=labels_of({key: check[key] for key in ("summary", "message", "body") if key in check}),
        starts_at=at if said is Said.FIRING else None,
        ends_at=at if said is Said.RESOLVED else None,
        said_at=at,
    )
