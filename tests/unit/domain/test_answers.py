"""What leaves as a document has its fields in order, and no text of a stranger hides anything in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from claudeops.domain.answers import document, plain
from claudeops.domain.events import EventLevel

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = "web\u202e\x1b[31m"
SHOWN = "web\\u202e\\u001b[31m"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    zone: str
    at: datetime | None


class Head(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    level: EventLevel


class Whole(Head, frozen=True, kw_only=True):
    parts: tuple[Part, ...]
    counts: dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Older:
    name: str
    part: Part


WHOLE = Whole(
    number=1,
    level=EventLevel.CRITICAL,
    parts=(Part(zone=HOSTILE, at=AT), Part(zone="", at=None)),
    counts={HOSTILE: [HOSTILE, 1, None]},
)


def test_no_text_or_key_hides_anything_however_deep_it_lies() -> None:
    assert document(WHOLE) == {
        "number": 1,
        "level": "critical",
        "parts": [{"zone": SHOWN, "at": AT}, {"zone": "", "at": None}],
        "counts": {SHOWN: [SHOWN, 1, None]},
    }
    assert plain(Older(name=HOSTILE, part=WHOLE.parts[0])) == {"name": SHOWN, "part": {"zone": SHOWN, "at": AT}}
    assert plain((WHOLE,)) == [document(WHOLE)]


def test_keys_come_in_the_order_of_the_fields_those_of_the_base_first() -> None:
    assert list(document(WHOLE)) == ["number", "level", "parts", "counts"]
    assert msgspec.json.encode(plain(WHOLE.parts[1])) == b'{"zone":"","at":null}'


def test_an_enumeration_leaves_as_its_bare_word() -> None:
    assert type(document(WHOLE)["level"]) is str
