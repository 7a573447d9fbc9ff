"""Commands that look at what is there and change nothing."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from pathlib import Path

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, WholeHelp, examples


@click.command(epilog=examples("claudeops probe", "claudeops probe web-http -o json"))
@click.argument("name", required=False)
@OUTPUT_FORMAT
def probe(name: str | None, output_format: str) -> int:
    """Look once with the probe NAME and show what it saw; without NAME, show how all probes stand.

    A look of this command is not recorded, and starts nothing. Exit status: 0 up, or all are shown, 1 not up or no such
    probe, 78 configuration.
    """
    from claudeops.cli.probe import print_probe

    return print_probe(name, as_json=output_format == "json")


@click.group(cls=WholeHelp)
def audit() -> None:
    """Check the record of tool calls."""


@audit.command(
    epilog=examples("claudeops audit verify", "claudeops audit verify --session 12 --log daemon.log -o json")
)
@click.option("--session", "session_id", type=click.IntRange(min=1), help="Only this session.")
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The daemon's log (JSON lines) to compare with.",
)
@OUTPUT_FORMAT
def verify(session_id: int | None, log: Path | None, output_format: str) -> int:
    """Find tool calls in the record that were changed, removed or inserted afterwards.

    Exit status: 0 the record is as it was written, 1 it is not.
    """
    from claudeops.cli.audit import verify_trail

    return verify_trail(session_id=session_id, log=log, as_json=output_format == "json")
