"""PagerDuty's webhooks, version 3: one event about one incident of theirs; their signature. And its older forms.

Version 2 sends a list of messages, each with an event and an incident; what others send to PagerDuty's Events API
(``event_action``, ``dedup_key``, ``payload``) is read as well, because many senders know no other form.

An incident of PagerDuty is an alert here. Its status says whether it fires: triggered and acknowledged ones do. Events
about anything else (notes, responders, the ``pagey.ping`` of a test) are deliveries without an alert. Every event has
the time at which it occurred, which orders them however they arrive. An incident that was merged into another one ends
by that, and says so: the other one fires on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    fingerprint_of,
    key_labels,
    labels_of,
    severity_of,
    shown,
    subject_of,
    time_of,
    url_of,
)
from claudeops.text import NAME_LENGTH

SIGNATURE_HEADER: Final = "x-pagerduty-signature"
_VERSION: Final = "v1="
_MOST_SIGNATURES: Final = 10  # while secrets are exchanged there are two
_STATUSES: Final = {
    "triggered": ReportedState.FIRING,
    "acknowledged": ReportedState.FIRING,
    "resolved": ReportedState.RESOLVED,
}
_ACTIONS: Final = {
    "trigger": ReportedState.FIRING,
    "acknowledge": ReportedState.FIRING,
    "resolve": ReportedState.RESOLVED,
}
_BEGINS: Final = frozenset({"incident.triggered", "incident.reopened", "incident.trigger"})
_MOST_TITLE: Final = 500
_SUMMARIES: Final = ("subject", "description")


def read(body: Object, post: Post, source: AlertSource) -> FoundAlerts:
    """Return what PagerDuty says. Raises `Unreadable`."""
    if messages := as_objects(body.get("messages")):
        return _of_messages(messages, post, source)
    if is_event(body):
        return of_event(body, post, source)
    event = as_object(body.get("event"))
    kind = shown(event.get("event_type"), NAME_LENGTH)
    if not kind:
        raise Unreadable("it has no event: send webhooks of version 3")
    incident = as_object(event.get("data"))
    sender_id = shown(event.get("id"), NAME_LENGTH)
    state = _STATUSES.get(as_text(incident.get("status")))
    if as_text(incident.get("type")) != "incident" or state is None or not as_text(incident.get("id")):
        return FoundAlerts(sender_id=sender_id, remark=f"PagerDuty's event {kind} is about no alert")
    return FoundAlerts(alerts=(_alert(event, incident, state, post, source),), sender_id=sender_id)


def _of_messages(messages: Sequence[Object], post: Post, source: AlertSource) -> FoundAlerts:
    """Return what the messages of version 2 say; version 1 has its incident one step deeper, with other names."""
    alerts, others = [], []
    for message in messages[:MOST_ALERTS]:
        kind = shown(message.get("event") or message.get("type"), NAME_LENGTH)
        incident = as_object(message.get("incident")) or as_object(as_object(message.get("data")).get("incident"))
        state = _STATUSES.get(as_text(incident.get("status")))
        if state is None or not as_text(incident.get("id")):
            others.append(kind)
            continue
        summary = as_object(incident.get("trigger_summary_data"))
        titles = (incident.get("title"), incident.get("description"), *(summary.get(each) for each in _SUMMARIES))
        service = as_object(incident.get("service"))
        data: dict[str, object] = {
            **incident,
            "title": next((title for title in titles if title), None),
            "number": incident.get("incident_number"),
            "service": {**service, "summary": service.get("summary") or service.get("name")},
        }
        event = {"event_type": kind, "occurred_at": message.get("created_on")}
        alerts.append(_alert(event, data, state, post, source))
    only = shown(messages[0].get("id"), NAME_LENGTH) if len(messages) == 1 else ""
    remark = f"PagerDuty's event {others[0]} is about no alert" if others and not alerts else ""
    left_out = max(0, len(messages) - MOST_ALERTS)
    return FoundAlerts(alerts=tuple(alerts), sender_id=only, remark=remark, left_out=left_out)


def is_event(body: Object) -> bool:
    """Return whether a body is one of the Events API."""
    named = body.get("dedup_key") or body.get("routing_key") or isinstance(body.get("payload"), dict)
    return as_text(body.get("event_action")) in _ACTIONS and bool(named)


def of_event(body: Object, post: Post, source: AlertSource) -> FoundAlerts:
    """Return what an event of the Events API says; its end may have nothing but the key."""
    payload = as_object(body.get("payload"))
    state = _ACTIONS[as_text(body.get("event_action"))]
    title = shown(payload.get("summary"), _MOST_TITLE)
    at = time_of(payload.get("timestamp"), post.received_at)
    plain = {name: payload.get(name) for name in ("severity", "source", "component", "group", "class")}
    labels: dict[str, object] = {**as_object(payload.get("custom_details")), **plain, "alertname": title[:NAME_LENGTH]}
    kept = {name: value for name, value in labels.items() if value not in (None, "")}
    about = subject_of(source, kept, payload.get("component"), payload.get("source"))
    identity = [title, *(as_text(payload.get(name)) for name in ("source", "component", "group", "class"))]
    alert = Alert(
        fingerprint=fingerprint_of(body.get("dedup_key"), identity),
        state=state,
        name=title[:NAME_LENGTH] or shown(body.get("dedup_key"), NAME_LENGTH) or "event",
        service=about.service,
        service_by=about.by,
        severity=severity_of(source, kept),
        labels=labels_of(kept, ("alertname", *key_labels(source, kept))),
        annotations=labels_of({"summary": title} if title else {}),
        starts_at=at if state is ReportedState.FIRING else None,
        ends_at=at if state is ReportedState.RESOLVED else None,
        url=url_of(body.get("client_url")),
    )
    return FoundAlerts(alerts=(alert,))


def _alert(event: Object, incident: Object, state: ReportedState, post: Post, source: AlertSource) -> Alert:
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
    about = subject_of(source, kept, service.get("id"))
    return Alert(
        fingerprint=fingerprint_of(incident.get("id"), labels),
        state=state,
        name=title[:NAME_LENGTH] or "incident",
        service=about.service,
        service_by=about.by,
        severity=severity_of(source, kept, incident.get("urgency")),
        labels=labels_of(kept),
        annotations=labels_of({"summary": title, **_merged(incident)}),
        starts_at=at if begins else time_of(incident.get("created_at"), post.received_at),
        ends_at=at if state is ReportedState.RESOLVED else None,
        reported_at=at,
        url=url_of(incident.get("html_url")),
    )


def _merged(incident: Object) -> Object:
    reason = as_object(incident.get("resolve_reason"))
    into = as_object(reason.get("incident"))
    is_merged = as_text(reason.get("type")) == "merge_resolve_reason"
    return {"detail": f"merged into {shown(into.get('summary') or into.get('id'), NAME_LENGTH)}"} if is_merged else {}


def claimed(headers: Mapping[str, str]) -> Claim | None:
    """Return PagerDuty's signatures of the body: one ``v1=`` for each secret in use there.

    ``headers`` by lower-case names.
    """
    parts = headers.get(SIGNATURE_HEADER, "").split(",")[:_MOST_SIGNATURES]
    return claim(b"", [part.strip().removeprefix(_VERSION) for part in parts if part.strip().startswith(_VERSION)])
