"""MCP servers, the operator's and those of trusted repositories, as a session's CLI gets them; and the CLI's warnings.

The CLI starts such a server with its own whole environment and adds the configured variables. So each server is started
through a shell that first drops every variable that is not the server's. The configuration travels in a pipe that the
CLI drains at its start: it is in no file of the session and in no argument list, and no tool inherits it. A tool of the
same session may still look into a process of the same user; where that must not happen, the server belongs to a tier of
its own.

`CliWarnings` turns what a CLI warns of into events, each kind once per session.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.errors import ErrorKind, HarnessError
from claudeops.formats.stream import CliWarned, McpServer
from claudeops.logs import LogEvent, Logger

KEPT: Final = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
)
"""The variables of the session's environment that a server gets, besides its own ``env``."""

_ONLY_NAMED: Final = (
    'for name in $(compgen -e); do case " $0 " in *" $name "*) ;; *) unset "$name" ;; esac; done; exec "$@"'
)
_MOST_BYTES: Final = 1024 * 1024  # what a pipe holds for a user without privileges

MOST_KINDS: Final = 10
"""How many kinds of warnings of one session leave an event; more would be a flood."""

MESSAGE_CHARACTERS: Final = 500


def configuration(servers: Mapping[str, Mapping[str, object]], *, shell: str) -> bytes:
    """Return the CLI's configuration: programs are started through the shell, other servers stay as they are."""
    wrapped = {name: _wrapped(server, shell) if "command" in server else server for name, server in servers.items()}
    return json.dumps({"mcpServers": wrapped}, separators=(",", ":")).encode()


def named_paths(servers: Mapping[str, Mapping[str, object]], *, but: frozenset[str] = frozenset()) -> tuple[Path, ...]:
    """Return the absolute paths among programs and arguments, which a server needs to see.

    ``but``: the servers of repositories, whose authors must not choose what a session sees of this machine.
    """
    counted = [server for name, server in servers.items() if name not in but]
    words = [word for server in counted for word in (server.get("command"), *texts(server.get("args")))]
    return tuple(Path(word) for word in words if isinstance(word, str) and word.startswith("/") and word.strip("/"))


def missed(listed: Sequence[McpServer], log: Logger) -> NewEvent | None:
    """Return the event that names the servers of an init line that are not connected, if there are any.

    The line comes once every server has connected or failed (CLI 2.1.329: a missing program at once, a silent one after
    ``MCP_TIMEOUT``). Earlier versions let a session run to its end with servers that were still ``pending``.
    """
    away = [f"{server.name} ({server.status})" for server in listed if server.status not in {"connected", ""}]
    if not away:
        return None
    log.warning(LogEvent.MCP_SERVERS_AWAY, servers=away)
    message = f"MCP servers are not connected: {', '.join(away)}."
    return NewEvent(level=EventLevel.WARNING, message=message, fingerprint="mcp_servers_away")


@contextlib.contextmanager
def handed(servers: Mapping[str, Mapping[str, object]] | None, *, shell: str, uid: int | None) -> Iterator[int | None]:
    """Yield the read end of a pipe that holds the configuration, for ``--mcp-config``; raises `HarnessError`."""
    if servers is None:
        yield None
        return
    content = configuration(servers, shell=shell)
    reading, writing = os.pipe()
    try:
        try:
            if uid is not None:
                os.fchown(reading, uid, uid)  # the CLI opens it by its path in /dev/fd
            _fill(writing, content)
        finally:
            os.close(writing)
        yield reading
    finally:
        os.close(reading)


class CliWarnings:
    """Turns one session's warning frames into events, live and when its log is read again."""

    def __init__(self, cli: str) -> None:
        self._cli = cli
        self._kinds: set[str] = set()

    def event(self, warned: CliWarned) -> NewEvent | None:
        """Return the event for a warning of a new kind. A warning is no failure; it may name a fallback model, say."""
        kind = warned.subtype or "warning"
        if kind in self._kinds or len(self._kinds) >= MOST_KINDS:
            return None
        self._kinds.add(kind)
        message = f"The {self._cli} CLI warned: {kind}: {warned.message[:MESSAGE_CHARACTERS]}"
        return NewEvent(level=EventLevel.WARNING, message=message, fingerprint=f"cli_warning:{kind}")


def _fill(writing: int, content: bytes) -> None:
    os.set_blocking(writing, False)
    try:
        if len(content) > fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ):
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, min(len(content), _MOST_BYTES))
        whole = os.write(writing, content) == len(content)
    except OSError as error:
        raise HarnessError(
            f"the MCP configuration could not be handed over: {error.strerror}", kind=ErrorKind.MCP
        ) from error
    if not whole:
        raise HarnessError(
            f"the MCP configuration is longer than the {_MOST_BYTES} bytes that a session is handed", kind=ErrorKind.MCP
        )


def _wrapped(server: Mapping[str, object], shell: str) -> dict[str, object]:
    given = server.get("env")
    names = " ".join((*KEPT, *(given if isinstance(given, dict) else ())))
    args = ["-c", _ONLY_NAMED, names, str(server["command"]), *texts(server.get("args"))]
    return {**server, "command": shell, "args": args}


def texts(value: object) -> list[str]:
    """Return the entries of a list as text; none for anything else."""
    return [str(entry) for entry in value] if isinstance(value, list) else []
