"""Control groups: taken where they are ours, left alone where they are not, and gone with their sessions."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from claudeops.engine.cell.cgroups import ControlGroup, Exceeded, Groups, find, prepare
from support.control_groups import groups_or_skip
from support.waiting import PATIENCE_SECONDS

ONE = "31 23 0:28 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids"
TWO = "32 23 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
BARE = "33 23 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"


def machine(root: Path, *, mounts: tuple[str, ...], own: str) -> Path:
    """Make the files of the kernel that say where the groups are."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    (root / "proc/self/cgroup").write_text(own)
    return root


def group(directory: Path, *, controllers: str = "cpu memory pids", procs: str = "", switched: str = "") -> Path:
    """Make a group of version 2 that is not the root."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        "cgroup.controllers": controllers,
        "cgroup.procs": procs,
        "cgroup.subtree_control": switched,
        "cgroup.type": "domain",
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def two(root: Path, **changes: str) -> Path:
    """Make a machine of version 2 on which this process is in a group of a unit; return the group."""
    machine(root, mounts=(TWO,), own="0::/system.slice/claudeops.service\n")
    group(root / "sys/fs/cgroup")
    return group(root / "sys/fs/cgroup/system.slice/claudeops.service", **changes)


def test_without_groups_it_says_so(tmp_path: Path) -> None:
    machine(tmp_path, mounts=(), own="")
    assert find("x", tmp_path) == "the kernel offers no control groups that count processes"


def test_version_2_is_used_where_it_counts_processes(tmp_path: Path) -> None:
    place = two(tmp_path)
    assert find("x", tmp_path) == Groups(place=place, prefix="claudeops-x")


def test_a_version_2_beside_the_first_one_counts_nothing_and_is_passed_over(tmp_path: Path) -> None:
    machine(tmp_path, mounts=(BARE, ONE), own="4:pids:/docker/abc\n0::/\n")
    group(tmp_path / "sys/fs/cgroup/unified", controllers="hugetlb")
    place = tmp_path / "sys/fs/cgroup/pids/docker/abc"
    place.mkdir(parents=True)
    (place / "cgroup.procs").touch()
    assert find("x", tmp_path) == Groups(place=place, prefix="claudeops-x")


def test_groups_of_a_container_that_sees_only_its_own_are_found(tmp_path: Path) -> None:
    machine(tmp_path, mounts=(ONE.replace(" / ", " /docker/abc "),), own="4:pids:/docker/abc\n")
    place = tmp_path / "sys/fs/cgroup/pids"
    place.mkdir(parents=True)
    (place / "cgroup.procs").touch()
    assert find("x", tmp_path) == Groups(place=place, prefix="claudeops-x")


def test_what_belongs_to_the_service_manager_is_left_to_it(tmp_path: Path) -> None:
    two(tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert "Delegate=pids memory" in str(find("x", tmp_path))


@pytest.mark.parametrize("above", [False, True], ids=["it is ours", "the one above is, and we in a part of it"])
def test_what_the_service_manager_has_left_to_us_is_ours(tmp_path: Path, *, above: bool) -> None:
    place = two(tmp_path)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    delegated = group(place.parent) if above else place
    try:
        os.setxattr(delegated, "user.delegate", b"1")
    except OSError:
        pytest.skip("the file system of the tests takes no attributes")
    assert find("x", tmp_path) == Groups(place=delegated, prefix="claudeops-x")


def test_a_group_without_a_count_of_processes_is_of_no_use(tmp_path: Path) -> None:
    two(tmp_path, controllers="cpu")
    assert "processes are not counted" in str(find("x", tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_group_that_cannot_be_written_is_of_no_use(tmp_path: Path) -> None:
    (two(tmp_path) / "cgroup.subtree_control").chmod(0o444)
    assert f"cannot be changed by user {os.geteuid()}" in str(find("x", tmp_path))


def test_nobody_else_is_moved_out_of_the_way(tmp_path: Path) -> None:
    """In the group of a login, or of a container with a shell in it, there are programs that are none of ours."""
    place = two(tmp_path, procs=f"1\n{os.getpid()}\n")
    assert find("x", tmp_path) == f"other programs are in the control group {place}"


def test_the_daemon_makes_way_for_its_sessions_groups(tmp_path: Path) -> None:
    place = two(tmp_path, procs=f"{os.getpid()}\n")
    group(place / "daemon")
    found = find("x", tmp_path)
    assert isinstance(found, Groups)

    assert prepare(found) is None

    assert (place / "daemon/cgroup.procs").read_text() == str(os.getpid())
    assert (place / "cgroup.subtree_control").read_text() == "+memory"  # the last of two: these are plain files


def test_a_refusal_of_the_kernel_is_told(tmp_path: Path) -> None:
    place = two(tmp_path, procs=f"{os.getpid()}\n")
    (place / "daemon").touch()  # where a directory is wanted
    why = prepare(Groups(place=place, prefix="claudeops-x"))
    assert why is not None
    assert str(place) in why


def test_what_was_refused_is_counted(tmp_path: Path) -> None:
    one = ControlGroup(tmp_path)
    assert one.refusals() == {}
    (tmp_path / "pids.events").write_text("max 0\n")
    (tmp_path / "memory.events").write_text("low 0\nhigh 3\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n")
    assert one.refusals() == {Exceeded.MEMORY: 1}
    (tmp_path / "pids.events").write_text("max 7\n")
    assert one.refusals() == {Exceeded.PROCESS: 7, Exceeded.MEMORY: 1}


@pytest.fixture
def here() -> Groups:
    return groups_or_skip()


@pytest.mark.anyio
async def test_the_kernel_refuses_one_process_too_many_and_says_so(here: Groups) -> None:
    async with here.lease() as leased:
        leased.bound(4, 512)
        join = f"echo 0 > {leased.door}; for i in 1 2 3 4 5 6; do sleep 0.3 & done; wait"
        with anyio.fail_after(PATIENCE_SECONDS):
            done = await anyio.run_process(["/bin/sh", "-c", join], check=False)
        refused = leased.refusals()
        assert leased.directory.is_dir()
    assert b"fork" in done.stderr.lower()
    assert refused[Exceeded.PROCESS] > 0
    assert not leased.directory.exists()


@pytest.mark.anyio
async def test_a_group_that_could_not_be_removed_keeps_no_session_from_its_own(here: Groups) -> None:
    left = here.place / f"{here.prefix}-1"
    left.mkdir()
    try:
        async with here.lease() as one, here.lease() as another:
            assert len({left, one.directory, another.directory}) == 3
    finally:
        left.rmdir()


@pytest.mark.anyio
async def test_what_a_killed_daemon_left_is_removed_and_nothing_else(here: Groups) -> None:
    another = Groups(place=here.place, prefix=f"{here.prefix}0")
    left = here.place / f"{here.prefix}-7.1"
    left.mkdir()
    async with another.lease() as theirs:
        here.clear()
        assert not left.exists()
        assert theirs.directory.is_dir()
