"""The program that stands in a session for one that the daemon runs: ``look ID``.

Run by path, with the bare interpreter (``python -I -S look ID``), in the session's cell, where nothing of claudeops is:
it starts in milliseconds. The daemon listens beside it, at ``look.sock``, runs what the gate allowed under that id, and
sends what it prints; this program prints that and ends with the same status. It decides nothing: an id that the gate
did not give, or that was used, gets a sentence and status 126.

A frame is one letter (``o`` for standard output, ``e`` for standard error, ``x`` for the exit status), four bytes of
length, most significant first, and the content.
"""

from __future__ import annotations

import _socket  # socket itself takes longer to import than all the rest
import os
import select
import sys

_HEADER = 5
_BROKEN_OFF = 125
_CLOSED_PIPE = 141  # what a shell reports for a program that wrote into a pipe that nothing reads: 128 + SIGPIPE


def main() -> int:
    """Print what the daemon sends, and return the exit status."""
    door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        door.connect(f"{sys.argv[0]}.sock")
        door.sendall(os.fsencode("".join(sys.argv[1:2])) + b"\n")
        while header := _read(door, _HEADER):
            content = _read(door, int.from_bytes(header[1:], "big"))
            if header[:1] == b"x":
                return int(content)
            _print(2 if header[:1] == b"e" else 1, content)
    except BrokenPipeError:
        return _CLOSED_PIPE
    except OSError:
        pass
    _print(2, b"the look was broken off\n")
    return _BROKEN_OFF


def _read(door: _socket.socket, size: int) -> bytes:
    """Return that many bytes; fewer, or none, when the daemon has gone."""
    content = b""
    while len(content) < size and (more := door.recv(size - len(content))):
        content += more
    return content if len(content) == size else b""


def _print(descriptor: int, content: bytes) -> None:
    while content:
        try:
            content = content[os.write(descriptor, content) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


if __name__ == "__main__":
    os._exit(main())  # nothing is left to flush
