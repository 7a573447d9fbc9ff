"""Groups of commands whose help says a whole sentence of each, under headings.

A file of its own, because the commands of three files are grouped by it. What click does by itself cuts sentences off
in the middle and lists all commands by the alphabet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OTHERS: Final = "Commands"


class WholeHelp(click.Group):
    """A group whose commands stand under ``headings``, in their order; those under none come last."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        shown = {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}
        named = {name for names in self.headings.values() for name in names}
        sections = {**self.headings, OTHERS: [name for name in shown if name not in named]}
        width = max(map(len, shown))
        for heading, names in sections.items():
            rows = [(name.ljust(width), sentence(shown[name])) for name in names if name in shown]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def sentence(command: click.Command) -> str:
    """Return the first sentence of a command's help, whole."""
    first = (command.help or "").partition("\n\n")[0]
    return " ".join(first.split())
