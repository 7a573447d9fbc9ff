"""What a tier can reach, looked up in real homes, sockets and cells."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from claudeops.domain.estate.estate import NO_ESTATE, Manifest
from claudeops.domain.estate.estate import Estate as Described
from claudeops.engine.cell.bubblewrap import BubblewrapCell
from claudeops.engine.cell.cell import Cell, IsolationLevel, PlainCell, SandboxSpec, UserCell, named_in
from claudeops.engine.cell.cgroups import MIB
from claudeops.engine.cell.own_files import FilesBound, open_files
from claudeops.engine.cell.workspace import Workspace, make
from claudeops.engine.session.access import ModelWay, access_of, gather, needs_of
from claudeops.structs import replace
from claudeops.wording.access import PROGRAMS, AccessFacts, DockerAccess
from support.estate import Estate
from support.hung_disk import disk
from support.library_texts import service

pytestmark = pytest.mark.anyio

PLAIN, CAGED = PlainCell(), BubblewrapCell(program="bwrap")
NOBODY = 60600  # a user that has no files here


class Tier:
    """A tier's home, programs and variables on a real disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.bin = root / "bin"
        self.environment: dict[str, str] = {}
        for directory in (self.home / ".ssh", self.bin, root / "repos"):
            directory.mkdir(parents=True)

    def put(self, name: str, text: str = "") -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str, mode: int = 0o755) -> None:
        (self.bin / name).write_text("#!/bin/sh\n")
        (self.bin / name).chmod(mode)

    def facts(self, cell: Cell = PLAIN, uid: int | None = None) -> AccessFacts:
        sandbox = SandboxSpec(
            workspace=Workspace(self.root / "workspace", uid),
            binary=Path("/bin/sh"),
            repos_dir=self.root / "repos",
            path=f"{self.bin}:relative:{self.root / 'gone'}",
            shown=named_in(self.environment),
        )
        return gather(cell, sandbox, self.environment, home=self.home, user_home=self.home)


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    return Tier(tmp_path)


@pytest.fixture
def engine(tier: Tier) -> Iterator[Path]:
    """Return the socket of something like docker."""
    path = tier.root / "docker.sock"
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        yield path


# --- docker -------------------------------------------------------------------------------------------


def test_a_socket_that_the_variables_name_is_open_at_every_level_that_shows_it(tier: Tier, engine: Path) -> None:
    tier.environment["DOCKER_HOST"] = f"unix://{engine}"
    for cell in (PLAIN, CAGED):
        assert (tier.facts(cell).docker, tier.facts(cell).docker_socket) == (DockerAccess.OPEN, str(engine))


def test_another_user_needs_the_sockets_permission(tier: Tier, engine: Path) -> None:
    tier.environment["DOCKER_HOST"] = f"unix://{engine}"
    engine.chmod(0o660)
    assert tier.facts(UserCell(), NOBODY).docker is DockerAccess.REFUSED


def test_no_socket_is_absent_and_a_file_is_none(tier: Tier) -> None:
    tier.environment["DOCKER_HOST"] = f"unix://{tier.root}/none.sock"
    assert tier.facts().docker is DockerAccess.ABSENT
    (tier.root / "none.sock").write_text("")
    assert tier.facts().docker is DockerAccess.ABSENT


def test_an_engine_elsewhere_is_not_judged(tier: Tier) -> None:
    tier.environment["DOCKER_HOST"] = "tcp://10.0.0.1:2376"
    assert tier.facts(CAGED).docker is DockerAccess.ELSEWHERE


def test_a_socket_that_the_daemon_hides_is_hidden(tier: Tier, engine: Path) -> None:
    tier.environment["DOCKER_HOST"] = f"unix://{engine}"
    assert tier.facts(replace(CAGED, hidden=(tier.root,))).docker is DockerAccess.HIDDEN


def test_the_socket_of_the_machine_is_not_in_the_cell(tier: Tier) -> None:
    assert tier.facts(CAGED).docker in {DockerAccess.HIDDEN, DockerAccess.ABSENT}


# --- clusters -----------------------------------------------------------------------------------------


def test_a_kubeconfig_is_found_in_the_home_or_by_its_variable(tier: Tier) -> None:
    assert [tier.facts(cell).kubeconfig for cell in (PLAIN, CAGED)] == [False, False]
    tier.put(".kube/config")
    assert [tier.facts(cell).kubeconfig for cell in (PLAIN, CAGED)] == [True, True]
    (tier.home / ".kube" / "config").rename(tier.root / "kubeconfig")
    tier.environment["KUBECONFIG"] = f"/nowhere/config:{tier.root}/kubeconfig"
    assert [tier.facts(cell).kubeconfig for cell in (PLAIN, CAGED)] == [True, True]
    assert not tier.facts(replace(CAGED, hidden=(tier.root / "kubeconfig",))).kubeconfig
    (tier.root / "kubeconfig").chmod(0o600)
    assert not tier.facts(UserCell(), NOBODY).kubeconfig


# --- ssh ----------------------------------------------------------------------------------------------


def test_ssh_is_read_with_what_it_includes(tier: Tier) -> None:
    tier.put(".ssh/config", "Include work.d/*.conf ~/more\nHost last\n")
    tier.put(".ssh/work.d/a.conf", "Host web1\n")
    tier.put("more", "Host web2\n")
    tier.put(".ssh/known_hosts", "web1 x\n")
    tier.put(".ssh/known_hosts2", "web2 x\n")
    for cell in (PLAIN, CAGED):
        facts = tier.facts(cell).ssh
        hosts = [line for line in facts.config.splitlines() if line.startswith("Host web") or line == "Host last"]
        assert hosts == ["Host web1", "Host web2", "Host last"]
        assert "Include" not in facts.config
        assert facts.known_hosts.startswith("web1 x\n\nweb2 x\n")


def test_a_key_is_a_key_and_not_its_public_half(tier: Tier) -> None:
    tier.put(".ssh/id_ed25519.pub")
    assert not tier.facts().ssh.keys
    tier.put(".ssh/id_ed25519", "never read").chmod(0)
    assert tier.facts().ssh.keys
    (tier.home / ".ssh" / "id_ed25519").unlink()
    tier.environment["SSH_AUTH_SOCK"] = "/run/agent"
    assert tier.facts().ssh.keys


def test_pipes_and_very_long_files_keep_nobody_waiting(tier: Tier) -> None:
    os.mkfifo(tier.home / ".ssh" / "config")
    tier.put(".ssh/known_hosts", "x" * 1_000_000)
    assert len(tier.facts().ssh.known_hosts) < 300_000


def test_a_user_that_the_machine_does_not_list_has_no_ssh(tier: Tier) -> None:
    assert "ssh refuses" in tier.facts(UserCell(), 4_000_000).ssh.refusal
    assert tier.facts(UserCell(), 0).ssh.refusal == ""


# --- programs -----------------------------------------------------------------------------------------


def test_programs_are_looked_for_on_the_path_of_the_session(tier: Tier) -> None:
    assert set(tier.facts().missing) == set(PROGRAMS)
    tier.program("dig")
    tier.program("curl")
    tier.program("jq", mode=0o644)
    (tier.bin / "ssh").symlink_to("dig")
    (tier.bin / "psql").symlink_to("gone")
    (tier.bin / "docker").mkdir()
    found = set(PROGRAMS) - set(tier.facts(CAGED).missing)
    assert found == {"curl", "dig", "ssh"}


def test_a_program_that_the_session_may_not_run_is_missing(tier: Tier) -> None:
    tier.program("curl", mode=0o700)
    assert "curl" in tier.facts(UserCell(), NOBODY).missing


def test_a_directory_of_path_that_the_cell_does_not_show_holds_nothing(tier: Tier) -> None:
    tier.program("curl")
    assert "curl" in tier.facts(replace(CAGED, hidden=(tier.bin,))).missing


# --- a session ----------------------------------------------------------------------------------------

DESCRIBED = Described(
    manifests=(
        Manifest(repository="web", hosts=("web2",), services=(service("shop", address="https://shop.example/"),)),
    ),
    hosts=("web2", "shop.example"),
)


async def test_what_a_session_is_shown_says_the_same_before_its_files_are_in_memory(
    tmp_path: Path, engine: Path
) -> None:
    workspace = make(tmp_path / "session", template_home=None)
    (workspace.home / ".ssh").mkdir()
    (workspace.home / ".ssh" / "config").write_text("Host nas\n")
    (workspace.home / ".ssh" / "id_ed25519").write_text("a key\n")
    (workspace.workdir / "config").write_text("a kubeconfig\n")
    (tmp_path / "repos").mkdir(exist_ok=True)  # the engine is of a tier that has some
    environment = {"DOCKER_HOST": f"unix://{engine}", "KUBECONFIG": str(workspace.workdir / "config")}
    async with open_files(FilesBound(most_bytes=MIB, most_files=100), workspace) as files:
        assert files is not None
        sandbox = SandboxSpec(
            workspace=workspace,
            binary=Path("/bin/sh"),
            repos_dir=tmp_path / "repos",
            path="/usr/bin:/bin",
            shown=(engine,),
        )
        look = partial(gather, CAGED, sandbox, environment, home=workspace.home)
        shown = CAGED.mounts(replace(sandbox, files=files.sandboxed))
        facts = look(mounts=files.prepared(shown))
    assert facts == look()
    assert facts != look(mounts=shown)
    assert (facts.docker, facts.kubeconfig, facts.ssh.keys) == (DockerAccess.OPEN, True, True)


async def test_a_session_is_told_what_its_tier_cannot_reach(estate: Estate, tmp_path: Path) -> None:
    template = tmp_path / "template"
    (template / ".ssh").mkdir(parents=True)
    (template / ".ssh" / "id_ed25519").write_text("")
    estate.with_context(cell=CAGED, path="/nowhere")
    workspace = make(tmp_path / "workspace", template_home=template)
    told = await access_of(estate.context, estate.context.tiers[1], workspace, DESCRIBED, has_agent=no)
    assert told[0].startswith("ssh to web2: it is not installed where this tier runs;")
    assert told[1].startswith("not installed where this tier runs: curl, dig, docker,")
    assert not any("shop.example" in sentence for sentence in told), "an address is asked from outside"


async def no() -> bool:
    return False


async def yes() -> bool:
    return True


@pytest.mark.parametrize(("has_agent", "expected"), [(no, ["ssh to web2: this tier has no key;"]), (yes, [])])
async def test_keys_in_the_agent_of_a_session_count_as_its_keys(
    estate: Estate, tmp_path: Path, has_agent: Callable[[], Awaitable[bool]], expected: list[str]
) -> None:
    tier = Tier(tmp_path / "tier")
    for name in PROGRAMS:
        tier.program(name)
    tier.put(".ssh/known_hosts", "web2 ssh-ed25519 AAAA\n")
    estate.with_context(cell=CAGED, path=str(tier.bin))
    workspace = make(tier.root / "workspace", template_home=tier.home)
    told = await access_of(estate.context, estate.context.tiers[1], workspace, DESCRIBED, has_agent=has_agent)
    assert [sentence[:34] for sentence in told if sentence.startswith("ssh ")] == expected


async def test_a_home_that_does_not_answer_costs_the_map_and_no_session(
    estate: Estate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claudeops.engine.session.access.LOOK_SECONDS", 0.3)
    workspace = make(tmp_path / "workspace", template_home=None)
    estate.with_context(cell=CAGED)
    with disk(workspace.home, answers=False) as away:
        told = await access_of(estate.context, estate.context.tiers[1], workspace, DESCRIBED, has_agent=no)
        assert away.on_the_loop == []
        away.comes_back()
    assert told == ()
    assert '"access_not_known"' in estate.logged.getvalue()


def test_the_levels_are_those_that_the_cells_have() -> None:
    assert [cell.level for cell in (CAGED, UserCell(), PLAIN)] == list(IsolationLevel)


# --- the network --------------------------------------------------------------------------------------


async def test_servers_of_the_operator_name_places_and_those_of_repositories_none_of_this_machine(
    estate: Estate,
) -> None:
    servers: dict[str, Mapping[str, object]] = {
        "own": {"url": "https://tools.example/mcp"},
        "here": {"url": "http://localhost:8000/mcp"},
        "program": {
            "command": "/opt/mcp",
            "args": ["--api", "https://api.example:8443", 7],
            "env": {"GRAFANA_URL": "http://grafana.example:3000", "GRAFANA_TOKEN": "secret.example:99"},
        },
        "of_a_repository": {"url": "http://127.0.0.1:5432/mcp"},
        "another": {"url": "https://theirs.example/mcp", "env": {"DATABASE_URL": "postgres://db.example/x"}},
    }

    estate.with_context(mcp_servers=servers, mcp_of_repos=frozenset({"of_a_repository", "another"}))
    tier = replace(estate.context.tiers[1], passed_env={"SITE": "http://site.example"})
    place = (Workspace(estate.root / "workspace"), NO_ESTATE)
    found = needs_of(estate.context, tier, place, ModelWay(urls=("https://models.example",)))
    assert set(found.endpoints) == {
        ("models.example", 443),
        ("tools.example", 443),
        ("localhost", 8000),
        ("api.example", 8443),
        ("grafana.example", 3000),
        ("theirs.example", 443),
    }
    assert (found.environment, found.ours) == ({"SITE": "http://site.example"}, ())
