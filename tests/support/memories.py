"""Memories as they are stored, for tests that say only what they are about."""

from __future__ import annotations

from claudeops.domain.memories.memory import KnownMemory
from support.store_values import NOW


def known(observation: str = "starts within 30 s", **changes: object) -> KnownMemory:
    values: dict[str, object] = {
        "id": 1,
        "service": "web",
        "category": "timing",
        "observation": observation,
        "confidence": 0.7,
        "active": True,
        "updated_at": NOW,
        **changes,
    }
    return KnownMemory(**values)  # type: ignore[arg-type]
