"""Commands that answer what happened, what is going on, and what it costs."""

# ruff: noqa: PLC0415, FBT001 - a command imports what it does when it is called; click passes flags by name

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from claudeops.cli.commands.filters import LENGTH, LIMIT, MOMENT, SINCE, filters, shaped
from claudeops.cli.commands.options import SESSION, examples

if TYPE_CHECKING:  # help and mistakes are answered without the model
    from claudeops.cli.answer import AnswerShape
    from claudeops.domain.listing import Listing, Reference


@click.command(epilog=examples("claudeops status", "claudeops status --watch"))
@shaped()
def status(shape: AnswerShape) -> int:
    """Show in one screen whether the daemon lives, what runs and waits, today's money, and what is open.

    Answers also while the database is away, from the daemon's status file. Exit status: 0 the daemon lives, 1 it does
    not, 78 configuration.
    """
    from claudeops.cli.status import print_status

    return print_status(shape=shape)


@click.command("list-nodes", epilog=examples("claudeops list-nodes", "claudeops list-nodes -o json"))
@shaped()
def list_nodes(shape: AnswerShape) -> int:
    """List the daemons that run on the database: machine, site, version, since when, and when last seen.

    Below them is what two of them do not have the same: versions, and digests of policy, settings, prompts and the
    files by which they decide; then which node has died, and what waits for a node or a site without a daemon.
    """
    from claudeops.cli.nodes import print_nodes

    return print_nodes(shape=shape)


@click.command(epilog=examples("claudeops chain 12", "claudeops chain 12 --output-format json"))
@click.argument("session", type=SESSION, metavar="ID")
@shaped()
def chain(session: tuple[str, Reference], shape: AnswerShape) -> int:
    """Show the chain of a session as a tree: verdicts, actions, findings, cost, and why it went on or ended.

    ID is the number of any of its sessions, or four or more characters of the CLI's own session id. Exit status: 0, or
    1 when there is no such session.
    """
    from claudeops.cli.chain import print_chain

    written, wanted = session
    return print_chain(wanted, written=written, shape=shape)


@click.command(
    "diff-chains", epilog=examples("claudeops diff-chains 12 17", "claudeops diff-chains 12 17 --output-format json")
)
@click.argument("first", type=SESSION, metavar="ID")
@click.argument("second", type=SESSION, metavar="OTHER")
@shaped(watched=False)
def diff_chains(first: tuple[str, Reference], second: tuple[str, Reference], shape: AnswerShape) -> int:
    """Show the calls of two chains beside each other, and the first one in which they part.

    ID and OTHER are numbers of any of their sessions. Exit status: 0, or 1 when there is no such session.
    """
    from claudeops.cli.chain_diff import print_diff

    return print_diff((first, second), shape=shape)


@click.command(
    epilog=examples("claudeops why jellyfin --at 2026-07-01T03:10Z", "claudeops why --within 1h --output-format json")
)
@click.argument("service", required=False)
@click.option("--at", type=MOMENT, metavar="WHEN", help="Until 10 minutes after then.  [default: until now]")
@click.option(
    "--within", type=LENGTH, metavar="TIME", default="6h", show_default=True, help="How long before that: 30m, 2h, 7d."
)
@LIMIT
@shaped()
def why(service: str | None, at: datetime | None, within: timedelta, limit: int, shape: AnswerShape) -> int:
    """Say why nothing was done about SERVICE, by every reason on record, in their order; without SERVICE, about all.

    Fires of schedules that started nothing, decisions about alerts, silences, holds, limits, refused calls, questions
    without an answer, how sessions ended, and what probes saw. Where there is nothing, it says what is missing and what
    came last.
    """
    from claudeops.cli.why import print_why

    return print_why(service, at=at, within=within, limit=limit, shape=shape)


@click.command(
    "list-events",
    epilog=examples(
        "claudeops list-events --open --level warning", "claudeops list-events --service jellyfin --since 7d"
    ),
)
@filters()
@click.option("--open", "only_open", is_flag=True, help="Only those that are not resolved.")
@shaped()
def list_events(only_open: bool, wanted: Listing, shape: AnswerShape) -> int:
    """List what sessions and the daemon itself have raised, newest first."""
    from claudeops.cli.lists import print_events

    return print_events(wanted, only_open=only_open, shape=shape)


@click.command(
    "list-checks",
    epilog=examples("claudeops list-checks jellyfin", "claudeops list-checks --since 1h --output-format json"),
)
@click.argument("service", required=False)
@filters("service", "level")
@shaped()
def list_checks(service: str | None, wanted: Listing, shape: AnswerShape) -> int:
    """List how SERVICE was seen by sessions and probes, newest first; without SERVICE, all services.

    Exit status: 0, or 1 when nobody has looked at SERVICE.
    """
    from claudeops.cli.lists import print_checks
    from claudeops.structs import replace

    return print_checks(replace(wanted, service=service), shape=shape)


@click.command(
    "list-actions", epilog=examples("claudeops list-actions --since 24h", "claudeops list-actions --service jellyfin")
)
@filters("level")
@shaped()
def list_actions(wanted: Listing, shape: AnswerShape) -> int:
    """List restarts and other actions, whether they held, and what is left of each limit."""
    from claudeops.cli.lists import print_actions

    return print_actions(wanted, shape=shape)


@click.command(epilog=examples("claudeops spend", "claudeops spend --since 30d --by model"))
@SINCE
@click.option(
    "--by",
    type=click.Choice(["day", "tier", "model", "service", "verdict", "chain"]),
    help="Only this table.  [default: all]",
)
@LIMIT
@shaped()
def spend(since: datetime | None, by: str | None, limit: int, shape: AnswerShape) -> int:
    """Show what was spent in the last 7 days, by day, tier, model, service, verdict and chain, and what is reserved."""
    from claudeops.cli.spend import print_spend

    return print_spend(since=since, by=by, limit=limit, shape=shape)


@click.command(epilog=examples("claudeops stats", "claudeops stats --since 30d --output-format json"))
@SINCE
@shaped()
def stats(since: datetime | None, shape: AnswerShape) -> int:
    """Show how the sessions of the last 7 days went: outcomes, decisions, calls, actions and whether they held."""
    from claudeops.cli.spend import print_stats

    return print_stats(since=since, shape=shape)


@click.command(epilog=examples("claudeops config --set", "claudeops config BUDGET TIMEOUT"))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--set", "only_set", is_flag=True, help="Only what is not at its default.")
@shaped(watched=False)
def config(names: tuple[str, ...], only_set: bool, shape: AnswerShape) -> int:
    """Show the settings in effect, each with where it comes from; secrets are masked.

    NAME is a part of a variable's name. Exit status: 0, 1 no such setting, 78 the configuration is wrong.
    """
    from claudeops.cli.config import print_config

    return print_config(names, only_set=only_set, shape=shape)
