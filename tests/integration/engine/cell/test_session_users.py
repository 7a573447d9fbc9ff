"""A guardian kills every process of its session's user: whoever shared that user would be killed along with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.cell import FIRST_UID, UIDS, USER_HOMES, SandboxSpec, UserCell, lease_user
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sessions another user")

SHELL = Path("/bin/sh")


@contextlib.contextmanager
def under_a_guardian(cell: UserCell, root: Path, uid: int, script: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script as a session's user; its guardian ends it when this is left."""
    workspace = workspaces.make(root, template_home=None, uid=uid)
    enclosed = cell.enclose(SandboxSpec(workspace=workspace, binary=SHELL, repos_dir=root, path="/usr/bin:/bin"))
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [*enclosed.before, str(theirs.fileno()), str(SHELL), "-c", script],
                pass_fds=(*enclosed.inherited, theirs.fileno()),
                stdout=subprocess.PIPE,
                text=True,
            )
        yield process
    process.wait(timeout=PATIENCE_SECONDS)
    if process.stdout is not None:
        process.stdout.close()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_locked(uid: int) -> bool:
    with (USER_HOMES / "users" / str(uid)).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def as_many_as_there_are(directory: Path, tenancies: contextlib.ExitStack) -> Iterator[int]:
    with contextlib.suppress(OSError):
        while True:
            yield tenancies.enter_context(lease_user(directory)).uid


def test_two_sessions_at_once_never_have_the_same_user_and_one_too_many_is_told_so(tmp_path: Path) -> None:
    """With locks of its own; some users may have processes, of other tests that run right now."""
    with contextlib.ExitStack() as tenancies:
        held = list(as_many_as_there_are(tmp_path, tenancies))
        assert 1 < len(held) == len(set(held)) <= UIDS
        with pytest.raises(OSError, match=f"all {UIDS} users for sessions are taken on this machine"):
            tenancies.enter_context(lease_user(tmp_path))
    with lease_user(tmp_path) as again:
        assert FIRST_UID <= again.uid < FIRST_UID + UIDS


def test_sessions_of_two_daemons_never_have_the_same_user() -> None:
    one, other = UserCell(), UserCell()
    with one.acquire_user() as first, other.acquire_user() as second, one.acquire_user() as third:
        assert len({first, second, third}) == 3


def test_nobody_gets_the_user_of_a_killed_daemon_before_its_guardian_has_ended(tmp_path: Path) -> None:
    cell = UserCell()
    with contextlib.ExitStack() as daemon:
        uid = daemon.enter_context(cell.acquire_user())
        assert uid is not None
        with under_a_guardian(cell, tmp_path / "session", uid, "echo started; exec sleep 600") as process:
            assert first_line(process) == "started"
            daemon.close()  # as the kernel does it for one that was killed
            assert is_locked(uid)


def test_a_session_does_not_inherit_the_lock_of_its_user(tmp_path: Path) -> None:
    cell = UserCell()
    with cell.acquire_user() as uid:
        assert uid is not None
        assert is_locked(uid)
        script = "ls -l /proc/self/fd | grep -c users/"
        with under_a_guardian(cell, tmp_path / "session", uid, script) as process:
            assert first_line(process) == "0"


def test_a_user_who_still_has_processes_is_passed_over(tmp_path: Path) -> None:
    """Their guardian was killed with the daemon; they could read what the next session of that user writes."""
    cell = UserCell()
    with cell.acquire_user() as uid:  # nobody else's for as long as we use it
        left = subprocess.Popen(["sleep", "600"], user=uid)
        try:
            with contextlib.ExitStack() as tenancies:
                found = list(as_many_as_there_are(tmp_path, tenancies))
            assert found
            assert uid not in found
        finally:
            left.kill()
            left.wait()
