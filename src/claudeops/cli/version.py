"""``claudeops version``: what is installed here. Local: it asks for no setting, no database and no credentials."""

from __future__ import annotations

import platform
from typing import Final

from claudeops import __version__
from claudeops.cli.reply import SCHEMA_VERSION, CommandResult, print_result
from claudeops.store.tables import HEAD

_NAME: Final = "version"


def print_version(*, as_json: bool) -> int:
    """Print the versions of claudeops, of its documents, of its tables and of Python; return the exit status."""
    body: dict[str, object] = {
        "version": __version__,
        "envelope_version": SCHEMA_VERSION,
        "database_revision": HEAD,
        "python_version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform_name": platform.system(),
        "machine": platform.machine(),
    }
    text = (
        f"claudeops {body['version']} (documents {SCHEMA_VERSION}, tables {HEAD}) on "
        f"{body['implementation']} {body['python_version']}, {body['platform_name']} {body['machine']}"
    )
    return print_result(_NAME, CommandResult(text=text, body=body), as_json=as_json)
