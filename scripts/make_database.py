"""Writes docs/reference/database.md and values.md: ``python scripts/make_database.py``.

Tables, columns and members of closed sets carry their meanings; the prose around them stands here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Final

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Table, UniqueConstraint

from claudeops.closed_set import ClosedSet
from claudeops.domain.access.logins import Role
from claudeops.domain.actions import Recheck
from claudeops.domain.alerts.alert import AlertDecision, AlertStatus, IncidentStatus, WitnessKind
from claudeops.domain.briefing import TextKind
from claudeops.domain.calls import VerdictKind
from claudeops.domain.commands import CommandName
from claudeops.domain.events import EventLevel
from claudeops.domain.gate.approval import ApprovalStatus
from claudeops.domain.holds import HoldKind
from claudeops.domain.memories.categories import Category
from claudeops.domain.memories.memory import Trust
from claudeops.domain.notices.notice import DeliveryOutcome, Topic
from claudeops.domain.probes.probe import ProbeState
from claudeops.domain.report.report import CheckSource, ExtractionMethod, ServiceStatus
from claudeops.domain.schedules.plan import SkipReason
from claudeops.domain.sessions import DecisionReason, ErrorCategory, FailureKind, Outcome, Status, Trigger
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.store.tables import columns
from claudeops.store.tables.all_tables import metadata
from claudeops.store.tables.base import name_conditions

REFERENCE: Final = Path(__file__).parents[1] / "docs" / "reference"
DATABASE: Final = REFERENCE / "database.md"
VALUES: Final = REFERENCE / "values.md"

TABLES: Final = (
    "sessions",
    "session_texts",
    "schedule_fires",
    "events",
    "service_checks",
    "outbox",
    "memories",
    "session_memories",
    "tool_calls",
    "audit_tombstones",
    "cooldown_actions",
    "model_calls",
    "budget_entries",
    "settled_sums",
    "approvals",
    "approval_messages",
    "approval_answers",
    "passkey_assertions",
    "probes",
    "probe_views",
    "probe_history",
    "alert_deliveries",
    "alert_sources",
    "alert_queue",
    "alerts",
    "alert_decisions",
    "incidents",
    "silences",
    "commands",
    "flags",
    "instances",
    "leases",
    "api_tokens",
    "users",
    "passkeys",
    "login_links",
    "web_sessions",
    "idempotency_keys",
)
"""Tables, in the order of the page."""

SETS: Final[tuple[type[ClosedSet], ...]] = (
    Trigger,
    Status,
    Outcome,
    ErrorCategory,
    FailureKind,
    ExtractionMethod,
    DecisionReason,
    IsolationLevel,
    TextKind,
    SkipReason,
    EventLevel,
    ServiceStatus,
    CheckSource,
    Topic,
    DeliveryOutcome,
    Trust,
    Category,
    VerdictKind,
    Recheck,
    ApprovalStatus,
    ProbeState,
    AlertStatus,
    AlertDecision,
    IncidentStatus,
    WitnessKind,
    CommandName,
    HoldKind,
    Role,
)
"""Closed sets, in the order of the page."""

UNCHECKED: Final[Mapping[str, type[ClosedSet]]] = {
    "sessions.trigger": Trigger,
    "sessions.error_category": ErrorCategory,
    "sessions.failure_kind": FailureKind,
    "sessions.isolation": IsolationLevel,
    "schedule_fires.skipped_reason": SkipReason,
    "memories.category": Category,
    "approvals.status": ApprovalStatus,
    "approval_messages.shown": ApprovalStatus,
    "alerts.decision": AlertDecision,
    "commands.name": CommandName,
    "flags.name": HoldKind,
}
"""Columns with a closed set that the database does not check."""

INSIDE: Final[Mapping[str, tuple[str, type[ClosedSet]]]] = {"incidents.witnesses": ("kind", WitnessKind)}
"""Columns whose JSON has a key with a closed set."""

LINKS: Final[Mapping[str, tuple[str, str]]] = {
    "sessions.calls_ran": ("evidence", "../discussions/evidence.md"),
    "sessions.budget_usd": ("schedule", "schedules.md"),
    "sessions.incident_id": ("incident", "#incidents"),
    "sessions.services": ("report", "../discussions/evidence.md"),
    "model_calls.cost_usd": ("prices", "prices.md"),
    "alert_decisions.decision": ("what became of it", "alerts.md#decisions"),
    "silences.matchers": ("by their labels", "alerts.md"),
    "DecisionReason.healthy": ("evidence", "../discussions/evidence.md"),
    "SkipReason.unchanged": ("tier 0", "schedules.md#tier-0"),
}
"""Which phrase of a meaning leads where."""

TYPES: Final[Mapping[type, str]] = {
    BigInteger: "long",
    columns.Count: "count",
    columns.Usd: "dollars",
    columns.UsdSum: "dollars",
    columns.Name: "name",
    columns.CleanText: "text",
    columns.UtcDateTime: "time",
}

MADE: Final = "This page is made by `scripts/make_database.py` from the code; a test says when it is stale."

DATABASE_HEAD: Final = f"""# The database

{MADE}

SQLite or PostgreSQL, the same tables in both. People [ask the commands](../how-to/ask-from-the-shell.md); other
programs may read the tables, and only claudeops writes. Every change of the tables comes with a migration. A SQLite
file is backed up first, to `<file>.backup-<revision>-<time>`; backing up PostgreSQL is the operator's task.

| type | SQLite | PostgreSQL | |
| --- | --- | --- | --- |
| integer | INTEGER | integer | |
| long | INTEGER | bigint | |
| count | BIGINT | bigint | |
| float | FLOAT | double precision | |
| dollars | NUMERIC(20, 10) | numeric(20, 10) | US dollars |
| boolean | BOOLEAN (0, 1) | boolean | |
| name | VARCHAR(255) | varchar(255) | longer texts are cut |
| text | TEXT | text | NUL characters are replaced |
| time | `2026-03-01 12:00:00.000000` | timestamptz | UTC; as text in SQLite it sorts by time |

A type with `?` may be null, and an arrow names the table that a column refers to. Ids are never used again, not even
after their row was deleted. Every column that refers to another table has an index, and so have the times by which
[housekeeping](upkeep.md) finds what is old: `sessions.ended_at`, `events.resolved_at`, `service_checks.checked_at` and
(`probe_history.resolution`, `probe_history.bucket`). No query of the daemon, of a command or of the pages reads a table
that grows from one end to the other, but `audit verify`, lists of everything, trials of a policy and `/api/v1/stats`,
which sums up all that ever was. What the words in a column mean: [values](values.md).
"""

VALUES_HEAD: Final = f"""# Values

{MADE}

The closed sets of values that stand in the [database](database.md), in JSON, in logs and on pages, each under the name
of its set in the code.
"""

NOTES: Final[Mapping[str, str]] = {
    "sessions": """The `id` is also in the log's file name. A parent has at most one session of a tier, trigger and
        ordinal. A row has an outcome exactly when its status is `ended`.""",
    "events": "The fingerprints of open events are unique.",
    "memories": "What it is about: [memory](../discussions/memory.md).",
    "service_checks": "`healthy` is recorded only with a tool call or a probe as evidence.",
    "tool_calls": """The rows of a session form a chain: `hash` is the SHA-256 (hex) of the JSON array of
        `previous_hash`, `session_id`, `tool_use_id`, `agent_id`, `tool_name`, `input`, `verdict`, `reason`, `ran`
        (left out where it is null), `requested_at`, `decided_at` (both ISO 8601 with microseconds and `+00:00`),
        without blanks and in UTF-8. `sessions.audit_results` is the SHA-256 of the JSON array of `"results"` and, for
        each row, of an array of `hash`, `ended_at` (or null) and `is_error` (or null). A call that people decide on
        has two rows: `ask`, then the result. A call that the CLI itself refused is a `deny` whose reason begins with
        `refused by the CLI itself`, written when the session has ended.""",
    "audit_tombstones": """The rows form a chain of their own: `hash` is the SHA-256 of the JSON array of
        `previous_hash`, `session_id`, `calls`, `audit_head`, `audit_results`, `reason`, `buried_at`.""",
    "model_calls": """A row without `ended_at` is a call that is still open, or one whose daemon died. See
        [the meter](../discussions/the-meter.md).""",
    "passkey_assertions": """Bytes are in base64 for URLs where nothing else stands.
        [How to check a signature by hand](../how-to/demand-a-passkey.md#check-a-signature-by-hand).""",
    "alert_sources": "It is there for `claudeops list-sources`.",
    "alert_queue": """A row goes in the transaction that decides about it, so what a daemon leaves behind is decided by
        the next one, once.""",
    "commands": """A daemon that starts looks for what an earlier one left waiting or under way: a `stop`
        is done then, `stop_sessions` ends as lost.""",
    "idempotency_keys": "After a day a row counts no more; it goes when the next one comes.",
}
"""What there is to know of a table besides its comment."""


def database() -> str:
    """Return the page of the tables."""
    name_conditions()
    parts = [part for name in TABLES for part in _described(metadata.tables[name])]
    return "\n".join([DATABASE_HEAD, *parts]).rstrip() + "\n"


def values() -> str:
    """Return the page of the closed sets."""
    return "\n".join([VALUES_HEAD, *(part for members in SETS for part in _explained(members))]).rstrip() + "\n"


def _described(table: Table) -> Iterator[str]:
    yield f"## {table.name}\n"
    yield _paragraph(f"{table.comment} {NOTES.get(table.name, '')}")
    yield "| column | type | |\n| --- | --- | --- |"
    yield from (f"| `{column.name}` | {_type(column)} | {'; '.join(_meaning(column))} |" for column in table.columns)
    yield ""
    yield from _keys(table)


def _type(column: Column[object]) -> str:
    kind = TYPES.get(type(column.type)) or type(column.type).__name__.lower()
    return f"{kind}?" if column.nullable else kind


def _meaning(column: Column[object]) -> Iterator[str]:
    path = f"{column.table.name}.{column.name}"
    yield _linked(path, column.comment or "")
    if members := _members(column):
        yield f"one of {_named(members)}"
    if path in INSIDE:
        key, members = INSIDE[path]
        yield f"`{key}` is one of {_named(members)}"
    if default := column.server_default:
        yield f"default `{getattr(default, 'arg', '')}`"
    yield from (f"→ `{key.column.table.name}`" for key in column.foreign_keys)


def _members(column: Column[object]) -> type[ClosedSet] | None:
    """Return the closed set that a column holds."""
    for check in column.table.constraints:
        if isinstance(check, CheckConstraint) and check.info.get("column") == column.name:
            found: type[ClosedSet] = check.info["members"]
            return found
    return UNCHECKED.get(f"{column.table.name}.{column.name}")


def _named(members: type[ClosedSet]) -> str:
    name = members.__name__
    return f"[`{name}`](values.md#{name.lower()}): " + ", ".join(f"`{member.value}`" for member in members)


def _keys(table: Table) -> Iterator[str]:
    if [column.name for column in table.primary_key] != ["id"]:
        yield f"Key: {_listed(table.primary_key)}."
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    constraints = [each for each in table.constraints if isinstance(each, UniqueConstraint)]
    unique = [_listed(each.columns) for each in constraints] + [_indexed(each) for each in indexes if each.unique]
    if unique:
        yield f"Unique: {', '.join(unique)}."
    if others := [_indexed(each) for each in indexes if not each.unique]:
        yield f"Indexes: {', '.join(others)}."
    if constraints or indexes:
        yield ""


def _indexed(index: Index) -> str:
    condition = index.dialect_options["sqlite"]["where"]
    return _listed(index.columns) + ("" if condition is None else f" where `{condition}`")


def _listed(names: Iterable[Column[object]]) -> str:
    listed = ", ".join(f"`{column.name}`" for column in names)
    return f"({listed})" if "," in listed else listed


def _explained(members: type[ClosedSet]) -> Iterator[str]:
    yield f"## `{members.__name__}`\n"
    places = ", ".join(f"[`{path}`](database.md#{path.partition('.')[0]})" for path in _places(members))
    about = (inspect.getdoc(members) or "").replace("``", "`")
    yield _paragraph(f"{about} In {places}." if places else about)
    yield "| value | meaning |\n| --- | --- |"
    for member in members:
        yield f"| `{member.value}` | {_linked(f'{members.__name__}.{member.value}', member.meaning)} |"
    yield ""


def _places(members: type[ClosedSet]) -> Iterator[str]:
    for name in TABLES:
        for column in metadata.tables[name].columns:
            path = f"{name}.{column.name}"
            if members in (_members(column), INSIDE.get(path, ("", None))[1]):
                yield path


def _linked(path: str, text: str) -> str:
    phrase, target = LINKS.get(path, ("", ""))
    if phrase not in text:
        raise ValueError(f"{path}: {phrase!r} is not in {text!r}")
    return text.replace(phrase, f"[{phrase}]({target})", 1) if phrase else text


def _paragraph(text: str) -> str:
    return fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    DATABASE.write_text(database(), encoding="utf-8")
    VALUES.write_text(values(), encoding="utf-8")
