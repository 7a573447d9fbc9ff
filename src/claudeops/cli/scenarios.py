"""The scenarios that ``claudeops rehearse`` is given: found, listed, refused. Without what running them takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from claudeops.cli.answers import print_document, print_failure
from claudeops.cli.exit_codes import Exit
from claudeops.errors import ClaudeopsError, MissingInputError
from claudeops.rehearsal.scenario_file import find, shipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from claudeops.rehearsal.scenario_file import Named

NAME: Final = "rehearse"


def list_scenarios(*, as_json: bool) -> Exit:
    """Print the shipped scenarios with their titles."""
    found = [find(name, cwd=Path.cwd()) for name in shipped()]
    if as_json:
        body: dict[str, object] = {
            "scenarios": [{"name": named.name, "title": named.scenario.title} for named in found]
        }
        return Exit(print_document(NAME, body, Exit.OK))
    width = max(len(named.name) for named in found)
    for named in found:
        click.echo(f"{named.name:<{width}}  {named.scenario.title}")
    return Exit.OK


def rehearse(given: Sequence[str], *, pace_seconds: float, as_json: bool) -> int:
    """Find scenarios and run them in order; return the exit status."""
    try:
        found = [find(name, cwd=Path.cwd()) for name in given]
    except MissingInputError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start", sysexit=Exit.NO_INPUT)
    except ClaudeopsError as error:
        return print_failure(NAME, error, as_json=as_json, operation="start")
    return _run(found, pace_seconds=pace_seconds, as_json=as_json)


def _run(found: Sequence[Named], *, pace_seconds: float, as_json: bool) -> int:
    from claudeops.cli.rehearse import rehearse as run_all  # noqa: PLC0415 - the whole daemon, which takes a second

    return run_all(found, pace_seconds=pace_seconds, as_json=as_json)
