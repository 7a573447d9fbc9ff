"""A program that looks for holes in the cell that it runs in, at the start of the daemon.

Run by path, with the bare interpreter (``python -I -S holes.py NAME=NUMBER,… LISTED UNLISTED ABSTRACT``): the numbers
of system calls of this kind of machine; and, where the cell has a network of its own (else empty), a port of loopback
that is listed on it, one at which the daemon listens outside, and the name of an abstract socket of the daemon's.
Each call is made in a form that changes nothing where it is possible. Prints the first hole as a sentence's end, and
ends with status 1; silence is no hole.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys

_REFUSED = (errno.EPERM, errno.ENOSYS)
_NEW_USER = 0x10000000
_SPECIFICATION_OF_NONE = -8  # of keyctl: no keyring has this number
_TRACE_ME = 0
_READ_NO_KEY = 11
_HERE = "127.0.0.1"
_SECONDS = 5.0
_DOMAINS = 40  # AF_VSOCK: only made, never connected, as it would lead out of the machine


def main() -> None:
    """Look for each hole."""
    numbers = dict(pair.split("=") for pair in sys.argv[1].split(","))
    libc = ctypes.CDLL(None, use_errno=True)
    for name, words in (
        ("keyctl", (_READ_NO_KEY, _SPECIFICATION_OF_NONE, 0, 0)),
        ("add_key", (0, 0, 0, 0, 0)),
        ("bpf", (-1, 0, 0)),
        ("io_uring_setup", (0, 0)),
        ("userfaultfd", (-1,)),
        ("process_vm_readv", (os.getpid(), 0, 0, 0, 0, 0)),
        ("mount", (0, 0, 0, 0, 0)),
        ("setns", (-1, 0)),
        ("unshare", (_NEW_USER,)),
        ("ptrace", (_TRACE_ME, 0, 0, 0)),
    ):
        if libc.syscall(int(numbers[name]), *words) >= 0 or ctypes.get_errno() not in _REFUSED:
            sys.exit(f"the system call {name} is open")
    if sys.argv[2]:
        _look_at_network(*sys.argv[2:5])
    try:
        socket.socket(_DOMAINS, socket.SOCK_STREAM).close()
    except OSError:
        return
    sys.exit("sockets to the machine that this machine runs on are open")


def _look_at_network(listed: str, unlisted: str, abstract: str) -> None:
    if not _connects(socket.AF_INET, (_HERE, int(listed))):
        sys.exit("what is listed on its network cannot be reached")
    if _connects(socket.AF_INET, (_HERE, int(unlisted))):
        sys.exit("its network is the machine's")
    if _connects(socket.AF_UNIX, f"\0{abstract}"):
        sys.exit("the abstract sockets of the machine's network are open")


def _connects(family: int, address: tuple[str, int] | str) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.settimeout(_SECONDS)
        try:
            tried.connect(address)
        except OSError:
            return False
    return True


if __name__ == "__main__":
    main()
