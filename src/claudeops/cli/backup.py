"""``claudeops backup``: a copy of the database, one moment's state, made while everything goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from claudeops.cli.answers import print_document, print_failure
from claudeops.cli.exit_codes import Exit
from claudeops.cli.start import read_settings
from claudeops.errors import ClaudeopsError
from claudeops.store.backup import back_up_to
from claudeops.store.connections import parse_url

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = "backup"


def back_up(file: Path, *, as_json: bool) -> int:
    """Copy the database to ``file`` and return the exit status."""
    target = file.absolute()
    try:
        size = back_up_to(parse_url(read_settings().database_url), target)
    except ClaudeopsError as error:
        return print_failure(_NAME, error, as_json=as_json, target=str(target))
    if as_json:
        return print_document(_NAME, {"path": str(target), "bytes": size}, Exit.OK)
    click.echo(f"{target}: {size} bytes")
    return Exit.OK
