"""The process of a session's filter before clusters."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import anyio
import msgspec

from claudeops.engine.filtering.process import DaemonLine, Serving, run, texts
from claudeops.engine.kubernetes.relay import Clusters
from claudeops.engine.kubernetes.upstream import Context, loaded


def opened(first: Mapping[str, Any], line: DaemonLine) -> Serving:
    """Return what serves a connection."""
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.minimum_version = ssl.TLSVersion.TLSv1_2
    own.set_alpn_protocols(["http/1.1"])
    loaded(own, str(first["certificate"]))
    clusters = Clusters(
        contexts={str(token): msgspec.convert(context, Context) for token, context in dict(first["contexts"]).items()},
        tls=own,
        secrets={*texts(first["secrets"])},
        daemon=line,
    )
    return clusters.serve


if __name__ == "__main__":
    anyio.run(run, opened)
