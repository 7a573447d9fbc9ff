"""Alerts: how bodies come in, what becomes of them, and how people deal with incidents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from claudeops.domain.alerts.model import AlertState, Incident, Silence
from claudeops.domain.alerts.register import Done, NewChain, Posted
from claudeops.domain.alerts.situation import Circumstances


class Alerts(Protocol):
    """Alerts on record, and the decisions about them: each method is one transaction.

    Whatever a round decides is written in it: bodies, alerts, decisions, incidents with their events, and queued
    chains. Nothing of a round that fails is kept.
    """

    async def take(self, posted: Sequence[Posted], about: Circumstances, new_chain: NewChain, *, now: datetime) -> Done:
        """Write some bodies and decide about all their alerts; what was filed is in the order of the bodies.

        A body that was written within the last ten minutes is counted, not written again; its alerts are decided about
        all the same. What is dealt with is a `duplicate` then, and changes nothing: a sender that has no times, and
        means that it fires anew, is heard.
        """

    async def tick(self, about: Circumstances, new_chain: NewChain, *, now: datetime) -> Done:
        """Write what follows from the time that has passed, and from probes that see their services up."""

    async def probes_failed(
        self, names: Sequence[str], incident: str, about: Circumstances, new_chain: NewChain, *, now: datetime
    ) -> Done:
        """Take the failures of some probes as one group of alerts, and note that they are told.

        Nothing is decided if all of them belong to something already (`Probes.start_chain`).
        """

    async def acknowledge(self, number: int, *, by: str, now: datetime) -> Incident | None:
        """Note that a person is on an incident; return it as it is then, ``None`` if there is none."""

    async def resolve(self, number: int, *, by: str, now: datetime) -> Incident | None:
        """Note that a person says that an incident is over; return it as it is then, ``None`` if there is none."""

    async def lately(self, since: datetime) -> Sequence[AlertState]:
        """Return the alerts that fire, or were heard of since a moment."""

    async def silence(self, silence: Silence) -> Silence:
        """Write a silence; return it with its number."""

    async def end_silence(self, number: int, *, by: str, now: datetime) -> Silence | None:
        """End a silence before its time; return it as it is then, ``None`` if there is none.

        One that is over already stays as it was.
        """
