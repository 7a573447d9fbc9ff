"""A secret planted wherever the daemon knows one, and a session that looks for it with the gate wide open."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops.engine.cell.cell import IsolationLevel
from claudeops.structs import replace
from support.caged import KEY, caged, working_cell
from support.checkout import ROOT, TESTS
from support.operating import look
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

PLANTED = {
    "API_KEY": KEY,
    "DATABASE_PASSWORD": "planted-database-password",
    "APPRISE_URL": "discord://planted-webhook-id/planted-webhook-token",
    "MCP_TOKEN": "planted-mcp-token",
    "PROXY_PASSWORD": "planted-proxy-password",
}
SSH_KEY = "planted-private-key-of-tier-3"

LOOK_EVERYWHERE = (
    "env",
    "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'",
    "ps auxe",
    # Not everything that is shown: names of all files, and the contents of those below the directories of people and
    # daemons. What lies in /usr was there before claudeops was.
    "find / -not -path '/proc/*' -not -path '/usr/*' 2>/dev/null | grep -e id_tier3 -e claudeops.db -e of-the-daemon",
    "grep -rlsIF planted- / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr 2>/dev/null",
)


def plant(root: Path) -> Path:
    """Put secrets where an operator would have them; return the home of tier 3."""
    home = root / "tier3" / ".ssh"
    home.mkdir(parents=True)
    (home / "id_tier3").write_text(SSH_KEY)
    (root / "secret-of-the-daemon").write_text(KEY)
    return home.parent


async def test_a_tier_1_session_finds_no_secret_of_the_daemon_nor_of_another_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = plant(tmp_path)
    for name, secret in PLANTED.items():
        monkeypatch.setenv(f"PLANTED_{name}", secret)
    async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, *LOOK_EVERYWHERE) as cage:
        estate = cage.estate
        higher = replace(estate.context.tiers[3], template_home=home)
        estate.with_context(tiers={**estate.context.tiers, 3: higher})
        with contextlib.closing(sqlite3.connect(tmp_path / "state" / "other.db")) as connection:
            connection.execute("CREATE TABLE secrets AS SELECT 'planted-database-password' AS password")
            connection.commit()
        ending = await cage.run()
        assert (str(ending.outcome), ending.calls_ran) == ("success", len(LOOK_EVERYWHERE))
        seen = "\n".join(cage.outputs())
    assert [secret for secret in (*PLANTED.values(), SSH_KEY) if secret in seen] == []
    assert [name for name in ("id_tier3", "claudeops.db", "secret-of-the-daemon") if name in seen] == []
    assert "CLAUDEOPS_TIER=1" in seen  # it did look


async def test_the_home_of_a_tier_is_its_sessions_own_and_is_gone_with_them(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
) -> None:
    home = plant(tmp_path)
    async with caged(tmp_path, level, "cat ~/.ssh/id_tier3; stat -c %a ~/.ssh", binary=everybodys_cli) as cage:
        context = cage.estate.context
        cage.estate.with_context(tiers={**context.tiers, 1: replace(context.tiers[1], template_home=home)})
        await cage.run()
        assert SSH_KEY in cage.outputs()[0]
        assert not list(context.workspaces().glob("*"))
    assert (home / ".ssh" / "id_tier3").read_text() == SSH_KEY


@pytest.mark.parametrize("level", [IsolationLevel.BUBBLEWRAP, IsolationLevel.USER], ids=str)
async def test_the_home_of_a_session_is_closed_to_one_that_runs_beside_it(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path
) -> None:
    home = plant(tmp_path)
    wait = "touch ~/reached; while [ -e ~/reached ]; do sleep 0.1; done"
    sessions = working_cell(level, everybodys_cli, repos=tmp_path, hidden=()).workspaces(
        tmp_path / "state" / "sessions"
    )
    theirs = sessions / "000001" / "home"
    look_over = look(
        f"ls {theirs} {sessions}; cat {theirs}/.ssh/id_tier3; for f in {theirs}/reached; do rm -f $f; done; echo looked"
    )
    async with caged(tmp_path, level, wait, second=[look_over], binary=everybodys_cli) as cage:
        context = cage.estate.context
        cage.estate.with_context(tiers={**context.tiers, 1: replace(context.tiers[1], template_home=home)})
        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cage.run)
                await until((theirs / "reached").exists)
                assert (theirs / ".ssh" / "id_tier3").exists()
                cage.estate.with_context(tiers=context.tiers)
                await cage.run()
                (theirs / "reached").unlink()
        [seen, *_] = cage.outputs(2)
    assert "looked" in seen
    assert SSH_KEY not in seen
    assert "reached" not in seen.replace("home/reached", "")


async def test_ssh_finds_the_keys_of_its_tier_in_the_namespace(tmp_path: Path) -> None:
    """It asks the list of users for its home, not the environment."""
    home = plant(tmp_path)
    async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, "getent passwd $(id -u)") as cage:
        context = cage.estate.context
        cage.estate.with_context(tiers={**context.tiers, 1: replace(context.tiers[1], template_home=home)})
        await cage.run()
        assert "/state/sessions/000001/home:" in cage.outputs()[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sessions another user")
async def test_ssh_runs_as_a_sessions_own_user_and_finds_what_is_for_its_tier(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    """The users are on the list of this machine for this test alone: in a mount namespace, with the file of deploy/."""
    home = plant(tmp_path)
    (home / ".ssh" / "config").write_text("Host production\n    HostName 127.0.0.1\n    Port 1\n")
    passwd = tmp_path / "passwd"
    passwd.write_text(Path("/etc/passwd").read_text() + "".join(f"{entry}\n" for entry in listed_users()))
    listed = 'mount --bind "$0" /etc/passwd && exec "$@"'
    command = "id -un; ssh -G production | grep -e ^hostname -e ^port; ssh -o BatchMode=yes production"
    done = await anyio.run_process(
        [
            *("unshare", "--mount", "sh", "-c", listed, str(passwd)),
            *(sys.executable, "-m", "support.caged", IsolationLevel.USER.value, str(tmp_path / "estate"), command),
        ],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(TESTS),
            "CAGED_CLI": str(everybodys_cli),
            "CAGED_HOME": str(home),
        },
        check=False,
    )
    told = done.stdout.decode()
    assert "success" in told, done.stderr.decode()
    assert "claudeops-session-" in told
    assert "hostname 127.0.0.1\\nport 1" in told
    assert "Connection refused" in told


def listed_users() -> Iterator[str]:
    """Return the users of deploy/claudeops-sessions.conf as lines of /etc/passwd."""
    deploy = ROOT / "deploy" / "claudeops-sessions.conf"
    for line in deploy.read_text().splitlines():
        if not line.startswith("#"):
            _, name, uid, _, home, shell = line.split()
            yield f"{name}:x:{uid}:{uid}::{home}:{shell}"


async def test_no_secret_is_in_a_file_an_argument_or_an_environment_at_any_level(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path, mcp_server: Path
) -> None:
    """Looked for from outside, while a tool runs and after the end: directories, arguments, environments, log, rows."""
    token = PLANTED["MCP_TOKEN"]
    server = {"command": str(mcp_server), "args": [], "env": {"TOKEN": token}}
    wait = "touch ~/reached; while [ -e ~/reached ]; do sleep 0.1; done"
    async with caged(tmp_path, level, wait, binary=everybodys_cli) as cage:
        cage.estate.with_context(mcp_servers={"grafana": server})
        context = cage.estate.context
        sessions = context.workspaces()
        reached = sessions / "000001" / "home" / "reached"
        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cage.run)
                await until(reached.exists)
                found = [*files_with(tmp_path, KEY, token), *files_with(sessions, KEY, token)]
                processes = told_to_processes()
                reached.unlink()
        found += files_with(tmp_path, KEY, token)
    assert found == []
    servers = [told for told in processes if told.startswith(("python3 ", "/usr/bin/python3 ", "/usr/bin/env "))]
    assert len(servers) == 1
    assert token in servers[0]
    assert [told for told in processes if KEY in told or (token in told and told not in servers)] == []


async def test_a_server_of_the_operator_has_an_environment_of_its_own_and_its_tool_is_gated(
    tmp_path: Path, level: IsolationLevel, everybodys_cli: Path, mcp_server: Path
) -> None:
    server = {"command": str(mcp_server), "env": {"TOKEN": PLANTED["MCP_TOKEN"]}}
    steps: list[Mapping[str, object]] = [
        {"text": "I ask.", "tool": {"name": "mcp__grafana__tell", "input": {}}},
        look("env | cut -d= -f1"),
    ]
    async with caged(tmp_path, level, steps=steps, binary=everybodys_cli, OF_THE_TIER="1") as cage:
        cage.estate.with_context(mcp_servers={"grafana": server})
        ending = await cage.run()
        of_the_server, of_a_tool, *_ = cage.outputs()
        asked = cage.estate.rows("SELECT tool_name, verdict FROM tool_calls ORDER BY id")
    assert ending.calls_ran == 2
    assert [row["tool_name"] for row in asked][:2] == ["mcp__grafana__tell", "Bash"]
    assert "TOKEN" in of_the_server
    assert [name for name in ("CLAUDE", "ANTHROPIC", "OF_THE_TIER") if name in of_the_server] == []
    assert "TOKEN" not in of_a_tool.replace("CLAUDE_CODE_MESSAGING_TOKEN", "")


async def test_no_path_that_a_repositorys_server_names_is_shown_to_a_session(tmp_path: Path, mcp_server: Path) -> None:
    operators, theirs = tmp_path / "operators", tmp_path / "theirs"
    for file in (operators, theirs):
        file.write_text("shown")
    servers = {name: {"command": str(mcp_server), "args": [str(tmp_path / name)]} for name in ("operators", "theirs")}
    async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, f"cat {operators}; echo; ls {theirs}") as cage:
        cage.estate.with_context(mcp_servers=servers, mcp_of_repos=frozenset({"theirs"}))
        await cage.run()
        seen, *_ = cage.outputs()
    assert "shown" in seen
    assert "No such file" in seen


def files_with(root: Path, *secrets: str) -> list[str]:
    """Return the files in which a secret stands; what a running session removes meanwhile is passed over."""
    found = []
    for directory, _, names in os.walk(root):  # unlike rglob, it does not mind that a directory goes away
        for path in (Path(directory, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    content = path.read_bytes()
                    found += [str(path) for secret in secrets if secret.encode() in content]
    return found


def told_to_processes() -> list[str]:
    """Return arguments and environment of every process below this one."""
    told = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            told.append(" ".join([*process.cmdline(), *process.environ().values()]))
    return told
