"""Commands that check, rehearse and keep what is set up."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from pathlib import Path

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, examples


@click.command(epilog=examples("claudeops doctor", "claudeops doctor --from-claude-ops docker-compose.yaml"))
@click.option(
    "--from-claude-ops",
    "old_set_up",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Check nothing; say line by line what becomes of Claude Ops' compose file or env file.",
)
@OUTPUT_FORMAT
def doctor(old_set_up: Path | None, output_format: str) -> int:
    """Check every precondition and say how to fix what is wrong; creates and changes nothing.

    Makes one free request to the model API. Exit status: 0 nothing has failed, 69 the database or the model API cannot
    be reached, 75 another daemon is in the way, 78 the configuration is wrong. With --from-claude-ops: 0 read, 66 no
    such file.
    """
    if old_set_up is not None:
        from claudeops.cli.claude_ops import examine_set_up

        return examine_set_up(old_set_up, as_json=output_format == "json")
    from claudeops.cli.doctor.command import examine

    return examine(as_json=output_format == "json")


@click.command(
    "migrate-from",
    epilog=examples("claudeops migrate-from /state/claude-ops.db", "claudeops migrate-from old/state -o json"),
)
@click.argument("path", type=click.Path(path_type=Path), metavar="PATH")
@OUTPUT_FORMAT
def migrate_from(path: Path, output_format: str) -> int:
    """Take over the database of Claude Ops, once: sessions, events, memories, cooldowns and checks.

    PATH is its file, or the directory that holds it; it is only read. No daemon may run meanwhile. Says what was taken,
    and what was left and why. Exit status: 0 taken over, now or before, 69 the file cannot be read, 75 a daemon is in
    the way, 78 configuration, or PATH is no such file.
    """
    from claudeops.cli.claude_ops import migrate_from as take_over

    return take_over(path, as_json=output_format == "json")


@click.command(epilog=examples("claudeops rehearse --list", "claudeops rehearse healthy --pace 1"))
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


@click.command(epilog=examples("claudeops backup /backups/claudeops.db", "claudeops backup copy.db -o json"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@OUTPUT_FORMAT
def backup(file: Path, output_format: str) -> int:
    """Copy the SQLite database to FILE, even while the daemon runs.

    Session logs are plain files: copy them as files. Exit status: 0 copied, 70 the copy failed, 78 FILE exists or there
    is nothing to copy.
    """
    from claudeops.cli.operator import back_up

    return back_up(file, as_json=output_format == "json")


@click.command(
    "copy-database",
    epilog=examples("claudeops copy-database", "claudeops copy-database --restart", "claudeops copy-database -o json"),
    context_settings={"allow_extra_args": True},  # to refuse them by a sentence of its own, which does not repeat them
)
@click.option("--restart", is_flag=True, help="Remove what an unfinished copy has written, and begin anew.")
@OUTPUT_FORMAT
@click.pass_context
def copy_database(context: click.Context, *, restart: bool, output_format: str) -> int:
    """Copy the SQLite database to PostgreSQL, and compare every row; called again, it goes on where it ended.

    From CLAUDEOPS_DATABASE_URL, or the database in the state directory, to CLAUDEOPS_TARGET_DATABASE_URL (or what
    CLAUDEOPS_TARGET_DATABASE_URL_FILE holds), a database that is empty. No daemon may run on either meanwhile, nor on
    the target before every row was compared; the source stays as it is. Exit status: 0 copied, 1 something differs, 69
    a database cannot be reached, 75 a daemon is in the way, 78 an address, a revision or a row is wrong.
    """
    if context.args:
        raise click.UsageError(
            "copy-database takes no address, because every user of the machine sees the arguments of a command: set "
            "CLAUDEOPS_TARGET_DATABASE_URL, or CLAUDEOPS_TARGET_DATABASE_URL_FILE to a file that holds it."
        )
    from claudeops.cli.database import copy

    return copy(restart=restart, as_json=output_format == "json")


@click.command(epilog=examples("claudeops migrate", "claudeops migrate --check", "claudeops migrate -o json"))
@click.option("--check", is_flag=True, help="Change nothing; say whether there is something to do, by exit status 1.")
@OUTPUT_FORMAT
def migrate(*, check: bool, output_format: str) -> int:
    """Bring the database to this release, as the start of a daemon does; a SQLite file is copied first.

    With CLAUDEOPS_DISPATCHER=procrastinate also the tables of Procrastinate, and beside daemons that run: those of an
    older release finish their sessions and stop (`schema_newer`). Without it no daemon may run. Exit status: 0 done, or
    nothing to do, 1 with --check there is something to do, 69 the database cannot be reached, 75 a daemon is in the
    way, 78 configuration, or the database is newer than this claudeops.
    """
    from claudeops.cli.database import migrate_tables

    return migrate_tables(check=check, as_json=output_format == "json")


@click.command(epilog=examples("claudeops version", "claudeops version -o json"))
@OUTPUT_FORMAT
def version(output_format: str) -> int:
    """Print the version of claudeops and what it stands on; asks for no setting, database or credentials."""
    from claudeops.cli.version import print_version

    return print_version(as_json=output_format == "json")
