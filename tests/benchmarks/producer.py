"""Plays a CLI that prints a stream: one write for each frame, as fast as it is read.

Run as a script with the path of the stream. It says on stderr when it is ready and begins when a line comes on
its stdin, so that its own start is not measured.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Print the stream."""
    lines = Path(sys.argv[1]).read_bytes().splitlines(keepends=True)
    os.write(2, b"ready\n")
    sys.stdin.readline()
    for line in lines:
        rest = line
        while rest := rest[os.write(1, rest) :]:
            pass


main()
