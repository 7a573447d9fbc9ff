"""The commands of ``claudeops``: their names, help texts, arguments and options.

A command imports what it does only when it is called, so that help and mistakes are answered at once. Help shows the
first sentence of every command in full, under headings; click alone would cut sentences off in the middle and list all
commands alphabetically.
"""

from __future__ import annotations

from typing import ClassVar

import click

from claudeops.cli.commands.access import login_link, token, user
from claudeops.cli.commands.act import approve, deny, list_approvals, pause, resume, stop
from claudeops.cli.commands.completion import complete_names, completion
from claudeops.cli.commands.history import (
    chain,
    config,
    diff_chains,
    list_actions,
    list_checks,
    list_events,
    spend,
    stats,
    status,
    why,
)
from claudeops.cli.commands.incidents import (
    ack,
    alerts,
    end_silence,
    incident,
    list_incidents,
    list_silences,
    list_sources,
    resolve,
    silence,
)
from claudeops.cli.commands.look import audit, probe
from claudeops.cli.commands.memories import memories
from claudeops.cli.commands.notify import notify
from claudeops.cli.commands.options import WholeHelp
from claudeops.cli.commands.policy import policy, remote_commands, show_tool
from claudeops.cli.commands.sessions import delete_session, flush_transcript, list_sessions, load_session, replay
from claudeops.cli.commands.set_up import backup, doctor, migrate_from, rehearse, version
from claudeops.cli.commands.tiers import (
    bootstrap_graph,
    command_graph,
    exec_command,
    exec_tool,
    route,
    show_command,
    tool_pool,
)
from claudeops.cli.commands.watch import bootstrap, health, ping, run, tail


class _Commands(WholeHelp):
    headings: ClassVar = {
        "Watch": ("status", "run", "bootstrap", "tail", "health", "ping"),
        "Act": ("list-approvals", "approve", "deny", "stop", "pause", "resume", "memories"),
        "Incidents": (
            *("list-incidents", "incident", "ack", "resolve"),
            *("silence", "end-silence", "list-silences", "list-sources", "alerts"),
        ),
        "Look back": ("chain", "diff-chains", "why", "list-events", "list-checks", "list-actions", "spend", "stats"),
        "Look": ("probe", "audit", "policy"),
        "Tiers and tools": (
            *("exec-command", "show-command", "route", "exec-tool", "show-tool"),
            *("command-graph", "tool-pool", "bootstrap-graph"),
        ),
        "Sessions": ("list-sessions", "load-session", "delete-session", "flush-transcript", "replay"),
        "Set up": (
            *("doctor", "config", "notify", "rehearse", "backup", "migrate-from", "remote-commands"),
            *("login-link", "user", "token", "version", "completion"),
        ),
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


for _command in (
    *(status, run, bootstrap, tail, health, ping),
    *(list_approvals, approve, deny, stop, pause, resume, memories),
    *(list_incidents, incident, ack, resolve, silence, end_silence, list_silences),
    *(list_sources, alerts),
    *(chain, diff_chains, why, list_events, list_checks, list_actions, spend, stats),
    *(probe, audit, policy, remote_commands, show_tool),
    *(exec_command, show_command, route, exec_tool, command_graph, tool_pool, bootstrap_graph),
    *(list_sessions, load_session, delete_session, flush_transcript, replay),
    *(doctor, config, notify, rehearse, backup, migrate_from, login_link, user, token, version, completion),
):
    claudeops.add_command(_command)

complete_names(claudeops)
