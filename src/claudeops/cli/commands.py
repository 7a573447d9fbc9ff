"""What the commands are called and take. What they do is imported when they are called: help stays quick."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import click

from claudeops.cli import operator_commands, policy_commands
from claudeops.cli.whole_help import WholeHelp


class _Commands(WholeHelp):
    headings: ClassVar = {
        "Watch": ("run", "bootstrap", "tail", "health"),
        "Act": ("list-approvals", "approve", "deny", "pause", "resume"),
        "Look": ("audit", "policy", "show-tool"),
        "Set up": ("doctor", "rehearse", "backup"),
    }


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Settings are environment variables. The state of the daemon (its database too, unless CLAUDEOPS_DATABASE_URL "
        "names one) is looked for in CLAUDEOPS_STATE_DIR, else in /state, else in .claudeops/state of the working "
        "directory."
    ),
)
@click.version_option(package_name="claudeops")
def claudeops() -> None:
    """Keep watch over infrastructure with tiered, gated claude sessions."""


for command in (*operator_commands.COMMANDS, *policy_commands.COMMANDS):
    claudeops.add_command(command)


@claudeops.command()
@click.option("--live", is_flag=True, help="Tell what the sessions do, a line a step, instead of logging the usual.")
def run(*, live: bool) -> int:
    """Run the daemon: chains of sessions by the schedule; the first start ever begins with one.

    Configured by the environment alone. SIGTERM or SIGINT drains, whenever it comes; a second one stops at once.
    Exit status: 0 stopped because it was asked to, 69 the database cannot be reached, 75 another daemon is in the way,
    78 something is wrong with the configuration.
    """
    from claudeops.cli.run import run_until_stopped

    return run_until_stopped(live=live)


@claudeops.command()
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
def doctor(output_format: str) -> int:
    """Look at every precondition and say how to mend what is wrong; make and change nothing.

    Asks the model API for something that costs nothing. Exit status: 0 nothing has failed, 69 the database or the
    model API cannot be reached, 75 another daemon is in the way, 78 something is wrong with the configuration.
    """
    from claudeops.cli.doctor.command import examine

    return examine(as_json=output_format == "json")


@claudeops.command()
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
def health(output_format: str) -> int:
    """Say whether the daemon of this state directory lives; for a container's HEALTHCHECK.

    A daemon that is paused, or held by something else, lives, and says why it starts nothing.

    Asks the daemon's status file and its process, never the database: a daemon whose database is away lives.
    Exit status: 0 it lives, 1 it does not.
    """
    from claudeops.cli.health import tell_health

    return tell_health(as_json=output_format == "json")


@claudeops.command()
@click.option("--tier", type=click.IntRange(min=1), default=1, show_default=True, help="Tier of the first session.")
@click.option("--prompt", "prompt_text", help="A request for the first session, beside its tier's task.")
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
@click.option("--live/--no-live", default=None, help="Tell on stderr what the sessions do [default: on a terminal]")
def bootstrap(tier: int, prompt_text: str | None, output_format: str, live: bool | None) -> int:  # noqa: FBT001 - click
    """Run one whole chain in the foreground: a session, and the ones that it leads to.

    Beside a running daemon the chain is queued there and followed. Exit status: 0 healthy or resolved,
    1 unresolved, stopped, or a session failed, 75 try later, 78 configuration.
    """
    from claudeops.cli.bootstrap import run_chain

    return run_chain(tier=tier, prompt_text=prompt_text, as_json=output_format == "json", live=live)


@claudeops.command()
@click.argument("session_id", metavar="[SESSION]", type=click.IntRange(min=1), required=False)
@click.option(
    "-f",
    "--follow/--no-follow",
    default=None,
    help="Wait for what is yet to come, or tell what is there and end.  [default: wait, unless SESSION is given]",
)
@click.option(
    "--output-format",
    type=click.Choice(["text", "stream-json", "json"]),
    default="text",
    show_default=True,
    help="What to print: lines for people, a JSON object a line, or one document.",
)
def tail(session_id: int | None, follow: bool | None, output_format: str) -> int:  # noqa: FBT001 - click's
    """Tell what sessions do or did, a line a step.

    Without SESSION: every chain that runs, from its beginning (else the newest one), and whatever starts later, until
    Ctrl-C. With SESSION: that one and those that follow from it in its chain. It is read from the logs, so a daemon
    that hangs can be watched too. Exit status: 0, or 1 when there is no such session.
    """
    from claudeops.cli.tail import tail

    if follow and output_format == "json":
        raise click.UsageError("--follow never ends with one document: take --output-format stream-json.")
    return tail(session_id=session_id, follow=follow, output_format=output_format)


@claudeops.command()
@click.argument("given", metavar="[SCENARIO]...", nargs=-1)
@click.option("--list", "list_them", is_flag=True, help="Show the scenarios that come with claudeops.")
@click.option(
    "--pace",
    "pace_seconds",
    type=click.FloatRange(min=0, max=10),
    default=0.0,
    show_default=True,
    help="Seconds that the model thinks before each step, for somebody who reads along.",
)
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
def rehearse(given: tuple[str, ...], *, list_them: bool, pace_seconds: float, output_format: str) -> int:
    """Run the real CLI on a scripted model, under your own policy, prompts and settings, at no cost.

    A SCENARIO is a name that --list shows, or the path of a .toml file. It watches small services that it starts
    itself. Exit status: 0 everything came as the scenarios expect, 1 something did not, 66 no such scenario,
    78 a scenario or a setting is wrong.
    """
    from claudeops.cli import scenarios as command

    if list_them:
        return command.list_scenarios(as_json=output_format == "json")
    if not given:
        raise click.UsageError("Name a scenario; `claudeops rehearse --list` shows them.")
    return command.rehearse(given, pace_seconds=pace_seconds, as_json=output_format == "json")


@claudeops.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
def backup(file: Path, output_format: str) -> int:
    """Copy the SQLite database to FILE, also while the daemon runs.

    Logs are files and are copied as files. Exit status: 0, 78 when FILE exists or there is nothing to copy,
    70 when the copy failed.
    """
    from claudeops.cli.backup import back_up

    return back_up(file, as_json=output_format == "json")
