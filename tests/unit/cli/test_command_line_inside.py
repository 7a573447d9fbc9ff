"""A session must not be its own operator, also where it takes the mark out of a command's environment."""

from __future__ import annotations

import os
from pathlib import Path

from claudeops.cli.command_line import inside_a_session
from claudeops.engine.process import SESSION_MARK


def process(proc: Path, pid: int, parent: int, *environ: bytes) -> None:
    """Describe a process as the kernel would; its name is chosen to mislead."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "environ").write_bytes(b"\0".join(environ))
    (proc / str(pid) / "stat").write_text(f"{pid} (a) S 1 (b) S {parent} 0 0\n", encoding="utf-8")


def test_own_mark_is_enough(tmp_path: Path) -> None:
    assert inside_a_session({SESSION_MARK: "x"}, proc=tmp_path)


def test_mark_of_any_process_above_counts(tmp_path: Path) -> None:
    process(tmp_path, os.getppid(), 70, b"PATH=/bin")
    process(tmp_path, 70, 60, b"HOME=/root")
    process(tmp_path, 60, 1, b"A=b", f"{SESSION_MARK}=/state/sessions/7.1".encode())

    assert inside_a_session({}, proc=tmp_path)


def test_operator_at_a_shell_is_not_inside(tmp_path: Path) -> None:
    process(tmp_path, os.getppid(), 70, f"NOT_{SESSION_MARK}=x".encode(), f"X={SESSION_MARK}=".encode())
    process(tmp_path, 70, 0, b"HOME=/root")

    assert not inside_a_session({}, proc=tmp_path)


def test_process_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    process(tmp_path, os.getppid(), 70, b"PATH=/bin")
    (tmp_path / str(os.getppid()) / "environ").unlink()
    process(tmp_path, 70, 1, f"{SESSION_MARK}=x".encode())

    assert inside_a_session({}, proc=tmp_path)
    assert not inside_a_session({}, proc=tmp_path / "nowhere")
