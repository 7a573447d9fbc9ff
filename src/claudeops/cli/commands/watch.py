"""Commands that run sessions, and that follow what they do."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, SESSION, examples

if TYPE_CHECKING:  # help and mistakes are answered without the model
    from claudeops.domain.listing import Reference


@click.command(epilog=examples("claudeops run", "claudeops run --live"))
@click.option("--live", is_flag=True, help="Print what the sessions do, a line a step, instead of routine log lines.")
def run(*, live: bool) -> int:
    """Run the daemon: it starts chains of sessions by the schedule, and one at its very first start.

    The environment alone configures it. SIGTERM or SIGINT at any time drains it; a second one stops it at once.
    Exit status: 0 stopped as asked, 69 the database cannot be reached, or did not take the ends of all sessions in
    time for a stop, 75 another daemon is in the way or the CLI has not answered in time, 78 the configuration is wrong.
    """
    from claudeops.app.start.trial_process import begun

    with begun() as trials:  # it loads what it needs while this process does
        from claudeops.cli.run import run_until_stopped

        return run_until_stopped(trials, live=live)


@click.command(
    epilog=examples(
        "claudeops bootstrap --service web --live",
        'claudeops bootstrap --detach --prompt "Why did the backup take so long?"',
    )
)
@click.option("--tier", type=click.IntRange(min=1), help="Tier of the first session.  [default: 1]")
@click.option("--prompt", "prompt_text", help="A request for the first session, in addition to its tier's task.")
@click.option(
    "--service", "services", metavar="NAME", multiple=True, help="Look at this service alone; may be repeated."
)
@click.option("--resume", type=click.IntRange(min=1), metavar="SESSION", help="Go on with this session's conversation.")
@click.option("--site", metavar="NAME", help="Only a node of this site may run it.  [default: any]")
@click.option(
    "--detach", is_flag=True, help="Queue it for the running daemon, print the session's id, and do not wait."
)
@OUTPUT_FORMAT
@click.option("--live/--no-live", default=None, help="Print on stderr what the sessions do.  [default: on a terminal]")
def bootstrap(  # noqa: PLR0917 - click hands its options over by name
    tier: int | None,
    prompt_text: str | None,
    services: tuple[str, ...],
    resume: int | None,
    site: str | None,
    detach: bool,  # noqa: FBT001 - click
    output_format: str,
    live: bool | None,  # noqa: FBT001 - click
) -> int:
    """Run one whole chain in the foreground: a session and those that follow from it.

    Beside a running daemon the chain is queued there and followed, or with --detach left to it. With --resume the
    session remembers what it said and saw. Exit status: 0 healthy or resolved (with --detach: queued), 1 unresolved,
    stopped, or a session failed, 66 that session cannot be gone on with, 75 try later (with --detach also: no daemon
    runs), 78 configuration.
    """
    from claudeops.domain.schedules.plan import asked

    as_json = output_format == "json"
    if detach and live:
        raise click.UsageError("--detach does not wait, so --live has nothing to print: leave one of them out.")
    if resume is not None and tier is not None:
        raise click.UsageError("--resume goes on at the session's own tier: leave --tier out.")
    if resume is not None and not (services or (prompt_text or "").strip()):
        raise click.UsageError("--resume needs to know what for: say so with --prompt.")
    if resume is not None and site is not None:
        raise click.UsageError("--resume goes on at the session's own site: leave --site out.")
    if site is not None and not site.strip():
        raise click.BadParameter("a site has a name.", param_hint="--site")
    if any(not service.strip() for service in services):
        raise click.BadParameter("a service has a name.", param_hint="--service")
    request = asked(prompt_text or "", tuple(map(str.strip, services)))
    if detach:
        from claudeops.cli.bootstrap import queue_and_leave

        return queue_and_leave(
            tier=tier or 1, prompt_text=request, services=services, resume=resume, site=site, as_json=as_json
        )
    from claudeops.cli.bootstrap import run_in_foreground

    return run_in_foreground(
        tier=tier or 1, prompt_text=request, services=services, resume=resume, site=site, as_json=as_json, live=live
    )


@click.command(epilog=examples("claudeops tail", "claudeops tail 12 --output-format json"))
@click.argument("session", metavar="[SESSION]", type=SESSION, required=False)
@click.option(
    "-f",
    "--follow/--no-follow",
    default=None,
    help="Wait for more, or print what is there and end.  [default: wait, unless SESSION is given]",
)
@click.option(
    "-o",
    "--output-format",
    type=click.Choice(["text", "stream-json", "json"]),
    default="text",
    show_default=True,
    help="What to print: lines for people, a JSON object a line, or one document.",
)
def tail(session: tuple[str, Reference] | None, follow: bool | None, output_format: str) -> int:  # noqa: FBT001 - click's
    """Print what sessions do or did, a line a step.

    Without SESSION: every running chain from its beginning (the newest chain when none runs) and every chain that
    starts later, until Ctrl-C. With SESSION: that session and those that follow from it in its chain. Reads the logs,
    so a daemon that hangs can be watched too. Exit status: 0, or 1 when there is no such session.
    """
    from claudeops.cli.tail import print_sessions

    if follow and output_format == "json":
        raise click.UsageError("--follow cannot end with one document: use --output-format stream-json.")
    return print_sessions(session=session, follow=follow, output_format=output_format)


@click.command(epilog=examples("claudeops health", "claudeops health -o json"))
@OUTPUT_FORMAT
def health(output_format: str) -> int:
    """Say whether the daemon of this state directory is alive; for a container's HEALTHCHECK.

    A daemon that is paused, or held for another reason, is alive, and the reason is printed.

    Looks at the daemon's status file and its process, never at the database: a daemon whose database is away is alive.
    Exit status: 0 alive, 1 not.
    """
    from claudeops.cli.health import print_health

    return print_health(as_json=output_format == "json")


@click.command(epilog=examples("claudeops ping backup", 'claudeops ping backup --fail --log "disk full"'))
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
    from claudeops.cli.ping import send_ping
    from claudeops.domain.probes.probe import PingVerb

    said = None if verb is None and line is not None else PingVerb(verb or "success")
    return send_ping(name, said, line or "", as_json=output_format == "json")
