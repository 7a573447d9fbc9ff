"""A session of the real CLI with real sshd and ssh-agent, the gate wide open: it uses its key, and never has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from claudeops.engine.cell.cell import IsolationLevel
from claudeops.structs import replace
from support.caged import Caged, caged
from support.levels import needs
from support.ssh_servers import ADDRESS, SshServer, body_of, make_key, needs_ssh, ssh_server, user

pytestmark = pytest.mark.anyio

ON_LIST, ELSEWHERE = "this-is-the-listed-host", "this-is-the-other-host"


@dataclass
class World:
    """A tier's directory with a key, and two hosts that know this key."""

    home: Path
    listed: SshServer
    other: SshServer

    @property
    def body(self) -> str:
        return body_of(self.home / ".ssh" / "id_ed25519")

    def give(self, cage: Caged) -> None:
        """Make it the directory of tier 1."""
        tiers = cage.estate.context.tiers
        cage.estate.with_context(tiers={**tiers, 1: replace(tiers[1], template_home=self.home)})


@contextmanager
def world(root: Path) -> Iterator[World]:
    needs(IsolationLevel.BUBBLEWRAP)
    needs_ssh()
    home = root / "of-tier-1"
    public = make_key(home / ".ssh" / "id_ed25519")
    (home / ".ssh" / "id_ed25519.pub").unlink()
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_text("kind: Config\n")
    (home / "found").write_text(body_of(home / ".ssh" / "id_ed25519"))  # a text like the key's, which is no key
    with ExitStack() as held:
        servers = [
            held.enter_context(ssh_server(root / says, public, says, options="restrict,port-forwarding"))
            for says in (ON_LIST, ELSEWHERE)
        ]
        (home / ".ssh" / "known_hosts").write_text("".join(server.known for server in servers))
        yield World(home, *servers)


def ssh(server: SshServer, *options: str) -> str:
    words = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60", *options, "-p", str(server.port))
    return f"{' '.join(words)} {user()}@{ADDRESS} 2>&1"


def search(body: str, *places: str) -> str:
    """Return a command that looks for a line in all files below places, as far as the session may read them."""
    half = len(body) // 2  # no find is the command's own text, in the CLI's transcript
    files = f"find {' '.join(places)} -type f -not -path '/proc/*' -not -path '/sys/*' -not -path '/usr/*' -print0"
    return f"{files} 2>/dev/null | xargs -0 grep -lsF -- '{body[:half]}''{body[half:]}' | sort -u; echo searched"


def agents() -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["name"]) if process.info["name"] == "ssh-agent"]


async def test_a_session_logs_in_at_a_host_of_its_list_with_a_key_that_it_cannot_read(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    with world(tmp_path) as hosts:
        commands = (
            ssh(hosts.listed),
            ssh(hosts.listed, "-o", "IdentityFile=~/.ssh/id_ed25519", "-o", "IdentitiesOnly=yes"),
            search(hosts.body, "/"),
            "ls -A ~/.ssh; cat ~/.kube/config; cat ~/.ssh/id_*",
            f"pgrep -a ssh-agent; ls -A {tmp_path}/state/sessions/*/agent",
        )
        before = {process.pid for process in agents()}
        url = f"ssh://{ADDRESS}:{hosts.listed.port}"
        async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, *commands, binary=everybodys_cli, SERVER=url) as cage:
            hosts.give(cage)
            ending = await cage.run()
            by_default, by_name, found, listing, processes = cage.outputs()[:5]
        assert (str(ending.outcome), ending.calls_ran) == ("success", 5)
    assert ON_LIST in by_default
    assert ON_LIST in by_name, "where there is no .pub the daemon writes it"
    assert [Path(line).name for line in found.split()] == ["found", "searched"], "the key is in no file"
    assert "id_ed25519.pub" in listing
    assert "kind: Config" in listing, "what is no key stays"
    assert "PRIVATE" not in listing
    assert "ssh-agent" not in processes.replace("ssh-agent.sock", "").replace("/agent", "")
    assert {process.pid for process in agents()} <= before, "it ends with its session"


async def test_a_session_gets_through_a_jump_host_to_one_that_is_listed_too(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    with world(tmp_path) as hosts:
        through = ssh(hosts.other, "-J", f"{user()}@{ADDRESS}:{hosts.listed.port}")
        one, two = (f"ssh://{ADDRESS}:{server.port}" for server in (hosts.listed, hosts.other))
        async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, through, binary=everybodys_cli, ONE=one, TWO=two) as cage:
            hosts.give(cage)
            await cage.run()
            assert ELSEWHERE in cage.outputs()[0]


async def test_the_agent_signs_for_no_host_that_is_not_on_the_list(tmp_path: Path, everybodys_cli: Path) -> None:
    """On the machine's network, where it reaches the other host, whose key is known and which knows this key."""
    with world(tmp_path) as hosts:
        sign = "ssh-keygen -Y sign -n file -f ~/.ssh/id_ed25519.pub /etc/hosts 2>&1 </dev/null"
        through = ssh(hosts.other, "-J", f"{user()}@{ADDRESS}:{hosts.listed.port}")
        commands = (ssh(hosts.listed), ssh(hosts.other), through, sign, "ssh-add -L")
        url = f"ssh://{ADDRESS}:{hosts.listed.port}"
        async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, *commands, binary=everybodys_cli, SERVER=url) as cage:
            hosts.give(cage)
            cage.share_network()
            await cage.run()
            listed, other, jumped, signed, known = cage.outputs()[:5]
    assert ON_LIST in listed
    for refused in (other, jumped):
        assert "Permission denied (publickey)" in refused
        assert ELSEWHERE not in refused
    assert "agent refused operation" in signed
    assert "ssh-ed25519 " in known


async def test_without_the_agent_both_are_possible(tmp_path: Path, everybodys_cli: Path) -> None:
    """What the tests above look for is there to be found: at level none a session has the operator's files."""
    with world(tmp_path) as hosts:
        key = ("-i", "$HOME/.ssh/id_ed25519", "-F", "none", "-o", "UserKnownHostsFile=$HOME/.ssh/known_hosts")
        commands = (ssh(hosts.other, *key), search(hosts.body, "~/.ssh"))
        async with caged(tmp_path, IsolationLevel.NONE, *commands, binary=everybodys_cli) as cage:
            hosts.give(cage)
            await cage.run()
            other, found = cage.outputs()[:2]
    assert ELSEWHERE in other
    assert "/home/.ssh/id_ed25519" in found


async def test_a_tier_with_an_agent_of_the_operators_own_keeps_that_and_gets_no_key(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    with world(tmp_path) as hosts:
        own = str(tmp_path / "own.sock")
        look = "echo $SSH_AUTH_SOCK; ls -A ~/.ssh"
        async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, look, binary=everybodys_cli, SSH_AUTH_SOCK=own) as cage:
            hosts.give(cage)
            await cage.run()
            assert cage.outputs()[0].split() == [own, "known_hosts"]
