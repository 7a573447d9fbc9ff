"""Commands on tiers, on what there is besides, and on who would take a text."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

import sys

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, examples


@click.command(
    "show-command", epilog=examples("claudeops show-command tier2", "claudeops show-command free-disk -o json")
)
@click.argument("name")
@OUTPUT_FORMAT
@click.pass_context
def show_command(context: click.Context, name: str, output_format: str) -> int:
    """Show what NAME is for: a tier, a command, or a check, playbook or skill of the library.

    Exit status: 0 shown, 1 there is nothing of that name, 78 configuration.
    """
    from claudeops.cli.tiers.inventory import show_command as shown

    return shown(all_commands(context), name, as_json=output_format == "json")


@click.command(
    "exec-command",
    epilog=examples(
        "claudeops exec-command tier1",
        "claudeops exec-command tier2 'web answers 502 since noon' --timeout 900 -o json",
        "claudeops exec-command tier1 - --output-format stream-json < prompt.md",
    ),
)
@click.argument("name", metavar="TIER")
@click.argument("prompt", required=False)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for the end, or leave it to the daemon.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="For a session at most."
)
@click.option(
    "-o",
    "--output-format",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="What to print: the last words, one document, or frames while it runs.",
)
@click.option(
    "--input-format",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    show_default=True,
    help="What stdin holds, where it is read: one prompt, or frames with a prompt each.",
)
@click.option("--live/--no-live", default=None, help="Print on stderr what it does.  [default: on a terminal]")
def exec_command(  # noqa: PLR0917 - click hands its options over by name
    name: str,
    prompt: str | None,
    wait: bool,  # noqa: FBT001 - click
    timeout: float | None,
    output_format: str,
    input_format: str,
    live: bool | None,  # noqa: FBT001 - click
) -> int:
    """Run one tier on PROMPT, and what follows from it; the answer is that of the tier's own session.

    Beside a running daemon it is queued there and followed. With `-` for PROMPT, and with frames as output or input,
    what PROMPT does not say is read from stdin, at most 10 MiB. Exit status: 0 it ended well, 1 it failed or may not
    run, 64 usage, 66 nothing on stdin, 75 out of turns or held, 78 configuration, 124 out of time or stopped, 137 out
    of money.
    """
    from claudeops.cli.tiers.execute import ExecuteRequest, execute, stream

    if "stream-json" in {output_format, input_format}:
        if output_format == "json":
            raise click.UsageError("Frames on stdin are answered with text or frames: leave --output-format json away.")
        order = ExecuteRequest(name=name, prompt=prompt or "", timeout=timeout)
        return stream(order, inline=prompt, input_format=input_format, output_format=output_format)
    live = sys.stderr.isatty() if live is None else live
    order = ExecuteRequest(name=name, prompt=prompt or "", wait=wait, timeout=timeout, live=live)
    return execute(order, as_json=output_format == "json")


@click.command(
    "exec-tool", epilog=examples("claudeops exec-tool web-http", "claudeops exec-tool check:disk-space -o json")
)
@click.argument("name")
@click.argument("payload", required=False, default="")
@OUTPUT_FORMAT
def exec_tool(name: str, payload: str, output_format: str) -> int:
    """Run one declared probe (NAME or probe:NAME), or one check of the doctor's (check:NAME), and say what it found.

    What it finds wrong is an answer. Exit status: 0 it was run, 1 there is none of that name, 78 configuration.
    """
    from claudeops.cli.tiers.tools import execute_tool

    return execute_tool(name, payload, as_json=output_format == "json")


@click.command(
    epilog=examples("claudeops route 'disk full on nas'", "claudeops route 'certificate of web' --limit 3 -o json")
)
@click.argument("prompt")
@click.option("--limit", type=click.IntRange(min=1, max=100), default=5, show_default=True, help="How many at most.")
@OUTPUT_FORMAT
def route(prompt: str, limit: int, output_format: str) -> int:
    """Say which tier, which probe and which texts of the library would take PROMPT, by the words they share.

    No model is asked, and nothing is started. Exit status: 0 told, 78 configuration.
    """
    from claudeops.cli.tiers.inventory import print_route

    return print_route(prompt, limit=limit, as_json=output_format == "json")


@click.command("command-graph", epilog=examples("claudeops command-graph", "claudeops command-graph -o json"))
@OUTPUT_FORMAT
@click.pass_context
def command_graph(context: click.Context, output_format: str) -> int:
    """List every command, every tier and every text of the library, with what each is for.

    Exit status: 0 listed, 78 configuration.
    """
    from claudeops.cli.tiers.inventory import print_command_graph

    return print_command_graph(all_commands(context), as_json=output_format == "json")


@click.command("tool-pool", epilog=examples("claudeops tool-pool", "claudeops tool-pool --no-mcp -o json"))
@click.option("--simple-mode", is_flag=True, help="Only tools that every tier has.")
@click.option("--mcp/--no-mcp", "include_mcp", default=True, show_default=True, help="Also the MCP servers.")
@OUTPUT_FORMAT
def tool_pool(simple_mode: bool, include_mcp: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """List the tools that sessions have, and which tiers have them.

    Exit status: 0 listed, 78 configuration.
    """
    from claudeops.cli.tiers.inventory import print_tool_pool

    return print_tool_pool(simple_mode=simple_mode, include_mcp=include_mcp, as_json=output_format == "json")


@click.command("bootstrap-graph", epilog=examples("claudeops bootstrap-graph", "claudeops bootstrap-graph -o json"))
@OUTPUT_FORMAT
def bootstrap_graph(output_format: str) -> int:
    """Show the stages in which the daemon starts, and the state that each last had.

    Exit status: 0 shown, 78 configuration.
    """
    from claudeops.cli.tiers.stages import print_stages

    return print_stages(as_json=output_format == "json")


def all_commands(context: click.Context) -> click.Group:
    """Return the group of all commands, of which the running one is a member."""
    command = context.find_root().command
    assert isinstance(command, click.Group)  # noqa: S101 - a command is called through the group alone
    return command
