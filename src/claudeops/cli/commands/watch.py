"""Commands that run sessions, and that follow what they do."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT


@click.command()
@click.option("--live", is_flag=True, help="Print what the sessions do, a line a step, instead of routine log lines.")
def run(*, live: bool) -> int:
    """Run the daemon: it starts chains of sessions by the schedule, and one at its very first start.

    The environment alone configures it. SIGTERM or SIGINT at any time drains it; a second one stops it at once.
    Exit status: 0 stopped as asked, 69 the database cannot be reached, 75 another daemon is in the way, 78 the
    configuration is wrong.
    """
    from claudeops.cli.run import run_until_stopped

    return run_until_stopped(live=live)


@click.command()
@click.option("--tier", type=click.IntRange(min=1), default=1, show_default=True, help="Tier of the first session.")
@click.option("--prompt", "prompt_text", help="A request for the first session, in addition to its tier's task.")
@OUTPUT_FORMAT
@click.option("--live/--no-live", default=None, help="Print on stderr what the sessions do.  [default: on a terminal]")
def bootstrap(tier: int, prompt_text: str | None, output_format: str, live: bool | None) -> int:  # noqa: FBT001 - click
    """Run one whole chain in the foreground: a session and those that follow from it.

    Beside a running daemon the chain is queued there and followed. Exit status: 0 healthy or resolved, 1 unresolved,
    stopped, or a session failed, 75 try later, 78 configuration.
    """
    from claudeops.cli.bootstrap import run_in_foreground

    return run_in_foreground(tier=tier, prompt_text=prompt_text, as_json=output_format == "json", live=live)


@click.command()
@click.argument("session_id", metavar="[SESSION]", type=click.IntRange(min=1), required=False)
@click.option(
    "-f",
    "--follow/--no-follow",
    default=None,
    help="Wait for more, or print what is there and end.  [default: wait, unless SESSION is given]",
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "stream-json", "json"]),
    default="text",
    show_default=True,
    help="What to print: lines for people, a JSON object a line, or one document.",
)
def tail(session_id: int | None, follow: bool | None, output_format: str) -> int:  # noqa: FBT001 - click's
    """Print what sessions do or did, a line a step.

    Without SESSION: every running chain from its beginning (the newest chain when none runs) and every chain that
    starts later, until Ctrl-C. With SESSION: that session and those that follow from it in its chain. Reads the logs,
    so a daemon that hangs can be watched too. Exit status: 0, or 1 when there is no such session.
    """
    from claudeops.cli.tail import print_sessions

    if follow and output_format == "json":
        raise click.UsageError("--follow cannot end with one document: use --output-format stream-json.")
    return print_sessions(session_id=session_id, follow=follow, output_format=output_format)


@click.command()
@OUTPUT_FORMAT
def health(output_format: str) -> int:
    """Say whether the daemon of this state directory is alive; for a container's HEALTHCHECK.

    A daemon that is paused, or held for another reason, is alive, and the reason is printed.

    Looks at the daemon's status file and its process, never at the database: a daemon whose database is away is alive.
    Exit status: 0 alive, 1 not.
    """
    from claudeops.cli.run import print_health

    return print_health(as_json=output_format == "json")


@click.command()
@click.argument("name")
@click.option("--start", "verb", flag_value="start", help="It begins its work; success or --fail must follow.")
@click.option("--fail", "verb", flag_value="fail", help="It has failed.")
@click.option("--log", "line", metavar="TEXT", help="A line for people; alone it says nothing about how it is.")
@OUTPUT_FORMAT
def ping(name: str, verb: str | None, line: str | None, output_format: str) -> int:
    """Say that NAME, a probe of the kind heartbeat, is alive or has done its work.

    Put it at the end of a job: `backup && claudeops ping backup || claudeops ping backup --fail`. Exit status: 0 heard,
    1 no heartbeat of this name is known, 69 the database cannot be reached, 78 configuration.
    """
    from claudeops.cli.probe import send_ping
    from claudeops.domain.probe.model import Verb

    said = None if verb is None and line is not None else Verb(verb or "success")
    return send_ping(name, said, line or "", as_json=output_format == "json")
