"""A secret planted in every place where the daemon knows one; then every place is searched where one could turn up.

The daemon is a process of its own on PostgreSQL, its settings are an operator's, and the model repeats the secrets
wherever it can: somebody has committed them into a repository.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from claudeops.engine.cell.cell import USER_HOMES, IsolationLevel
from claudeops.store.tables.all_tables import metadata
from support.operating import conclude, look, operator
from support.stores import POSTGRES, Database
from support.waiting import until

pytest_plugins = ("support.store_fixtures",)
pytestmark = [pytest.mark.anyio, *POSTGRES]

MOST_BYTES = 8 * 1024 * 1024
"""Larger files are programs: none of the daemon's own is as large here."""

PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n"


@dataclass(frozen=True)
class Planted:
    """What the operator has entrusted to the daemon; new for each test, so that nobody else's is found."""

    api_key: str = field(default_factory=lambda: f"sk-ant-api03-{secrets.token_urlsafe(24)}")
    database_password: str = field(default_factory=lambda: f"database-{secrets.token_hex(12)}")
    notice_token: str = field(default_factory=lambda: f"notice-{secrets.token_hex(12)}")
    proxy_password: str = field(default_factory=lambda: f"proxy-{secrets.token_hex(12)}")
    mcp_token: str = field(default_factory=lambda: f"mcp-{secrets.token_hex(12)}")
    header_token: str = field(default_factory=lambda: f"header-{secrets.token_hex(12)}")
    ssh_key: str = field(default_factory=lambda: secrets.token_urlsafe(48))  # a line of the key

    def __iter__(self) -> Iterator[str]:
        yield from vars(self).values()

    def settings(self, root: Path, database: Database, *, server: Path) -> dict[str, str]:
        """Write the files and return the variables that an operator would set."""
        home = root / "tier3"
        (home / ".ssh").mkdir(parents=True)
        (home / ".ssh" / "id_ed25519").write_text(PEM.format(self.ssh_key))
        config = root / "mcp.json"
        servers = {"grafana": {"command": str(server), "env": {"TOKEN": "${PLANTED}"}}}
        config.write_text(json.dumps({"mcpServers": servers}))
        headers = root / "headers.toml"
        headers.write_text(
            '[[headers]]\nhost = "grafana.example"\nname = "Authorization"\nvalue = "Bearer ${HEADER_PLANTED}"\n'
        )
        return {
            "ANTHROPIC_API_KEY": self.api_key,
            "CLAUDEOPS_DATABASE_URL": database.url.replace("claudeops@", f"claudeops:{self.database_password}@"),
            "CLAUDEOPS_APPRISE_URLS": f"discord://1234567890/{self.notice_token}",
            "HTTPS_PROXY": f"http://alice:{self.proxy_password}@127.0.0.1:1",
            "CLAUDEOPS_MCP_CONFIG": str(config),
            "PLANTED": self.mcp_token,
            "CLAUDEOPS_HEADERS_PATH": str(headers),
            "HEADER_PLANTED": self.header_token,
            "CLAUDEOPS_TIER3_HOME": str(home),
        }

    def in_text(self, text: str) -> list[str]:
        """Return the names of those that a text holds."""
        return [name for name, secret in vars(self).items() if secret in text]

    def in_files(self, *roots: Path, since: float, known: Iterable[Path] = ()) -> list[str]:
        """Return where below ``roots`` one is, of files that were written since; ``known``: where they belong."""
        known = set(known)
        # Not rglob, which fails where a directory is removed meanwhile.
        files = (Path(top, name) for root in roots for top, _, names in os.walk(root) for name in names)
        texts = ((path, written(path, since=since)) for path in files if path not in known)
        return [f"{path}: {names}" for path, text in texts if (names := self.in_text(text))]


def written(path: Path, *, since: float) -> str:
    """Return what a file holds; nothing for what is no file, gone, older, or a program."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if path.is_file() and not path.is_symlink() and status.st_mtime >= since and status.st_size < MOST_BYTES:
            return path.read_bytes().decode(errors="replace")
    return ""


def told_to_processes() -> Mapping[int, tuple[str, str]]:
    """Return the argument list and the environment of every process of this machine."""
    told = {}
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # gone since, or not ours to look at
            arguments, environment = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
            told[pid] = (arguments.decode(errors="replace"), environment.decode(errors="replace"))
    return told


def sleeper(seconds: str) -> int | None:
    """Return the process that a tool of the session is."""
    wanted = f"sleep\0--\0{seconds}\0"  # by its path
    return next((pid for pid, (arguments, _) in told_to_processes().items() if arguments.endswith(f"/{wanted}")), None)


async def test_what_was_entrusted_to_the_daemon_is_found_nowhere_at_any_level(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path, mcp_server: Path, postgresql: Database
) -> None:
    planted, since = Planted(), time.time() - 1
    shared = Path("/tmp")  # noqa: S108 - looked at, because everybody may write there
    others = set(shared.iterdir())
    tool = f"59.{secrets.randbelow(10**9):09}"  # seconds, and a name
    with tempfile.TemporaryDirectory(dir=everybodys_cli.parent) as directory:
        repos = Path(directory)
        repos.chmod(0o755)
        notes = repos / "notes.md"
        notes.write_text("\n".join([*list(planted)[:-1], PEM.format(planted.ssh_key)]))
        settings = planted.settings(tmp_path, postgresql, server=mcp_server) | {
            "CLAUDEOPS_ISOLATION": level.value,
            "CLAUDEOPS_CLAUDE_BIN": str(everybodys_cli),
            "CLAUDEOPS_REPOS_DIR": str(repos),
        }
        said = " ".join(list(planted)[:-1])
        steps = [look(f"sleep {tool}"), {**look(f"cat {notes}"), "text": said}, conclude(summary=said)]
        async with operator(tmp_path, haiku=steps) as node:
            node.forks = False  # a forked daemon shows the environment of the process that it comes from
            async with node.daemon(**settings) as daemon:
                await until(lambda: sleeper(tool) is not None)
                processes = told_to_processes()
                homes = (tmp_path / "state", tmp_path / "operator", USER_HOMES, *(set(shared.iterdir()) - others))
                belong = [notes, tmp_path / "mcp.json", tmp_path / "tier3" / ".ssh" / "id_ed25519"]
                found = planted.in_files(*homes, since=since, known=belong)
                os.kill(sleeper(tool) or 0, signal.SIGTERM)
                await until(lambda: "ended" in [row["status"] for row in postgresql.rows("sessions")])
    [row, *_] = postgresql.rows("sessions")
    assert (row["isolation"], row["outcome"], row["tool_calls_seen"]) == (level.value, "success", 3)
    repeated = planted.in_text(str([request.body for request in node.api.requests]))
    assert len(repeated) == len([*planted]), "the model did repeat them"

    assert [told for told, _ in processes.values() if planted.in_text(told)] == []
    holders = {pid: planted.in_text(told) for pid, (_, told) in processes.items() if planted.in_text(told)}
    del holders[daemon.process.pid]
    assert list(holders.values()) == [["mcp_token"]], "the server's own, and nobody else's"

    assert found + planted.in_files(tmp_path, since=since, known=belong) == []
    written_rows = {table: str(postgresql.rows(table)) for table in metadata.tables}
    assert {table: names for table, text in written_rows.items() if (names := planted.in_text(text))} == {}
    assert len(list((tmp_path / "results").glob("*.ndjson"))) == 1
