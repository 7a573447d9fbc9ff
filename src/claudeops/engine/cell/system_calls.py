"""Which system calls a session may make: a filter for the kernel (seccomp), from a table of what no session needs.

A deny list, not an allow list: what is behind it must not run any kind of program worse than without it. Everything on
it either lets a program look into another one, gives it parts of the kernel that have been ways out of namespaces, or
changes the machine. The numbers are those of Linux's ``unistd.h``; what is not in the table of a machine does not exist
there. See ``docs/discussions/the-cell.md``.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Final

import msgspec

_ABSENT: Final = -1

# name, number on x86_64, number on aarch64
_REFUSED: Final = (
    # keys of the machine, and of other sessions
    *(("add_key", 248, 217), ("request_key", 249, 218), ("keyctl", 250, 219)),
    # memory and descriptors of other processes
    *(("ptrace", 101, 117), ("process_vm_readv", 310, 270), ("process_vm_writev", 311, 271)),
    *(("pidfd_getfd", 438, 438), ("kcmp", 312, 272)),
    # programs in the kernel, and what watches it
    *(("bpf", 321, 280), ("perf_event_open", 298, 241), ("userfaultfd", 323, 282), ("lookup_dcookie", 212, 18)),
    ("fanotify_init", 300, 262),
    # mounts and namespaces; `clone` and `unshare` are judged by their arguments
    *(("mount", 165, 40), ("umount2", 166, 39), ("pivot_root", 155, 41), ("chroot", 161, 51), ("setns", 308, 268)),
    *(("move_mount", 429, 429), ("open_tree", 428, 428), ("open_tree_attr", 467, 467), ("mount_setattr", 442, 442)),
    *(("fsopen", 430, 430), ("fsconfig", 431, 431), ("fsmount", 432, 432), ("fspick", 433, 433)),
    ("open_by_handle_at", 304, 265),
    # the machine itself
    *(("kexec_load", 246, 104), ("kexec_file_load", 320, 294), ("reboot", 169, 142)),
    *(("init_module", 175, 105), ("finit_module", 313, 273), ("delete_module", 176, 106)),
    *(("swapon", 167, 224), ("swapoff", 168, 225), ("acct", 163, 89), ("quotactl", 179, 60), ("quotactl_fd", 443, 443)),
    *(("settimeofday", 164, 170), ("clock_settime", 227, 112), ("adjtimex", 159, 171), ("clock_adjtime", 305, 266)),
    *(("sethostname", 170, 161), ("setdomainname", 171, 162), ("vhangup", 153, 58)),
    *(("iopl", 172, _ABSENT), ("ioperm", 173, _ABSENT), ("modify_ldt", 154, _ABSENT)),
    # where memory lies: of no use to a session, and calls in which the kernel had faults
    *(("mbind", 237, 235), ("set_mempolicy", 238, 237), ("set_mempolicy_home_node", 450, 450)),
    *(("move_pages", 279, 239), ("migrate_pages", 256, 238)),
    # dead ones
    *(("uselib", 134, _ABSENT), ("ustat", 136, _ABSENT), ("sysfs", 139, _ABSENT), ("_sysctl", 156, _ABSENT)),
    *(("create_module", 174, _ABSENT), ("get_kernel_syms", 177, _ABSENT), ("query_module", 178, _ABSENT)),
    ("nfsservctl", 180, 42),
)
# Programs fall back when a kernel does not have these. The flags of `clone3` lie in memory, where no filter can look.
_UNKNOWN: Final = (
    ("clone3", 435, 435),
    *(("io_uring_setup", 425, 425), ("io_uring_enter", 426, 426), ("io_uring_register", 427, 427)),
)
_CLONE: Final = ("clone", 56, 220)
_UNSHARE: Final = ("unshare", 272, 97)
_SOCKET: Final = ("socket", 41, 198)
_IOCTL: Final = ("ioctl", 16, 29)
_PERSONALITY: Final = ("personality", 135, 92)
_SYSLOG: Final = ("syslog", 103, 116)

# linux/sched.h: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW: Final = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_NEW_TIME: Final = 0x00000080  # in `clone` this byte is the signal of the child's end

FAMILIES: Final = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Of sockets that a session may make. The others lead out of its network (vsock) or into old parts of the kernel."""

_TERMINAL_INPUT: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: they type into a terminal
_PERSONALITIES: Final = (0x00000000, 0xFFFFFFFF)  # Linux's own, and the question which one it is
_READS_OF_LOG: Final = (3, 10)  # SYSLOG_ACTION_READ_ALL, SYSLOG_ACTION_SIZE_BUFFER: what `dmesg` does

_X32: Final = 0x40000000  # the first number of the 32-bit calls on x86_64

# linux/bpf_common.h, linux/seccomp.h
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_IF_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data; an argument has eight bytes


class _Machine(msgspec.Struct, frozen=True):
    audit: int  # linux/audit.h
    column: int  # of the table, after the name
    has_x32: bool


_MACHINES: Final[Mapping[str, _Machine]] = {
    "x86_64": _Machine(audit=0xC000003E, column=0, has_x32=True),
    "aarch64": _Machine(audit=0xC00000B7, column=1, has_x32=False),
}

Call = tuple[str, int, int]
Instruction = tuple[int, int, int, int]  # code, what is skipped where it is true, and where it is not, operand


@functools.cache
def filter_as_text() -> str:
    """Return the filter for this machine in base 64, as launcher and guardian take it; empty: there is none for it."""
    return b64encode(system_call_filter(os.uname().machine) or b"").decode()


@contextmanager
def filter_file() -> Iterator[int]:
    """Hold the descriptor of a nameless file with the filter for this machine, for bubblewrap to read."""
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, b64decode(filter_as_text()))
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def keyctl_number() -> int:
    """Return the number of the call `keyctl` on this machine; -1: it is not known."""
    return system_call_numbers(os.uname().machine).get("keyctl", _ABSENT)


def system_call_filter(machine: str) -> bytes | None:
    """Return the filter for a kind of machine, little-endian as both are; None: there is no table of its numbers."""
    known = _MACHINES.get(machine)
    if known is None:
        return None
    # Programs for another architecture (32 bits) have numbers of their own, so none of their calls exists.
    program = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_IF_EQUAL, 1, 0, known.audit), _fails(errno.ENOSYS)]
    program.append((_LOAD, 0, 0, _NUMBER_AT))
    if known.has_x32:
        program += [(_IF_AT_LEAST, 0, 1, _X32), _fails(errno.ENOSYS)]
    for refused, error in ((_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        numbers = [number for call in refused if (number := _number(call, known)) != _ABSENT]
        program += chain.from_iterable(((_IF_EQUAL, 0, 1, number), _fails(error)) for number in numbers)
    for call, judged in _by_argument():
        program += [(_IF_EQUAL, 0, len(judged), _number(call, known)), *judged]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def system_call_numbers(machine: str) -> Mapping[str, int]:
    """Return the numbers of all calls that the filter is about; none where there is no filter."""
    known = _MACHINES.get(machine)
    if known is None:
        return {}
    calls = (*_REFUSED, *_UNKNOWN, *(call for call, _ in _by_argument()))
    return {call[0]: number for call in calls if (number := _number(call, known)) != _ABSENT}


def _number(call: Call, machine: _Machine) -> int:
    return call[1:][machine.column]


def _by_argument() -> tuple[tuple[Call, list[Instruction]], ...]:
    return (
        (_CLONE, _no_bits(_NEW)),
        (_UNSHARE, _no_bits(_NEW | _NEW_TIME)),
        (_SOCKET, _one_of(0, FAMILIES, errno.EAFNOSUPPORT)),
        (_IOCTL, _none_of(1, _TERMINAL_INPUT)),
        (_PERSONALITY, _one_of(0, _PERSONALITIES, errno.EPERM)),
        (_SYSLOG, _one_of(0, _READS_OF_LOG, errno.EPERM)),
    )


def _no_bits(bits: int) -> list[Instruction]:
    return [_argument(0), (_IF_ANY_BIT, 0, 1, bits), _fails(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]


def _one_of(place: int, values: tuple[int, ...], error: int) -> list[Instruction]:
    equals = [(_IF_EQUAL, len(values) - number, 0, value) for number, value in enumerate(values)]
    return [_argument(place), *equals, _fails(error), (_RETURN, 0, 0, _ALLOW)]


def _none_of(place: int, values: tuple[int, ...]) -> list[Instruction]:
    tests = [((_IF_EQUAL, 0, 1, value), _fails(errno.EPERM)) for value in values]
    return [_argument(place), *chain.from_iterable(tests), (_RETURN, 0, 0, _ALLOW)]


def _argument(place: int) -> Instruction:
    """Load the lower half of an argument, which is all that the kernel reads of these."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * place)


def _fails(error: int) -> Instruction:
    return (_RETURN, 0, 0, _ERROR | error)
