"""What several commands share: their options, and help that shows the first sentence of every command in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import click

if TYPE_CHECKING:  # help and mistakes are answered without the model
    from claudeops.domain.listing import Reference

OTHERS: Final = "Commands"
"""The heading of commands that no other heading names."""

OUTPUT_FORMAT: Final = click.option(
    "-o",
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What to print.",
)
POLICY_FILE: Final = click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A policy file to try instead of the one in force.",
)


class _SessionReference(click.ParamType["tuple[str, Reference]"]):
    """A session, by its id or the beginning of its CLI's; with the words of the operator."""

    name = "session"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Reference]:
        """Return what was written and what it means."""
        from claudeops.domain.listing import reference  # noqa: PLC0415 - when a command is called

        try:
            return str(value), reference(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


SESSION: Final = _SessionReference()


class WholeHelp(click.Group):
    """A group whose help lists commands under ``headings``, in their order, and the rest under `OTHERS`."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each heading."""
        shown = {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}
        named = {name for names in self.headings.values() for name in names}
        sections = {**self.headings, OTHERS: [name for name in shown if name not in named]}
        width = max(map(len, shown))
        for heading, names in sections.items():
            rows = [(name.ljust(width), sentence(shown[name])) for name in names if name in shown]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: what somebody would write, a line each, with a comment where it helps."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def sentence(command: click.Command) -> str:
    """Return the first paragraph of a command's help on one line."""
    first = (command.help or "").partition("\n\n")[0]
    return " ".join(first.split())
