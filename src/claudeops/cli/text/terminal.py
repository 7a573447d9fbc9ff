"""The live printer: prints what sessions do, in colour and with a progress line on a terminal, else as plain lines.

It writes on a thread of its own, so that a slow or stopped terminal holds up no session. A line says how much the
terminal missed meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from claudeops.cli.text.screen import encodable
from claudeops.domain.live import LiveFact
from claudeops.engine.live.hub import Hub
from claudeops.engine.live.lines import LiveLine, LiveLines, Tone

if TYPE_CHECKING:  # only terminals need it, and it takes a while
    from rich.console import OverflowMethod
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

LAST_WORDS_SECONDS: Final = 2.0
"""How long the last lines may take to be written."""

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


@contextmanager
def live_printer(hub: Hub, stream: TextIO, *, times: bool = False) -> Iterator[None]:
    """Print on ``stream`` what happens while the block runs; enter it on the event loop of the sessions.

    Facts published in the block are written before it is left, as far as `LAST_WORDS_SECONDS` allow. Nothing else
    should write to the same terminal meanwhile; for whole lines see `beside_progress`.
    """
    printer = LivePrinter(stream, times=times)
    arrived, done = threading.Event(), threading.Event()
    with hub.subscribe(wake=arrived.set) as facts:

        def work() -> None:
            while not done.is_set():
                arrived.wait(printer.tick_seconds)
                arrived.clear()
                printer.write(iter(facts.take, None))
            printer.write(iter(facts.take, None))
            printer.close()

        # A daemon thread: a terminal that is stopped for good must not keep the process from exiting.
        thread = threading.Thread(target=work, name="live printer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            arrived.set()
            thread.join(LAST_WORDS_SECONDS)


class LivePrinter:
    """Prints live facts as lines. A stream that fails is given up; the sessions go on."""

    def __init__(self, stream: TextIO, *, times: bool = False) -> None:
        """Print to ``stream``; ``times`` puts the UTC time of day before each line."""
        self.broken = False  # a write has failed; nothing is written after that
        self._lines = LiveLines()
        self._printer: Printer = (
            TerminalPrinter(stream, times=times) if stream.isatty() else PlainPrinter(stream, times=times)
        )

    @property
    def tick_seconds(self) -> float | None:
        """How often `write` should be called without facts, for the progress line; ``None``: never."""
        return self._printer.tick_seconds

    def write(self, facts: Iterable[LiveFact] = ()) -> None:
        """Print ``facts``; blocks for as long as the terminal does."""
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
        """Remove the progress line."""
        with suppress(OSError, ValueError):
            self._printer.close()


def beside_progress(stream: TextIO) -> str:
    """Return the prefix for whole lines that others write to a stream: it clears the progress line.

    The progress line comes back by itself. Empty where the stream has none.
    """
    return "\r\x1b[2K" if stream.isatty() else ""


# --- printers -----------------------------------------------------------------------------------------


class Printer(Protocol):
    """Prints lines somewhere. Called from one thread at a time."""

    @property
    def tick_seconds(self) -> float | None:
        """How often `progress` should be called; ``None``: only when something happens."""

    def show(self, line: LiveLine) -> None:
        """Print a line; raises `OSError` or `ValueError` when the stream is gone."""

    def progress(self, doing: str) -> None:
        """Show what is happening right now; "" for nothing."""

    def close(self) -> None:
        """Remove the progress line."""


# --- printers -----------------------------------------------------------------------------------------
class PlainPrinter:
    """Prints one uncut line of text a step, for files and pipes."""

    tick_seconds: Final = None

    def __init__(self, stream: TextIO, *, times: bool) -> None:
        self._stream = stream
        self._times = times

    def show(self, line: LiveLine) -> None:
        """Print a line."""
        head = f"{line.at:%H:%M:%S} " if self._times else ""
        body = f"{line.body}  ({line.detail})" if line.detail else line.body
        text = f"{head}{line.tag:<{_TAG_COLUMNS}}  {line.label:<{_LABEL_COLUMNS}}  {body}".rstrip()
        self._stream.write(encodable(text, self._stream) + "\n")
        self._stream.flush()

    def progress(self, doing: str) -> None:
        """Show nothing: nobody watches a file."""

    def close(self) -> None:
        """Do nothing: there is no progress line."""


class TerminalPrinter:
    """Prints coloured columns as wide as the terminal, and a last line that moves while the reader waits."""

    tick_seconds: Final = 0.2

    def __init__(self, stream: TextIO, *, times: bool) -> None:
        from rich.console import Console  # noqa: PLC0415 - only terminals need it, and it takes a while

        self._stream = stream
        self._times = times
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._spinner: Spinner | None = None
        self._doing = ""
        self._began = 0.0  # when that began, in seconds of the console's clock

    def show(self, line: LiveLine) -> None:
        """Print a line above the progress line."""
        self._console.print(self._row(line))

    def progress(self, doing: str) -> None:
        """Show what is happening, and for how long."""
        if not doing:
            self.close()
            return
        now = self._console.get_time()
        if doing != self._doing:
            self._doing, self._began = doing, now
        live, spinner = self._progress_line()
        spinner.update(text=self._text(f"{doing}  {now - self._began:.0f} s", "dim", whole=False))
        live.refresh()

    def close(self) -> None:
        """Remove the progress line."""
        live, self._live, self._doing = self._live, None, ""
        if live is not None:
            live.stop()

    def _progress_line(self) -> tuple[Live, Spinner]:
        from rich.live import Live  # noqa: PLC0415 - see above
        from rich.spinner import Spinner  # noqa: PLC0415

        if self._live is None or self._spinner is None:
            self._spinner = Spinner("dots" if "utf" in self._console.encoding else "line")
            # Our own thread refreshes it, and other output is not redirected.
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

    def _row(self, line: LiveLine) -> Table:
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

    def _body(self, line: LiveLine) -> Text:
        body = self._text(line.body, _BODY_STYLES.get(line.tone, ""), whole=line.whole)
        if line.detail:
            body.append_text(self._text(f"  {line.detail}", "dim"))
        return body

    def _text(self, text: str, style: str, *, whole: bool = True) -> Text:
        from rich.text import Text  # noqa: PLC0415 - see above

        overflow: OverflowMethod = "fold" if whole else "ellipsis"
        return Text(encodable(text, self._stream), style=style, no_wrap=not whole, overflow=overflow)
