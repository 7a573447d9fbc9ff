"""The terminal that a command prints on: its size and colours, a pager for what is long, a screen that is watched.

Colours, pager and progress are for a person at a terminal; files and pipes get plain text.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TextIO

import click

from claudeops.cli.text.layout import Layout, Style

WATCH_SECONDS: Final = 2.0
"""Between two looks of ``--watch``."""

PATIENCE_SECONDS: Final = 1.0
"""How long a command works before it says what it waits for."""

_HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"
_HEIGHT: Final = 24
_LEAST_WIDTH: Final = 40


def looks_of(
    stream: TextIO | None = None,
    *,
    utc: bool = False,
    environ: Mapping[str, str] = os.environ,
    now: datetime | None = None,
) -> Layout:
    """Return how to print on a stream, standard output unless another is given."""
    stream = sys.stdout if stream is None else stream
    now = datetime.now(UTC) if now is None else now
    ellipsis = "…" if "utf" in (stream.encoding or "").lower() else "..."
    if not stream.isatty():
        return Layout(now=now, utc=utc, ellipsis=ellipsis)
    size = shutil.get_terminal_size((80, _HEIGHT))
    # https://no-color.org: set to anything but nothing.
    colours = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Layout(
        now=now, width=max(size.columns, _LEAST_WIDTH), height=size.lines, colours=colours, utc=utc, ellipsis=ellipsis
    )


def show(lines: Sequence[str], looks: Layout) -> None:
    """Print lines; through a pager where they are more than the terminal has."""
    text = encodable("\n".join(lines) + "\n", sys.stdout)
    if looks.height is not None and len(lines) >= looks.height and sys.stdin.isatty():
        click.echo_via_pager(text, color=looks.colours)
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


def watch(draw: Callable[[Layout], Sequence[str]], *, utc: bool, seconds: float = WATCH_SECONDS) -> None:
    """Print what ``draw`` returns again and again, until Ctrl-C; on a file or pipe only when it has changed."""
    before: Sequence[str] = ()
    while True:
        looks = looks_of(utc=utc)
        lines = draw(looks)
        if looks.height is not None:
            head = looks.styled(f"every {seconds:g} s · {looks.now:%Y-%m-%d %H:%M:%S}Z · Ctrl-C ends this", Style.QUIET)
            lines = [head, "", *lines][: looks.height - 1]
            sys.stdout.write(_HOME_AND_CLEAR + encodable("\n".join(lines) + "\n", sys.stdout))
        elif lines != before:
            sys.stdout.write(encodable("\n".join(lines) + "\n", sys.stdout))
        before = lines
        sys.stdout.flush()
        time.sleep(seconds)


@contextmanager
def progress(doing: str, *, stream: TextIO | None = None, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Say what is waited for, where a person waits longer than a second; the line is gone at the end."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    said = threading.Event()

    def say() -> None:
        said.set()
        stream.write(f"{doing} …")
        stream.flush()

    timer = threading.Timer(patience, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set():
            stream.write("\r\x1b[2K")
            stream.flush()


def progress_line(
    stream: TextIO | None = None, *, monotonic: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """Return what prints how far something is, once a second and on a terminal alone; `progress` around it wipes it."""
    stream = sys.stderr if stream is None else stream
    due = monotonic() + PATIENCE_SECONDS

    def show_line(line: str) -> None:
        nonlocal due
        if stream.isatty() and monotonic() >= due:
            due = monotonic() + PATIENCE_SECONDS
            stream.write(f"\r\x1b[2K{line} …")
            stream.flush()

    return show_line


def encodable(text: str, stream: TextIO) -> str:
    """Return text that ``stream`` can encode, with escapes for what it cannot."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
