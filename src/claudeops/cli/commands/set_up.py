"""Commands that check, rehearse and keep what is set up."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from pathlib import Path

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT


@click.command()
@OUTPUT_FORMAT
def doctor(output_format: str) -> int:
    """Check every precondition and say how to fix what is wrong; creates and changes nothing.

    Makes one free request to the model API. Exit status: 0 nothing has failed, 69 the database or the model API cannot
    be reached, 75 another daemon is in the way, 78 the configuration is wrong.
    """
    from claudeops.cli.doctor.command import examine

    return examine(as_json=output_format == "json")


@click.command()
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
@OUTPUT_FORMAT
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


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@OUTPUT_FORMAT
def backup(file: Path, output_format: str) -> int:
    """Copy the SQLite database to FILE, even while the daemon runs.

    Session logs are plain files: copy them as files. Exit status: 0 copied, 70 the copy failed, 78 FILE exists or there
    is nothing to copy.
    """
    from claudeops.cli.operator import back_up

    return back_up(file, as_json=output_format == "json")
