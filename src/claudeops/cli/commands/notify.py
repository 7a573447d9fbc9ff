"""Commands about the notices that people get."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, WholeHelp, examples


@click.group(cls=WholeHelp)
def notify() -> None:
    """Try the ways by which people are told."""


@notify.command("test", epilog=examples("claudeops notify test apprise", "claudeops notify test phone -o json"))
@click.argument("target")
@OUTPUT_FORMAT
def test_target(target: str, output_format: str) -> int:
    """Send one message to TARGET and say what it answered.

    TARGET is a name of the file that CLAUDEOPS_NOTIFY_PATH names, or apprise for CLAUDEOPS_APPRISE_URLS (apprise-2 for
    its second address). Needs no daemon. Exit status: 0 delivered, 1 not delivered or no such target, 78 configuration.
    """
    from claudeops.cli.notify import print_test

    return print_test(target, as_json=output_format == "json")
