"""``list-sources``: who sends alerts, declared or heard of, and what could not be read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from claudeops.cli.start import read_settings
from claudeops.cli.text.layout import Cell, Column, Looks, Style, count_of, table
from claudeops.cli.views import Answer, Body, Shape, database_url, present
from claudeops.domain.alerts.rules import Source
from claudeops.domain.gate.approval import visible
from claudeops.store.reading import opened
from claudeops.store.reading.sources import SourceEntry, heard

_NAME: Final = "list-sources"

_Known = tuple[Source | None, SourceEntry | None]
"""A source as it is declared, and as it was heard of; one of the two is there."""


def print_sources(*, shape: Shape) -> int:
    """Print who sends; return the exit status."""

    def ask(_: datetime) -> Answer:
        declared = read_settings().alerts.sources
        with opened(database_url()) as connection:
            entries = {entry.source: entry for entry in heard(connection)}
        found: list[_Known] = [(source, entries.pop(source.name, None)) for source in declared]
        found += [(None, entry) for entry in entries.values()]
        return Answer(
            body={"sources_count": len(found), "sources": [_document(*one) for one in found]},
            draw=partial(_drawn, found),
        )

    return present(_NAME, ask, shape)


def _document(source: Source | None, entry: SourceEntry | None) -> Body:
    return {
        "source": visible(_name(source, entry)),
        "kind": None if source is None else source.kind.value,
        "declared": source is not None,
        "bodies": 0 if entry is None else entry.bodies,
        "alerts": 0 if entry is None else entry.alerts,
        "unreadable": 0 if entry is None else entry.unreadable,
        "readable": entry is None or entry.readable,
        "since": None if entry is None else entry.since,
        "heard_at": None if entry is None else entry.heard_at,
        "unreadable_at": None if entry is None else entry.unreadable_at,
        "reason": _text(None if entry is None else entry.reason),
        "sent": _text(None if entry is None else entry.sent),
    }


def _name(source: Source | None, entry: SourceEntry | None) -> str:
    return source.name if source is not None else "" if entry is None else entry.source


def _text(value: str | None) -> str | None:
    return None if value is None else visible(value)


def _drawn(found: Sequence[_Known], looks: Looks) -> Sequence[str]:
    columns = [Column("SOURCE"), Column("KIND"), Column("BODIES"), Column("ALERTS"), Column("UNREADABLE")]
    rows = [_row(source, entry, looks) for source, entry in found]
    lines = table([*columns, Column("LAST HEARD OF")], rows, looks)
    told = [line for source, entry in found for line in _unread(source, entry, looks)]
    return [*(lines or ["no source is declared: set CLAUDEOPS_ALERTS_PATH"]), *told]


def _row(source: Source | None, entry: SourceEntry | None, looks: Looks) -> Sequence[Cell | str]:
    kind = "not declared" if source is None else source.kind.value
    name = Cell(visible(_name(source, entry)), Style.WARN if entry is not None and not entry.readable else Style.PLAIN)
    if entry is None:
        return name, kind, "0", "0", "0", Cell("never", Style.QUIET)
    counts = (str(entry.bodies), str(entry.alerts), str(entry.unreadable))
    return name, Cell(kind, Style.QUIET if source is None else Style.PLAIN), *counts, looks.time(entry.heard_at)


def _unread(source: Source | None, entry: SourceEntry | None, looks: Looks) -> Iterator[str]:
    """Yield what a source last sent that could not be read, and why not."""
    if entry is None or entry.reason is None:
        return
    name, when = visible(_name(source, entry)), looks.time(entry.unreadable_at)
    yield ""
    if entry.readable:
        yield f"{name} sent what could not be read, {when}; what came since can be read"
    else:
        bodies = count_of(entry.unreadable, "body", "bodies")
        yield looks.styled(f"{name} sends what cannot be read: {bodies}, the last {when}", Style.WARN)
    yield f"    {visible(entry.reason)}"
    if entry.sent:
        yield f"    {visible(' '.join(entry.sent.split()))}"
