"""Tells live what sessions do: on a terminal with colours and a progress line, else as plain lines.

Writing happens on a thread of its own: a terminal that is stopped, or slow, holds up no session. What it misses
meanwhile shows as a mark.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from claudeops.domain.live import LiveFact
from claudeops.engine.live.hub import Hub
from claudeops.engine.live.lines import Line, Lines, Tone

if TYPE_CHECKING:  # a dear import: only terminals need it
    from rich.console import OverflowMethod
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

LAST_WORDS_SECONDS: Final = 2.0
"""How long what was told at the very end may take to be written."""

_TAG_COLUMNS: Final = 6
_LABEL_COLUMNS: Final = 8
_STYLES: Final = {
    Tone.HEAD: "bold cyan",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.PLAIN: "",
    Tone.QUIET: "dim",
}
_BODY_STYLES: Final = {Tone.HEAD: "bold", Tone.BAD: "red", Tone.QUIET: "dim"}


class Printer(Protocol):
    """Puts lines somewhere. Called from one thread at a time."""

    @property
    def tick_seconds(self) -> float | None:
        """How often it wants to hear of progress; ``None``: only when something happens."""

    def show(self, line: Line) -> None:
        """Print a line; raises `OSError` or `ValueError` when the stream is gone."""

    def progress(self, doing: str) -> None:
        """Say what goes on right now; "" for nothing."""

    def close(self) -> None:
        """Leave the stream as it was found."""


class LivePrinter:
    """Makes lines of facts and prints them. A stream that fails is given up; the sessions go on."""

    def __init__(self, stream: TextIO, *, times: bool = False) -> None:
        """Print to ``stream``; ``times`` puts the UTC time of day before each line."""
        self.broken = False  # the stream took no more; nothing is written after that
        self._lines = Lines()
        self._printer: Printer = (
            TerminalPrinter(stream, times=times) if stream.isatty() else PlainPrinter(stream, times=times)
        )

    @property
    def tick_seconds(self) -> float | None:
        """How often `tell` is to be called with nothing, for the progress line; ``None``: not at all."""
        return self._printer.tick_seconds

    def tell(self, facts: Iterable[LiveFact] = ()) -> None:
        """Print what there is to say about ``facts``; takes as long as the terminal does."""
        if self.broken:
            return
        try:
            for fact in facts:
                for line in self._lines.of(fact):
                    self._printer.show(line)
            self._printer.progress(self._lines.doing)
        # OSError: a reader that is gone. ValueError: a closed stream.
        except (OSError, ValueError):
            self.broken = True

    def close(self) -> None:
        """Take the progress line away."""
        with suppress(OSError, ValueError):
            self._printer.close()


@contextmanager
def live_printer(hub: Hub, stream: TextIO, *, times: bool = False) -> Iterator[None]:
    """Tell on ``stream`` what happens while the block runs, which is to be entered on the sessions' event loop.

    What was published in the block is written before it is left, if that takes no longer than
    `LAST_WORDS_SECONDS`; while it runs nobody else should write to the same terminal.
    """
    teller = LivePrinter(stream, times=times)
    arrived, over = threading.Event(), threading.Event()
    with hub.subscribe(wake=arrived.set) as facts:

        def work() -> None:
            while not over.is_set():
                arrived.wait(teller.tick_seconds)
                arrived.clear()
                teller.tell(iter(facts.take, None))
            teller.tell(iter(facts.take, None))
            teller.close()

        # A daemon thread: a terminal that is stopped for good must not keep the process from ending.
        thread = threading.Thread(target=work, name="telling", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            arrived.set()
            thread.join(LAST_WORDS_SECONDS)


def beside_progress(stream: TextIO) -> str:
    """Return what others who write whole lines to a stream put before each: they take the progress line's place.

    It comes back by itself. Where there is none, nothing.
    """
    return "\r\x1b[2K" if stream.isatty() else ""


# --- printers -----------------------------------------------------------------------------------------


class PlainPrinter:
    """One line of text a step, uncut: for files and pipes."""

    tick_seconds: Final = None

    def __init__(self, stream: TextIO, *, times: bool) -> None:
        self._stream = stream
        self._times = times

    def show(self, line: Line) -> None:
        """Print a line."""
        head = f"{line.at:%H:%M:%S} " if self._times else ""
        body = f"{line.body}  ({line.detail})" if line.detail else line.body
        text = f"{head}{line.tag:<{_TAG_COLUMNS}}  {line.label:<{_LABEL_COLUMNS}}  {body}".rstrip()
        self._stream.write(encodable(text, self._stream) + "\n")
        self._stream.flush()

    def progress(self, doing: str) -> None:
        """Say nothing: nobody watches."""

    def close(self) -> None:
        """Leave everything as it is."""


class TerminalPrinter:
    """Columns as wide as the terminal, colours, and a last line that moves while one waits."""

    tick_seconds: Final = 0.2

    def __init__(self, stream: TextIO, *, times: bool) -> None:
        from rich.console import Console  # noqa: PLC0415 - only terminals need it, and it takes a while

        self._stream = stream
        self._times = times
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._spinner: Spinner | None = None
        self._doing = ""
        self._began = 0.0  # seconds of the console's clock

    def show(self, line: Line) -> None:
        """Print a line above the progress line."""
        self._console.print(self._row(line))

    def progress(self, doing: str) -> None:
        """Say what goes on, and for how long it has."""
        if not doing:
            self.close()
            return
        now = self._console.get_time()
        if doing != self._doing:
            self._doing, self._began = doing, now
        live, spinner = self._moving()
        spinner.update(text=self._text(f"{doing}  {now - self._began:.0f} s", "dim", whole=False))
        live.refresh()

    def close(self) -> None:
        """Take the progress line away."""
        live, self._live, self._doing = self._live, None, ""
        if live is not None:
            live.stop()

    def _moving(self) -> tuple[Live, Spinner]:
        from rich.live import Live  # noqa: PLC0415 - see above
        from rich.spinner import Spinner  # noqa: PLC0415

        if self._live is None or self._spinner is None:
            self._spinner = Spinner("dots" if "utf" in self._console.encoding else "line")
            # Refreshed by our own thread; nobody else's output is redirected.
            self._live = Live(
                self._spinner,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self._live, self._spinner

    def _row(self, line: Line) -> Table:
        from rich.table import Table  # noqa: PLC0415 - see above

        row = Table.grid(padding=(0, 2, 0, 0))
        heads = [
            self._text(line.tag.ljust(_TAG_COLUMNS), "dim"),
            self._text(line.label.ljust(_LABEL_COLUMNS), _STYLES[line.tone]),
        ]
        if self._times:
            heads.insert(0, self._text(f"{line.at:%H:%M:%S}", "dim"))
        for head in heads:
            row.add_column(width=len(head.plain), no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(*heads, self._body(line))
        return row

    def _body(self, line: Line) -> Text:
        body = self._text(line.body, _BODY_STYLES.get(line.tone, ""), whole=line.whole)
        if line.detail:
            body.append_text(self._text(f"  {line.detail}", "dim"))
        return body

    def _text(self, text: str, style: str, *, whole: bool = True) -> Text:
        from rich.text import Text  # noqa: PLC0415 - see above

        overflow: OverflowMethod = "fold" if whole else "ellipsis"
        return Text(encodable(text, self._stream), style=style, no_wrap=not whole, overflow=overflow)


def encodable(text: str, stream: TextIO) -> str:
    """Return text that ``stream`` can encode; what it cannot is written as an escape."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
