"""``claudeops backup``: a copy of the database, one moment's state, made while everything goes on."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from claudeops.cli import envelope
from claudeops.cli.exit_codes import Exit, exit_for
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
        sysexit = exit_for(error)
        if as_json:
            return _write(envelope.body_of(error, operation=_NAME, target=str(target)), sysexit, 1)
        click.echo(f"claudeops: {error}", err=True)
        return sysexit
    if as_json:
        return _write({"path": str(target), "bytes": size}, Exit.OK, 0)
    click.echo(f"{target}: {size} bytes")
    return Exit.OK


def _write(body: dict[str, object], sysexit: Exit, exit_code: int) -> int:
    document = envelope.document(_NAME, body, sysexit=sysexit, exit_code=exit_code, at=datetime.now(UTC))
    sys.stdout.write(document.decode())
    return exit_code
