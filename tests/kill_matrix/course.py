"""How a trial goes, and when there is nothing more to do in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kill_matrix.plan import Plan, Strike
from kill_matrix.world import PROBES, World

FIRES: Final = "SELECT count(*) FROM schedule_fires"
UNFINISHED: Final = "SELECT count(*) FROM sessions WHERE status <> 'ended'"
UNANSWERED: Final = "SELECT count(*) FROM cooldown_actions WHERE follow_up_at IS NOT NULL AND held IS NULL"
TOLD: Final = """SELECT count(*) FROM probes
    WHERE state = 'up' OR (state = 'down' AND session_id IS NOT NULL)"""


@dataclass(kw_only=True)
class Course:
    """How a trial went."""

    plan: Plan
    hidden: set[str] = field(default_factory=set)  # logs that were not there for a while
    struck: list[Strike] = field(default_factory=list)  # those that were dealt
    daemons: int = 0
    stops: list[int] = field(default_factory=list)  # exit statuses of daemons that were asked to stop
    faults: list[str] = field(default_factory=list)  # what must hold and does not, one sentence each
    seconds: float = 0.0


def count_of(world: World, query: str) -> int | None:
    """Return a number from the database; ``None`` while there is none."""
    rows = world.database.rows(query)
    return int(str(next(iter(rows[0].values())))) if rows else None


def has_ended(world: World) -> bool:
    """Tell whether everything has, where daemons are there all the time: what is fired is queued in the same moment."""
    if world.plan.watched and count_of(world, TOLD) != len(PROBES):
        return False
    return bool(count_of(world, FIRES)) and count_of(world, UNFINISHED) == 0 and count_of(world, UNANSWERED) == 0
