"""What is on a disk is counted once, whatever it is called and wherever it hides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from claudeops.engine.process.disk_use import DiskUse, Premises

KIB = 1024
NAME = 4 * KIB  # what every name counts for


def used(root: Path, **where: object) -> int:
    return Premises(root=root, **where).measure([os.getpid()]).used_bytes  # type: ignore[arg-type]  # a test names its fields


def test_a_file_counts_with_what_it_takes_and_its_name(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 256 * KIB)
    assert used(tmp_path) == 256 * KIB + NAME


def test_two_names_of_one_file_take_its_room_once(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 256 * KIB)
    (tmp_path / "y").hardlink_to(tmp_path / "x")
    assert used(tmp_path) == 256 * KIB + 2 * NAME


def test_a_hole_takes_no_room_but_makes_a_large_file(tmp_path: Path) -> None:
    os.truncate(os.open(tmp_path / "x", os.O_CREAT | os.O_WRONLY), 1 << 30)
    found = Premises(root=tmp_path).measure()
    assert found.used_bytes < 64 * KIB
    assert found.grown_to(1 << 30, DiskUse())
    assert not found.grown_to((1 << 30) + 1, DiskUse())


def test_a_link_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "large").write_bytes(b"x" * 256 * KIB)
    (tmp_path / "work" / "link").symlink_to(tmp_path)
    assert used(tmp_path / "work") <= 2 * NAME


def test_a_file_without_a_name_takes_room_until_it_is_closed(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        (tmp_path / "x").unlink()
        file.write(b"x" * 256 * KIB)
        file.flush()
        assert used(tmp_path) == 256 * KIB
    assert used(tmp_path) == 0


def test_a_directory_that_is_closed_is_looked_into_and_one_that_is_too_deep_is_told(tmp_path: Path) -> None:
    closed = tmp_path / "d"
    closed.mkdir()
    (closed / "x").write_bytes(b"x" * 256 * KIB)
    closed.chmod(0o000)
    assert used(tmp_path) >= 256 * KIB
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(50):
            Path("d" * 100).mkdir()
            os.chdir("d" * 100)
    finally:
        os.chdir(here)
    assert Premises(root=tmp_path).measure().too_deep


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_where_everybody_may_write_only_ones_own_counts(tmp_path: Path) -> None:
    root, everybodys = tmp_path / "root", tmp_path / "everybodys"
    for directory in (root, everybodys, everybodys / "theirs", everybodys / "closed"):
        directory.mkdir()
    (everybodys / "theirs").chmod(0o1777)
    for name, uid in (("mine", 60_600), ("theirs/mine", 60_600), ("another", 60_601), ("closed/mine", 60_600)):
        (everybodys / name).write_bytes(b"x" * 256 * KIB)
        os.chown(everybodys / name, uid, uid)
    assert used(root, uid=60_600, everybodys=[everybodys]) == 2 * (256 * KIB + NAME)
    assert used(root, uid=60_602, everybodys=[everybodys, tmp_path / "away"]) == 0


def test_a_look_ends_where_enough_is_known(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "x").write_bytes(b"x" * 256 * KIB)
    all_of_it = used(tmp_path)
    assert Premises(root=tmp_path).measure(enough_bytes=1024 * KIB).used_bytes < all_of_it / 2
