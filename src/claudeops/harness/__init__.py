"""Every harness by its name, and the one rule about harnesses without a gate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from claudeops.harness.caliban import CalibanHarness
from claudeops.harness.claude import ClaudeHarness
from claudeops.harness.codex import CodexHarness
from claudeops.harness.protocol import Harness

_ALL: Final[tuple[Harness, ...]] = (ClaudeHarness(), CodexHarness(), CalibanHarness())

HARNESSES: Final[Mapping[str, Harness]] = MappingProxyType({harness.name: harness for harness in _ALL})


def ungated_refusal(harness: Harness, *, allowed: Collection[str], tier: int) -> str | None:
    """Return why a tier whose policy judges single calls may not run on ``harness``, in one sentence, or ``None``.

    ``allowed`` are the harnesses without a gate that the operator accepts.
    """
    if harness.capabilities.gate or harness.name in allowed:
        return None
    return (
        f"Tier {tier} would run on {harness.name}, which has no gate, so its tool calls would run unjudged: choose "
        f"another harness, or name {harness.name} in CLAUDEOPS_ALLOW_UNGATED to accept that."
    )
