"""The installed daemon as a process, with the stand-in for its CLI: real spawns and rows, quick sessions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from claudeops.clock import Clock
from claudeops.domain.chains.escalation import EscalationRules, TierChoice
from claudeops.domain.sessions import NewSession, Session, Trigger
from claudeops.store.store import open_store
from support.estate import STAND_IN
from support.operating import Daemon, Operator, operator, say
from support.passable import let_pass
from support.waiting import PATIENCE_SECONDS, until

_RULES = EscalationRules(max_tier=3, dry_run=False, tiers=(TierChoice(number=1, model="haiku"),), limits={})


@dataclass(frozen=True)
class StandInNode:
    """An operator whose CLI is the stand-in."""

    operator: Operator
    root: Path

    def script(self, *steps: Mapping[str, object]) -> None:
        """Set what the stand-in does in the sessions to come."""
        (self.root / "steps.json").write_text(json.dumps(steps), encoding="utf-8")

    def settings(self, **changes: str) -> dict[str, str]:
        """Return what makes the stand-in the CLI; the schedule is out of the way unless the changes say so."""
        names = {f"CLAUDEOPS_TIER{number}_ENV": "STAND_IN_STEPS" for number in (1, 2, 3)}
        return {
            **names,
            "STAND_IN_STEPS": str(self.root / "steps.json"),
            "CLAUDEOPS_CLAUDE_BIN": str(STAND_IN),
            "CLAUDEOPS_INTERVAL": "1000000",
            "CLAUDEOPS_DRAIN_TIMEOUT": "0",
            "CLAUDEOPS_DAILY_BUDGET_USD": "100000",
            **changes,
        }

    def daemon(self, **changes: str) -> AbstractAsyncContextManager[Daemon]:
        """Run the daemon as a process."""
        return self.operator.daemon(**self.settings(**changes))

    async def queue(self, count: int) -> list[int]:
        """Queue sessions beside whatever runs, as an operator's command does; return their ids."""
        store, clock = open_store(f"sqlite:///{self.operator.database}"), Clock()
        try:
            new = NewSession(tier=1, trigger=Trigger.MANUAL, model="haiku")
            queued = [await store.queue.enqueue(new, rules=_RULES, now=clock.now()) for _ in range(count)]
        finally:
            await store.close()
        return [session.id for session in queued if isinstance(session, Session)]

    def is_idle(self) -> bool:
        """Return whether there was a session, and none waits or runs: a daemon is ready before it queues its first."""
        (row,) = self.operator.rows("SELECT count(*) AS count, sum(status = 'ended') AS ended FROM sessions")
        return row["count"] == row["ended"]

    async def until_idle(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Return when there was a session and every one has ended."""
        await until(self.is_idle, seconds)


@asynccontextmanager
async def stand_in_node(root: Path, *, is_new: bool = False) -> AsyncIterator[StandInNode]:
    """Give an operator a small estate below ``root``; its model is never asked. One who is new has no database."""
    let_pass(root)  # for the script of the stand-in
    async with operator(root, haiku=[say("never called")]) as node:
        if is_new:
            node.forget_database()
        yield StandInNode(node, root)


def count_of(daemon: Daemon, event: str) -> int:
    """Return how often a daemon has logged an event so far; one that looks often takes no time from it."""
    return daemon.output.read_bytes().count(f'"event":"{event}"'.encode())


def told(daemon: Daemon, *events: str) -> Sequence[dict[str, object]]:
    """Return what a daemon has logged of some events, oldest first."""
    lines = [json.loads(line) for line in daemon.output.read_text(encoding="utf-8").splitlines() if line[:1] == "{"]
    return [line for line in lines if line["event"] in events]


def seconds(moment: object) -> float:
    """Return a logged moment as seconds since the epoch."""
    return datetime.fromisoformat(str(moment)).timestamp()
