"""Commands on memories: what the agents believe."""

# ruff: noqa: PLC0415 - a command imports what it does when it is called: help and mistakes are answered at once

from __future__ import annotations

from typing import Final

import click

from claudeops.cli.commands.options import OUTPUT_FORMAT, WholeHelp, examples

CATEGORIES: Final = (
    *("timing", "dependency", "behaviour", "maintenance", "location", "capacity", "configuration", "cause", "remedy"),
    *("schedule", "contact", "other"),
)
"""Those of `claudeops.domain.memories.categories`, which is not imported for help; a test compares them."""

_ID_DIGITS: Final = 9  # more do not fit the column


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


@click.group(cls=WholeHelp)
def memories() -> None:
    """See and correct what the agents believe; nothing is deleted."""


@memories.command(
    "list", epilog=examples("claudeops memories list", "claudeops memories list --service web --all -o json")
)
@click.option("--service", help="Only those about this service.")
@click.option("--all", "everything", is_flag=True, help="Also those that are out of use.")
@OUTPUT_FORMAT
def list_memories(service: str | None, everything: bool, output_format: str) -> int:  # noqa: FBT001 - click
    """Show what sessions are told, and what waits in quarantine."""
    from claudeops.cli.memories import print_memories

    return print_memories(service=service, everything=everything, as_json=output_format == "json")


@memories.command(
    "add",
    epilog=examples(
        'claudeops memories add "web takes 30 s to start" --service web --category timing',
        'claudeops memories add "backups run at 03:00" --supersedes m12',
    ),
)
@click.argument("observation")
@click.option("--service", help="The service that it is about.  [default: none in particular]")
@click.option("--category", type=click.Choice(CATEGORIES), default="other", show_default=True, help="What it says.")
@click.option("--supersedes", type=_MEMORY_ID, metavar="ID", help="A memory in whose place it stands.")
@OUTPUT_FORMAT
def add_memory(observation: str, service: str | None, category: str, supersedes: int | None, output_format: str) -> int:
    """State a fact that every session is told; it never fades, and no session can change it.

    What contradicts it is put out of use. Exit status: 0 added, 1 declined, 78 configuration.
    """
    from claudeops.cli import memories as ours
    from claudeops.domain.report.report import ReportedMemory

    named = (service or "").strip() or None
    memory = ReportedMemory(category=category, observation=observation, service=named, supersedes=supersedes)
    return ours.add_memory(memory, as_json=output_format == "json")


@memories.command("forget", epilog=examples("claudeops memories forget m12", "claudeops memories forget 12 -o json"))
@click.argument("memory_id", type=_MEMORY_ID, metavar="ID")
@OUTPUT_FORMAT
def forget_memory(memory_id: int, output_format: str) -> int:
    """Tell sessions no more of a memory, not even when one says it again.

    Exit status: 0 forgotten, 1 there is none or it is forgotten already, 78 configuration.
    """
    from claudeops.cli.memories import change_memory
    from claudeops.store.acts.memories import MemoryVerb

    return change_memory(MemoryVerb.FORGET, memory_id, as_json=output_format == "json")


@memories.command("restore", epilog=examples("claudeops memories restore m12", "claudeops memories restore 12 -o json"))
@click.argument("memory_id", type=_MEMORY_ID, metavar="ID")
@OUTPUT_FORMAT
def restore_memory(memory_id: int, output_format: str) -> int:
    """Bring back a memory that was forgotten, replaced or given up.

    Exit status: 0 restored, 1 there is none or it is in use, 78 configuration.
    """
    from claudeops.cli.memories import change_memory
    from claudeops.store.acts.memories import MemoryVerb

    return change_memory(MemoryVerb.RESTORE, memory_id, as_json=output_format == "json")


@memories.command("confirm", epilog=examples("claudeops memories confirm m12", "claudeops memories confirm 12 -o json"))
@click.argument("memory_id", type=_MEMORY_ID, metavar="ID")
@OUTPUT_FORMAT
def confirm_memory(memory_id: int, output_format: str) -> int:
    """Let a memory out of quarantine, so that sessions are told of it.

    Exit status: 0 confirmed, 1 there is none or it is not in quarantine, 78 configuration.
    """
    from claudeops.cli.memories import change_memory
    from claudeops.store.acts.memories import MemoryVerb

    return change_memory(MemoryVerb.CONFIRM, memory_id, as_json=output_format == "json")
