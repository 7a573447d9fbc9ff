"""Files are looked up where the session is led, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from claudeops.engine.cell.bubblewrap import Mount, MountKind
from claudeops.engine.gate.view import SessionView


@pytest.fixture
def view(tmp_path: Path) -> SessionView:
    """Return the view of a session that sees ``/srv``, its own ``/tmp``, and ``/bin`` as a link into ``/usr``."""
    for name in ("srv", "own", "usr/bin", "hidden"):
        (tmp_path / name).mkdir(parents=True)
    return SessionView(
        mounts=(
            Mount(Path("/usr"), MountKind.READ_ONLY, tmp_path / "usr"),
            Mount(Path("/bin"), MountKind.LINK, Path("usr/bin")),
            Mount(Path("/srv"), MountKind.READ_ONLY, tmp_path / "srv"),
            Mount(Path("/srv/hidden"), MountKind.EMPTY, Path("/srv/hidden")),
            Mount(Path("/tmp"), MountKind.WRITABLE, tmp_path / "own"),  # noqa: S108 - a name
        )
    )


def test_a_link_leads_into_the_sessions_own_temporary_directory(view: SessionView, tmp_path: Path) -> None:
    (tmp_path / "srv" / "x").symlink_to("/tmp/y")  # noqa: S108 - a name
    (tmp_path / "own" / "y").symlink_to("/etc/shadow")
    assert view.resolve("/srv/x") == "/etc/shadow"
    (tmp_path / "own" / "y").unlink()
    assert view.resolve("/srv/x") == "/tmp/y"  # noqa: S108 - a name


@pytest.mark.parametrize("target", ["/proc/self/root/etc/shadow", "/proc/self/cwd/x", "/proc/thread-self/fd/3"])
def test_a_link_through_proc_is_not_followed_as_the_daemon(view: SessionView, tmp_path: Path, target: str) -> None:
    (tmp_path / "srv" / "x").symlink_to(target)
    assert view.resolve("/srv/x") == target
    assert SessionView().resolve("/proc/self/cwd/x") == "/proc/self/cwd/x"


def test_links_in_directories_and_links_back_are_followed(view: SessionView, tmp_path: Path) -> None:
    (tmp_path / "usr" / "bin" / "ls").touch()
    (tmp_path / "srv" / "a").mkdir()
    (tmp_path / "srv" / "a" / "up").symlink_to("../b")
    (tmp_path / "srv" / "b").symlink_to("a/../../bin/")
    assert view.resolve("/bin/ls") == "/usr/bin/ls"
    assert view.resolve("/srv/a/up/ls") == "/usr/bin/ls"
    (tmp_path / "srv" / "round").symlink_to("round")
    assert view.resolve("/srv/round") == "/srv/round"


def test_what_is_no_regular_file_is_seen(view: SessionView, tmp_path: Path) -> None:
    (tmp_path / "srv" / "file").touch()
    os.mkfifo(tmp_path / "srv" / "pipe")
    (tmp_path / "srv" / "link").symlink_to("/tmp")  # noqa: S108 - a name
    assert view.is_file("/srv/file")
    assert view.is_file("/srv/not-there")
    assert not view.is_file("/srv/pipe")
    assert not view.is_file("/srv/link")
    assert not view.is_file("/srv")


def test_a_pattern_finds_what_the_session_would_find(view: SessionView, tmp_path: Path) -> None:
    srv = tmp_path / "srv"
    for name in ("a.log", "b.log", ".hidden.log", "c.txt", "new\nline.log", "[x].log"):
        (srv / name).touch()
    (srv / "d").mkdir()
    (srv / "d" / "e.log").touch()
    (srv / "hidden").mkdir()
    (srv / "hidden" / "f.log").touch()
    assert view.expand("/srv/*.log") == ("/srv/[x].log", "/srv/a.log", "/srv/b.log")
    assert view.expand("/srv/[ab].log") == ("/srv/a.log", "/srv/b.log")
    assert view.expand("/srv/[!a].log") == ("/srv/b.log",)
    assert view.expand("/srv/[[]x].log") == ("/srv/[x].log",)
    assert view.expand("/srv/.h*") == ("/srv/.hidden.log",)
    assert view.expand("/srv/*/*.log") == ("/srv/d/e.log",)  # not what a mount covers
    assert view.expand("/srv/*/") == ("/srv/d/", "/srv/hidden/")
    assert view.expand("/srv/?.none") == ()
    assert view.expand("/root/*") == ()  # not shown


def test_a_pattern_over_a_huge_directory_ends(tmp_path: Path) -> None:
    for number in range(1_200):
        (tmp_path / f"{number}.x").touch()
    assert SessionView().expand(f"{tmp_path}/*.x") is None
    # A part of what it finds would be a wrong answer, and so would nothing.
    assert SessionView(most_entries=1_000).expand(f"{tmp_path}/*.none") is None
    assert SessionView(most_entries=1_200).expand(f"{tmp_path}/*.none") == ()
