"""What a sender is told about its body, once that is stored."""

from __future__ import annotations

from dataclasses import dataclass

from claudeops.domain.alerts.model import Decision


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What became of one alert of a body."""

    fingerprint: str  # "": of a body that could not be read
    decision: Decision
    incident: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """A body that is stored."""

    delivery: str  # its key: the same body, or the same id of the sender, has the same
    alerts: int = 0
    duplicates: int = 0
    decisions: tuple[Told, ...] = ()
