"""Alertmanager's webhook, version 4; Grafana's alerting sends a superset of it.

Resolves may be missing (a flap within ``group_interval`` is never sent) and repeated by other nodes of a cluster, so
nothing here draws a conclusion: each alert is what the body says of it. The end of one that fires is year 1.
"""

from __future__ import annotations

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
    fingerprint_of,
    json_object,
    labels_of,
    said_of,
    service_of,
    severity_of,
    shown,
    time_of,
    url_of,
)
from claudeops.domain.text import NAME_LENGTH

_GROUP_KEY: int = 1000  # characters


def read(post: Post, source: Source) -> Found:
    """Return what Alertmanager says. Raises `Unreadable`."""
    body = json_object(post.body)
    if not isinstance(body.get("alerts"), list):
        raise Unreadable("it has no list of alerts")
    return found(body, post, source)


def found(body: Object, post: Post, source: Source) -> Found:
    """Return the alerts of a body of this form."""
    listed = as_objects(body.get("alerts"))
    left_out = body.get("truncatedAlerts")
    truncated = left_out if isinstance(left_out, int) and left_out > 0 else 0
    alerts = tuple(alert(each, body, post, source) for each in listed[:MOST_ALERTS])
    return Found(
        alerts=alerts,
        group_key=shown(body.get("groupKey"), _GROUP_KEY),
        left_out=min(truncated, 1_000_000) + max(0, len(listed) - MOST_ALERTS),
    )


def alert(each: Object, body: Object, post: Post, source: Source) -> Alert:
    """Return one alert of a body."""
    labels = as_object(each.get("labels"))
    said = said_of(each.get("status")) or said_of(body.get("status")) or Said.FIRING
    starts_at = time_of(each.get("startsAt"), post.received_at)
    ends_at = time_of(each.get("endsAt"), post.received_at)
    name = shown(labels.get("alertname"), NAME_LENGTH)
    return Alert(
        fingerprint=fingerprint_of(each.get("fingerprint"), labels),
        said=said,
        name=name or "alert",
        service=service_of(source, labels, labels.get("instance"), name),
        severity=severity_of(source, labels),
        labels=labels_of(labels, ("alertname", *source.service_label, *source.severity_label, "instance")),
        annotations=labels_of(as_object(each.get("annotations")), ("summary", "description", "message")),
        starts_at=starts_at,
        ends_at=ends_at if said is Said.RESOLVED else None,
        url=url_of(as_text(each.get("generatorURL"))),
    )
