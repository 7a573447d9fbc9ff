"""A throw-away PostgreSQL server: one per test process, on a unix socket in a directory of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

_NEEDED: Final = ("initdb", "pg_ctl", "postgres")
_UNPRIVILEGED: Final = ("postgres", "nobody")  # the server refuses to run as root
_PATIENCE_SECONDS: Final = 240

_QUICK: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}  # nothing in it is to last

_SETTINGS: Final = {
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "autovacuum": "off",
}


@dataclass(kw_only=True)
class Server:
    """A running server; ``url`` names one of its databases."""

    directory: Path
    binaries: Path  # where its programs are, and those of its clients
    stop: Callable[[], None]  # whoever is connected is thrown out; what was committed is kept
    start: Callable[[], None]
    _numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://claudeops@/{database}?host={self.directory}"

    def create(self, template: str | None = None) -> str:
        """Return the name of a new database: an empty one, or a copy of another one that has no connections."""
        name = f"test_{next(self._numbers)}"
        order = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        with self.connect("postgres") as connection:
            connection.execute(order.format(sql.Identifier(name), sql.Identifier(template or "template1")))
        return name

    def drop(self, name: str) -> None:
        """Remove a database, whoever is connected."""
        with self.connect("postgres") as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def connect(self, database: str) -> psycopg.Connection:
        """Return a plain connection that commits every statement."""
        return psycopg.connect(host=str(self.directory), dbname=database, user="claudeops", autocommit=True)


@contextmanager
def running_server(
    *, data_directory: Path | None = None, connections: int = 50, parameters: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server for so many connections, and stop it at the end whatever happened.

    With a ``data_directory``, which is made, its files are there, and what it has committed is on that disk.
    """
    binaries = _binaries()
    directory = Path(tempfile.mkdtemp(prefix="claudeops-pg-", dir="/tmp"))  # a socket's path must be short
    account = _account(directory)
    data = data_directory or directory / "data"
    quick = {} if data_directory else _QUICK
    settings = {**_SETTINGS, "max_connections": str(connections), **quick, **(parameters or {})}
    try:
        if data_directory is not None:
            data_directory.mkdir(mode=0o700)
            owner = directory.stat()
            os.chown(data_directory, owner.st_uid, owner.st_gid)
        initdb: list[str | Path] = [
            binaries / "initdb",
            "-D",
            data,
            "-U",
            "claudeops",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        _run([*initdb, "--no-locale"], account, directory)
        options = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in settings.items())
        socket = f"-c unix_socket_directories={directory}"
        start: list[str | Path] = [
            binaries / "pg_ctl",
            "-D",
            data,
            "-l",
            directory / "log",
            "-w",
            "-t",
            str(_PATIENCE_SECONDS),
        ]
        starting = partial(_run, [*start, "-o", f"{options} {socket}", "start"], account, directory)
        stop: list[str | Path] = [binaries / "pg_ctl", "-D", data, "-w", "stop", "-m"]
        starting()
        try:
            stopping = partial(_run, [*stop, "fast"], account, directory)
            yield Server(
                directory=directory, binaries=(binaries / "pg_ctl").resolve().parent, stop=stopping, start=starting
            )
        finally:
            _run([*stop, "immediate"], account, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _binaries() -> Path:
    """Return the directory of the server's programs, wherever the distribution keeps them."""
    candidates = [Path(program).parent for program in [shutil.which("initdb")] if program]
    if config := shutil.which("pg_config"):
        told = subprocess.run(
            [config, "--bindir"], capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS
        )
        candidates.append(Path(told.stdout.strip()))
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    candidates += sorted(versions, key=lambda path: path.parent.name.zfill(3), reverse=True)
    for candidate in candidates:
        if all(os.access(candidate / name, os.X_OK) for name in _NEEDED):
            return candidate
    raise RuntimeError(
        "These tests need PostgreSQL's server programs (initdb, pg_ctl): install the Debian package 'postgresql'."
    )


def _account(directory: Path) -> dict[str, object]:
    """Return how to start programs as somebody who is not root, and give the directory to them."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = next(known[name] for name in _UNPRIVILEGED if name in known)
    os.chown(directory, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _run(command: list[str | Path], account: dict[str, object], directory: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(directory)}
    # Output goes to a file: a server that inherits a pipe keeps it open, and reading it would never end.
    with (directory / "commands").open("ab") as output:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_PATIENCE_SECONDS,
            **account,  # type: ignore[call-overload]
        )
    if done.returncode:
        said = (directory / "commands").read_text(errors="replace")
        raise RuntimeError(f"PostgreSQL's {Path(command[0]).name} ended with {done.returncode}: {said[-2000:]}")
