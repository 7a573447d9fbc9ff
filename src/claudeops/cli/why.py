"""``claudeops why``: why nothing was done, by everything on record that explains it, in the order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, present
from claudeops.cli.text.layout import Column, Layout, Style, TableCell, table, wrapped
from claudeops.domain.answers import document
from claudeops.domain.why import ReasonTone, window
from claudeops.store.reading import opened
from claudeops.store.reading.why import reasons
from claudeops.text.escapes import visible
from claudeops.wording.why import WhyAnswer, answer_of

_NAME: Final = "why"
_STYLES: Final[Mapping[ReasonTone, Style]] = {
    ReasonTone.GOOD: Style.GOOD,
    ReasonTone.NEUTRAL: Style.PLAIN,
    ReasonTone.BAD: Style.WARN,
}


def print_why(service: str | None, *, at: datetime | None, within: timedelta, limit: int, shape: AnswerShape) -> int:
    """Print the reasons; return the exit status. ``at``: until shortly after then, None: until now."""

    def ask(now: datetime) -> CommandAnswer:
        since, until = window(at, within, now)
        with opened(database_url()) as connection:
            found = reasons(connection, service=service, since=since, until=until, limit=limit)
        answer = answer_of(found)
        return CommandAnswer(body=document(answer), draw=partial(_drawn, answer))

    return present(_NAME, ask, shape, target=service)


# --- text -------------------------------------------------------------------------------------------------


def _drawn(found: WhyAnswer, looks: Layout) -> Sequence[str]:
    columns = [
        Column("WHEN"),
        Column("WHAT"),
        Column("CHAIN", right=True, extra=True),
        Column("INCIDENT", right=True, extra=True),
        Column("REASON", shrinks=True),
    ]
    rows = [
        (
            looks.time(reason.at),
            TableCell(reason.kind.value, Style.QUIET),
            "" if reason.chain is None else str(reason.chain),
            "" if reason.incident is None else str(reason.incident),
            TableCell(reason.text, _STYLES[reason.level]),
        )
        for reason in found.reasons
    ]
    lines = table(columns, rows, looks)
    if found.nothing is not None:
        lines = [*lines, *([""] if lines else []), *wrapped(visible(found.nothing), looks.width)]
    if found.cut:
        lines += ["", looks.styled("There are more: ask for a shorter time (--within), or a longer list.", Style.QUIET)]
    return lines
