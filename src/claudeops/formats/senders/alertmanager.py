"""Alertmanager's webhook, version 4; Grafana's alerting sends a superset of it. And what Prometheus sends by itself.

Prometheus sends a list of alerts that say no status: such a one is over when its end lies in the past.
Resolves may be missing (a flap within ``group_interval`` is never sent) and repeated by other nodes of a cluster, so
nothing here draws a conclusion: each alert is what the body says of it. The end of one that fires is year 1.

An alert of Grafana may mean that a rule itself could not be evaluated (``DatasourceNoData``, ``DatasourceError``, with
the rule's name in ``rulename``): its name then says both, and it is about what the rule is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from claudeops.domain.alerts.alert import Alert, ReportedState
from claudeops.domain.alerts.rules import AlertSource
from claudeops.formats.senders.common import (
    MOST_ALERTS,
    FoundAlerts,
    Object,
    Post,
    Unreadable,
    as_object,
    as_objects,
    as_text,
    fingerprint_of,
    is_past,
    key_labels,
    labels_of,
    severity_of,
    shown,
    subject_of,
    time_of,
    url_of,
)
from claudeops.formats.senders.words import status_of, words_of
from claudeops.text import NAME_LENGTH

_GROUP_KEY: int = 1000  # characters
_UNEVALUATED: Final = frozenset({"DatasourceNoData", "DatasourceError"})
_MOST_RULE: Final = 200  # characters of its name


def read(body: Object, post: Post, source: AlertSource) -> FoundAlerts:
    """Return what Alertmanager says, or one alert of a list. Raises `Unreadable`."""
    if isinstance(body.get("alerts"), list):
        return found(body, post, source)
    if isinstance(body.get("labels"), dict):
        return FoundAlerts(alerts=(alert(body, {}, post, source),))
    remedy = "take 'payload' out of its webhook_configs, or declare the source with kind = \"generic\""
    raise Unreadable(f"it has no list of alerts, which Alertmanager sends by itself: {remedy}")


def found(body: Object, post: Post, source: AlertSource) -> FoundAlerts:
    """Return the alerts of a body of this form. Raises `Unreadable`."""
    if body.get("alerts") and not as_objects(body.get("alerts")):
        raise Unreadable("its list of alerts holds no objects")
    listed = listed_in(body)
    left_out = body.get("truncatedAlerts")
    truncated = left_out if isinstance(left_out, int) and left_out > 0 else 0
    alerts = tuple(alert(each, body, post, source) for each in listed[:MOST_ALERTS])
    return FoundAlerts(
        alerts=alerts,
        group_key=shown(body.get("groupKey"), _GROUP_KEY),
        left_out=min(truncated, 1_000_000) + max(0, len(listed) - MOST_ALERTS),
        remark="" if listed or not body.get("alerts") else "Grafana tests its contact point",
    )


def listed_in(body: Object) -> Sequence[Object]:
    """Return the alerts of a body but those that the test button of Grafana makes up; a rule would have a folder."""
    return [each for each in as_objects(body.get("alerts")) if not _is_test(as_object(each.get("labels")))]


def _is_test(labels: Object) -> bool:
    is_named_so = labels.get("alertname") == "TestAlert" and labels.get("instance") in ("Grafana", None)
    return is_named_so and "grafana_folder" not in labels


def alert(each: Object, body: Object, post: Post, source: AlertSource) -> Alert:
    """Return one alert of a body."""
    labels = as_object(each.get("labels"))
    state = _state(each, body, post, source)
    starts_at = time_of(each.get("startsAt"), post.received_at)
    ends_at = time_of(each.get("endsAt"), post.received_at)
    name = shown(labels.get("alertname"), NAME_LENGTH)
    rule = shown(labels.get("rulename"), _MOST_RULE).strip() if name in _UNEVALUATED else ""
    about = subject_of(source, labels, rule or name, names_first=False)
    return Alert(
        fingerprint=fingerprint_of(each.get("fingerprint"), labels),
        state=state,
        name=f"{rule} ({name})" if rule else name or "alert",
        service=about.service,
        service_by=about.by,
        severity=severity_of(source, labels),
        labels=labels_of(labels, ("alertname", *key_labels(source, labels))),
        annotations=labels_of(as_object(each.get("annotations")), ("summary", "description", "message")),
        starts_at=starts_at,
        ends_at=ends_at if state is ReportedState.RESOLVED else None,
        url=url_of(as_text(each.get("generatorURL"))),
    )


def _state(each: Object, body: Object, post: Post, source: AlertSource) -> ReportedState:
    words, status = words_of(source), each.get("status")
    if isinstance(status, dict):  # as its API shows an alert
        status = status.get("state")
    if state := status_of(status, words):
        return state
    if is_past(each.get("endsAt"), post.received_at):
        return ReportedState.RESOLVED
    return status_of(body.get("status"), words) or ReportedState.FIRING
