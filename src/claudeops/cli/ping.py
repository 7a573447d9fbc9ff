"""``claudeops ping``, by which a heartbeat is heard; it works with and without a running daemon."""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from claudeops.cli.on_database import now, run_on_database
from claudeops.cli.reply import CommandResult, not_found
from claudeops.domain.probes.probe import PingVerb
from claudeops.domain.probes.record import ping_line
from claudeops.settings.environ import names_a_secret
from claudeops.store.database import Database
from claudeops.store.probes import Probes
from claudeops.text.redact import Redactor

_PING: Final = "ping"


def send_ping(name: str, verb: PingVerb | None, text: str, *, as_json: bool) -> int:
    """Note what a heartbeat says; return the exit status: 0 heard, 1 no daemon knows a heartbeat of this name."""
    return run_on_database(_PING, partial(_ping, name, verb, text), as_json=as_json, target=name)


async def _ping(name: str, verb: PingVerb | None, text: str, database: Database) -> CommandResult:
    said = "log" if verb is None else verb.value
    line = ping_line(text, _redactor().text)
    heard = await Probes(database).ping(name, verb, text=line, at=now())
    body = {"name": name, "ping": said, "handled": heard}
    if heard:
        return CommandResult(text="", body=body)
    message = (
        f"no heartbeat {name!r} is known: declare it in the probes file, which a running daemon notices within seconds"
    )
    answer = not_found("probe_not_found", name, message)
    return answer._replace(body={**body, **answer.body})


def _redactor() -> Redactor:
    """Return what knows the secrets of this environment, without waiting for all settings; shapes it knows anyway."""
    values = [value for name, value in os.environ.items() if names_a_secret(name)]
    try:
        return Redactor(values)
    except ValueError:  # too many of them to be searched for
        return Redactor(())
