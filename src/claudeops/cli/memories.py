"""``claudeops memories``: what the agents believe, and its correction by hand.

Works with and without a running daemon: sessions that start afterwards read what is in the database then.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from claudeops.cli.on_database import not_done, now, operators_name, run_on_database
from claudeops.cli.reply import CommandResult
from claudeops.domain.answers import document
from claudeops.domain.report.report import ReportedMemory
from claudeops.store.acts import Refusal
from claudeops.store.acts import memories as acts
from claudeops.store.acts.memories import MemoryAct, MemoryVerb
from claudeops.store.database import Database
from claudeops.store.knowledge.memories import Memories
from claudeops.store.reading.memories import MemoryEntry, is_shown, state_of, to_entry
from claudeops.text.escapes import visible

_LIST: Final = "memories list"
_DAY: Final = timedelta(days=1)
_DONE: Final = {
    MemoryVerb.FORGET: "forgotten",
    MemoryVerb.RESTORE: "restored",
    MemoryVerb.CONFIRM: "confirmed",
}


def print_memories(*, service: str | None, everything: bool, as_json: bool) -> int:
    """Print the memories in use, or all of them; return the exit status."""
    return run_on_database(_LIST, partial(_listed, service, everything), as_json=as_json)


def add_memory(memory: ReportedMemory, *, as_json: bool) -> int:
    """Write an operator's own memory; return the exit status."""

    async def add(database: Database) -> CommandResult:
        return _answer(
            "memories add", await acts.add_memory(Memories(database), memory, by=operators_name(), now=now()), "added"
        )

    return run_on_database("memories add", add, as_json=as_json)


def change_memory(verb: MemoryVerb, number: int, *, as_json: bool) -> int:
    """Forget, restore or confirm a memory; return the exit status."""

    async def change(database: Database) -> CommandResult:
        done = await acts.change_memory(Memories(database), verb, number, by=operators_name(), now=now())
        return _answer(f"memories {verb}", done, _DONE[verb])

    return run_on_database(f"memories {verb}", change, as_json=as_json, target=str(number))


async def _listed(service: str | None, everything: bool, database: Database) -> CommandResult:  # noqa: FBT001 - bound by name
    at = now()
    known = await Memories(database).known(service=service, everything=everything)
    shown = [to_entry(one, at) for one in known if everything or is_shown(one, at)]
    text = "\n".join(_text(one, at) for one in shown) or "no memories"
    return CommandResult(text=text, body={"memories_count": len(shown), "memories": [document(one) for one in shown]})


def _answer(operation: str, done: MemoryAct | Refusal, what: str) -> CommandResult:
    if isinstance(done, Refusal):
        return not_done(operation, done)
    at = now()
    lines = [f"memory {done.memory_id}: {what} by {done.memory.changed_by}", _text(done.memory, at)]
    lines += [f"also changed: {_text(other, at)}" for other in done.also_changed]
    return CommandResult(text="\n".join(lines), body=document(done))


def _text(memory: MemoryEntry, at: datetime) -> str:
    """Return a memory for people to read, without control characters that a terminal would obey."""
    key = memory.category if memory.service is None else f"{memory.service}/{memory.category}"
    facts = [
        f"m{memory.memory_id} {visible(key)}",
        f"{memory.trust.value} {memory.confidence:.2f}",
        visible(state_of(memory)),
        _source(memory),
        _age(memory, at),
    ]
    if memory.supersedes is not None:
        facts.append(f"in place of m{memory.supersedes}")
    return f"{' · '.join(fact for fact in facts if fact)}\n    {visible(' '.join(memory.observation.split()))}"


def _source(memory: MemoryEntry) -> str:
    if memory.session_id is None:
        return f"by {visible(memory.changed_by)}" if memory.changed_by else "its session was removed"
    of_chain = "" if memory.chain is None else f" of chain {memory.chain}"
    return f"session {memory.session_id} (tier {memory.tier}){of_chain}"


def _age(memory: MemoryEntry, at: datetime) -> str:
    if memory.created_at is None:
        return ""
    days = (at - memory.created_at) // _DAY
    return "today" if days < 1 else f"{days} days old" if days > 1 else "1 day old"
