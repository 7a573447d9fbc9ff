"""Grafana's alerting: Alertmanager's webhook with values, addresses and a state of its own; its signature.

Before version 9, and for as long as its *legacy alerting* was kept, a body was one rule and its state.

Grafana evaluates and groups like Alertmanager.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from claudeops.domain.alerts.alert import Alert
from claudeops.domain.alerts.rules import AlertSource
from claudeops.formats.senders import alertmanager
from claudeops.formats.senders.common import (
    Claim,
    FoundAlerts,
    Object,
    Post,
    Unreadable,
    as_object,
    as_objects,
    as_text,
    claim,
    digest,
    is_recent,
    key_labels,
    labels_of,
    severity_of,
    shown,
    subject_of,
    url_of,
)
from claudeops.formats.senders.words import status_of, without_state, words_of
from claudeops.structs import replace
from claudeops.text import NAME_LENGTH

SIGNATURE_HEADER: Final = "x-grafana-alerting-signature"
_VALUES: Final = "values"  # the annotation that holds what was measured
_MOST_VALUES: Final = 20
_MOST_STATE: Final = 40
_LEGACY_TEST: Final = "Test notification"


def read(body: Object, post: Post, source: AlertSource) -> FoundAlerts:
    """Return what Grafana says. Raises `Unreadable`."""
    if isinstance(body.get("alerts"), list):
        plain = alertmanager.found(body, post, source)
        pairs = zip(plain.alerts, alertmanager.listed_in(body), strict=False)
        return replace(plain, alerts=tuple(_alert(alert, each) for alert, each in pairs))
    if isinstance(body.get("labels"), dict):
        return FoundAlerts(alerts=(_alert(alertmanager.alert(body, {}, post, source), body),))
    if any(body.get(name) for name in ("ruleName", "ruleId", "evalMatches")) and body.get("state"):
        return _legacy(body, source)
    remedy = 'let the contact point send Grafana\'s own payload, or declare the source with kind = "generic"'
    raise Unreadable(f"it has neither a list of alerts nor a rule with its state: {remedy}")


def _alert(plain: Alert, each: Object) -> Alert:
    annotations: dict[str, object] = dict(plain.annotations)
    if values := as_text(each.get("values")) or as_text(each.get("valueString")):
        annotations[_VALUES] = values
    return replace(
        plain,
        annotations=labels_of(annotations, ("summary", "description", _VALUES)),
        url=plain.url or url_of(each.get("panelURL")) or url_of(each.get("dashboardURL")),
    )


def _legacy(body: Object, source: AlertSource) -> FoundAlerts:
    """Return the one rule of a body of legacy alerting; pending and paused ones are no alerts."""
    rule = shown(body.get("ruleName"), NAME_LENGTH) or without_state(shown(body.get("title")), words_of(source))
    if rule == _LEGACY_TEST:
        return FoundAlerts(remark="Grafana tests its contact point")
    state = shown(body.get("state"), _MOST_STATE)
    reported = status_of(state, words_of(source))
    if reported is None:
        return FoundAlerts(remark=f"the rule {rule} is {state}")
    tags = as_object(body.get("tags"))
    labels: dict[str, object] = {**tags, "alertname": rule}
    matches = as_objects(body.get("evalMatches"))
    values = ", ".join(f"{as_text(each.get('metric'))}={as_text(each.get('value'))}" for each in matches[:_MOST_VALUES])
    texts: dict[str, object] = {"summary": body.get("title"), "description": body.get("message"), _VALUES: values}
    about = subject_of(source, labels, rule, names_first=False)
    identity = [body.get(name) for name in ("orgId", "dashboardId", "panelId", "ruleId")]
    alert = Alert(
        fingerprint=digest([identity, rule]),
        state=reported,
        name=rule[:NAME_LENGTH] or "alert",
        service=about.service,
        service_by=about.by,
        severity=severity_of(source, labels),
        labels=labels_of(labels, ("alertname", *key_labels(source, labels))),
        annotations=labels_of({name: text for name, text in texts.items() if text}, ("summary", "description")),
        url=url_of(body.get("ruleUrl")),
    )
    return FoundAlerts(alerts=(alert,))


def claimed(headers: Mapping[str, str], *, source: AlertSource, now: datetime) -> Claim | None:
    """Return Grafana's signature: the hex HMAC-SHA256 of the body.

    Where the operator has named a header for the time in Grafana, it is signed too, and must be of now. ``headers`` by
    lower-case names.
    """
    given = headers.get((source.signature_header or SIGNATURE_HEADER).lower(), "").strip().lower()
    if not source.timestamp_header:
        return claim(b"", [given])
    stamp = headers.get(source.timestamp_header.lower(), "").strip()
    return claim(stamp.encode() + b":", [given]) if is_recent(stamp, now) else None
