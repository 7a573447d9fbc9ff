"""What an operator says about calls, pauses and the record. What it does is imported when it is called."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from claudeops.cli.whole_help import WholeHelp

_OUTPUT_FORMAT: Final = click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)


@click.command()
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@_OUTPUT_FORMAT
def approve(approval_id: int, output_format: str) -> int:
    """Let a tool call run that waits for a person.

    What it would do is shown by `list-approvals`. The answer counts for that one call.

    Exit status: 0 given, 1 it takes no answer any more, 78 configuration.
    """
    from claudeops.cli.approvals import give
    from claudeops.domain.approval import ApprovalStatus

    return give(approval_id, ApprovalStatus.APPROVED, as_json=output_format == "json")


@click.command()
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@_OUTPUT_FORMAT
def deny(approval_id: int, output_format: str) -> int:
    """Refuse a tool call that waits for a person; its session goes on without it."""
    from claudeops.cli.approvals import give
    from claudeops.domain.approval import ApprovalStatus

    return give(approval_id, ApprovalStatus.DENIED, as_json=output_format == "json")


@click.command("list-approvals")
@click.option("--all", "everything", is_flag=True, help="Also those that were answered, used or are over.")
@_OUTPUT_FORMAT
def list_approvals(everything: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Show the tool calls that wait for a person, whole."""
    from claudeops.cli.approvals import show_all

    return show_all(everything=everything, as_json=output_format == "json")


@click.command()
@click.option("--reason", help="Why; told to whoever looks.")
@click.option("--stop", is_flag=True, help="Stop running sessions too, instead of letting them end.")
@_OUTPUT_FORMAT
def pause(reason: str | None, stop: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Start no session from now on, until `resume`; a restart changes nothing about it."""
    from claudeops.cli.pause import pause as pause_sessions

    return pause_sessions(reason=reason, stop=stop, as_json=output_format == "json")


@click.command()
@_OUTPUT_FORMAT
def resume(output_format: str) -> int:
    """Start sessions again after `pause`; what was queued meanwhile is run."""
    from claudeops.cli.pause import resume as resume_sessions

    return resume_sessions(as_json=output_format == "json")


@click.group(cls=WholeHelp)
def audit() -> None:
    """Look at the record of tool calls."""


@audit.command()
@click.option("--session", "session_id", type=click.IntRange(min=1), help="Only this session.")
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The daemon's log (JSON lines), to compare with.",
)
@_OUTPUT_FORMAT
def verify(session_id: int | None, log: Path | None, output_format: str) -> int:
    """Find tool calls in the record that were changed, taken out or put in afterwards.

    Exit status: 0 as it was written, 1 it was not.
    """
    from claudeops.cli.audit import verify as verify_trail

    return verify_trail(session_id=session_id, log=log, as_json=output_format == "json")


COMMANDS: Final[tuple[click.Command, ...]] = (approve, deny, list_approvals, pause, resume, audit)
