"""Commands on alerts: incidents, silences, and recorded bodies."""

# ruff: noqa: PLC0415, FBT001 - a command imports what it does when it is called; click passes flags by name

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from claudeops.cli.commands.filters import LENGTH, filters, shaped
from claudeops.cli.commands.options import OUTPUT_FORMAT, WholeHelp, examples

if TYPE_CHECKING:  # help and mistakes are answered without the model
    from claudeops.cli.answer import AnswerShape
    from claudeops.domain.listing import Listing


_NUMBER: Final = click.argument("number", type=click.IntRange(1, 2**31 - 1), metavar="NUMBER")


@click.command(
    "list-incidents", epilog=examples("claudeops list-incidents", "claudeops list-incidents --all --since 7d")
)
@click.option("--all", "everything", is_flag=True, help="Also those that are over.")
@filters("tier", "outcome")
@shaped()
def list_incidents(everything: bool, wanted: Listing, shape: AnswerShape) -> int:
    """List what is wrong: incidents that are open, newest first."""
    from claudeops.cli.incidents import print_incidents

    return print_incidents(wanted, everything=everything, shape=shape)


@click.command(epilog=examples("claudeops incident 3", "claudeops incident 3 -o json"))
@_NUMBER
@shaped()
def incident(number: int, shape: AnswerShape) -> int:
    """Show one incident: its alerts and what became of them, its sessions, what they did, and who says it is over.

    Exit status: 0, or 1 when there is no such incident.
    """
    from claudeops.cli.incident import print_incident

    return print_incident(number, shape=shape)


@click.command(epilog=examples("claudeops ack 3", "claudeops ack 3 -o json"))
@_NUMBER
@OUTPUT_FORMAT
def ack(number: int, output_format: str) -> int:
    """Take an incident: what else comes about it joins it, and starts no session.

    Exit status: 0 taken, 1 there is no such incident, or it is over.
    """
    from claudeops.cli.acknowledge import acknowledge

    return acknowledge(number, as_json=output_format == "json")


@click.command(epilog=examples("claudeops resolve 3", "claudeops resolve 3 -o json"))
@_NUMBER
@OUTPUT_FORMAT
def resolve(number: int, output_format: str) -> int:
    """Say that an incident is over; what comes back within the hour opens it again.

    Exit status: 0 done, 1 there is no such incident.
    """
    from claudeops.cli.acknowledge import resolve as say_so

    return say_so(number, as_json=output_format == "json")


@click.command(
    epilog=examples(
        "claudeops silence 'service=\"shop\"' --for 2h --comment 'moving the database'",
        "claudeops silence 'alertname=~\"Disk.*\"' --preview",
    )
)
@click.argument("matchers", nargs=-1, required=True, metavar="MATCHER...")
@click.option("--for", "lasts", type=LENGTH, default="2h", show_default=True, help="How long: 30m, 2h, 7d.")
@click.option("--comment", default="", help="Why; shown to everybody who looks.")
@click.option("--preview", "only_preview", is_flag=True, help="Only say what it would hold back, and have held back.")
@OUTPUT_FORMAT
def silence(matchers: tuple[str, ...], lasts: timedelta, comment: str, only_preview: bool, output_format: str) -> int:
    """Hold back alerts for a while: all matchers must fit, as in `alerts.toml`.

    What still fires when the silence is over is decided about then.
    """
    from claudeops.cli.acknowledge import silence as hold_back
    from claudeops.domain.alerts.matchers import read_matchers

    try:
        read = read_matchers(matchers)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="MATCHER") from None
    return hold_back(read, lasts=lasts, comment=comment, only_preview=only_preview, as_json=output_format == "json")


@click.command("end-silence", epilog=examples("claudeops end-silence 3", "claudeops end-silence 3 -o json"))
@_NUMBER
@OUTPUT_FORMAT
def end_silence(number: int, output_format: str) -> int:
    """End a silence before its time: what still fires is decided about within seconds.

    Exit status: 0 done, 1 there is no such silence, or it is over.
    """
    from claudeops.cli.acknowledge import end_silence as end

    return end(number, as_json=output_format == "json")


@click.command("list-silences", epilog=examples("claudeops list-silences", "claudeops list-silences --all -o json"))
@click.option("--all", "everything", is_flag=True, help="Also those that are over.")
@shaped()
def list_silences(everything: bool, shape: AnswerShape) -> int:
    """List the silences that hold, who wants them and why, and how many alerts they have held back."""
    from claudeops.cli.alerts.silences import print_silences

    return print_silences(everything=everything, shape=shape)


@click.command("list-sources", epilog=examples("claudeops list-sources", "claudeops list-sources -o json"))
@shaped()
def list_sources(shape: AnswerShape) -> int:
    """List who sends alerts: how much, when last, and what could not be read of it and why.

    Also sources that are declared and were never heard of.
    """
    from claudeops.cli.alerts.sources import print_sources

    return print_sources(shape=shape)


@click.group(cls=WholeHelp)
def alerts() -> None:
    """Try the rules for alerts."""


@alerts.command(
    "replay",
    epilog=examples(
        "claudeops alerts replay storm.ndjson", "claudeops alerts replay body.json --source prometheus -o json"
    ),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--source", metavar="NAME", help="Who has sent the file, which is one body then, byte for byte.")
@click.option(
    "--chain-lasts", type=LENGTH, default="10m", show_default=True, help="How long a chain counts as running."
)
@OUTPUT_FORMAT
def replay_alerts(file: Path, source: str | None, chain_lasts: timedelta, output_format: str) -> int:
    """Decide about recorded bodies by the rules as they are now; nothing is written, nothing started.

    FILE has a line for each body with `source`, `at` and `body`; with --source it is one body. Exit status: 0 decided,
    66 no such file, 78 configuration.
    """
    from claudeops.cli.alerts.replay import replay_file

    return replay_file(file, source=source, runs_for=chain_lasts, as_json=output_format == "json")
