"""The daemon's log and a reader that stands still, goes away or comes back: nobody who logs waits for it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from claudeops import logs
from claudeops.log_writer import MOST_WAITING_BYTES, FileWriter, descriptor_of
from claudeops.logs import LogEvent, configure, flush, get_logger
from support.doses import drawn
from support.waiting import PATIENCE_SECONDS

PIECE = "x" * 1000  # of a line: a hundred of them are more than a pipe takes


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, loud = root.handlers[:], root.level, logging.raiseExceptions
    yield
    configure(level="info", fmt="json", stream=None, redact=str)
    logging.captureWarnings(capture=False)
    root.handlers[:], logging.raiseExceptions = handlers, loud
    root.setLevel(level)


class Pipe:
    """A pipe as the log's stream, and its reader, who reads when he is told to."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        self.stream = os.fdopen(writing, "w")

    def lines(self, until: str) -> list[dict[str, object]]:
        """Read up to the line in which something stands."""
        content, found = b"", False
        while not (found and content.endswith(b"\n")):
            piece = os.read(self.reading, 65536)
            content += piece
            found = found or until.encode() in content[-len(piece) - len(until) :]
        return [json.loads(line) for line in content.splitlines()]

    def close(self) -> None:
        os.close(self.reading)
        self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    configure(level="info", fmt="json", stream=None, redact=str)  # before: nobody must write to a number that is free
    made.close()


def started(stream: TextIO) -> None:
    configure(level="info", fmt="json", stream=stream, redact=lambda text: text.replace("hunter22", "[redacted]"))


def numbers(lines: list[dict[str, object]]) -> list[object]:
    return [line["number"] for line in lines if "number" in line]


def test_who_logs_does_not_wait_for_a_reader_that_stands_still_and_the_order_is_kept(pipe: Pipe) -> None:
    started(pipe.stream)

    logger = threading.Thread(target=_log, args=(range(500),), daemon=True)
    logger.start()
    logger.join(PATIENCE_SECONDS)

    assert not logger.is_alive()  # before a single line was read
    assert not flush(0.01)
    get_logger().info(LogEvent.DAEMON_STOPPED)
    assert numbers(pipe.lines("daemon_stopped")) == list(range(500))
    assert flush(PATIENCE_SECONDS)


def test_what_finds_no_room_is_counted_where_it_is_missing(pipe: Pipe) -> None:
    started(pipe.stream)
    long = PIECE * 100
    fitting = MOST_WAITING_BYTES // len(long)  # more than fit: a line is longer than that

    _log(range(1), long)
    select.select([pipe.reading], [], [], PATIENCE_SECONDS)  # the writer has taken it: no more room comes from now on
    _log(range(1, fitting + 100), long)
    first = pipe.lines("log_lines_lost")
    get_logger().info(LogEvent.DAEMON_STOPPED, number=-1)
    last = pipe.lines("daemon_stopped")

    kept = numbers(first)
    assert kept == list(range(len(kept)))  # the first ones, none of them missing
    assert (first[-1]["event"], first[-1]["level"]) == ("log_lines_lost", "warning")
    assert first[-1]["count"] == fitting + 100 - len(kept)
    assert numbers(last) == [-1]


def test_a_reader_that_is_gone_costs_its_lines_and_one_that_comes_hears_how_many(tmp_path: Path) -> None:
    path = tmp_path / "log"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with path.open("w", encoding="utf-8") as stream:
        started(stream)
        _log(range(1))
        assert flush(PATIENCE_SECONDS)
        assert os.read(reading, 65536).endswith(b"\n")
        os.close(reading)
        _log(range(1, 4))
        assert flush(PATIENCE_SECONDS)  # each has failed

        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        _log(range(4, 5))
        assert flush(PATIENCE_SECONDS)

        lines = [json.loads(line) for line in os.read(reading, 65536).splitlines()]
        os.close(reading)
    assert [line.get("count", line.get("number")) for line in lines] == [3, 4]


def test_a_full_disk_costs_lines_and_tears_none_that_follow(tmp_path: Path) -> None:
    """The part of a line that was written stays a line of its own."""
    path = tmp_path / "log"
    code = """
import resource, signal, sys
from claudeops import logs
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))
logs.configure(level="info", fmt="json", stream=sys.stdout, redact=str)
for number in range(3):
    logs.get_logger().info(logs.LogEvent.DAEMON_READY, number=number, text="x" * 1000)
assert logs.flush(240)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
logs.get_logger().info(logs.LogEvent.DAEMON_STOPPED)
"""
    with path.open("wb") as sink:
        subprocess.run([sys.executable, "-c", code], stdout=sink, check=True, timeout=PATIENCE_SECONDS)

    first, torn, lost, last = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["number"] == 0
    assert torn.startswith('{"timestamp"')
    assert not torn.endswith("}")
    assert (json.loads(lost)["event"], json.loads(lost)["count"]) == ("log_lines_lost", 2)
    assert json.loads(last)["event"] == "daemon_stopped"


def test_a_descriptor_that_does_not_block_gets_every_line(pipe: Pipe) -> None:
    os.set_blocking(pipe.stream.fileno(), False)
    started(pipe.stream)

    _log(range(50))

    assert numbers(pipe.lines('"number":49'))[-1] == 49


def test_a_stream_that_was_closed_before_or_is_closed_after_stops_nobody(pipe: Pipe) -> None:
    for stream in (None, open(os.devnull, "w", encoding="utf-8")):  # noqa: SIM115, PTH123 - closed in the next line
        if stream is not None:
            stream.close()
            assert descriptor_of(stream) is None
            continue
        configure(level="info", fmt="json", stream=stream, redact=str)
        get_logger().info(LogEvent.DAEMON_READY)

    started(pipe.stream)
    pipe.stream.close()  # its number may be another file's by now: the log has one of its own
    get_logger().info(LogEvent.DAEMON_READY, number=7)
    assert numbers(pipe.lines("daemon_ready")) == [7]


def test_what_was_logged_before_another_configuration_is_written_where_it_belongs(pipe: Pipe, tmp_path: Path) -> None:
    started(pipe.stream)
    _log(range(20))
    with (tmp_path / "log").open("w", encoding="utf-8") as stream:
        started(stream)
        get_logger().info(LogEvent.DAEMON_READY, number=-1)
        assert flush(PATIENCE_SECONDS)

    assert numbers(pipe.lines('"number":19')) == list(range(20))
    assert [json.loads(line)["number"] for line in (tmp_path / "log").read_text().splitlines()] == [-1]


def test_nothing_that_waits_holds_a_secret(pipe: Pipe) -> None:
    started(pipe.stream)
    get_logger().info(LogEvent.DAEMON_READY, text="hunter22")
    assert pipe.lines("daemon_ready")[0]["text"] == "[redacted]"


def test_a_line_longer_than_all_that_may_wait_is_written(pipe: Pipe) -> None:
    started(pipe.stream)
    get_logger().info(LogEvent.DAEMON_READY, number=1, text="x" * (MOST_WAITING_BYTES + 1))
    assert numbers(pipe.lines("}\n")) == [1]


# --- the end of a process -----------------------------------------------------------------------------

ENDING = """
import sys
from claudeops import logs
logs.configure(level="info", fmt="json", stream=getattr(sys, sys.argv[1]), redact=str)
for number in range(int(sys.argv[2])):
    logs.get_logger().info(logs.LogEvent.DAEMON_READY, number=number)
logs.get_logger().info(logs.LogEvent.DAEMON_STOPPED, text="x" * 1000)
if len(sys.argv) > 3:
    raise SystemExit(int(sys.argv[3])) if sys.argv[3].isdigit() else RuntimeError(sys.argv[3])
"""


def test_a_process_that_ends_or_crashes_has_written_its_last_line() -> None:
    for how, status in (("7", 7), ("an error that nobody foresaw", 1)):
        done = subprocess.run(
            [sys.executable, "-c", ENDING, "stdout", "300", how],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == status
        assert json.loads(done.stdout.splitlines()[-1])["event"] == "daemon_stopped"
        assert len(done.stdout.splitlines()) == 301
        assert ("an error that nobody foresaw" in done.stderr) == (status == 1)


@pytest.mark.parametrize("stream", drawn(["stdout", "stderr"]))
def test_a_reader_that_stands_still_does_not_keep_a_process_from_ending(tmp_path: Path, stream: str) -> None:
    told = tmp_path / "told"
    code = f"""
import pathlib
from claudeops.log_writer import FileWriter
inner = FileWriter.flush
def flush(writer, seconds):
    is_written = inner(writer, seconds)
    pathlib.Path({str(told)!r}).write_text(f"{{seconds}} {{is_written}}")
    return is_written
FileWriter.flush = flush
{ENDING}"""
    with subprocess.Popen(
        [sys.executable, "-c", code, stream, "2000", "7"],
        **{stream: subprocess.PIPE},  # type: ignore[call-overload]  # by name
    ) as process:
        assert process.wait(PATIENCE_SECONDS) == 7  # neither killed nor aborted, though its thread still writes
    assert told.read_text(encoding="utf-8") == f"{logs.FLUSH_SECONDS} False"  # it gave the reader that long


def test_a_process_whose_streams_are_closed_or_whose_reader_is_gone_ends_as_it_would() -> None:
    closed = f'exec "$0" -c "$1" stderr 3 7 {" ".join(f"{number}>&-" for number in (0, 1, 2))}'
    assert subprocess.run(["/bin/sh", "-c", closed, sys.executable, ENDING], check=False).returncode == 7

    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", ENDING, "stderr", "3", "7"], stderr=writing, check=False)
    os.close(writing)
    assert done.returncode == 7


def test_a_terminal_that_is_stopped_holds_up_nobody() -> None:
    ours, theirs = pty.openpty()
    writer = FileWriter(os.dup(theirs), "utf-8", "> ", str)
    for _ in range(200):
        writer.write(PIECE)
    assert not writer.flush(0.01)

    reader = threading.Thread(target=_drain, args=(ours, 200 * (len(PIECE) + len("> \r\n"))), daemon=True)
    reader.start()

    assert writer.flush(PATIENCE_SECONDS)
    reader.join(PATIENCE_SECONDS)
    writer.close()
    os.close(ours)
    os.close(theirs)


def _drain(descriptor: int, size: int) -> None:
    while size > 0:
        size -= len(os.read(descriptor, 65536))


def _log(numbers: range, text: str = PIECE) -> None:
    log = get_logger()
    for number in numbers:
        log.info(LogEvent.DAEMON_READY, number=number, text=text)
