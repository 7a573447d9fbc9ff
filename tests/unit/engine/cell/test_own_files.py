"""Whether a session's files fit into memory: never more than what is there beside its processes."""

from __future__ import annotations

import pytest

from claudeops.engine.cell.own_files import FilesBound, bound_in_memory, room_for_files

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("machine_mb", "free_mb", "slots", "room_mb"),
    [
        pytest.param(32_000, 30_000, 2, 4_000, id="a quarter of the machine for all slots"),
        pytest.param(64_000, 60_000, 2, 4_096, id="no more than its processes may have"),
        pytest.param(32_000, 10_000, 2, 904, id="what is free beside the processes of all"),
        pytest.param(32_000, 8_000, 2, 0, id="nothing is free beside them"),
        pytest.param(2_000, 1_000, 1, 0, id="a machine that is too small for one session"),
    ],
)
def test_files_take_no_memory_that_processes_or_the_machine_need(
    machine_mb: int, free_mb: int, slots: int, room_mb: int
) -> None:
    assert room_for_files(session_mb=4_096, slots=slots, machine_mb=machine_mb, free_mb=free_mb) == room_mb


def test_what_the_kernel_keeps_for_each_file_is_in_the_room_too() -> None:
    """256 MiB and a sixteenth, in files of one page, are 69632 files; the kernel keeps a KiB for each."""
    bound = bound_in_memory(256 * MIB, given_bytes=0, room_mb=340)
    assert bound == FilesBound(most_bytes=272 * MIB, most_files=69_632)
    assert bound.memory_mb == 340
    assert bound_in_memory(256 * MIB, given_bytes=0, room_mb=339) is None


def test_a_home_that_the_operator_gave_comes_on_top_of_what_a_session_may_add() -> None:
    bound = bound_in_memory(64 * MIB, given_bytes=80 * MIB, room_mb=1_000)
    assert bound is not None
    assert (bound.most_bytes, bound.most_files) == (148 * MIB, 148 * 256)
    assert bound_in_memory(64 * MIB, given_bytes=800 * MIB, room_mb=1_000) is None


def test_files_without_a_bound_are_never_in_memory() -> None:
    assert bound_in_memory(None, given_bytes=0, room_mb=1_000) is None
