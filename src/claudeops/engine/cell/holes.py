"""A program that looks for holes in the cell that it runs in, at the start of the daemon.

Run by path, with the bare interpreter (``python -I -S holes.py NAME=NUMBER,…``), the numbers of system calls of this
kind of machine. Each call is made in a form that changes nothing where it is possible. Prints the first hole as a
sentence's end, and ends with status 1; silence is no hole.
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
    try:
        socket.socket(_DOMAINS, socket.SOCK_STREAM).close()
    except OSError:
        return
    sys.exit("sockets to the machine that this machine runs on are open")


if __name__ == "__main__":
    main()
