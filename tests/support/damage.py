"""Recordings with something wrong in them, the same every time."""

from __future__ import annotations

import json
import random
from typing import Any

_OTHER_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, 1.5, "", "x", [], {}, [[]]),
    *({"type": "text"}, ["a", 1]),
)
_STRAY = (b"\n", b"\x00", b'"', b"\\", b"{", b"]", b"\\ud800", b"NaN", b"\xff")


def damaged(stream: bytes, dice: random.Random) -> bytes:
    """Return a stream with bytes changed, lost, put in between, repeated or cut off."""
    data = bytearray(stream)
    for _ in range(dice.randint(1, 12)):
        at = dice.randrange(len(data))
        match dice.randrange(5):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at : at + dice.randint(1, 40)]
            case 2:
                data[at:at] = dice.choice(_STRAY)
            case 3:
                data[at:at] = data[at : at + dice.randint(1, 200)]
            case _:
                del data[dice.randrange(len(data) // 2, len(data)) :]
        if not data:
            return b""
    return bytes(data)


def confused(stream: bytes, dice: random.Random) -> bytes:
    """Return a stream whose frames hold values of other types in some places, their own type excepted."""
    lines = [json.loads(line) for line in stream.splitlines()]
    for line in lines:
        _confuse(line, dice)
    return "\n".join(map(json.dumps, lines)).encode()


def reordered(stream: bytes, dice: random.Random) -> bytes:
    """Return a stream with lines lost, repeated and out of order, their keys too."""
    lines = [_keys_reordered(json.loads(line), dice) for line in stream.splitlines()]
    return "\n".join(map(json.dumps, dice.choices(lines, k=dice.randint(1, 2 * len(lines))))).encode()


def _confuse(value: Any, dice: random.Random) -> None:
    for key in [*value] if isinstance(value, dict) else range(len(value)):
        if key != "type" and dice.random() < 0.15:
            value[key] = dice.choice(_OTHER_VALUES)
        elif isinstance(value[key], dict | list):
            _confuse(value[key], dice)


def _keys_reordered(frame: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    return dict(dice.sample(list(frame.items()), len(frame)))
