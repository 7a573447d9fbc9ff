"""``list-silences``: which alerts are held back, by whom and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, present
from claudeops.cli.text.layout import Layout
from claudeops.domain.answers import plain
from claudeops.store.reading import opened, silences
from claudeops.store.reading.silences import SilenceEntry
from claudeops.text.escapes import visible

_SILENCES: Final = "list-silences"


def print_silences(*, everything: bool, shape: AnswerShape) -> int:
    """Print the silences that hold, or all of them; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = silences.listed(connection, now, everything=everything)
        return CommandAnswer(
            body={"silences_count": len(found), "silences": plain(found)},
            draw=lambda looks: [line for one in found for line in _silence_lines(one, looks)] or ["no silence holds"],
        )

    return present(_SILENCES, ask, shape)


def silence_text(silence: SilenceEntry) -> str:
    """Return a silence on one line."""
    matchers = visible(", ".join(silence.matchers))
    return f"silence {silence.id} · {matchers} · until {silence.ends_at:%Y-%m-%d %H:%M:%S} UTC"


def _silence_lines(silence: SilenceEntry, looks: Layout) -> Sequence[str]:
    note = f": {visible(silence.comment)}" if silence.comment else ""
    matchers = visible(", ".join(silence.matchers))
    ends = f"ended by {visible(silence.ended_by)}" if silence.ended_by else "ends"
    return [
        f"{silence.id} · {matchers} · {ends} {looks.time(silence.ends_at)}",
        f"    by {visible(silence.created_by)}{note}; it has held back {silence.suppressed_count} alerts",
    ]
