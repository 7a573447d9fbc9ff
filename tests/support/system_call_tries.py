"""Tries of system calls, each in a form in which the kernel does nothing, once it looks at it; also where root asks."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from claudeops.engine.cell.system_calls import FAMILIES

Tries = Mapping[str, Sequence[object]]
"""Names, each with an act of ``reaching.py`` and its words."""

Numbers = Mapping[str, int]

_BAD: Final = 1  # an address at which nothing can be read

HARMLESS: Final[Mapping[str, tuple[object, ...]]] = dict(
    (
        *(("ptrace", (0, 0, 0, 0)), ("process_vm_readv", ("self", 0, 0, 0, 0, 0))),
        ("process_vm_writev", ("self", 0, 0, 0, 0, 0)),
        *(("pidfd_getfd", (-1, -1, 0)), ("kcmp", ("self", "self", 99, 0, 0))),
        *(("bpf", (-1, 0, 0)), ("perf_event_open", (0, 0, -1, -1, -1)), ("userfaultfd", (-1,))),
        ("lookup_dcookie", (0, 0, 0)),
        *(("fanotify_init", (-1, 0)), ("mount", (0, 0, 0, 0, 0)), ("umount2", (0, -1))),
        *(("pivot_root", (_BAD, _BAD)), ("chroot", (_BAD,))),
        *(("setns", (-1, 0)), ("move_mount", (-1, _BAD, -1, _BAD, -1)), ("open_tree", (-1, _BAD, -1))),
        *(("open_tree_attr", (-1, _BAD, -1, 0, 0)), ("mount_setattr", (-1, 0, 0, 0, 0)), ("fsopen", (_BAD, -1))),
        *(("fsconfig", (-1, 0, 0, 0, 0)), ("fsmount", (-1, -1, -1)), ("fspick", (-1, _BAD, -1))),
        ("open_by_handle_at", (-1, _BAD, 0)),
        *(("kexec_load", (0, 0, 0, -1)), ("kexec_file_load", (-1, -1, 0, 0, -1)), ("reboot", (0, 0, 0, 0))),
        *(("init_module", (_BAD, 1, _BAD)), ("finit_module", (-1, _BAD, -1)), ("delete_module", (_BAD, 0))),
        *(("swapon", (_BAD, 0)), ("swapoff", (_BAD,)), ("acct", (_BAD,)), ("quotactl", (-1, _BAD, 0, 0))),
        ("quotactl_fd", (-1, -1, 0, 0)),
        *(("settimeofday", (_BAD, _BAD)), ("clock_settime", (-1, _BAD)), ("adjtimex", (_BAD,))),
        ("clock_adjtime", (0, _BAD)),
        *(
            ("sethostname", (_BAD, -1)),
            ("setdomainname", (_BAD, -1)),
            ("vhangup", ()),
        ),  # of a terminal that it does not have
        *(("iopl", (99,)), ("ioperm", (-1, 1, 1)), ("modify_ldt", (0, 0, 0))),
        *(("mbind", (0, 0, 99, 0, 0, 0)), ("set_mempolicy", (99, 0, 0))),
        ("set_mempolicy_home_node", (0, 0, 0, 1)),
        *(("move_pages", ("self", 0, 0, 0, 0, -1)), ("migrate_pages", (-1, 0, 0, 0))),
        *(("uselib", (_BAD,)), ("ustat", (-1, _BAD)), ("sysfs", (99, 0, 0)), ("_sysctl", (_BAD,))),
        ("nfsservctl", (99, 0, 0)),
        *(("create_module", (_BAD, 0)), ("get_kernel_syms", (_BAD,)), ("query_module", (_BAD, 99, 0, 0, 0))),
        *(("clone3", (0, 0)), ("io_uring_setup", (0, 0)), ("io_uring_enter", (-1, 0, 0, -1, 0, 0))),
        ("io_uring_register", (-1, 0, 0, 0)),
        *(("add_key", (0, 0, 0, 0, -3)), ("request_key", (_BAD, _BAD, 0, 0)), ("keyctl", (0, -3, 0))),
    )
)
"""What is passed to each call that is refused by its number."""


def calls(numbers: Numbers) -> Tries:
    """Return a try of every system call that the filter refuses by its number."""
    return {f"call {name}": ("call", numbers[name], *words) for name, words in HARMLESS.items() if name in numbers}


def with_namespaces(numbers: Numbers) -> Tries:
    """Return tries of calls with each kind of namespace, and a flag with which the kernel refuses them all."""
    without_sighand, unknown = 0x00010000, 0x00000001
    kinds = {"cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "pid": 0x20000000}
    kinds |= {"mnt": 0x00020000, "net": 0x40000000}
    clones = {
        f"clone {name}": ("call", numbers["clone"], kind | without_sighand, 0, 0, 0, 0) for name, kind in kinds.items()
    }
    unshares = {
        f"unshare {name}": ("call", numbers["unshare"], kind | unknown)
        for name, kind in {**kinds, "time": 0x80}.items()
    }
    real = {"a user namespace": ("new_namespace", numbers["unshare"], kinds["user"])}
    return {**clones, **unshares, **real}


def by_argument(numbers: Numbers) -> Tries:
    """Return tries of the calls that are judged by their arguments, and of foreign numbers."""
    ioctl = numbers["ioctl"]
    found: dict[str, Sequence[object]] = {
        "typing into a terminal": ("type_into_terminal", ioctl, 0x5412),
        "typing into a terminal, upper bits set": ("type_into_terminal", ioctl, 0x1_0000_5412),
        "a console's own typing": ("type_into_terminal", ioctl, 0x541C),
        "addresses that are not random": ("call", numbers["personality"], 0x0040000),
        "clearing the kernel's log": ("call", numbers["syslog"], 99),
        "sockets vsock": ("family", 40),
        "sockets packet": ("family", int(socket.AF_PACKET)),
        "sockets of other families": ("family", *(number for number in range(48) if number not in {*FAMILIES, 17, 40})),
    }
    if os.uname().machine == "x86_64":
        found["a call of a 32-bit program"] = ("foreign_call",)
    return found
