"""Schedules, wired from the settings: what fires them, what probes say to them, and what answers follow-ups.

Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from claudeops.app.node import Node
from claudeops.app.wiring import plans, root_session
from claudeops.domain.chains.escalation import fingerprint
from claudeops.domain.probes.tier0 import Tier0
from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.domain.sessions import Trigger
from claudeops.engine.operator_file import OperatorFile
from claudeops.engine.probes.declared import DeclaredReader
from claudeops.engine.schedules.follow_ups import FollowUpWorker
from claudeops.engine.schedules.runner import ScheduleRunner
from claudeops.engine.schedules.tier0 import ProbeGate
from claudeops.logs import LogEvent
from claudeops.settings.schedules import load_schedules


def schedule_runner(node: Node, tier0: ProbeGate, *, held_back: Callable[[], bool]) -> ScheduleRunner:
    """Return what fires the operator's schedules; the probes may make a round of theirs needless."""
    settings = node.settings
    path = settings.schedule.path

    return ScheduleRunner(
        plans=plans(settings),
        schedules=node.store.schedules,
        clock=node.clock,
        log=node.log,
        dispatcher=node.dispatcher,
        rules=node.context.current_rules,
        new_session=lambda tier: root_session(settings, tier, Trigger.SCHEDULED),
        gate=tier0,
        held_back=held_back,
        counts=node.context.counts,
        file=None if path is None else file_of_schedules(node, path),
    )


def file_of_schedules(node: Node, path: Path) -> OperatorFile[tuple[SchedulePlan, ...]]:
    """Return what reads the operator's schedules again; with the prompts that they name, at every look."""
    settings = node.settings

    def read(file: Path) -> tuple[SchedulePlan, ...]:
        return load_schedules(
            file,
            highest_tier=settings.ladder.max_tier,
            timezone=settings.schedule.timezone,
            site=settings.node.jitter_site,
        )

    return OperatorFile(
        path=path,
        value=plans(settings),
        read=read,
        name="schedules",
        refused=LogEvent.SCHEDULES_REFUSED,
        events=node.store.schedules,
        clock=node.clock,
        log=node.log,
        beside=None,
        about="schedules",
        fingerprint=fingerprint("schedules_file"),
        message=lambda fault: f"the schedules were not read again, the last good ones serve: {fault}",
        read_seconds=10.0,
        node=node.owner.node,
        has_to_answer=True,
    )


def probe_gate(node: Node, declared: DeclaredReader) -> ProbeGate:
    """Return what the probes say to schedules, and to the prompt of tier 1."""
    return ProbeGate(
        mode=Tier0(node.settings.ladder.tier0),
        max_age_seconds=node.settings.ladder.tier0_max_age_seconds,
        schedules=node.store.schedules,
        on_record=node.store.probes,
        watched=declared.watched,
        rules=node.context.current_rules,
        redact=node.context.redactor.text,
    )


def follow_up_worker(node: Node) -> FollowUpWorker:
    """Return what has probes answer the follow-ups that are due."""
    return FollowUpWorker(
        follow_ups=node.store.follow_ups,
        clock=node.clock,
        log=node.log,
        dispatcher=node.dispatcher,
        rules=node.context.current_rules,
        waiter=node.wake_ups.waiter(),
    )
