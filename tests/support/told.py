"""Alerts that are brought to a store, for tests about what people are told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from claudeops.domain.alerts.alert import Alert, SenderBody
from claudeops.domain.alerts.register import AlertResult, NewChain, ReceivedBody
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.sessions import Handover, NewSession, Trigger
from claudeops.store.alerts.alerts import Alerts
from claudeops.store.store import Store
from support.alerts import SOURCE, bring, rules_of
from support.store_values import NOW, RULES, after, wanted

ABOUT: Final = AlertFiles(alerts=rules_of(), escalation=RULES)


def chain_of(tier: int, told: Handover) -> NewSession:
    return wanted(tier, trigger=Trigger.ALERT, context=told)


async def failed(
    alerts: Alerts,
    names: Sequence[str],
    incident: str,
    *,
    now: datetime,
    about: AlertFiles = ABOUT,
    new_chain: NewChain = chain_of,
) -> AlertResult:
    """Queue the failures of some probes, and decide about all that waits."""
    done = AlertResult()
    await alerts.queue_failures(names, incident, now=now)
    while (more := await alerts.decide(about, new_chain, now=now)) is not None:
        done.started += more.started
        done.rulings += more.rulings
        done.opened += more.opened
    return done


async def taken(
    store: Store, *alerts: Alert, minutes: float = 0, key: str = "a", group: str = "", about: AlertFiles = ABOUT
) -> AlertResult:
    """Bring alerts in one body; each body is a group of its own, unless it is told otherwise."""
    delivery = SenderBody(source=SOURCE, key=key, alerts=alerts, group_key=group or alerts[0].service)
    posted = ReceivedBody(content=delivery, received_at=NOW, raw="{}")
    return await bring(store.alerts, [posted], about, chain_of, now=after(minutes=minutes))
