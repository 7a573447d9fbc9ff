"""The Dockerfile, as several tests read it."""

from __future__ import annotations

import re
import struct
from typing import Final

from support.checkout import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")

NET_RAW: Final = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
"""What ``setcap cap_net_raw=ep`` writes: revision 2, effective; permitted and inheritable, twice 32 bits."""


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, continued lines joined, comments left out."""
    lines = "\n".join(line for line in DOCKERFILE.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", lines)
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in joined.splitlines() if line.strip()]


def of(name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions() if instruction == name]


def stage(name: str) -> list[tuple[str, str]]:
    """Return the instructions of the stage of this name, its FROM first."""
    found = instructions()
    first = next(n for n, (word, rest) in enumerate(found) if word == "FROM" and rest.endswith(f" AS {name}"))
    after = (n for n, (word, _) in enumerate(found) if word == "FROM" and n > first)
    return found[first : next(after, len(found))]
