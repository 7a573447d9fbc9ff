"""PagerDuty's webhooks, version 3: one event about one incident of theirs; their signature.

An incident of PagerDuty is an alert here. Its status says whether it fires: triggered and acknowledged ones do. Events
about anything else (notes, responders, the ``pagey.ping`` of a test) are deliveries without an alert. Every event has
the time at which it occurred, which orders them however they arrive. An incident that was merged into another one ends
by that, and says so: the other one fires on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

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
    proves,
    service_of,
    severity_of,
    shown,
    time_of,
    url_of,
)
from claudeops.domain.text import NAME_LENGTH

SIGNATURE_HEADER: Final = "x-pagerduty-signature"
_VERSION: Final = "v1="
_MOST_SIGNATURES: Final = 10  # while secrets are exchanged there are two
_STATUSES: Final = {"triggered": Said.FIRING, "acknowledged": Said.FIRING, "resolved": Said.RESOLVED}
_BEGINS: Final = frozenset({"incident.triggered", "incident.reopened"})
_MOST_TITLE: Final = 500


def read(post: Post, source: Source) -> Found:
    """Return what PagerDuty says. Raises `Unreadable`."""
    event = as_object(json_object(post.body).get("event"))
    kind = shown(event.get("event_type"), NAME_LENGTH)
    if not kind:
        raise Unreadable("it has no event; webhooks before version 3 have another form")
    incident = as_object(event.get("data"))
    sender_id = shown(event.get("id"), NAME_LENGTH)
    said = _STATUSES.get(as_text(incident.get("status")))
    if as_text(incident.get("type")) != "incident" or said is None or not as_text(incident.get("id")):
        return Found(sender_id=sender_id, remark=f"PagerDuty's event {kind} is about no alert")
    return Found(alerts=(_alert(event, incident, said, post, source),), sender_id=sender_id)


def _alert(event: Object, incident: Object, said: Said, post: Post, source: Source) -> Alert:
    service = as_object(incident.get("service"))
    priority = as_object(incident.get("priority"))
    title = shown(incident.get("title"), _MOST_TITLE)
    at = time_of(event.get("occurred_at"), post.received_at)
    labels: dict[str, object] = {
        "alertname": title[:NAME_LENGTH],
        "service": service.get("summary"),
        "urgency": incident.get("urgency"),
        "priority": priority.get("summary"),
        "number": incident.get("number"),
        "incident_key": incident.get("incident_key"),
        "team": ", ".join(as_text(team.get("summary")) for team in as_objects(incident.get("teams"))),
        "event_type": event.get("event_type"),
    }
    kept = {name: value for name, value in labels.items() if value not in (None, "")}
    begins = as_text(event.get("event_type")) in _BEGINS
    return Alert(
        fingerprint=fingerprint_of(incident.get("id"), labels),
        said=said,
        name=title[:NAME_LENGTH] or "incident",
        service=service_of(source, kept, service.get("id")),
        severity=severity_of(source, kept, incident.get("urgency")),
        labels=labels_of(kept),
        annotations=labels_of({"summary": title, **_merged(incident)}),
        starts_at=at if begins else time_of(incident.get("created_at"), post.received_at),
        ends_at=at if said is Said.RESOLVED else None,
        said_at=at,
        url=url_of(incident.get("html_url")),
    )


def _merged(incident: Object) -> Object:
    reason = as_object(incident.get("resolve_reason"))
    into = as_object(reason.get("incident"))
    is_merged = as_text(reason.get("type")) == "merge_resolve_reason"
    return {"detail": f"merged into {shown(into.get('summary') or into.get('id'), NAME_LENGTH)}"} if is_merged else {}


def is_signed(body: bytes, headers: Mapping[str, str], secrets: Iterable[bytes]) -> bool:
    """Tell whether PagerDuty has signed a body with one of the secrets.

    The header lists one ``v1=`` signature for each secret that is in use there. ``headers`` by lower-case names.
    """
    parts = headers.get(SIGNATURE_HEADER, "").split(",")[:_MOST_SIGNATURES]
    given = [part.strip().removeprefix(_VERSION) for part in parts if part.strip().startswith(_VERSION)]
    return proves(body, given, secrets)
