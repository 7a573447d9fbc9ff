"""The agent of a session: OpenSSH's own, in a cell of its own, with real keys and servers."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import anyio
import psutil
import pytest

from claudeops import logs
from claudeops.domain.network.destination import Destination, at_ports
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.ssh.agent import MOST_KEYS, NO_AGENT, NO_HOST, SshAgent, open_agent, understood
from claudeops.engine.ssh.keys import SshKey, find_keys
from support.aftermath import runs
from support.levels import PATH, needs
from support.ssh_servers import ADDRESS, make_key, needs_ssh, ssh_server, user
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.anyio

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHZrbWV1ShO2JKxlUekINo8HOZUz+zUAxEE1Zqm6Xya4"


@cache
def cell_of() -> BubblewrapCell:
    needs(IsolationLevel.BUBBLEWRAP)
    found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert isinstance(found, BubblewrapCell), found
    return found


@asynccontextmanager
async def opened(home: Path, *listed: str) -> AsyncIterator[tuple[SshAgent, Path]]:
    """Open the agent of a session with a directory, for hosts with or without a port; yield it, and the session's."""
    needs_ssh()
    keys = find_keys(home)
    workspace = workspaces.make(home.parent / "s", template_home=home, without=keys.files)
    places = [at_ports(host, [int(port or 22)]) for host, _, port in (place.partition(" ") for place in listed)]

    async def listing() -> list[Destination]:
        return places

    with anyio.fail_after(PATIENCE_SECONDS):
        async with open_agent(cell_of(), workspace, keys, listing, logs.get_logger()) as agent:
            yield agent, workspace.home


def by(agent: SshAgent, *command: str) -> str:
    """Return what a program of OpenSSH prints with the agent, whose path may be too long for an address."""
    assert agent.socket is not None
    environment = {"PATH": PATH, "SSH_AUTH_SOCK": agent.socket.name, "HOME": "/nonexistent"}
    done = subprocess.run(
        command,
        env=environment,
        cwd=agent.socket.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        text=True,
    )
    return done.stdout + done.stderr


def logged() -> io.StringIO:
    """Return where the log goes from now on."""
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


def events(stream: io.StringIO, name: str) -> list[dict[str, object]]:
    return [line for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == name]


def directory(root: Path, known_hosts: str) -> Path:
    home = root / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "known_hosts").write_text(known_hosts)
    return home


async def test_a_key_is_in_the_agent_and_its_public_half_in_the_home(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web1 {HOST_KEY}\n")
    public = make_key(home / ".ssh" / "deploy")
    (home / ".ssh" / "deploy.pub").unlink()
    (home / ".ssh" / "deploy").chmod(0o644)  # as nobody should leave it; what was copied there is no longer at risk
    log = logged()
    async with opened(home, "web1", "web2") as (agent, own):
        assert public in by(agent, "ssh-add", "-L")
        assert (own / ".ssh" / "deploy.pub").read_text().strip() == public
        assert not (own / ".ssh" / "deploy").exists()
        assert agent.socket is not None
        assert sorted(path.name for path in agent.socket.parent.iterdir()) == ["hosts", "known_hosts", "ssh-agent.sock"]
    (line,) = events(log, "keys_in_agent")
    assert (line["keys"], line["hosts"], line["unknown"]) == ([".ssh/deploy"], 1, ["web2"])


async def test_a_key_that_cannot_be_added_is_named_with_the_reason_and_keeps_no_other_out(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web1 {HOST_KEY}\n")
    make_key(home / ".ssh" / "a_locked", "a passphrase")
    (home / ".ssh" / "b_broken").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nnothing\n")
    for number in range(MOST_KEYS):
        make_key(home / ".ssh" / f"key{number:02}")
    log = logged()
    async with opened(home, "web1") as (agent, _):
        assert len(by(agent, "ssh-add", "-L").splitlines()) == MOST_KEYS - 1
    reasons = {str(line["key"]): str(line["reason"]) for line in events(log, "key_not_in_agent")}
    assert sorted(reasons) == [".ssh/a_locked", ".ssh/b_broken", f".ssh/key{MOST_KEYS - 1:02}"]
    assert "ssh-keygen -p -N '' -f .ssh/a_locked" in reasons[".ssh/a_locked"]
    assert "invalid format" in reasons[".ssh/b_broken"] or "error in libcrypto" in reasons[".ssh/b_broken"]


async def test_a_key_in_an_older_form_is_added_and_its_public_half_written_where_it_is_missing(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web1 {HOST_KEY}\n")
    for name in ("id_ecdsa", "deploy"):
        make_key(home / ".ssh" / name, kind="ecdsa", form="PEM")
    (home / ".ssh" / "deploy.pub").unlink()
    (home / ".ssh" / "id_ecdsa.pub").write_text("what the operator wrote\n")
    async with opened(home, "web1") as (agent, own):
        known = [line.split()[1] for line in by(agent, "ssh-add", "-L").splitlines()]
        assert agent.keys == (".ssh/deploy", ".ssh/id_ecdsa")
        assert (own / ".ssh" / "deploy.pub").read_text().split()[1] == known[0]
        assert (own / ".ssh" / "id_ecdsa.pub").read_text() == "what the operator wrote\n"


async def test_keys_that_lie_elsewhere_are_named_and_none_is_taken(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web1 {HOST_KEY}\n")
    make_key(tmp_path / "elsewhere")
    (home / ".ssh" / "config").write_text(f"IdentityFile {tmp_path}/elsewhere\n")
    log = logged()
    async with opened(home, "web1") as (agent, _):
        assert (agent.socket, agent.keys) == (None, ())
    assert [line["key"] for line in events(log, "key_not_in_agent")] == [f"{tmp_path}/elsewhere"]


def test_an_openssh_that_knows_no_hosts_for_keys_is_named() -> None:
    """Older than 8.9, its ssh-add refuses the options; nothing may be added without them."""
    keys = [SshKey(Path(".ssh/id_a"), Path(".ssh/id_a"))]
    for said in (["unknown option -- H", "usage: ssh-add", "ready"], ["ssh-agent: not found"], []):
        agent, public = understood(said, keys)
        assert (agent.keys, public) == ((), {})
        assert agent.left[0].reason.startswith(NO_AGENT)
        assert agent.left[0].reason.endswith(f"({said[0]})" if said else "newer")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('Error loading key "keys/00.key": invalid format', "invalid format"),
        ('Could not add identity "keys/00.key": agent refused operation', "agent refused operation"),
        ("Cannot load FIDO key keys/00.key without provider", "Cannot load FIDO key .ssh/id_a without provider"),
        ("Enter passphrase for keys/00.pem: ", "passphrase"),
        ("Certificate added: keys/00.key-cert.pub (tests)", "ssh-add says nothing"),
    ],
)
def test_the_reason_for_a_key_is_what_ssh_add_says_of_it(line: str, reason: str) -> None:
    keys = [SshKey(Path(".ssh/id_a"), Path(".ssh/id_a")), SshKey(Path(".ssh/id_b"), Path(".ssh/id_b"))]
    agent, _ = understood([line, "Identity added: keys/01.key (a comment)", "ready"], keys)
    assert agent.keys == (".ssh/id_b",)
    assert reason in agent.left[0].reason


async def test_where_no_key_of_a_host_is_known_no_agent_runs(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web2 {HOST_KEY}\n")
    make_key(home / ".ssh" / "id_ed25519")
    async with opened(home, "web1") as (agent, _):
        assert (agent.socket, agent.keys, [left.reason for left in agent.left]) == (None, (), [NO_HOST])


async def test_hosts_are_known_from_files_that_the_configuration_names_too(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web1 {HOST_KEY}\n")
    make_key(home / ".ssh" / "id_ed25519")
    (home / ".ssh" / "config").write_text(f"UserKnownHostsFile ~/hosts {tmp_path}/hosts\n")
    (home / "hosts").write_text(f"web2 {HOST_KEY}\n")
    (tmp_path / "hosts").write_text(f"web3 {HOST_KEY}\n")
    async with opened(home, "web1", "web2", "web3", "web4") as (agent, _):
        assert (agent.scope.hosts, agent.scope.unknown) == (("web1", "web2", "web3"), ("web4",))


async def test_a_certificate_goes_into_the_agent_with_its_key(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web1 {HOST_KEY}\n")
    make_key(tmp_path / "authority")
    make_key(home / ".ssh" / "id_ed25519")
    sign = ("ssh-keygen", "-q", "-s", str(tmp_path / "authority"), "-I", "tests")
    await anyio.run_process((*sign, str(home / ".ssh" / "id_ed25519.pub")))
    async with opened(home, "web1") as (agent, own):
        assert "ssh-ed25519-cert-v01@openssh.com" in by(agent, "ssh-add", "-L")
        assert (own / ".ssh" / "id_ed25519-cert.pub").exists()


async def test_the_agent_takes_the_longest_list_that_it_is_given(tmp_path: Path) -> None:
    kinds = [make_key(tmp_path / kind, kind=kind) for kind in ("ed25519", "ecdsa", "rsa")]
    home = directory(tmp_path, "".join(f"* {kind}\n" for kind in kinds))
    make_key(home / ".ssh" / "id_rsa", kind="rsa")
    async with opened(home, *(f"host{number:04}.example.com" for number in range(600))) as (agent, _):
        assert "ssh-rsa" in by(agent, "ssh-add", "-L")
        assert len(agent.scope.hosts) > 200
        assert len(agent.scope.hosts) + len(agent.scope.left_out) == 600


async def test_a_forwarded_agent_signs_for_no_second_host(tmp_path: Path) -> None:
    """Both hosts are listed, and know the key: from the first one nobody gets into the second."""
    home = directory(tmp_path, "")
    public = make_key(home / ".ssh" / "id_ed25519")
    with ssh_server(tmp_path / "second", public, "arrived") as second:
        known = tmp_path / "known_hosts"
        on = ("ssh", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={known}", "-p", str(second.port))
        there = f"ssh-add -L; {' '.join(on)} {user()}@{ADDRESS} 2>&1"
        options = "restrict,agent-forwarding"
        with ssh_server(tmp_path / "first", public, f"first; {there}", options=options) as first:
            (home / ".ssh" / "known_hosts").write_text(first.known + second.known)
            known.write_text(first.known + second.known)
            forward = ("ssh", "-A", *on[1:-1], str(first.port), f"{user()}@{ADDRESS}")
            async with opened(home, f"{ADDRESS} {first.port}", f"{ADDRESS} {second.port}") as (agent, _):
                said = await anyio.to_thread.run_sync(by, agent, *forward)
                assert "arrived" in await anyio.to_thread.run_sync(by, agent, *on, f"{user()}@{ADDRESS}")
    assert said.startswith("first\n")
    assert "Permission denied (publickey)" in said
    assert "arrived" not in said


async def test_ssh_gets_through_a_jump_host_where_both_are_listed(tmp_path: Path) -> None:
    home = directory(tmp_path, "")
    public = make_key(home / ".ssh" / "id_ed25519")
    with (
        ssh_server(tmp_path / "jump", public, "jumped", options="restrict,port-forwarding") as jump,
        ssh_server(tmp_path / "end", public, "arrived") as end,
    ):
        known, config = home / ".ssh" / "known_hosts", tmp_path / "config"
        known.write_text(jump.known + end.known)
        config.write_text(f"UserKnownHostsFile {known}\nBatchMode yes\n")
        place = f"{user()}@{ADDRESS}"
        log_in = ("ssh", "-F", str(config), "-J", f"{place}:{jump.port}", "-p", str(end.port), place)
        async with opened(home, f"{ADDRESS} {jump.port}", f"{ADDRESS} {end.port}") as (agent, _):
            assert "arrived" in await anyio.to_thread.run_sync(by, agent, *log_in)
        async with opened(home, f"{ADDRESS} {jump.port}") as (agent, _):
            assert "Permission denied" in await anyio.to_thread.run_sync(by, agent, *log_in)


async def test_the_agent_ends_with_the_block(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web1 {HOST_KEY}\n")
    make_key(home / ".ssh" / "id_ed25519")
    ours = psutil.Process()
    async with opened(home, "web1"):
        running = [each for each in ours.children(recursive=True) if each.name() == "ssh-agent"]
        assert len(running) == 1
    assert not any(each.is_running() for each in running)


async def test_the_agent_ends_with_a_daemon_that_is_killed(tmp_path: Path) -> None:
    home = directory(tmp_path, f"web1 {HOST_KEY}\n")
    make_key(home / ".ssh" / "id_ed25519")
    cell_of()
    daemon = await anyio.open_process(
        [sys.executable, __file__, str(home)], env={"PATH": PATH, "PYTHONPATH": os.pathsep.join(sys.path)}, stderr=None
    )
    try:
        assert daemon.stdout is not None
        with anyio.fail_after(PATIENCE_SECONDS):
            said = b""
            while b"agent runs" not in said:
                said += await daemon.stdout.receive()
        started = psutil.Process(daemon.pid).children(recursive=True)
        assert "ssh-agent" in {each.name() for each in started}
    finally:
        os.kill(daemon.pid, signal.SIGKILL)
        await daemon.wait()
    await until(lambda: not any(runs(each.pid) for each in started))


async def _be_a_daemon(home: Path) -> None:
    async with opened(home, "web1"):
        print("agent runs", flush=True)  # noqa: T201 - for the test that started this
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(_be_a_daemon, Path(sys.argv[1]))
