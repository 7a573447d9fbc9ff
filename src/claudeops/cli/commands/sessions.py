"""Commands on what is on record of sessions, and on their logs."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from claudeops.cli.commands.filters import filters, shaped
from claudeops.cli.commands.options import OUTPUT_FORMAT, examples

if TYPE_CHECKING:  # help and mistakes are answered without the model
    from claudeops.cli.answer import AnswerShape
    from claudeops.domain.listing import Listing

_SESSION = click.argument("session_id", metavar="SESSION_ID")


@click.command(
    "list-sessions",
    epilog=examples(
        "claudeops list-sessions --since 2h",
        "claudeops list-sessions --tier 3 --outcome error -o json",
        "claudeops list-sessions --service web --limit 10",
    ),
)
@filters()
@shaped()
def list_sessions(wanted: Listing, shape: AnswerShape) -> int:
    """List sessions, newest first; --service asks for those that checked it, --level for those with such events.

    Exit status: 0 listed, also when there are none, 69 the database cannot be reached, 78 configuration.
    """
    from claudeops.cli.sessions.shown import list_sessions as listed

    return listed(wanted, shape=shape)


@click.command("load-session", epilog=examples("claudeops load-session 12", "claudeops load-session 3fa8c1 -o json"))
@_SESSION
@shaped()
def load_session(session_id: str, shape: AnswerShape) -> int:
    """Show everything that is on record about a session: its row, chain, events, calls, actions, memories.

    A SESSION_ID is its number, or four or more characters of the id that its CLI has. Exit status: 0 shown, 1 there is
    no such session, 69 the database cannot be reached, 78 configuration.
    """
    from claudeops.cli.sessions.shown import load_session as loaded

    return loaded(session_id, shape=shape)


@click.command(
    "delete-session", epilog=examples("claudeops delete-session 12", "claudeops delete-session 12 --chain -o json")
)
@_SESSION
@click.option("--chain", is_flag=True, help="The whole chain that it belongs to.")
@OUTPUT_FORMAT
def delete_session(session_id: str, chain: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Delete a session's record and its log; there is no way back.

    Money that it spent stays booked, its events and memories stay, and its tool calls leave a tombstone. Refused while
    it runs or waits, while later sessions of its chain stay, and while its actions count towards a limit. Exit status:
    0 deleted, 1 refused or no such session, 69 the database cannot be reached, 78 configuration.
    """
    from claudeops.cli.sessions.acts import delete_session as deleted

    return deleted(session_id, chain=chain, as_json=output_format == "json")


@click.command(
    "flush-transcript",
    epilog=examples(
        "claudeops flush-transcript 12", "claudeops flush-transcript 12 --output session-12.ndjson -o json"
    ),
)
@_SESSION
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Also copy the log, unpacked, to this file."
)
@OUTPUT_FORMAT
def flush_transcript(session_id: str, output: Path | None, output_format: str) -> int:
    """Take the log of an ended session in again, and add what its record lacks.

    Doing it twice adds nothing. Exit status: 0 taken in, 1 there is no such session or nothing can be read, 69 the
    database cannot be reached, 73 FILE cannot be written, 78 configuration.
    """
    from claudeops.cli.sessions.logs import flush_transcript as flushed

    return flushed(session_id, target=output, as_json=output_format == "json")


@click.command(
    epilog=examples("claudeops replay results/session-000012.ndjson", "claudeops replay old.ndjson --tier 2 -o json")
)
@click.argument("log", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--tier", type=click.IntRange(min=1), help="Read it as that of this tier.  [default: as on record, else 1]"
)
@OUTPUT_FORMAT
def replay(log: Path, tier: int | None, output_format: str) -> int:
    """Say what a session's LOG would lead to now: its report, the decision, and what would follow; writes nothing.

    Exit status: 0 told, 1 the log cannot be read as one, 66 it is not there, 69 the database cannot be reached, 78
    configuration.
    """
    from claudeops.cli.sessions.logs import replay as replayed

    return replayed(log, tier=tier, as_json=output_format == "json")
