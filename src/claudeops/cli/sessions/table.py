"""How sessions are shown, and whom an id that a person wrote means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from claudeops.cli.reply import CommandResult, not_found
from claudeops.cli.text.layout import Column, Layout, Style, TableCell, table, usd
from claudeops.domain.listing import reference
from claudeops.domain.sessions import Outcome
from claudeops.store.database import Database
from claudeops.store.reading import Connection, session_ids
from claudeops.store.reading.session_rows import ListedSession
from claudeops.text.escapes import visible

NOT_FOUND: Final = "session_not_found"

_WELL: Final = frozenset({None, Outcome.SUCCESS})


def find(connection: Connection, written: str) -> int | str:
    """Return the id of the session that a person means, or the sentence that there is none, or more than one."""
    try:
        wanted = reference(written)
    except ValueError as error:
        return f"There is no such session: {error}"
    found = session_ids(connection, wanted)
    if len(found) > 1:
        return f"{visible(written)!r} fits several sessions ({', '.join(map(str, found))}): write more of it."
    if not found:
        return f"There is no session {visible(written)!r}; `claudeops list-sessions` lists those that there are."
    return found[0]


async def find_in(database: Database, written: str) -> int | CommandResult:
    """Return the id of the session that a person means, or the answer that says why there is none."""
    found = await database.read(partial(find, written=written))
    return not_found(NOT_FOUND, written, found) if isinstance(found, str) else found


def sessions_table(found: Sequence[ListedSession], looks: Layout, *, indent: int = 0) -> list[str]:
    """Return sessions as a table."""
    columns = [
        Column("ID", right=True),
        Column("CHAIN", right=True),
        Column("TIER", right=True),
        Column("MODEL", shrinks=True),
        Column("BEGAN"),
        Column("STARTED BY", shrinks=True, extra=True),
        Column("OUTCOME"),
        Column("DECISION"),
        Column("COST", right=True),
        Column("SUMMARY", shrinks=True),
    ]
    return table(columns, [_row(one, looks) for one in found], looks, indent=indent)


def _row(session: ListedSession, looks: Layout) -> Sequence[TableCell | str]:
    return (
        str(session.id),
        str(session.chain),
        str(session.tier),
        TableCell(visible(session.model), Style.QUIET),
        looks.time(session.started_at or session.created_at),
        TableCell(visible(session.started_by or session.trigger), Style.QUIET),
        TableCell(session.outcome or session.status, Style.PLAIN if session.outcome in _WELL else Style.BAD),
        session.decision or "-",
        usd(session.cost_usd),
        visible(" ".join((session.summary or session.error or "-").split())),
    )
