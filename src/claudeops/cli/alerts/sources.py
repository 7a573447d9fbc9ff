"""``list-sources``: who sends alerts, declared or heard of, and what could not be read of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, present
from claudeops.cli.text.layout import Column, Layout, Style, TableCell, count_of, table
from claudeops.domain.answers import plain
from claudeops.settings.alerts import declared_sources
from claudeops.store.reading import opened
from claudeops.store.reading.sources import SourceEntry, listed
from claudeops.text.escapes import visible

_NAME: Final = "list-sources"


def print_sources(*, shape: AnswerShape) -> int:
    """Print who sends; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        declared = declared_sources(os.environ, cwd=Path.cwd())
        with opened(database_url()) as connection:
            found = listed(connection, declared)
        return CommandAnswer(body={"sources_count": len(found), "sources": plain(found)}, draw=partial(_drawn, found))

    return present(_NAME, ask, shape)


def _drawn(found: Sequence[SourceEntry], looks: Layout) -> Sequence[str]:
    columns = [Column("SOURCE"), Column("KIND"), Column("BODIES"), Column("ALERTS"), Column("UNREADABLE")]
    lines = table([*columns, Column("LAST HEARD OF")], [_row(entry, looks) for entry in found], looks)
    unread = [line for entry in found for line in _unread(entry, looks)]
    return [*(lines or ["no source is declared: set CLAUDEOPS_ALERTS_PATH"]), *unread]


def _row(entry: SourceEntry, looks: Layout) -> Sequence[TableCell | str]:
    name = TableCell(visible(entry.source), Style.PLAIN if entry.readable else Style.WARN)
    kind = TableCell("not declared", Style.QUIET) if entry.kind is None else TableCell(entry.kind.value)
    counts = (str(entry.bodies), str(entry.alerts), str(entry.unreadable))
    last = TableCell("never", Style.QUIET) if entry.heard_at is None else looks.time(entry.heard_at)
    return name, kind, *counts, last


def _unread(entry: SourceEntry, looks: Layout) -> Iterator[str]:
    """Yield what a source last sent that could not be read, and why not."""
    if entry.reason is None:
        return
    name, when = visible(entry.source), looks.time(entry.unreadable_at)
    yield ""
    if entry.readable:
        yield f"{name} sent what could not be read, {when}; what came since can be read"
    else:
        bodies = count_of(entry.unreadable, "body", "bodies")
        yield looks.styled(f"{name} sends what cannot be read: {bodies}, the last {when}", Style.WARN)
    yield f"    {visible(entry.reason)}"
    if entry.sent:
        yield f"    {visible(' '.join(entry.sent.split()))}"
