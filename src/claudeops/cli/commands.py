"""Groups of commands whose help says a whole sentence of each, under headings.

A file of its own, because the commands of three files are grouped by it. What click does by itself cuts sentences off
in the middle and lists all commands by the alphabet.

What an operator says about calls, pauses and the record. What it does is imported when it is called.

``claudeops policy`` and ``show-tool``: what they take. What they do is imported when they are called.

What the commands are called and take. What they do is imported when they are called: help stays quick.
"""

# ruff: noqa: PLC0415 - what a command does is imported when it is called: help and mistakes answer at once

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import click

OTHERS: Final = "Commands"


class WholeHelp(click.Group):
    """A group whose commands stand under ``headings``, in their order; those under none come last."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        shown = {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}
        named = {name for names in self.headings.values() for name in names}
        sections = {**self.headings, OTHERS: [name for name in shown if name not in named]}
        width = max(map(len, shown))
        for heading, names in sections.items():
            rows = [(name.ljust(width), sentence(shown[name])) for name in names if name in shown]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def sentence(command: click.Command) -> str:
    """Return the first sentence of a command's help, whole."""
    first = (command.help or "").partition("\n\n")[0]
    return " ".join(first.split())


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
    from claudeops.cli.operator import give
    from claudeops.domain.gate.approval import ApprovalStatus

    return give(approval_id, ApprovalStatus.APPROVED, as_json=output_format == "json")


@click.command()
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@_OUTPUT_FORMAT
def deny(approval_id: int, output_format: str) -> int:
    """Refuse a tool call that waits for a person; its session goes on without it."""
    from claudeops.cli.operator import give
    from claudeops.domain.gate.approval import ApprovalStatus

    return give(approval_id, ApprovalStatus.DENIED, as_json=output_format == "json")


@click.command("list-approvals")
@click.option("--all", "everything", is_flag=True, help="Also those that were answered, used or are over.")
@_OUTPUT_FORMAT
def list_approvals(everything: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Show the tool calls that wait for a person, whole."""
    from claudeops.cli.operator import show_all

    return show_all(everything=everything, as_json=output_format == "json")


@click.command()
@click.option("--reason", help="Why; told to whoever looks.")
@click.option("--stop", is_flag=True, help="Stop running sessions too, instead of letting them end.")
@_OUTPUT_FORMAT
def pause(reason: str | None, stop: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Start no session from now on, until `resume`; a restart changes nothing about it."""
    from claudeops.cli.operator import pause as pause_sessions

    return pause_sessions(reason=reason, stop=stop, as_json=output_format == "json")


@click.command()
@_OUTPUT_FORMAT
def resume(output_format: str) -> int:
    """Start sessions again after `pause`; what was queued meanwhile is run."""
    from claudeops.cli.operator import resume as resume_sessions

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


OPERATOR_COMMANDS: Final[tuple[click.Command, ...]] = (approve, deny, list_approvals, pause, resume, audit)


_FORMAT: Final = click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
_FILE: Final = click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A policy file to try, instead of the one in force.",
)


@click.group(cls=WholeHelp)
def policy() -> None:
    """Look at the rules for tool calls; nothing is run."""


@policy.command("test")
@click.argument("command", required=False)
@click.option("--tier", type=click.IntRange(min=1), help="Only this tier.  [default: all]")
@click.option("--tool", default="Bash", show_default=True, help="The tool that is called.")
@click.option("--input", "given", help="Its input as a JSON object, instead of COMMAND.")
@click.option("--expect", type=click.Choice(["allow", "deny", "ask"]), help="Exit with 1 unless every tier says this.")
@click.option("--dry-run", is_flag=True, help="As in a dry run.")
@_FILE
@_FORMAT
def test_policy(  # noqa: PLR0917 - click hands its options over by name
    command: str | None,
    tier: int | None,
    tool: str,
    given: str | None,
    expect: str | None,
    dry_run: bool,  # noqa: FBT001 - click
    file: Path | None,
    output_format: str,
) -> int:
    """Say what would become of COMMAND, or of another tool's call, and why; nothing is run.

    Shows the verdict, its reason, the commands that the text was taken apart into, and the actions with their
    services. Exit status: 0 answered, 1 not as expected, 64 usage, 78 configuration.
    """
    from claudeops.cli.policy import Question, tell_verdicts

    question = Question(command=command, tool=tool, given=given, tier=tier, expect=expect, dry_run=dry_run, file=file)
    return tell_verdicts(question, as_json=output_format == "json")


@policy.command("show")
@_FILE
@_FORMAT
def show_policy(file: Path | None, output_format: str) -> int:
    """Print the policy that is in force, whole: with everything that its file extends.

    Exit status: 0 printed, 78 configuration.
    """
    from claudeops.cli.policy import tell_policy

    return tell_policy(file, as_json=output_format == "json")


@policy.command("fragments")
@_FORMAT
def list_fragments(output_format: str) -> int:
    """List what a policy may extend beside the default, and what each opens.

    Exit status: 0 listed.
    """
    from claudeops.cli.policy import tell_fragments

    return tell_fragments(as_json=output_format == "json")


@click.command("show-tool")
@click.argument("name")
@_FILE
@_FORMAT
def show_tool(name: str, file: Path | None, output_format: str) -> int:
    """Show the rules for a tool or a command (such as 'docker restart'), by tier.

    Exit status: 0 found, 1 no rule names it, 78 configuration.
    """
    from claudeops.cli.policy import tell_tool

    return tell_tool(name, file, as_json=output_format == "json")


policy.add_command(show_tool)

POLICY_COMMANDS: Final = (policy, show_tool)


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


for command in (*OPERATOR_COMMANDS, *POLICY_COMMANDS):
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
    from claudeops.cli.run import tell_health

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
    from claudeops.cli import rehearse as command

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
    from claudeops.cli.operator import back_up

    return back_up(file, as_json=output_format == "json")
