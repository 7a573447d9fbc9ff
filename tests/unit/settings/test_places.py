"""The three directories: chosen, prepared, and explained when they cannot be used."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from claudeops.errors import ConfigurationError, MissingInputError
from claudeops.settings import prepare_directories, require_repos
from claudeops.settings.files import packaged
from claudeops.settings.model import KNOWN
from claudeops.settings.places import read_places, unusable
from claudeops.settings.reader import VariableReader
from claudeops.settings.where import node_name
from support.settings_world import World


def test_usual_directories_are_used_where_they_exist(world: World) -> None:
    settings = world.settings()

    assert settings.places.state_dir == world.root / "state"
    assert settings.places.results_dir == world.root / "results"
    assert settings.places.repos_dir == world.root / "repos"


def test_directories_below_the_working_directory_are_used_elsewhere(world: World) -> None:
    (world.root / "state").rmdir()
    (world.root / "results").rmdir()
    (world.cwd / ".claudeops" / "repos" / "estate").mkdir(parents=True)
    (world.root / "repos" / "estate").rmdir()
    (world.root / "repos").rmdir()

    loaded = world.load()

    assert loaded.warnings == ()
    assert loaded.settings.places.state_dir == world.cwd / ".claudeops" / "state"
    assert loaded.settings.places.results_dir == world.cwd / ".claudeops" / "results"
    assert loaded.settings.places.repos_dir == world.cwd / ".claudeops" / "repos"


def test_mount_that_cannot_be_written_is_not_passed_over_in_silence(world: World) -> None:
    def may(path: Path, _access: int) -> bool:
        return path != world.root / "state"

    places, warnings = read_places(VariableReader({}, KNOWN, cwd=world.cwd), cwd=world.cwd, root=world.root, may=may)

    assert (places.state_dir, places.results_dir) == (world.cwd / ".claudeops" / "state", world.root / "results")
    (warning,) = warnings
    assert f"{world.root}/state exists" in warning
    assert "CLAUDEOPS_STATE_DIR" in warning


def test_default_without_repositories_is_a_warning_for_a_rehearsal_needs_none(world: World) -> None:
    (world.root / "repos" / "estate").rmdir()

    loaded = world.load()

    (warning,) = loaded.warnings
    assert "nothing to watch" in warning
    with pytest.raises(MissingInputError, match="nothing to watch"):
        require_repos(loaded.settings.places.repos_dir)


def test_loading_makes_no_directory(world: World) -> None:
    before = sorted(world.base.rglob("*"))

    world.load(CLAUDEOPS_STATE_DIR="new/state", CLAUDEOPS_RESULTS_DIR="new/results")

    assert sorted(world.base.rglob("*")) == before


def test_preparing_makes_state_and_results_and_leaves_nothing_in_them(world: World) -> None:
    settings = world.settings(CLAUDEOPS_STATE_DIR="new/state", CLAUDEOPS_RESULTS_DIR="new/results")

    prepare_directories(settings)
    prepare_directories(settings)

    assert [*settings.places.state_dir.iterdir(), *settings.places.results_dir.iterdir()] == []
    assert stat.S_IMODE(settings.places.state_dir.stat().st_mode) == 0o700


def test_file_in_the_place_of_a_directory_is_named(world: World) -> None:
    world.file("state", "")

    for path in ("state", "state/below"):
        with pytest.raises(ConfigurationError, match=r"CLAUDEOPS_STATE_DIR .* is not a directory.*: move the file"):
            prepare_directories(world.settings(CLAUDEOPS_STATE_DIR=path))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param(errno.EROFS, ["read-only", "mount it writable"], id="read-only"),
        pytest.param(errno.ENOSPC, ["no space", "make room"], id="full"),
        pytest.param(errno.ENAMETOOLONG, ["cannot be used", "set another"], id="anything-else"),
    ],
)
def test_unusable_directory_is_explained(world: World, code: int, told: list[str]) -> None:
    sentence = unusable(world.cwd, "CLAUDEOPS_RESULTS_DIR", OSError(code, os.strerror(code)), user=4711)

    assert [part for part in ["CLAUDEOPS_RESULTS_DIR", str(world.cwd), *told] if part not in sentence] == []


def test_directory_of_another_user_is_explained_with_both_users(world: World) -> None:
    owner = world.cwd.stat().st_uid

    sentence = unusable(world.cwd, "CLAUDEOPS_STATE_DIR", PermissionError(errno.EACCES, "denied"), user=4711)

    assert f"user 4711 may not write in {world.cwd}, which belongs to user {owner}" in sentence
    assert f"`chown -R 4711 {world.cwd}`" in sentence


def test_nobody_is_told_to_change_the_owner_of_a_directory_above(world: World) -> None:
    missing = world.cwd / "not" / "there"

    sentence = unusable(missing, "CLAUDEOPS_STATE_DIR", PermissionError(errno.EACCES, "denied"), user=4711)

    assert "chown" not in sentence
    assert f"`install -d -o 4711 {missing}`" in sentence


# --- what comes with the package


def test_wheel_carries_its_own_copies(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "claudeops"
    (package / "_packaged" / "prompts").mkdir(parents=True)

    assert packaged("prompts", package=package) == package / "_packaged" / "prompts"


def test_checkout_has_them_beside_its_sources(tmp_path: Path) -> None:
    package = tmp_path / "src" / "claudeops"
    for directory in (package, tmp_path / "schemas"):
        directory.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()

    assert packaged("schemas", package=package) == tmp_path / "schemas"


def test_stranger_beside_an_installed_package_is_not_taken_for_ours(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "claudeops"
    for directory in (package, tmp_path / "migrations"):
        directory.mkdir(parents=True)

    with pytest.raises(MissingInputError, match="reinstall"):
        packaged("migrations", package=package)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("web-1.example", "web-1.example"),
        ("ein rechner", "ein-rechner"),
        ("-_-", "node"),
        ("", "node"),
        ("x" * 64, "x" * 63),
    ],
)
def test_node_has_a_name_whatever_its_host_is_called(world: World, host: str, name: str) -> None:
    assert node_name(VariableReader({}, KNOWN, cwd=world.cwd), host=host) == name


def test_node_without_a_name_has_that_of_its_host_and_site_main(world: World) -> None:
    node = world.settings().node

    assert (node.name, node.site) == (node_name(VariableReader({}, KNOWN, cwd=world.cwd)), "main")


def test_delays_of_an_installation_without_a_site_stay_as_they_were(world: World) -> None:
    assert world.settings().node.jitter_site == ""
    assert world.settings(CLAUDEOPS_SITE="north").node.jitter_site == "north"
