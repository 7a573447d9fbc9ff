"""What a session in namespaces sees: the list of mounts, and that nothing hidden is on it by accident."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import (
    LOOK_CLIENT,
    BubblewrapCell,
    Mount,
    MountKind,
    session_mounts,
    system_mounts,
)
from claudeops.engine.cell.cell import SandboxSpec, named_in


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory that holds a machine's odds and ends, outside of ``/tmp`` as the session sees it."""
    for name in ("state/sessions", "repos/web", "tools/bin", "tools/lib", "keys"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "state" / "claudeops.db").touch()
    (tmp_path / "tools" / "bin" / "claude").touch()
    (tmp_path / "keys" / "id").touch()
    return tmp_path


def mounts(place: Path, *, hidden: Sequence[str] = ("state",), **changes: object) -> dict[str, Mount]:
    """Return a session's mounts by place; ``place`` itself is cut off."""
    workspace = workspaces.make(place / "state" / "sessions" / "000001", template_home=None)
    given: dict[str, object] = {
        "workspace": workspace,
        "binary": place / "tools" / "bin" / "claude",
        "repos_dir": place / "repos",
        "path": "/usr/bin:/bin",
        **changes,
    }
    found = session_mounts(
        SandboxSpec(**given),  # type: ignore[arg-type]  # a test names its fields
        hidden=[place / name for name in hidden],
        nothing=workspace.etc / "nothing",
    )
    return {str(mount.place).removeprefix(f"{place}/"): mount for mount in found}


def test_only_the_sessions_own_directories_can_be_written(place: Path) -> None:
    writable = {name for name, mount in mounts(place).items() if mount.kind is MountKind.WRITABLE}
    own = {f"state/sessions/000001/{name}" for name in ("home", "work", "tmp", "state")}
    assert writable == own | {"/tmp", "/var/tmp"}  # noqa: S108 - in the session's view


def test_a_session_is_looked_at_once_for_its_command_and_for_what_people_are_shown(place: Path) -> None:
    workspace = workspaces.make(place / "state" / "sessions" / "000001", template_home=None)
    spec = SandboxSpec(
        workspace=workspace, binary=place / "tools" / "bin" / "claude", repos_dir=place / "repos", path="/usr/bin:/bin"
    )
    cell = BubblewrapCell(program="bwrap", hidden=(place / "state",))
    command, seen = cell.enclosed(spec)
    assert (command, seen) == (cell.enclose(spec), cell.mounts(spec))
    looks: list[SandboxSpec] = []

    class Counting(BubblewrapCell, frozen=True):
        def mounts(self, spec: SandboxSpec) -> tuple[Mount, ...]:
            looks.append(spec)
            return BubblewrapCell.mounts(self, spec)

    Counting(program="bwrap", hidden=(place / "state",)).enclosed(spec)
    assert len(looks) == 1


def test_short_files_of_etc_are_copied_because_each_mount_takes_as_long_as_all_before_it(place: Path) -> None:
    workspace = workspaces.make(place / "state" / "sessions" / "000001", template_home=None)
    spec = SandboxSpec(
        workspace=workspace, binary=place / "tools" / "bin" / "claude", repos_dir=place / "repos", path="/usr/bin:/bin"
    )
    command, seen = BubblewrapCell(program="bwrap", hidden=(place / "state",)).enclosed(spec)
    words = command.before
    copied = {words[at + 2]: words[at + 1] for at, word in enumerate(words) if word == "--copy"}
    mounted = {words[at + 2] for at, word in enumerate(words) if word == "--ro-bind"}
    sources = {str(mount.place): mount.source for mount in seen}
    assert {"/etc/passwd", "/etc/group"} <= copied.keys()
    assert all(sources[name] == Path(source) and name.startswith("/etc/") for name, source in copied.items())
    etc = {name for name in mounted if Path(name).parent == Path("/etc") and sources[name].is_file()}
    assert etc <= {"/etc/hosts", "/etc/resolv.conf"}  # which the machine may write anew while a session runs
    assert not any(str(above) in mounted for name in copied for above in Path(name).parents)


def test_of_the_daemons_directory_only_the_sessions_own_are_there(place: Path) -> None:
    below = {name for name in mounts(place) if name.startswith("state")}
    assert below == {f"state/sessions/000001/{name}" for name in ("home", "work", "tmp", "state")}


def test_what_is_hidden_below_a_mounted_repository_is_covered(place: Path) -> None:
    (place / "repos" / "web" / "secrets").mkdir()
    (place / "repos" / "web" / ".env").touch()
    found = mounts(place, hidden=("state", "repos/web/secrets", "repos/web/.env", "repos/not-there"))
    assert found["repos"].kind is MountKind.READ_ONLY
    assert found["repos/web/secrets"].kind is MountKind.EMPTY
    assert (found["repos/web/.env"].kind, found["repos/web/.env"].source.name) == (MountKind.READ_ONLY, "nothing")
    assert "repos/not-there" not in found


def test_a_state_directory_within_the_repositories_is_covered_and_the_session_still_has_its_own(place: Path) -> None:
    found = mounts(place, repos_dir=place)
    order = list(found)
    assert found["state"].kind is MountKind.EMPTY
    assert order.index("state") < order.index("state/sessions/000001/home")


def test_a_program_comes_with_the_libraries_beside_it(place: Path) -> None:
    found = mounts(place, path=f"{place}/tools/bin:relative:/usr/bin")
    assert {"tools/bin", "tools/lib"} <= set(found)


def test_a_session_with_looks_sees_their_client_its_interpreter_and_its_own_socket(place: Path) -> None:
    door = place / "state" / "sessions" / "000001" / "etc" / "look.sock"
    found = mounts(place, look_socket=door)
    client, interpreter = LOOK_CLIENT[-1], Path(LOOK_CLIENT[0])
    assert (found[f"{client}.sock"].source, found[client].source.name) == (door, "look_client.py")
    assert any(interpreter.is_relative_to(mount.place) for mount in found.values() if mount.reveals)
    assert client not in mounts(place)


@pytest.mark.parametrize("path", ["/", "/etc", "/root", "{place}", "{place}/state", "{place}/keys"])
def test_a_directory_of_path_never_shows_what_is_hidden(place: Path, path: str) -> None:
    shown = path.format(place=place)
    found = mounts(place, hidden=("state", "keys"), path=f"{shown}:/usr/bin")
    assert shown not in {str(mount.place) for mount in found.values() if mount.reveals}


def test_whoever_hides_the_root_hides_all_that_tools_of_the_machine_would_show(place: Path) -> None:
    found = mounts(place, hidden=("state", "/"), path=f"{place}/tools/bin:/usr/bin")
    assert not [name for name in found if name == "tools/lib" or name.startswith("/var/log")]


def test_a_linked_program_is_seen_under_both_names(place: Path) -> None:
    (place / "claude").symlink_to(place / "tools" / "bin" / "claude")
    found = mounts(place, binary=place / "claude")
    assert found["claude"].source == found["tools/bin/claude"].source == place / "tools" / "bin" / "claude"


def test_a_script_of_node_comes_with_its_package(place: Path) -> None:
    package = place / "lib" / "node_modules" / "@anthropic-ai" / "claude-code"
    package.mkdir(parents=True)
    (package / "cli.js").touch()
    (place / "claude").symlink_to(package / "cli.js")
    assert "lib/node_modules/@anthropic-ai/claude-code" in mounts(place, binary=place / "claude")


def test_variables_of_the_operator_show_the_files_and_sockets_that_they_name(place: Path) -> None:
    config = place / "kube.config"
    config.touch()
    variables = {
        "KUBECONFIG": f"{config}:{place}/not-there",
        "DOCKER_HOST": f"unix://{place}/docker.sock",
        "STATE": f"{place}/state/claudeops.db",
        "ROOT": "/",
        "URL": "https://example.org/a",
    }
    shown = named_in(variables)
    assert set(shown) >= {config, place / "docker.sock"}
    assert Path("/") not in shown
    found = mounts(place, shown=shown)
    assert found["kube.config"].kind is MountKind.READ_ONLY
    assert "state/claudeops.db" not in found
    assert "not-there" not in found


def test_of_etc_only_what_everybody_may_read_and_programs_look_up() -> None:
    found = {str(mount.place) for mount in system_mounts()}
    assert "/etc" not in found
    assert not [name for name in found if "shadow" in name or "host_" in name or "private" in name]
    assert all(os.stat(name).st_mode & 0o004 for name in found if name.startswith("/etc/"))  # noqa: PTH116 - texts


def test_a_copied_home_leaves_sockets_and_pipes_behind(tmp_path: Path) -> None:
    home = tmp_path / "keys"
    home.mkdir(mode=0o755)
    os.mkfifo(home / "agent")
    (home / "id").write_text("key")
    (home / "link").symlink_to("/etc/hosts")
    workspace = workspaces.make(tmp_path / "session", template_home=home)
    assert sorted(path.name for path in workspace.home.iterdir()) == ["id", "link"]
    assert (workspace.home / "link").is_symlink()
    assert workspace.home.stat().st_mode & 0o777 == 0o700


def test_of_a_compose_project_its_files_are_seen_and_nothing_beside_them(place: Path) -> None:
    project = place / "srv" / "shop"
    (project / "data").mkdir(parents=True)
    for name in ("compose.yaml", "docker-compose.override.yml", ".env", "notes.txt", "data/compose.yml"):
        (project / name).touch()
    (project / "compose.secret.yml").symlink_to(place / "keys" / "id")
    found = mounts(place, projects=(str(project), "/nowhere", "relative"))
    assert {name for name in found if name.startswith("srv")} == {
        "srv/shop/compose.yaml",
        "srv/shop/docker-compose.override.yml",
    }
    assert found["srv/shop/compose.yaml"].kind is MountKind.READ_ONLY


def test_logs_are_seen_read_only_and_a_daemons_directory_below_them_is_not(place: Path) -> None:
    assert mounts(place)["/var/log"].kind is MountKind.READ_ONLY


def test_what_the_tier_may_read_is_seen_and_what_the_daemon_hides_is_not(place: Path) -> None:
    found = mounts(place, shown=(place / "keys", place / "state"))
    assert found["keys"].kind is MountKind.READ_ONLY
    assert "state" not in found
