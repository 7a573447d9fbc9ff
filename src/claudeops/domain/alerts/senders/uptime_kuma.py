"""Uptime Kuma's webhook: a heartbeat of one monitor, posted exactly once.

Its monitor holds passwords and tokens of what it watches (``basic_auth_pass``, ``pushToken``, …): of all its fields
only those that are named here become labels. A heartbeat that is not ``important`` repeats what was said before.

A message has no heartbeat where it is a test, a warning about a certificate, or the text of a template of the user's:
such a text names its monitor in brackets, ``[Shop] [✅ Up] 200 - OK``.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    digest,
    fingerprint_of,
    labels_of,
    severity_of,
    shown,
    subject_of,
    telling,
    time_of,
    url_of,
)
from claudeops.domain.alerts.senders.words import said_in, without_state, words_of
from claudeops.domain.model import Level
from claudeops.domain.text import NAME_LENGTH, regex

_DOWN, _UP, _PENDING, _MAINTENANCE = range(4)
_SAID: Final[Mapping[int, Said]] = {_DOWN: Said.FIRING, _UP: Said.RESOLVED}
_WORDS: Final = {_PENDING: "pending", _MAINTENANCE: "in maintenance"}
_LABELS: Final = ("type", "hostname", "port", "url")
_NOWHERE: Final = frozenset({"", "https://", "http://", "null"})  # what its form holds where there is no address
_TEXTS: Final = ("msg", "message", "text", "body", "Body", "summary")
_TESTING: Final = " Testing"  # the end of what its test button sends: the notification's name, and this
_NAMED: Final = regex.Pattern(r"^\s*\[([^\[\]]+)\]\s*(?:\[(https?://[^\[\]]+)\])?\s*(.*)$")
_NUMBER: Final = regex.Pattern(r"[0-9]+")


def read(body: Object, post: Post, source: Source) -> Found:
    """Return what Uptime Kuma says. Raises `Unreadable`."""
    beat, monitor = as_object(body.get("heartbeat")), as_object(body.get("monitor"))
    if not beat:
        return _of_text(body, source)
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
    about = subject_of(source, kept, name)
    return Alert(
        fingerprint=fingerprint_of(identity, [name, monitor.get("url")]),
        said=said,
        name=name or "monitor",
        service=about.service,
        service_by=about.by,
        severity=severity_of(source, kept),
        labels=labels_of(kept, ("monitor", *telling(source, kept))),
        annotations=labels_of({"summary": body.get("msg"), "detail": beat.get("msg")}),
        starts_at=at if is_change and said is Said.FIRING else None,
        ends_at=at if said is Said.RESOLVED else None,
        said_at=at,
    )


def _of_text(body: Object, source: Source) -> Found:
    """Return what a message without a heartbeat says; one that says no state warns of something, as of a certificate.

    Nobody says when such a warning is over: only a person, or the next look.
    """
    text = shown(next((body[name] for name in _TEXTS if as_text(body.get(name)).strip()), ""))
    if not text:
        raise Unreadable("it has neither a heartbeat nor a message")
    named = _NAMED.search(text)
    if named is None or text.endswith(_TESTING):
        return Found(remark=f"Uptime Kuma says: {text}")
    name, url, what = (as_text(named[group]).strip() for group in (1, 2, 3))
    words = words_of(source)
    said = said_in([what], words)
    # A state is that of the monitor; anything else is known by its words, whose numbers are days that pass.
    warned_of = "" if said is not None else _NUMBER.sub("", without_state(what, words))
    labels: dict[str, object] = {"monitor": name, **({"url": url} if url else {})}
    about = subject_of(source, labels, name)
    alert = Alert(
        fingerprint=digest([name, url, warned_of]),
        said=said or Said.FIRING,
        name=name[:NAME_LENGTH],
        service=about.service,
        service_by=about.by,
        severity=Level.WARNING if said is None else severity_of(source, labels),
        labels=labels_of(labels, ("monitor",)),
        annotations=labels_of({"summary": text}),
        url=url_of(url),
    )
    return Found(alerts=(alert,))
