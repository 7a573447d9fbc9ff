"""What all senders share: bodies, texts and times of others, made safe and bounded.

Nothing here trusts a type: a label may be a number, a list of alerts may be a text. What is not as it should be counts
as absent; only a body that says nothing of alerts at all cannot be read (`Unreadable`).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec

from claudeops.domain.alerts import subject
from claudeops.domain.alerts.alert import Alert
from claudeops.domain.alerts.rules import SEVERITIES, AlertSource
from claudeops.domain.alerts.subject import Subject
from claudeops.domain.events import EventLevel
from claudeops.text import NAME_LENGTH, casefold_key, clean, regex
from claudeops.text.escapes import visible

MOST_BYTES: Final = 1024 * 1024
"""Of a body, packed and unpacked."""

MOST_ALERTS: Final = 1000
"""Of a body; more are counted and left out."""

MOST_TEXT: Final = 4096
"""Bytes of an alert's labels, and of its annotations."""

MOST_URL: Final = 2000
SKEW: Final = timedelta(minutes=15)
"""By which a sender's clock may be ahead; a time beyond that means now."""

TOLERANCE: Final = timedelta(seconds=300)
"""By which a signed time may differ from ours."""

_SIGNATURE_LENGTH: Final = 64  # hex digits of an HMAC-SHA256
_STAMP: Final = regex.Pattern(r"[0-9]{1,12}")
_MOST_VALUE: Final = 1500  # characters of one label
_MOST_LABELS: Final = 100
_CUT: Final = " [cut]"
_MOST_FINGERPRINT: Final = 200
_UNSET: Final = 1970  # Go's zero time is of the year 1, other senders' of this one

Object = Mapping[str, object]


class Unreadable(Exception):  # noqa: N818 - not an error of ours: it describes what others sent
    """A body that cannot be read; ``str()`` is a clause, with the place where there is one."""


class FoundAlerts(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind's reader has found in a body, before it is bound to its delivery."""

    alerts: tuple[Alert, ...] = ()
    group_key: str = ""
    left_out: int = 0
    sender_id: str = ""  # the sender's own name of this delivery
    remark: str = ""


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """What came with a body."""

    received_at: datetime
    query: Mapping[str, str]  # of the URL


# --- values -----------------------------------------------------------------------------------------------


def as_object(value: object) -> Object:
    """Return an object; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> Sequence[Object]:
    """Return the objects of a list; anything else is left out."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return a value as text: JSON for what is nested, nothing for null."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode()


# --- texts ------------------------------------------------------------------------------------------------


def shown(value: object, most: int = _MOST_VALUE) -> str:
    """Return a text as one visible line of bounded length: nothing in it hides, and nothing breaks a line."""
    if isinstance(value, str) and len(value) <= most and value.isascii() and value.isprintable():
        return value
    text = as_text(value)
    cut = text[: most + 1]
    line = visible(cut) if cut.isprintable() else _all_visible(visible(clean(" ".join(cut.split()))))
    return line if len(line) <= most else line[: max(0, most - len(_CUT))] + _CUT


def _all_visible(line: str) -> str:
    """Escape what no font knows yet, too: a character without a meaning may be shown as nothing."""
    return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08x}" for sign in line)


def labels_of(pairs: Mapping[str, object], first: Iterable[str] = ()) -> dict[str, str]:
    """Return labels that fit, those of ``first`` before the others, so that no flood of others displaces them."""
    wanted = dict.fromkeys((*(name for name in first if name in pairs), *pairs))
    room = MOST_TEXT
    found: dict[str, str] = {}
    for name in wanted:
        key, value = shown(name, NAME_LENGTH), shown(pairs[name])
        size = len(key.encode()) + len(value.encode())
        if not key or room < len(key.encode()) + len(_CUT) or len(found) >= _MOST_LABELS:
            continue
        if size > room:
            left = room - len(key.encode()) - len(_CUT)
            value = value.encode()[:left].decode(errors="ignore") + _CUT
            size = room
        found[key] = value
        room -= size
    return found


def url_of(value: object) -> str:
    """Return an address of the web, or nothing."""
    text = shown(value, MOST_URL)
    return text if text.startswith(("http://", "https://")) and not text.endswith(_CUT) else ""


# --- identity, service, severity --------------------------------------------------------------------------


def delivery_key(source: str, body: bytes, sender_id: str) -> str:
    """Return what is the same for the same delivery: the sender's own id for it, else its body."""
    content = b"id\x00" + sender_id.encode("utf-8", "replace") if sender_id else b"body\x00" + body
    return sha256(source.encode() + b"\x00" + content).hexdigest()


def fingerprint_of(value: object, otherwise: object) -> str:
    """Return the sender's own fingerprint where it has a sensible one, else one made of ``otherwise``."""
    given = as_text(value)
    if given and len(given) <= _MOST_FINGERPRINT and given.isprintable():
        return given
    return digest(given or otherwise)


def digest(value: object) -> str:
    """Return a fingerprint of values, whatever the order of their keys."""
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]


def subject_of(source: AlertSource, labels: Mapping[str, object], *names: object, names_first: bool = True) -> Subject:
    """Return whom an alert is about: by the operator's labels for it, else by what its labels say.

    ``names``: of its rule, monitor or check; ``names_first``: these are called like what they look at.
    """
    for label in source.service_label:
        if text := shown(labels.get(label), NAME_LENGTH).strip():
            return Subject(service=text, by=f"its label {label}, as alerts.toml says")
    known = {name: text for name in _subject_labels(labels) if (text := shown(labels[name]).strip())}
    called = [shown(name, NAME_LENGTH).strip() for name in names]
    found = subject.of_labels(known, called, names_first=names_first)
    if found is None:
        return Subject(service=shown(source.name, NAME_LENGTH), by="its source")
    return Subject(service=shown(found.service, NAME_LENGTH), by=found.by)


def key_labels(source: AlertSource, labels: Iterable[str]) -> tuple[str, ...]:
    """Return the labels that no flood of others may displace."""
    return (*source.service_label, *source.severity_label, *_subject_labels(labels))


def _subject_labels(labels: Iterable[str]) -> list[str]:
    return [name for name in labels if name.removeprefix(subject.EXPORTED) in subject.LABELS]


def severity_of(source: AlertSource, labels: Mapping[str, object], *otherwise: object) -> EventLevel:
    """Return the severity by the source's labels and map, else by the first of ``otherwise``, else the default."""
    for value in (*(labels.get(name) for name in source.severity_label), *otherwise):
        word = casefold_key(as_text(value)[:NAME_LENGTH])
        if level := source.severity.get(word) or SEVERITIES.get(word):
            return level
    return source.default_severity


# --- times ------------------------------------------------------------------------------------------------


def time_of(value: object, received_at: datetime) -> datetime | None:
    """Return a sender's time in UTC: ISO 8601, with a zone or in UTC, or seconds since the epoch; None for none."""
    found = _moment(value)
    return None if found is None else min(found, received_at) if found > received_at + SKEW else found


def is_past(value: object, received_at: datetime) -> bool:
    """Return whether a sender's time is one, and has passed."""
    found = _moment(value)
    return found is not None and found <= received_at


def _moment(value: object) -> datetime | None:
    found = _from_number(value) if isinstance(value, int | float) else _from_text(value)
    return None if found is None or found.year <= _UNSET else found


def _from_number(value: float) -> datetime | None:
    try:
        seconds = value / 1000 if abs(value) > 1e11 else value  # noqa: PLR2004 - milliseconds, from 1973 on
        return None if isinstance(value, bool) else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _from_text(value: object) -> datetime | None:
    text = value.strip() if isinstance(value, str) else ""
    if not 10 <= len(text) <= 40:  # noqa: PLR2004 - a date alone, and one with nanoseconds and zone
        return None
    head, dot, rest = text.partition(".")
    if dot:  # nanoseconds, which Go writes, are more than a datetime holds
        digits = rest[: next((at for at, char in enumerate(rest) if not char.isdigit()), len(rest))]
        text = f"{head}.{digits[:6]:0<6}{rest[len(digits) :]}"
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


# --- signatures -------------------------------------------------------------------------------------------


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A signature as a request's headers present it: all that is known before the body has come."""

    before: bytes  # what is signed in front of the body
    given: tuple[str, ...]  # hex

    def is_of(self, body: bytes, secrets: Iterable[bytes]) -> bool:
        """Return whether one of the secrets has signed this body, in constant time."""
        signed = self.before + body
        expected = [hmac.new(secret, signed, "sha256").hexdigest().encode() for secret in secrets if secret]
        compared = [
            hmac.compare_digest(each, one.encode("utf-8", "replace")) for each in expected for one in self.given
        ]
        return any(compared)


def claim(before: bytes, given: Iterable[str]) -> Claim | None:
    """Return a claim with those of the given texts that may be a signature; ``None`` if none may."""
    sound = tuple(one for one in given if len(one) == _SIGNATURE_LENGTH)
    return Claim(before=before, given=sound) if sound else None


def is_recent(stamp: str, now: datetime) -> bool:
    """Return whether a signed time, in seconds since the epoch, is of now."""
    if _STAMP.fullmatch(stamp) is None:
        return False
    return abs(now.timestamp() - int(stamp)) <= TOLERANCE.total_seconds()
