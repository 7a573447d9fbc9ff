"""What one daemon does for all that share a database, and the digests of what it decides by.

Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import anyio

from claudeops.app.node import Node
from claudeops.app.notify import ReloadedNotifications
from claudeops.domain.alerts.rules import Rules
from claudeops.domain.owner import ALERTS, APPROVAL_KEY, NOTICES, POLICY, SCHEDULES, UPKEEP, probes_of
from claudeops.domain.probes.probe import Probe
from claudeops.domain.schedules.plan import SchedulePlan
from claudeops.engine.alerts.worker import AlertWorker
from claudeops.engine.daemon.digests import Digests, DigestSource, decisive
from claudeops.engine.daemon.lease import LeaseRenewal
from claudeops.engine.daemon.roles import FleetRole, Roles
from claudeops.engine.operator_file import LOOK_SECONDS, OperatorFile
from claudeops.engine.probes.declared import DeclaredNow, DeclaredReader
from claudeops.engine.probes.watch import ProbeWatch
from claudeops.engine.schedules.follow_ups import FollowUpWorker
from claudeops.engine.schedules.runner import ScheduleRunner
from claudeops.errors import StoreError
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble, until_tick


def roles_of(node: Node, lease: LeaseRenewal) -> Roles:
    """Return the roles of a daemon: all of them, where the lock on the database keeps every other one away."""
    is_alone = not node.settings.node.in_fleet
    roles = Roles(
        leases=node.store.leases,
        owner=node.owner.name,
        clock=node.clock,
        log=node.log,
        alone=is_alone,
        may_hold=lambda: not lease.holds_back(),
    )
    if is_alone:
        lease.locked = roles.renew
    return roles


def fleet_roles(
    node: Node,
    schedules: ScheduleRunner,
    follow_ups: FollowUpWorker,
    *,
    watch: ProbeWatch,
    worker: AlertWorker,
    people: ReloadedNotifications,
) -> tuple[FleetRole, ...]:
    """Return what one daemon of all does at a time, with the loops that do it."""
    return (
        FleetRole(name=SCHEDULES, loops=(schedules.run, follow_ups.run), forget=schedules.forget),
        FleetRole(name=probes_of(node.settings.node.site), loops=(watch.run,), forget=watch.forget),
        FleetRole(name=ALERTS, loops=(worker.keep_deciding,), forget=worker.forget),
        FleetRole(name=NOTICES, loops=(people.run,), forget=people.forget),
        _upkeep(node),
    )


def _upkeep(node: Node) -> FleetRole:
    """Return what has old rows removed, and looks at the fleet where there is one."""
    if not node.settings.node.in_fleet:
        return FleetRole(name=UPKEEP)
    from claudeops.engine.daemon.fleet import FleetWatch  # noqa: PLC0415 - a daemon that is alone has no fleet

    watch = FleetWatch(database=node.database, events=node.store.probes, clock=node.clock, log=node.log)
    return FleetRole(name=UPKEEP, loops=(watch.run,), forget=watch.forget)


def digests_of(
    node: Node,
    rules: OperatorFile[Rules],
    declared: DeclaredReader,
    schedules: ScheduleRunner,
    people: ReloadedNotifications,
) -> Digests:
    """Return the digests of what a daemon decides by; each file counts as it serves now, whatever stands in it."""
    settings, context = node.settings, node.context
    fixed: dict[str, object] = {
        "settings.tiers": [decisive(settings.ladder), *map(decisive, settings.tiers)],
        "settings.budgets": decisive(settings.budgets),
        "settings.timeouts": decisive(settings.timeouts),
        "settings.approvals": decisive(settings.approvals),
        "settings.bounds": decisive(settings.bounds),
        "settings.completion": decisive(settings.completion),
        "settings.timezone": settings.schedule.timezone,
        APPROVAL_KEY: context.approvals.approval_key,
        POLICY: settings.policy,
    }
    sources = {name: DigestSource(partial(_same, value)) for name, value in fixed.items()}
    return Digests(
        sources
        | {
            "prompts": DigestSource(context.prompts.digests),
            "manifests": DigestSource(lambda: context.estates.latest.manifests),
            "library": DigestSource(lambda: context.libraries.latest.texts or None),  # sessions read them
            "alerts": DigestSource(lambda: rules.value),
            "probes": DigestSource(lambda: declared.latest, _declared),
            "probes of several sites": DigestSource(lambda: declared.latest, _shared),
            "schedules": DigestSource(schedules.latest, _planned),
            "targets": DigestSource(lambda: people.file.value, lambda found: (found.targets, found.approvers)),
        }
    )


def _same(value: object) -> object:
    return value


async def keep_files(
    node: Node, roles: Roles, *, declared: DeclaredReader, schedules: ScheduleRunner, people: ReloadedNotifications
) -> None:
    """Read again what else only the holder of a role reads, until cancelled: the digests say what stands in files now.

    A daemon that is the only one has nothing to compare them with.
    """
    if not node.settings.node.in_fleet:
        return
    trouble = DatabaseTrouble(node.log, "files")
    while True:
        wait = 0.0
        try:
            await declared.now()
            if schedules.file is not None and not roles.holds(SCHEDULES):
                await schedules.file.look()
            if not roles.holds(NOTICES):
                await people.look()
        except StoreError as error:
            wait = trouble.failed(error)
        else:
            trouble.over()
        await anyio.sleep(wait or until_tick(LOOK_SECONDS, anyio.current_time()))


def _declared(now: DeclaredNow) -> list[Probe]:
    """Return probes without the places where they are declared, which are each machine's own."""
    return [replace(probe, origin="") for probe in sorted(now.probes, key=lambda probe: probe.name)]


def _shared(now: DeclaredNow) -> list[Probe]:
    """Return those that nodes of other sites should declare as well."""
    return [probe for probe in _declared(now) if probe.sites]


def _planned(plans: Iterable[SchedulePlan]) -> list[SchedulePlan]:
    """Return schedules likewise, and without the site, which is each machine's own too."""
    return [replace(plan, origin="", schedule=replace(plan.schedule, site="")) for plan in plans]
