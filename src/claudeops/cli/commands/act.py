"""Commands by which an operator answers and holds."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from claudeops.cli.commands.filters import filters, shaped
from claudeops.cli.commands.options import OUTPUT_FORMAT, SESSION, examples

if TYPE_CHECKING:  # help and mistakes are answered without the model
    from claudeops.cli.answer import AnswerShape
    from claudeops.domain.listing import Listing, Reference


@click.command(
    "list-approvals", epilog=examples("claudeops list-approvals", "claudeops list-approvals --all --since 7d")
)
@click.option("--all", "everything", is_flag=True, help="Also those that were answered, were used or have expired.")
@filters("service", "level", "outcome")
@shaped()
def list_approvals(everything: bool, wanted: Listing, shape: AnswerShape) -> int:  # noqa: FBT001 - click
    """Show the tool calls that wait for a person's approval, in full."""
    from claudeops.cli.approvals import print_approvals

    return print_approvals(wanted, everything=everything, shape=shape)


@click.command(epilog=examples("claudeops approve 3", "claudeops approve 3 -o json"))
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@click.option("--unseen", is_flag=True, help="Say yes though parts of the call are hidden because they look secret.")
@OUTPUT_FORMAT
def approve(approval_id: int, unseen: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Let a tool call that waits for a person's approval run.

    `list-approvals` shows what it would do. The answer counts for that one call. Where the policy wants several people,
    each yes but the last one is only counted. A call that is not shown whole takes a yes with --unseen alone.

    Exit status: 0 answered, 1 the call takes no answer any more, or not this one, 78 configuration.
    """
    from claudeops.cli.approvals import decide
    from claudeops.domain.gate.approval import ApprovalStatus

    return decide(approval_id, ApprovalStatus.APPROVED, as_json=output_format == "json", unseen=unseen)


@click.command(epilog=examples("claudeops deny 3", "claudeops deny 3 -o json"))
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@OUTPUT_FORMAT
def deny(approval_id: int, output_format: str) -> int:
    """Refuse a tool call that waits for a person; its session goes on without it."""
    from claudeops.cli.approvals import decide
    from claudeops.domain.gate.approval import ApprovalStatus

    return decide(approval_id, ApprovalStatus.DENIED, as_json=output_format == "json")


@click.command(epilog=examples('claudeops pause --reason "moving house"', "claudeops pause --stop"))
@click.option("--reason", help="Why; shown to everybody who looks.")
@click.option("--stop", is_flag=True, help="Stop running sessions too, instead of letting them finish.")
@OUTPUT_FORMAT
def pause(reason: str | None, stop: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Start no sessions from now on, until `resume`; the pause survives a restart."""
    from claudeops.cli.operator import pause_sessions

    return pause_sessions(reason=reason, stop=stop, as_json=output_format == "json")


@click.command(epilog=examples("claudeops resume", "claudeops resume -o json"))
@OUTPUT_FORMAT
def resume(output_format: str) -> int:
    """Start sessions again after `pause`, those first that were queued meanwhile."""
    from claudeops.cli.operator import resume_sessions

    return resume_sessions(as_json=output_format == "json")


@click.command(epilog=examples("claudeops stop 12", "claudeops stop 12 --chain"))
@click.argument("session", type=SESSION, metavar="ID")
@click.option("--chain", "whole_chain", is_flag=True, help="Everything that is left of its chain, running or queued.")
@click.option("--no-wait", is_flag=True, help="Ask, and do not look whether it has ended.")
@OUTPUT_FORMAT
def stop(session: tuple[str, Reference], whole_chain: bool, no_wait: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Stop a session, or what is left of its chain; what ends so is not tried again, and hands over to nobody.

    ID is a session's number, or four or more characters of its CLI's own id. A session that has ended stands for its
    chain. Exit status: 0 stopped, or still stopping, 1 nothing to stop or no daemon runs.
    """
    from claudeops.cli.sessions.acts import stop_sessions

    written, wanted = session
    return stop_sessions(wanted, written=written, chain=whole_chain, wait=not no_wait, as_json=output_format == "json")
