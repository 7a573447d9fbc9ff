"""``claudeops policy`` and ``show-tool``: what they take. What they do is imported when they are called."""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from claudeops.cli.whole_help import WholeHelp

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
    from claudeops.cli.show_tool import tell_tool

    return tell_tool(name, file, as_json=output_format == "json")


policy.add_command(show_tool)

COMMANDS: Final = (policy, show_tool)
