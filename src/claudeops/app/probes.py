"""Probes, wired from the settings: what looks, and the watch over it. Part of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio

from claudeops.app.cell import scope_with
from claudeops.app.limits import tier_policies
from claudeops.app.node import Node
from claudeops.app.wiring import SESSIONS, bounds, node_scope, probe_reading
from claudeops.clock import Clock
from claudeops.domain.estate.estate import NO_ESTATE, Estate
from claudeops.domain.probes.probe import Observation, Probe
from claudeops.engine.cell.cell import Cell
from claudeops.engine.cell.look_cell import NO_LOOKS, FoundLooks
from claudeops.engine.estate import UnboundRules
from claudeops.engine.probes.declared import DeclaredReader
from claudeops.engine.probes.watch import ProbeWatch
from claudeops.errors import StoreError
from claudeops.formats.network.headers import of_tier, places_by_name
from claudeops.logs import Logger
from claudeops.settings import Settings
from claudeops.structs import replace
from claudeops.tasks import DatabaseTrouble
from claudeops.text.redact import Redactor

if TYPE_CHECKING:  # of the first look: a start does not wait for it, and without probes there is none
    from claudeops.engine.probes.looker import Looker

_ESTATE_SECONDS: Final = 60.0  # between two looks at the manifests; each session's start looks as well


def looker(
    settings: Settings,
    *,
    clock: Clock,
    log: Logger,
    redactor: Redactor,
    cell: Cell | None,
    looks: FoundLooks = NO_LOOKS,
    estate: Callable[[], Estate] = lambda: NO_ESTATE,
) -> Looker:
    """Return what looks at services; without a cell no command of a probe is run. ``looks``: what the daemon runs."""
    from claudeops.engine.probes.in_cell import CellCommands  # noqa: PLC0415 - see above
    from claudeops.engine.probes.looker import Looker  # noqa: PLC0415 - see above
    from claudeops.engine.probes.stream import Means  # noqa: PLC0415 - see above

    commands = None
    if cell is not None:
        lowest = min(tier.number for tier in settings.tiers)
        headers = of_tier(settings.headers, lowest)
        scope = scope_with(looks, node_scope(settings, dry_run=False))
        commands = CellCommands(
            cell=cell,
            root=settings.places.state_dir / SESSIONS / "probes",  # there, what a killed daemon leaves is removed
            path=settings.environment.path,
            repos_dir=settings.places.repos_dir,
            policy=tier_policies(settings)[lowest],
            scope=replace(scope, headers=places_by_name(headers)) if cell.has_network else scope,
            headers=headers,
            looks=looks.cells,
            estate=estate,
            env=settings.environment.inherited,
            bounds=bounds(settings),
            log=log,
        )
    return Looker(
        means=Means(clock=clock, environment=settings.probes.env, hosts=lambda: frozenset(estate().hosts)),
        log=log,
        redact=redactor.text,
        run_command=None if commands is None else commands.run,
    )


def declared_probes(node: Node, others: Callable[[], tuple[Probe, ...]] = tuple) -> DeclaredReader:
    """Return what reads which probes are declared on this node; ``others``: those that stand in no probes file."""
    return replace(probe_reading(node.settings, lambda: node.context.estates.latest), others=others)


def probe_watch(node: Node, declared: DeclaredReader, *, queued: Callable[[], None]) -> ProbeWatch:
    """Return the watch of a daemon over its probes; ``queued`` wakes what decides about their failures."""
    context = node.context
    made: list[Looker] = []

    def estate() -> Estate:
        return context.estates.latest

    async def look(probe: Probe) -> Observation:
        looks = await node.looks.found()
        if not made:
            made.append(
                looker(
                    node.settings,
                    clock=node.clock,
                    log=node.log,
                    redactor=context.redactor,
                    cell=context.confinement.cell,
                    looks=looks,
                    estate=estate,
                )
            )
        return await made[0].look(probe)

    return ProbeWatch(
        database=node.store.probes,
        look=look,
        reading=declared,
        rules=context.current_rules,
        alerts=node.store.alerts,
        queued=queued,
        owner=node.owner,
        clock=node.clock,
        log=node.log,
    )


async def keep_estate(node: Node) -> None:
    """Look at the manifests every minute: their probes come and go, and an event names what binds nothing."""
    trouble = DatabaseTrouble(node.log, "prohibitions of manifests")
    unbound = UnboundRules(
        events=node.store.probes, clock=node.clock, redact=node.context.redactor.text, node=node.owner.node
    )
    while True:
        try:
            await unbound.note(node.context.estates.latest)
        except StoreError as error:
            trouble.failed(error)
        else:
            trouble.over()
        await anyio.sleep(_ESTATE_SECONDS)
        await node.context.estates.look(node.log)
