"""The shell that the CLI starts its tools and MCP servers with: bash, in a Landlock domain of its own.

A process in a domain may not look into one outside of it, whatever the domain restricts, and that survives ``exec``:
so no tool reads the memory, the environment or the descriptors of the CLI, of an MCP server or of another tool. Nothing
else is restricted. Written into a session's directory as ``bash``, the bare interpreter (``-I -S``) on its first line;
it becomes the real one.

A ruleset must handle some right, and with a right to files it also refuses moves between directories unless it handles
and allows those (landlock(7)). From ABI 6 on a scope can stand for rights to files.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every kind of machine
_ASK_VERSION = 1
_LEAST_VERSION = 2  # at ABI 1 no file can be moved between directories
_SCOPES = 6
_MAKE_DEVICE, _MOVE = 1 << 6, 1 << 13  # LANDLOCK_ACCESS_FS_MAKE_CHAR, _REFER
_ABSTRACT_SOCKETS = 1  # LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH
_NO_NEW_PRIVS = 38
_BASH = "/bin/bash"
_NOT_STARTED = 126

_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become bash, apart from everything that runs already."""
    try:
        _enter_domain()
    except OSError as error:
        if error.errno != errno.E2BIG:  # sixteen domains within each other: this process is in one
            os.write(2, f"this shell is not kept apart: {error.strerror}\n".encode())
            os._exit(_NOT_STARTED)
    os.execv(_BASH, [_BASH, *sys.argv[1:]])  # noqa: S606 - it is the shell


def version() -> int:
    """Return the version of Landlock's interface that the kernel has; negative: none."""
    return int(_LIBC.syscall(_CREATE, None, ctypes.c_size_t(0), _ASK_VERSION))


def holds() -> bool:
    """Return whether the kernel can keep tools apart without refusing them anything else."""
    return version() >= _LEAST_VERSION


def _enter_domain() -> None:
    if version() >= _SCOPES:
        rules = _ruleset(struct.pack("=QQQ", 0, 0, _ABSTRACT_SOCKETS))
    else:
        rights = _MAKE_DEVICE | _MOVE
        rules = _ruleset(struct.pack("=Q", rights))
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        everywhere = struct.pack("=Qi", rights, root)
        _checked(_LIBC.syscall(_ADD, rules, _BENEATH, ctypes.c_char_p(everywhere), 0))
    _checked(_LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_LIBC.syscall(_RESTRICT, rules, 0))


def _ruleset(attributes: bytes) -> int:
    """Return a ruleset's descriptor, which the kernel closes at ``exec``."""
    return _checked(_LIBC.syscall(_CREATE, ctypes.c_char_p(attributes), ctypes.c_size_t(len(attributes)), 0))


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


if __name__ == "__main__":
    main()
