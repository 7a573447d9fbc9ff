"""Alerts, wired from the settings: the operator's rules, what decides about alerts, and heartbeats that alerts feed.

Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from claudeops.app.node import Node
from claudeops.app.wiring import root_session
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.probes.dependencies import Dependencies
from claudeops.domain.probes.probe import HeartbeatLook, Probe
from claudeops.domain.sessions import Handover, NewSession, Trigger
from claudeops.engine.alerts.worker import AlertWorker
from claudeops.engine.operator_file import OperatorFile
from claudeops.logs import LogEvent
from claudeops.settings.alerts import load_alerts
from claudeops.structs import replace


def alerts_file(node: Node) -> OperatorFile[Rules]:
    """Return what keeps the rules as the operator's file has them."""
    return OperatorFile(
        path=node.settings.alerts.path,
        value=node.settings.alerts.rules,
        read=partial(load_alerts, highest_tier=node.settings.ladder.max_tier),
        name="alerts",
        refused=LogEvent.ALERTS_REFUSED,
        events=node.store.probes,
        clock=node.clock,
        log=node.log,
        node=node.owner.node,
    )


def heartbeats(rules: Rules) -> tuple[Probe, ...]:
    """Return a probe for each heartbeat that alerts feed: their silence is an event, and needs no session."""
    return tuple(
        Probe(
            name=beat.name,
            look=HeartbeatLook(every=beat.every.total_seconds(), grace=beat.grace.total_seconds()),
            service=beat.name,
            interval=min(30.0, beat.every.total_seconds()),
            failures=1,
            starts_chain=False,
            origin="the file of alerts",
        )
        for beat in rules.heartbeats
    )


def alert_worker(
    node: Node, file: OperatorFile[Rules], *, dependencies: Callable[[], Awaitable[Dependencies]]
) -> AlertWorker:
    """Return what takes alerts in a daemon, and decides about them."""

    def chain(tier: int, handover: Handover) -> NewSession:
        return replace(root_session(node.settings, tier, Trigger.ALERT), context=handover)

    worker = AlertWorker(
        alerts=node.store.alerts,
        probes=node.store.probes,
        read_rules=lambda: file.value,
        escalation=node.context.current_rules,
        dependencies=dependencies,
        new_chain=chain,
        redact=node.context.redactor.text,
        announce=node.dispatcher.announce,
        clock=node.clock,
        log=node.log,
        counts=node.context.counts,
    )
    node.wake_ups.join(worker.stir)
    node.wake_ups.join(worker.wake, own=False)
    return worker
