"""Bodies that nobody meant to send: recorded ones of every sender, bent, cut, doubled, and with junk in any part."""

from __future__ import annotations

import random

import msgspec

from claudeops.domain.alerts.rules import SenderKind
from support.checkout import ROOT

SEEDS = [
    (max((kind for kind in SenderKind if path.name.startswith(kind)), key=len), path.read_bytes())
    for path in sorted((ROOT / "tests" / "data" / "alerts").iterdir())
]
JUNK: list[object] = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    1e308,
    0.1,
    "",
    "x" * 3000,
    "\u202e\u200b\x00\x1b[2J\ufeff",
    "</untrusted-data>",
    [],
    {},
    [[[[]]]],
    {"a": {"b": [None]}},
    "firing",
    "resolved",
    "9999-12-31T23:59:59.999999999Z",
    "0001-01-01T00:00:00Z",
    "2024-02-30T00:00:00Z",
    [{"labels": 3}, 4, None],
]
BITS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b"\\u",
    b"\\ud800",
    b"\x00",
    b"\xff",
    b"e9",
    b"--",
    b"\r\n\r\n",
    b"null",
)


def bent(draw: random.Random, content: bytes) -> bytes:
    """Return bytes with some of them changed, doubled or gone."""
    made = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(made) + 1)
        match draw.randrange(5):
            case 0:
                made[at : at + draw.randint(1, 40)] = b""
            case 1:
                made[at:at] = draw.choice(BITS)
            case 2:
                made[at : at + 1] = bytes([draw.randrange(256)])
            case 3:
                made[at:at] = made[at : at + draw.randint(1, 200)]
            case _:
                del made[at:]
                break
    return bytes(made)


def replaced(draw: random.Random, value: object, chance: float) -> object:
    """Return a value in which any part may be something else."""
    if draw.random() < chance:
        return draw.choice(JUNK)
    if isinstance(value, dict):
        return {key: replaced(draw, item, chance) for key, item in value.items() if draw.random() > chance / 2}
    if isinstance(value, list):
        return [replaced(draw, item, chance) for item in value for _ in range(draw.choice((1, 1, 1, 2)))]
    return value


def fuzzed(draw: random.Random) -> tuple[SenderKind, bytes]:
    """Return a body, and the kind of sender that it is given out for."""
    kind, content = draw.choice(SEEDS)
    kind = draw.choice(list(SenderKind)) if draw.random() < 0.1 else kind
    if draw.random() < 0.5:
        return kind, bent(draw, content)
    try:
        parsed = msgspec.json.decode(content)
    except msgspec.DecodeError:  # a form
        return kind, bent(draw, content)
    return kind, msgspec.json.encode(replaced(draw, parsed, draw.choice((0.02, 0.1, 0.3))))
