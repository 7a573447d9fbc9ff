"""The commands of ``claudeops``: their names, help texts, arguments and options.

A command imports what it does only when it is called, so that help and mistakes are answered at once. Help shows the
first sentence of every command in full, under headings; click alone would cut sentences off in the middle and list all
commands alphabetically.
"""

from __future__ import annotations

from typing import ClassVar

import click

from claudeops.cli.commands.act import approve, deny, list_approvals, pause, resume
from claudeops.cli.commands.look import audit, probe
from claudeops.cli.commands.memories import memories
from claudeops.cli.commands.options import WholeHelp
from claudeops.cli.commands.policy import policy, show_tool
from claudeops.cli.commands.set_up import backup, doctor, rehearse
from claudeops.cli.commands.watch import bootstrap, health, ping, run, tail


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


for _command in (
    *(run, bootstrap, tail, health, ping),
    *(list_approvals, approve, deny, pause, resume, memories),
    *(probe, audit, policy, show_tool),
    *(doctor, rehearse, backup),
):
    claudeops.add_command(_command)
