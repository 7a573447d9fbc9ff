"""The commands of ``claudeops``: their names, help texts, arguments and options.

A command imports what it does only when it is called, so that help and mistakes are answered at once. Help shows the
first sentence of every command in full, under headings; click alone would cut sentences off in the middle and list all
commands alphabetically.
"""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import click

OTHERS: Final = "Commands"
"""The heading of commands that no other heading names."""

CATEGORIES: Final = (
    *("timing", "dependency", "behaviour", "maintenance", "location", "capacity", "configuration", "cause", "remedy"),
    *("schedule", "contact", "other"),
)
"""Those of `claudeops.domain.memory.categories`, which is not imported for help; a test compares them."""

_ID_DIGITS: Final = 9  # more do not fit the column

_OUTPUT_FORMAT: Final = click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to print."
)
_POLICY_FILE: Final = click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A policy file to try instead of the one in force.",
)


class _MemoryId(click.ParamType[int]):
    """A memory's id as prompts and lists write it: ``m12`` or ``12``."""

    name = "id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        digits = str(value).strip().lower().removeprefix("m")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _ID_DIGITS):
            self.fail(f"{value!r} is no memory's id: write 12 or m12.", param, ctx)
        return int(digits)


_MEMORY_ID: Final = _MemoryId()


class WholeHelp(click.Group):
    """A group whose help lists commands under ``headings``, in their order, and the rest under `OTHERS`."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each heading."""
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
    """Return the first paragraph of a command's help on one line."""
    first = (command.help or "").partition("\n\n")[0]
    return " ".join(first.split())


class _Commands(WholeHelp):
    headings: ClassVar = {
        "Watch": ("run", "bootstrap", "tail", "health", "ping"),
        "Act": ("list-approvals", "approve", "deny", "pause", "resume", "memories"),
        "Look": ("probe", "audit", "policy", "show-tool"),
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


# --- watch --------------------------------------------------------------------------------------------


@claudeops.command()
@click.option("--live", is_flag=True, help="Print what the sessions do, a line a step, instead of routine log lines.")
def run(*, live: bool) -> int:
    """Run the daemon: it starts chains of sessions by the schedule, and one at its very first start.

    The environment alone configures it. SIGTERM or SIGINT at any time drains it; a second one stops it at once.
    Exit status: 0 stopped as asked, 69 the database cannot be reached, 75 another daemon is in the way, 78 the
    configuration is wrong.
    """
    from claudeops.cli.run import run_until_stopped

    return run_until_stopped(live=live)


@claudeops.command()
@click.option("--tier", type=click.IntRange(min=1), default=1, show_default=True, help="Tier of the first session.")
@click.option("--prompt", "prompt_text", help="A request for the first session, in addition to its tier's task.")
@_OUTPUT_FORMAT
@click.option("--live/--no-live", default=None, help="Print on stderr what the sessions do.  [default: on a terminal]")
def bootstrap(tier: int, prompt_text: str | None, output_format: str, live: bool | None) -> int:  # noqa: FBT001 - click
    """Run one whole chain in the foreground: a session and those that follow from it.

    Beside a running daemon the chain is queued there and followed. Exit status: 0 healthy or resolved, 1 unresolved,
    stopped, or a session failed, 75 try later, 78 configuration.
    """
    from claudeops.cli.bootstrap import run_in_foreground

    return run_in_foreground(tier=tier, prompt_text=prompt_text, as_json=output_format == "json", live=live)


@claudeops.command()
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


@claudeops.command()
@_OUTPUT_FORMAT
def health(output_format: str) -> int:
    """Say whether the daemon of this state directory is alive; for a container's HEALTHCHECK.

    A daemon that is paused, or held for another reason, is alive, and the reason is printed.

    Looks at the daemon's status file and its process, never at the database: a daemon whose database is away is alive.
    Exit status: 0 alive, 1 not.
    """
    from claudeops.cli.run import print_health

    return print_health(as_json=output_format == "json")


@claudeops.command()
@click.argument("name")
@click.option("--start", "verb", flag_value="start", help="It begins its work; success or --fail must follow.")
@click.option("--fail", "verb", flag_value="fail", help="It has failed.")
@click.option("--log", "line", metavar="TEXT", help="A line for people; alone it says nothing about how it is.")
@_OUTPUT_FORMAT
def ping(name: str, verb: str | None, line: str | None, output_format: str) -> int:
    """Say that NAME, a probe of the kind heartbeat, is alive or has done its work.

    Put it at the end of a job: `backup && claudeops ping backup || claudeops ping backup --fail`. Exit status: 0 heard,
    1 no heartbeat of this name is known, 69 the database cannot be reached, 78 configuration.
    """
    from claudeops.cli.probe import send_ping
    from claudeops.domain.probe.model import Verb

    said = None if verb is None and line is not None else Verb(verb or "success")
    return send_ping(name, said, line or "", as_json=output_format == "json")


# --- act ----------------------------------------------------------------------------------------------


@claudeops.command("list-approvals")
@click.option("--all", "everything", is_flag=True, help="Also those that were answered, were used or have expired.")
@_OUTPUT_FORMAT
def list_approvals(everything: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Show the tool calls that wait for a person's approval, in full."""
    from claudeops.cli.operator import print_approvals

    return print_approvals(everything=everything, as_json=output_format == "json")


@claudeops.command()
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@_OUTPUT_FORMAT
def approve(approval_id: int, output_format: str) -> int:
    """Let a tool call that waits for a person's approval run.

    `list-approvals` shows what it would do. The answer counts for that one call.

    Exit status: 0 answered, 1 the call no longer takes an answer, 78 configuration.
    """
    from claudeops.cli.operator import decide
    from claudeops.domain.gate.approval import ApprovalStatus

    return decide(approval_id, ApprovalStatus.APPROVED, as_json=output_format == "json")


@claudeops.command()
@click.argument("approval_id", type=click.IntRange(min=1), metavar="ID")
@_OUTPUT_FORMAT
def deny(approval_id: int, output_format: str) -> int:
    """Refuse a tool call that waits for a person; its session goes on without it."""
    from claudeops.cli.operator import decide
    from claudeops.domain.gate.approval import ApprovalStatus

    return decide(approval_id, ApprovalStatus.DENIED, as_json=output_format == "json")


@claudeops.command()
@click.option("--reason", help="Why; shown to everybody who looks.")
@click.option("--stop", is_flag=True, help="Stop running sessions too, instead of letting them finish.")
@_OUTPUT_FORMAT
def pause(reason: str | None, stop: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Start no sessions from now on, until `resume`; the pause survives a restart."""
    from claudeops.cli.operator import pause_sessions

    return pause_sessions(reason=reason, stop=stop, as_json=output_format == "json")


@claudeops.command()
@_OUTPUT_FORMAT
def resume(output_format: str) -> int:
    """Start sessions again after `pause`, those first that were queued meanwhile."""
    from claudeops.cli.operator import resume_sessions

    return resume_sessions(as_json=output_format == "json")


@claudeops.group(cls=WholeHelp)
def memories() -> None:
    """See and correct what the agents believe; nothing is deleted."""


@memories.command("list")
@click.option("--service", help="Only those about this service.")
@click.option("--all", "everything", is_flag=True, help="Also those that are out of use.")
@_OUTPUT_FORMAT
def list_memories(service: str | None, everything: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Show what sessions are told, and what waits in quarantine."""
    from claudeops.cli.memories import print_memories

    return print_memories(service=service, everything=everything, as_json=output_format == "json")


@memories.command("add")
@click.argument("observation")
@click.option("--service", help="The service that it is about.  [default: none in particular]")
@click.option("--category", type=click.Choice(CATEGORIES), default="other", show_default=True, help="What it says.")
@click.option("--supersedes", type=_MEMORY_ID, metavar="ID", help="A memory in whose place it stands.")
@_OUTPUT_FORMAT
def add_memory(observation: str, service: str | None, category: str, supersedes: int | None, output_format: str) -> int:
    """State a fact that every session is told; it never fades, and no session can change it.

    What contradicts it is put out of use. Exit status: 0 added, 1 declined, 78 configuration.
    """
    from claudeops.cli import memories as ours
    from claudeops.domain.model import ReportedMemory

    named = (service or "").strip() or None
    memory = ReportedMemory(category=category, observation=observation, service=named, supersedes=supersedes)
    return ours.add_memory(memory, as_json=output_format == "json")


@memories.command("forget")
@click.argument("memory_id", type=_MEMORY_ID, metavar="ID")
@_OUTPUT_FORMAT
def forget_memory(memory_id: int, output_format: str) -> int:
    """Tell sessions no more of a memory, not even when one says it again.

    Exit status: 0 forgotten, 1 there is none or it is forgotten already, 78 configuration.
    """
    from claudeops.cli.memories import change_memory

    return change_memory("forget", memory_id, as_json=output_format == "json")


@memories.command("restore")
@click.argument("memory_id", type=_MEMORY_ID, metavar="ID")
@_OUTPUT_FORMAT
def restore_memory(memory_id: int, output_format: str) -> int:
    """Bring back a memory that was forgotten, replaced or given up.

    Exit status: 0 restored, 1 there is none or it is in use, 78 configuration.
    """
    from claudeops.cli.memories import change_memory

    return change_memory("restore", memory_id, as_json=output_format == "json")


@memories.command("confirm")
@click.argument("memory_id", type=_MEMORY_ID, metavar="ID")
@_OUTPUT_FORMAT
def confirm_memory(memory_id: int, output_format: str) -> int:
    """Let a memory out of quarantine, so that sessions are told of it.

    Exit status: 0 confirmed, 1 there is none or it is not in quarantine, 78 configuration.
    """
    from claudeops.cli.memories import change_memory

    return change_memory("confirm", memory_id, as_json=output_format == "json")


# --- look ---------------------------------------------------------------------------------------------


@claudeops.command()
@click.argument("name", required=False)
@_OUTPUT_FORMAT
def probe(name: str | None, output_format: str) -> int:
    """Look once with the probe NAME and show what it saw; without NAME, show how all probes stand.

    A look of this command is not recorded, and starts nothing. Exit status: 0 up, or all are shown, 1 not up or no such
    probe, 78 configuration.
    """
    from claudeops.cli.probe import print_probe

    return print_probe(name, as_json=output_format == "json")


@claudeops.group(cls=WholeHelp)
def audit() -> None:
    """Check the record of tool calls."""


@audit.command()
@click.option("--session", "session_id", type=click.IntRange(min=1), help="Only this session.")
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The daemon's log (JSON lines) to compare with.",
)
@_OUTPUT_FORMAT
def verify(session_id: int | None, log: Path | None, output_format: str) -> int:
    """Find tool calls in the record that were changed, removed or inserted afterwards.

    Exit status: 0 the record is as it was written, 1 it is not.
    """
    from claudeops.cli.audit import verify_trail

    return verify_trail(session_id=session_id, log=log, as_json=output_format == "json")


@claudeops.group(cls=WholeHelp)
def policy() -> None:
    """Look at the rules for tool calls; runs nothing."""


@policy.command("test")
@click.argument("command", required=False)
@click.option("--tier", type=click.IntRange(min=1), help="Only this tier.  [default: all]")
@click.option("--tool", default="Bash", show_default=True, help="The tool to call.")
@click.option("--input", "given", help="Its input as a JSON object, instead of COMMAND.")
@click.option("--expect", type=click.Choice(["allow", "deny", "ask"]), help="Exit with 1 unless every tier says this.")
@click.option("--dry-run", is_flag=True, help="As in a dry run.")
@_POLICY_FILE
@_OUTPUT_FORMAT
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
    """Show the verdict on COMMAND, or on another tool's call, and the reason; runs nothing.

    Also shows the commands that the text was split into, and the actions with their services. Exit status: 0
    answered, 1 not as expected, 64 usage, 78 configuration.
    """
    from claudeops.cli.policy import Question, print_verdicts

    question = Question(command=command, tool=tool, given=given, tier=tier, expect=expect, dry_run=dry_run, file=file)
    return print_verdicts(question, as_json=output_format == "json")


@policy.command("show")
@_POLICY_FILE
@_OUTPUT_FORMAT
def show_policy(file: Path | None, output_format: str) -> int:
    """Print the whole policy in force, with everything that its file extends.

    Exit status: 0 printed, 78 configuration.
    """
    from claudeops.cli.policy import print_policy

    return print_policy(file, as_json=output_format == "json")


@policy.command("fragments")
@_OUTPUT_FORMAT
def list_fragments(output_format: str) -> int:
    """List the fragments that a policy may extend beside the default, and what each opens.

    Exit status: 0 listed.
    """
    from claudeops.cli.policy import print_fragments

    return print_fragments(as_json=output_format == "json")


@claudeops.command("show-tool")
@click.argument("name")
@_POLICY_FILE
@_OUTPUT_FORMAT
def show_tool(name: str, file: Path | None, output_format: str) -> int:
    """Show the rules for a tool or a command (such as 'docker restart'), by tier.

    Exit status: 0 found, 1 no rule names it, 78 configuration.
    """
    from claudeops.cli.policy import print_tool

    return print_tool(name, file, as_json=output_format == "json")


# --- set up -------------------------------------------------------------------------------------------


@claudeops.command()
@_OUTPUT_FORMAT
def doctor(output_format: str) -> int:
    """Check every precondition and say how to fix what is wrong; creates and changes nothing.

    Makes one free request to the model API. Exit status: 0 nothing has failed, 69 the database or the model API cannot
    be reached, 75 another daemon is in the way, 78 the configuration is wrong.
    """
    from claudeops.cli.doctor.command import examine

    return examine(as_json=output_format == "json")


@claudeops.command()
@click.argument("given", metavar="[SCENARIO]...", nargs=-1)
@click.option("--list", "list_them", is_flag=True, help="List the scenarios that come with claudeops.")
@click.option(
    "--pace",
    "pace_seconds",
    type=click.FloatRange(min=0, max=10),
    default=0.0,
    show_default=True,
    help="Seconds that the model waits before each step, so that somebody can read along.",
)
@_OUTPUT_FORMAT
def rehearse(given: tuple[str, ...], *, list_them: bool, pace_seconds: float, output_format: str) -> int:
    """Run the real CLI on a scripted model, under your own policy, prompts and settings, at no cost.

    A SCENARIO is a name that --list shows, or the path of a .toml file. The sessions watch small services that the
    rehearsal starts itself. Exit status: 0 everything went as the scenarios expect, 1 something did not, 66 no such
    scenario, 78 a scenario or a setting is wrong.
    """
    from claudeops.cli.rehearse import list_scenarios, run_scenarios

    if list_them:
        return list_scenarios(as_json=output_format == "json")
    if not given:
        raise click.UsageError("Name a scenario; `claudeops rehearse --list` shows them.")
    return run_scenarios(given, pace_seconds=pace_seconds, as_json=output_format == "json")


@claudeops.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_OUTPUT_FORMAT
def backup(file: Path, output_format: str) -> int:
    """Copy the SQLite database to FILE, even while the daemon runs.

    Session logs are plain files: copy them as files. Exit status: 0 copied, 70 the copy failed, 78 FILE exists or there
    is nothing to copy.
    """
    from claudeops.cli.operator import back_up

    return back_up(file, as_json=output_format == "json")


policy.add_command(show_tool)  # it is found under both names
