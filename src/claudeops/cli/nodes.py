"""``list-nodes``: the daemons that run on the database, on whichever machine.

A command of its own: ``status`` is about the daemon of this machine, and answers while the database is away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, present
from claudeops.cli.text.layout import Column, Layout, Style, TableCell, table
from claudeops.domain.answers import plain
from claudeops.store.reading import opened
from claudeops.store.reading.nodes import SILENT_SECONDS, NodeEntry, conditions, listed
from claudeops.text.escapes import visible

_NAME: Final = "list-nodes"


def print_nodes(*, shape: AnswerShape) -> int:
    """Print which daemons run; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found, beside = listed(connection, now=now), conditions(connection)
        body = {"nodes_count": len(found), "nodes": plain(found), "conditions": plain(beside)}
        return CommandAnswer(body=body, draw=partial(_drawn, found, beside))

    return present(_NAME, ask, shape)


def _drawn(found: Sequence[NodeEntry], beside: Sequence[str], looks: Layout) -> Sequence[str]:
    columns = [Column("NODE", shrinks=True), Column("SITE"), Column("VERSION"), Column("TABLES"), Column("PID")]
    lines = table([*columns, Column("SINCE"), Column("LAST SEEN")], [_row(one, looks) for one in found], looks)
    return [*(lines or ["no daemon runs on this database"]), *_differences(found, looks), *_conditions(beside, looks)]


def _row(one: NodeEntry, looks: Layout) -> Sequence[TableCell | str]:
    is_silent = one.silent_s >= SILENT_SECONDS
    seen = TableCell(f"{one.silent_s:.0f} s ago", Style.WARN if is_silent else Style.PLAIN)
    version = TableCell(_or_dash(one.version), Style.WARN if "version" in one.differs else Style.PLAIN)
    name = TableCell(_or_dash(one.node), Style.NAME)
    return name, _or_dash(one.site), version, _or_dash(one.revision), str(one.pid), looks.time(one.since), seen


def _differences(found: Sequence[NodeEntry], looks: Layout) -> Iterator[str]:
    for one in found:
        if one.differs:
            names = f"{_or_dash(one.node)} (pid {one.pid}) and {_or_dash(found[0].node)} (pid {found[0].pid})"
            yield ""
            yield looks.styled(f"{names} do not have the same: {', '.join(map(visible, one.differs))}", Style.WARN)


def _conditions(beside: Sequence[str], looks: Layout) -> Iterator[str]:
    for message in beside:
        yield ""
        yield looks.styled(visible(message), Style.WARN)


def _or_dash(value: str | None) -> str:
    return "-" if value is None else visible(value)
