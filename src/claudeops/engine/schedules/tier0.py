"""Tier 0 beside the schedules: asks the probes whether a scheduled look can be left out, and what tier 1 is told.

It knows what is declared on this node, and how the probes stand by their rows, whichever node looks: a look that is
too old says nothing. What cannot be found out costs a session: nothing is left out on a guess.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.probes import tier0
from claudeops.domain.probes.probe import Probe, Standing
from claudeops.domain.probes.tier0 import ModelVerdict, Need, Tier0, Tier0Gate
from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.store.probes import Probes
from claudeops.store.schedules import Schedules


class ProbeGate(msgspec.Struct, frozen=True, kw_only=True):
    """The probes, as far as schedules ask them."""

    mode: Tier0
    max_age_seconds: float  # of the last verdict that a model gave
    schedules: Schedules
    on_record: Probes
    watched: Callable[[Container[str]], Awaitable[Sequence[Probe]]]  # by the names of those on record
    rules: Callable[[], EscalationRules]
    redact: Callable[[str], str] = str

    async def __call__(self, plan: SchedulePlan, now: datetime) -> Tier0Gate:
        """Return whether a fire of a plan may start nothing; raises `StoreError`.

        Only a usual round is left out: probes answer no request in words, and a higher tier is not there to look. A
        plan that names no services expects those of the estate; where that names none, those of its last round.
        """
        rules = self.rules()
        if self.mode is not Tier0.GATE:
            return Tier0Gate(need=Need.NO_PROBES, sentence="the probes are not asked")
        if plan.tier > rules.lowest.number or plan.prompt.strip():
            return Tier0Gate(need=Need.UNWATCHED, sentence="more than a usual round is asked for")
        last = await self.schedules.last_round(plan.name)
        expected = plan.services or rules.expected or (last.services if last is not None else ())
        probes, standings = await self._stand()
        return tier0.gate(
            probes,
            standings,
            expected=expected,
            verdict=None if last is None else ModelVerdict(reason=last.reason, looked_from=last.looked_from),
            max_age=timedelta(seconds=self.max_age_seconds),
            now=now,
            other_names=rules.other_names,
        )

    async def table(self, now: datetime, about: Collection[str] = ()) -> tuple[str, ...]:
        """Return what tier 1 is told of the probes, a line each; nothing where they are off. Raises `StoreError`.

        ``about`` are the services of the session's chain, which come first.
        """
        if self.mode is Tier0.OFF:
            return ()
        probes, standings = await self._stand()
        return tier0.table(
            probes,
            standings,
            now=now,
            about=about,
            other_names=self.rules().other_names,
            redact=self.redact,
        )

    async def _stand(self) -> tuple[Sequence[Probe], Mapping[str, Standing]]:
        """Return the probes that are watched, and how they stand by their rows."""
        kept = await self.on_record.kept()
        return await self.watched(kept), {name: each.standing for name, each in kept.items()}
