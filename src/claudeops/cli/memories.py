"""``claudeops memories``: what the agents believe, and its correction by hand.

Works with and without a running daemon: sessions that start afterwards read what is in the database then.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from claudeops.cli.operator import CommandResult, now, operators_name, refused, run_on_database
from claudeops.domain.gate.approval import visible
from claudeops.domain.memory.confidence import standing
from claudeops.domain.memory.model import KnownMemory
from claudeops.domain.memory.stated import Declined
from claudeops.domain.model import ReportedMemory
from claudeops.domain.text.answers import document
from claudeops.settings import Settings
from claudeops.store.reading.memories import is_shown, state_of, to_entry
from claudeops.store.store import SqlStore

_LIST: Final = "memories list"
_DAY: Final = timedelta(days=1)


def print_memories(*, service: str | None, everything: bool, as_json: bool) -> int:
    """Print the memories in use, or all of them; return the exit status."""
    return run_on_database(_LIST, partial(_listed, service, everything), as_json=as_json)


def add_memory(memory: ReportedMemory, *, as_json: bool) -> int:
    """Write an operator's own memory; return the exit status."""

    async def add(_settings: Settings, store: SqlStore) -> CommandResult:
        done = await store.memories.add(memory, by=operators_name(), now=now())
        return _answer("memories add", "", done, "added")

    return run_on_database("memories add", add, as_json=as_json)


def change_memory(verb: str, number: int, *, as_json: bool) -> int:
    """Forget, restore or confirm a memory; return the exit status."""
    return run_on_database(f"memories {verb}", partial(_changed, verb, number), as_json=as_json, target=str(number))


async def _changed(verb: str, number: int, _settings: Settings, store: SqlStore) -> CommandResult:
    operations = {
        "forget": (store.memories.forget, "forgotten"),
        "restore": (store.memories.restore, "restored"),
        "confirm": (store.memories.confirm, "confirmed"),
    }
    operation, done = operations[verb]
    changed = await operation(number, by=operators_name(), now=now())
    return _answer(f"memories {verb}", str(number), changed, done)


async def _listed(service: str | None, everything: bool, _settings: Settings, store: SqlStore) -> CommandResult:  # noqa: FBT001 - bound by name
    found = await store.memories.known(service=service, everything=everything)
    at = now()
    shown = [one for one in found if everything or is_shown(one, at)]
    text = "\n".join(_text(one, at) for one in shown) or "no memories"
    return CommandResult(
        text=text, body={"memories_count": len(shown), "memories": [_document(one, at) for one in shown]}
    )


def _answer(operation: str, target: str, changed: Sequence[KnownMemory] | Declined, done: str) -> CommandResult:
    if isinstance(changed, Declined):
        return refused(operation, target, changed.sentence)
    at = now()
    memory, *others = changed
    lines = [f"memory {memory.id}: {done} by {memory.changed_by}", _text(memory, at)]
    lines += [f"also changed: {_text(other, at)}" for other in others]
    return CommandResult(
        text="\n".join(lines),
        body={
            "memory_id": memory.id,
            "handled": True,
            "memory": _document(memory, at),
            "also_changed": [_document(other, at) for other in others],
        },
    )


def _text(memory: KnownMemory, at: datetime) -> str:
    """Return a memory for people to read, without control characters that a terminal would obey."""
    key = memory.category if memory.service is None else f"{memory.service}/{memory.category}"
    facts = [
        f"m{memory.id} {visible(key)}",
        f"{memory.trust.value} {standing(memory, at):.2f}",
        visible(state_of(to_entry(memory, at))),
        _source(memory),
        _age(memory, at),
    ]
    if memory.supersedes is not None:
        facts.append(f"in place of m{memory.supersedes}")
    return f"{' · '.join(fact for fact in facts if fact)}\n    {visible(' '.join(memory.observation.split()))}"


def _source(memory: KnownMemory) -> str:
    if memory.session_id is None:
        return f"by {visible(memory.changed_by)}" if memory.changed_by else "its session was removed"
    chain = memory.evidence.root_session_id
    return f"session {memory.session_id} (tier {memory.tier})" + (f" of chain {chain}" if chain is not None else "")


def _age(memory: KnownMemory, at: datetime) -> str:
    if memory.created_at is None:
        return ""
    days = (at - memory.created_at) // _DAY
    return "today" if days < 1 else f"{days} days old" if days > 1 else "1 day old"


def _document(memory: KnownMemory, at: datetime) -> dict[str, object]:
    return document(to_entry(memory, at))
