"""What Claude Ops has on record, written into our tables in one transaction, once.

Sessions get new ids, and what belongs to them follows. What cannot be carried over is counted by its reason; nothing is
left out silently. That it was done is a row of ``commands``, by which a second time is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec
from sqlalchemy import Connection, Table, insert, select, update

from claudeops.domain.actions import Recheck
from claudeops.domain.memories.categories import category_of
from claudeops.domain.memories.confidence import bounded
from claudeops.domain.memories.memory import Trust
from claudeops.domain.memories.refusal import refusal_of
from claudeops.domain.report.report import CheckSource
from claudeops.domain.sessions import DecisionReason, NewSession, Outcome
from claudeops.errors import StoreError
from claudeops.store.claude_ops.source import (
    ClaudeOpsFile,
    Row,
    level,
    moment,
    outcome,
    service_status,
    text,
    trigger,
    whole,
)
from claudeops.store.database import Database
from claudeops.store.session_columns import queued_values
from claudeops.store.tables.base import each_value
from claudeops.store.tables.daemon import commands
from claudeops.store.tables.events import events
from claudeops.store.tables.memories import memories
from claudeops.store.tables.sessions import cooldown_actions, service_checks, sessions

COMMAND: Final = "migrate_from"
"""The row of ``commands`` that says that it was done."""

_AT_ONCE: Final = 500  # rows of one statement
_DASHBOARD: Final = {"interval": "CLAUDEOPS_INTERVAL"} | {
    f"tier{tier}_model": f"CLAUDEOPS_TIER{tier}_MODEL" for tier in (1, 2, 3)
}


class TakeoverResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    taken: Mapping[str, int]  # rows by our tables
    left: Mapping[str, int] = msgspec.field(default_factory=dict)  # rows by the reason why they were left
    done_at: datetime | None = None  # set: it was done then, and nothing was done now


class Takeover:
    """Takes one source over into a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(
        self, source: ClaudeOpsFile, *, by: str, path: str, redact: Callable[[str], str], now: datetime
    ) -> TakeoverResult:
        """Take everything over, unless this source was taken over before."""
        origin = source.origin
        # Read whole before the transaction: a connection of SQLite belongs to the thread that opened it.
        found = {name: tuple(source.rows(name)) for name in _READ}

        def work(connection: Connection) -> TakeoverResult:
            if (before := _done_before(connection, origin)) is not None:
                return TakeoverResult(taken={}, done_at=before)
            done = _Taking(connection, found, redact, now).all()
            result = msgspec.json.encode({"taken": done.taken, "left": done.left}).decode()
            arguments = msgspec.json.encode({"origin": origin, "path": path}).decode()
            row = {"name": COMMAND, "arguments": arguments, "requested_by": by, "result": result}
            times = dict.fromkeys(("requested_at", "taken_at", "ended_at"), now)
            connection.execute(insert(commands).values({**row, **times}))
            return done

        return await self._database.write(work)


_READ: Final = (
    *("sessions", "events", "memories", "cooldown_actions", "health_checks"),
    *("service_health_streak", "config"),
)


class _Taking(msgspec.Struct):
    """One transaction that takes everything over."""

    connection: Connection
    found: Mapping[str, tuple[Row, ...]]
    redact: Callable[[str], str]
    now: datetime
    _ids: dict[object, int] = msgspec.field(default_factory=dict)  # of sessions: theirs to ours
    _roots: dict[int, int] = msgspec.field(default_factory=dict)  # of sessions of ours, to the first of the chain
    _calm: set[object] = msgspec.field(default_factory=set)  # their sessions of tier 1 that found nothing to escalate
    _taken: Counter[str] = msgspec.field(default_factory=Counter)
    _left: Counter[str] = msgspec.field(default_factory=Counter)

    def all(self) -> TakeoverResult:
        """Take everything, sessions first: the rest belongs to them."""
        for row in self.found["sessions"]:
            self._session(row)
        for table, rows in (
            (events, self._events()),
            (memories, self._memories()),
            (cooldown_actions, self._actions()),
            (service_checks, self._checks()),
        ):
            self._insert(table, rows)
        self._count_what_stays()
        return TakeoverResult(taken=dict(self._taken), left=dict(self._left))

    def _session(self, row: Row) -> None:
        started, tier = moment(row["started_at"]), whole(row["tier"])
        if started is None or tier is None:
            self._left["sessions without a readable time or tier"] += 1
            return
        parent = self._ids.get(row["parent_session_id"])
        ended_as, error = outcome(row["status"])
        new = NewSession(
            tier=tier,
            trigger=trigger(row["trigger"], has_parent=parent is not None),
            model=text(row["model"]) or "unknown",
            prompt_text=self._clean(row["prompt_text"]),
            parent_session_id=parent,
            # Theirs may have had several children of a kind: the old id tells them apart.
            ordinal=0 if parent is None else whole(row["id"]) or 0,
        )
        root = None if parent is None else self._roots[parent]
        values = {
            **queued_values(new, root_session_id=root, now=started),
            "status": "ended",
            "outcome": ended_as.value,
            "decision_reason": DecisionReason.ESCALATED.value if row["status"] == "escalated" else None,
            "error": error,
            "started_at": started,
            "ended_at": moment(row["ended_at"]) or started,
            "duration_ms": whole(row["duration_ms"]),
            "exit_code": whole(row["exit_code"]),
            "num_turns": whole(row["num_turns"]),
            "cost_usd": row["cost_usd"] if isinstance(row["cost_usd"], int | float) else None,
            "summary": self._clean(row["summary"]),
            "response": self._clean(row["response"]),
        }
        key = self.connection.execute(insert(sessions).values(values)).inserted_primary_key
        if key is None:
            raise StoreError("the database gave a session no id.")
        if root is None:
            self.connection.execute(update(sessions).where(sessions.c.id == key.id).values(root_session_id=key.id))
        self._ids[row["id"]], self._roots[key.id] = key.id, root or key.id
        if tier == 1 and ended_as is Outcome.SUCCESS and row["status"] != "escalated":
            self._calm.add(row["id"])
        self._taken["sessions"] += 1

    def _events(self) -> Iterator[dict[str, object]]:
        for row in self.found["events"]:
            at, message = moment(row["created_at"]), self._clean(row["message"])
            if at is None or message is None:
                self._left["events without a readable time or text"] += 1
                continue
            yield {
                "session_id": self._ids.get(row["session_id"]),
                "last_session_id": self._ids.get(row["session_id"]),
                "level": level(row["level"]).value,
                "service": text(row["service"]),
                "message": message,
                "created_at": at,
                "fingerprint": f"claude_ops:{row['id']}",
                "first_seen": at,
                "last_seen": at,
                "count": 1,
                "resolved_at": at,  # it is history: whether the condition still holds is for the next session to say
            }

    def _memories(self) -> Iterator[dict[str, object]]:
        known = {
            (row.service, row.category, row.observation)
            for row in self.connection.execute(select(memories.c.service, memories.c.category, memories.c.observation))
        }
        for row in self.found["memories"]:
            created, observation = moment(row["created_at"]), self._clean(row["observation"])
            if created is None or observation is None:
                self._left["memories without a readable time or text"] += 1
                continue
            service, category = text(row["service"]), category_of(str(row["category"])).value
            if refusal_of(observation, service or "") is not None:
                self._left["memories that read like an order, or hold a secret or markup"] += 1
            elif (service, category, observation) in known:
                self._left["memories that are known here already"] += 1
            else:
                known.add((service, category, observation))
                confidence = row["confidence"] if isinstance(row["confidence"], int | float) else 0.0
                yield {
                    "service": service,
                    "category": category,
                    "observation": observation,
                    "confidence": bounded(float(confidence)),
                    "active": bool(row["active"]),
                    "created_at": created,
                    "updated_at": moment(row["updated_at"]) or created,
                    "session_id": self._ids.get(row["session_id"]),
                    "tier": whole(row["tier"]) or 1,
                    "trust": (Trust.CONFIRMED if row["session_id"] in self._calm else Trust.QUARANTINED).value,
                }

    def _actions(self) -> Iterator[dict[str, object]]:
        for row in self.found["cooldown_actions"]:
            at, session_id, service = moment(row["timestamp"]), self._ids.get(row["session_id"]), text(row["service"])
            if at is None or session_id is None or service is None:
                self._left["cooldown actions without a readable time, service or session"] += 1
                continue
            yield {
                "session_id": session_id,
                "tool_use_id": f"claude_ops:{row['id']}",
                "service": service,
                "action_type": str(row["action_type"]),
                "timestamp": at,
                "success": bool(row["success"]),
                "tier": whole(row["tier"]) or 1,
                "error": self._clean(row["error"]),
                "held": Recheck.UNKNOWN.value,  # nobody looks after it now
                "held_checked_at": self.now,
            }

    def _checks(self) -> Iterator[dict[str, object]]:
        """Yield the checks; of a service that was looked at here already the old ones would stand as the latest."""
        ours = {row.name for row in self.connection.execute(each_value(service_checks.c.service))}
        for row in self.found["health_checks"]:
            at, service, status = moment(row["checked_at"]), text(row["service"]), service_status(row["status"])
            if at is None or service is None or status is None:
                self._left["health checks without a readable time, service or status"] += 1
            elif service in ours:
                self._left["health checks of services that were looked at here already"] += 1
            else:
                parts = [str(row["check_type"]), self._clean(row["error_detail"]) or ""]
                took = whole(row["response_time_ms"])
                parts += [] if took is None else [f"{took} ms"]
                yield {
                    "session_id": self._ids.get(row["session_id"]),
                    "service": service,
                    "status": status.value,
                    "detail": ", ".join(part for part in parts if part),
                    "source": CheckSource.REPORT.value,
                    "checked_at": at,
                }

    def _count_what_stays(self) -> None:
        if streaks := len(self.found["service_health_streak"]):
            self._left["counts of healthy checks in a row: claudeops counts anew"] = streaks
        for row in self.found["config"]:
            name = _DASHBOARD.get(str(row["key"]))
            says = "settings of its dashboard without a name here" if name is None else f"set {name} yourself"
            self._left[f"{says} (its dashboard had changed it)" if name else says] += 1

    def _insert(self, table: Table, rows: Iterable[dict[str, object]]) -> None:
        waiting = iter(rows)
        while some := list(islice(waiting, _AT_ONCE)):
            self.connection.execute(insert(table), some)
            self._taken[f"{table.name}"] += len(some)  # a plain text, not SQLAlchemy's own

    def _clean(self, value: object) -> str | None:
        """Return a text without what are known to be secrets here: theirs hid less."""
        found = text(value)
        return None if found is None else self.redact(found)


def _done_before(connection: Connection, origin: str) -> datetime | None:
    done = connection.execute(select(commands).where(commands.c.name == COMMAND).order_by(commands.c.id))
    return next((row.ended_at for row in done if origin in row.arguments), None)
