"""The process of a session's filter before docker's engine."""

from __future__ import annotations

from pathlib import Path

import anyio

from claudeops.engine.docker.relay import Engine
from claudeops.engine.filtering.process import DaemonLine, Serving, run, texts
from claudeops.text.redact import Redactor


def opened(first: dict[str, object], line: DaemonLine) -> Serving:
    """Return what serves a connection."""
    engine = Engine(socket=Path(str(first["engine"])), redactor=Redactor(texts(first["secrets"])), daemon=line)
    return engine.serve


if __name__ == "__main__":
    anyio.run(run, opened)
