"""The filter of system calls, executed instruction by instruction: no call slips through, none is refused wrongly."""

from __future__ import annotations

import errno
import re
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.engine.cell.system_calls import FAMILIES, system_call_filter, system_call_numbers

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = sorted(AUDIT)
HEADERS = {"x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), "aarch64": Path("/usr/include/asm-generic")}
JUDGED = ("clone", "unshare", "socket", "ioctl", "personality", "syslog")
UNKNOWN = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
ALLOWED = 0

LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
AN_ARGUMENT = st.integers(0, 2**64 - 1)


def decision(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """Return the errno that the kernel would answer with, and 0 where the call goes on."""
    program = system_call_filter(machine)
    assert program is not None
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<iIQ6Q", number, AUDIT[machine] if audit is None else audit, 0, *words)
    instructions = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    at, held = 0, 0
    while True:
        code, skipped_if, skipped_else, operand = instructions[at]
        at += 1
        if code == LOAD:
            (held,) = struct.unpack_from("<I", data, operand)
        elif code == RETURN:
            return ALLOWED if operand == 0x7FFF0000 else operand - 0x00050000
        else:
            is_true = {IF_EQUAL: held == operand, IF_AT_LEAST: held >= operand, IF_ANY_BIT: bool(held & operand)}[code]
            at += skipped_if if is_true else skipped_else


@pytest.mark.parametrize("machine", MACHINES)
def test_a_session_looks_into_no_process_no_keyring_and_changes_no_mount(machine: str) -> None:
    numbers = system_call_numbers(machine)
    refused = {name: decision(machine, number) for name, number in numbers.items() if name not in JUDGED}
    assert refused.pop("ptrace") == errno.EPERM
    assert {refused.pop(name) for name in UNKNOWN} == {errno.ENOSYS}
    assert set(refused.values()) == {errno.EPERM}
    assert {"keyctl", "bpf", "userfaultfd", "mount", "setns", "process_vm_readv", "open_tree_attr"} < set(refused)


@given(machine=st.sampled_from(MACHINES), number=st.integers(0, 600), arguments=st.lists(AN_ARGUMENT, max_size=6))
def test_a_call_that_is_not_on_the_list_is_never_refused(machine: str, number: int, arguments: list[int]) -> None:
    if number not in system_call_numbers(machine).values():
        assert decision(machine, number, *arguments) == ALLOWED


@given(machine=st.sampled_from(MACHINES), number=st.integers(0, 2**31 - 1), audit=st.integers(0, 2**32 - 1))
def test_a_program_of_another_architecture_has_no_calls_at_all(machine: str, number: int, audit: int) -> None:
    if audit != AUDIT[machine]:
        assert decision(machine, number, audit=audit) == errno.ENOSYS


@given(st.integers(0x40000000, 2**31 - 1))
def test_the_32_bit_numbers_of_an_ordinary_machine_are_not_a_second_door(number: int) -> None:
    assert decision("x86_64", number) == errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_threads_and_children_are_made_and_namespaces_are_not(machine: str) -> None:
    numbers = system_call_numbers(machine)
    thread, child = 0x003D0F00, 0x01200011  # what glibc's pthread_create and fork ask for
    assert decision(machine, numbers["clone"], thread) == decision(machine, numbers["clone"], child) == ALLOWED
    assert decision(machine, numbers["unshare"], 0x600) == ALLOWED  # CLONE_FS, CLONE_FILES
    kinds = [0x00020000, *(0x02000000 << place for place in range(6))]
    for flags in kinds:
        assert decision(machine, numbers["clone"], flags | 17) == errno.EPERM
        assert decision(machine, numbers["unshare"], flags) == errno.EPERM
    assert decision(machine, numbers["unshare"], 0x80) == errno.EPERM  # of time


@pytest.mark.parametrize("machine", MACHINES)
def test_no_socket_leaves_by_a_family_that_the_network_of_a_session_does_not_hold(machine: str) -> None:
    number = system_call_numbers(machine)["socket"]
    answers = {family: decision(machine, number, family) for family in range(64)}
    assert {family for family, error in answers.items() if error == ALLOWED} == set(map(int, FAMILIES))
    assert set(answers.values()) == {ALLOWED, errno.EAFNOSUPPORT}
    assert answers[int(socket.AF_VSOCK)] == errno.EAFNOSUPPORT


@pytest.mark.parametrize("machine", MACHINES)
def test_the_kernel_reads_half_of_an_argument_and_so_does_the_filter(machine: str) -> None:
    """Else a set bit above that half would make a call look like another one."""
    numbers, above = system_call_numbers(machine), 1 << 40
    assert decision(machine, numbers["ioctl"], 0, 0x5412 | above) == errno.EPERM  # TIOCSTI
    assert decision(machine, numbers["ioctl"], 0x5412, 0x5413) == ALLOWED
    assert decision(machine, numbers["socket"], 40 | above) == errno.EAFNOSUPPORT
    assert decision(machine, numbers["personality"], 0x0040000 | above) == errno.EPERM  # ADDR_NO_RANDOMIZE
    assert decision(machine, numbers["personality"], 0xFFFFFFFF) == decision(machine, numbers["personality"]) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_the_kernels_log_is_read_and_not_cleared(machine: str) -> None:
    number = system_call_numbers(machine)["syslog"]
    assert [action for action in range(11) if decision(machine, number, action) == ALLOWED] == [3, 10]


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernels_own_headers(machine: str) -> None:
    header = HEADERS[machine] if HEADERS[machine].suffix else HEADERS[machine] / "unistd.h"
    if not header.exists():
        pytest.skip("the kernel's headers are not installed (Debian: linux-libc-dev)")
    told = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    known = {name: int(number) for name, number in told}
    ours = system_call_numbers(machine)
    assert {name: known[name] for name in ours if name in known} == {n: v for n, v in ours.items() if n in known}
    assert set(ours) - set(known) <= {"open_tree_attr"}  # newer than Debian's headers


def test_a_machine_without_a_table_has_no_filter() -> None:
    assert system_call_filter("riscv64") is None
