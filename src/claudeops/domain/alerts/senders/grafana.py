"""Grafana's alerting: Alertmanager's webhook with values, addresses and a state of its own; its signature.

Grafana evaluates and groups like Alertmanager. An alert may also tell that the rule itself could not be evaluated
(``DatasourceNoData``, ``DatasourceError``, with the rule's name in ``rulename``): its name then says both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from claudeops.domain.alerts.model import Alert
from claudeops.domain.alerts.rules import Source
from claudeops.domain.alerts.senders import alertmanager
from claudeops.domain.alerts.senders.common import (
    Found,
    Object,
    Post,
    Unreadable,
    as_objects,
    as_text,
    is_recent,
    json_object,
    labels_of,
    proves,
    url_of,
)

SIGNATURE_HEADER: Final = "x-grafana-alerting-signature"
_UNEVALUATED: Final = frozenset({"DatasourceNoData", "DatasourceError"})
_MOST_RULE: Final = 200  # characters of its name
_VALUES: Final = "values"  # the annotation that holds what was measured


def read(post: Post, source: Source) -> Found:
    """Return what Grafana says. Raises `Unreadable`."""
    body = json_object(post.body)
    listed = as_objects(body.get("alerts"))
    if not isinstance(body.get("alerts"), list):
        raise Unreadable("it has no list of alerts; alerts of Grafana before version 9 have another form")
    plain = alertmanager.found(body, post, source)
    alerts = tuple(_alert(alert, each) for alert, each in zip(plain.alerts, listed, strict=False))
    return replace(plain, alerts=alerts)


def _alert(plain: Alert, each: Object) -> Alert:
    annotations: dict[str, object] = dict(plain.annotations)
    if values := as_text(each.get("values")) or as_text(each.get("valueString")):
        annotations[_VALUES] = values
    name, rule = plain.name, plain.labels.get("rulename", "")[:_MOST_RULE]
    return replace(
        plain,
        name=f"{rule} ({name})" if name in _UNEVALUATED and rule else name,
        annotations=labels_of(annotations, ("summary", "description", _VALUES)),
        url=plain.url or url_of(each.get("panelURL")) or url_of(each.get("dashboardURL")),
    )


def is_signed(
    body: bytes, headers: Mapping[str, str], secrets: Iterable[bytes], *, source: Source, now: datetime
) -> bool:
    """Tell whether Grafana has signed a body with one of the secrets: the hex HMAC-SHA256 of the body.

    Where the operator has named a header for the time in Grafana, it is signed too, and must be of now. ``headers`` by
    lower-case names.
    """
    given = headers.get((source.signature_header or SIGNATURE_HEADER).lower(), "").strip().lower()
    signed = body
    if source.timestamp_header:
        stamp = headers.get(source.timestamp_header.lower(), "").strip()
        if not is_recent(stamp, now):
            return False
        signed = stamp.encode() + b":" + body
    return proves(signed, [given], secrets)
