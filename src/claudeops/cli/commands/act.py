"""Commands by which an operator answers and holds."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT


@click.command("list-approvals")
@click.option("--all", "everything", is_flag=True, help="Also those that were answered, were used or have expired.")
@OUTPUT_FORMAT
def list_approvals(everything: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Show the tool calls that wait for a person's approval, in full."""
    from claudeops.cli.operator import print_approvals

    return print_approvals(everything=everything, as_json=output_format == "json")


@click.command()
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@OUTPUT_FORMAT
def approve(approval_id: int, output_format: str) -> int:
    """Let a tool call that waits for a person's approval run.

    `list-approvals` shows what it would do. The answer counts for that one call.

    Exit status: 0 answered, 1 the call no longer takes an answer, 78 configuration.
    """
    from claudeops.cli.operator import decide
    from claudeops.domain.gate.approval import ApprovalStatus

    return decide(approval_id, ApprovalStatus.APPROVED, as_json=output_format == "json")


@click.command()
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@OUTPUT_FORMAT
def deny(approval_id: int, output_format: str) -> int:
    """Refuse a tool call that waits for a person; its session goes on without it."""
    from claudeops.cli.operator import decide
    from claudeops.domain.gate.approval import ApprovalStatus

    return decide(approval_id, ApprovalStatus.DENIED, as_json=output_format == "json")


@click.command()
@click.option("--reason", help="Why; shown to everybody who looks.")
@click.option("--stop", is_flag=True, help="Stop running sessions too, instead of letting them finish.")
@OUTPUT_FORMAT
def pause(reason: str | None, stop: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Start no sessions from now on, until `resume`; the pause survives a restart."""
    from claudeops.cli.operator import pause_sessions

    return pause_sessions(reason=reason, stop=stop, as_json=output_format == "json")


@click.command()
@OUTPUT_FORMAT
def resume(output_format: str) -> int:
    """Start sessions again after `pause`, those first that were queued meanwhile."""
    from claudeops.cli.operator import resume_sessions

    return resume_sessions(as_json=output_format == "json")
