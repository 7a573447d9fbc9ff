"""Commands that explain the rules for tool calls; they run nothing."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from claudeops.cli.commands.filters import MOMENT, shaped
from claudeops.cli.commands.options import OUTPUT_FORMAT, POLICY_FILE, WholeHelp, examples

if TYPE_CHECKING:  # help and mistakes are answered without the model
    from claudeops.cli.answer import AnswerShape


@click.group(cls=WholeHelp)
def policy() -> None:
    """Look at the rules for tool calls; runs nothing."""


@policy.command(
    "test",
    epilog=examples(
        'claudeops policy test "docker restart web" --tier 2',
        'claudeops policy test --tool Read --input \'{"file_path": "/etc/hosts"}\' -o json',
    ),
)
@click.argument("command", required=False)
@click.option("--tier", type=click.IntRange(min=1), help="Only this tier.  [default: all]")
@click.option("--tool", default="Bash", show_default=True, help="The tool to call.")
@click.option("--input", "given", help="Its input as a JSON object, instead of COMMAND.")
@click.option("--expect", type=click.Choice(["allow", "deny", "ask"]), help="Exit with 1 unless every tier says this.")
@click.option("--dry-run", is_flag=True, help="As in a dry run.")
@POLICY_FILE
@OUTPUT_FORMAT
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
    from claudeops.cli.policy import PolicyQuestion, print_verdicts

    question = PolicyQuestion(
        command=command, tool=tool, given=given, tier=tier, expect=expect, dry_run=dry_run, file=file
    )
    return print_verdicts(question, as_json=output_format == "json")


@policy.command("show", epilog=examples("claudeops policy show", "claudeops policy show --file policy.toml"))
@POLICY_FILE
@OUTPUT_FORMAT
def show_policy(file: Path | None, output_format: str) -> int:
    """Print the whole policy in force, with everything that its file extends.

    Exit status: 0 printed, 78 configuration.
    """
    from claudeops.cli.policy import print_policy

    return print_policy(file, as_json=output_format == "json")


@policy.command(
    "migrate", epilog=examples("claudeops policy migrate policy.toml", "claudeops policy migrate policy.toml --write")
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--write", is_flag=True, help="Replace FILE, and keep the old one as FILE.old.")
def migrate_policy(file: Path, write: bool) -> int:  # noqa: FBT001 - click
    """Print the policy in FILE with its rules in the new form, where 'tokens' and 'line' are gone.

    A rule that has no such form becomes a comment that says so. Exit status: 0 printed or written, 66 no such file, 78
    not a policy.
    """
    from claudeops.cli.policy import print_migrated

    return print_migrated(file, write=write)


@policy.command("fragments", epilog=examples("claudeops policy fragments", "claudeops policy fragments -o json"))
@OUTPUT_FORMAT
def list_fragments(output_format: str) -> int:
    """List the fragments that a policy may extend beside the default, and what each opens.

    Exit status: 0 listed.
    """
    from claudeops.cli.policy import print_fragments

    return print_fragments(as_json=output_format == "json")


@policy.command(
    "replay",
    epilog=examples("claudeops policy replay mine.toml", "claudeops policy replay mine.toml --since 7d -o json"),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--since", type=MOMENT, metavar="WHEN", default="30d", show_default=True, help="Calls since then.")
@shaped(watched=False)
def replay_policy(file: Path, since: datetime, shape: AnswerShape) -> int:
    """Show which calls on record would get another verdict by the policy in FILE; puts nothing in force.

    The newest 5000 calls at most, for 20 seconds at most. Exit status: 0 replayed, 78 not a policy, or no such file.
    """
    from claudeops.cli.policy_replay import print_replay

    return print_replay(file, since, shape=shape)


@click.command(
    "remote-commands",
    epilog=examples("claudeops remote-commands > claudeops-commands", "claudeops remote-commands --tier 2"),
)
@click.option("--tier", type=click.IntRange(min=1), help="Whose forms.  [default: 1]")
@POLICY_FILE
def remote_commands(tier: int | None, file: Path | None) -> int:
    """Print a POSIX script for 'command=' in authorized_keys that runs only the forms of a tier.

    On another host no cell holds a session; the script is a wall of that host's own. Exit status: 0 printed, 64 usage,
    78 configuration.
    """
    from claudeops.cli.policy import print_remote_commands

    return print_remote_commands(tier, file)


@click.command("show-tool", epilog=examples("claudeops show-tool Bash", 'claudeops show-tool "docker restart" -o json'))
@click.argument("name")
@POLICY_FILE
@OUTPUT_FORMAT
def show_tool(name: str, file: Path | None, output_format: str) -> int:
    """Show the rules for a tool or a command (such as 'docker restart'), by tier.

    Exit status: 0 found, 1 no rule names it, 78 configuration.
    """
    from claudeops.cli.policy import print_tool

    return print_tool(name, file, as_json=output_format == "json")


policy.add_command(show_tool)  # it is found under both names
