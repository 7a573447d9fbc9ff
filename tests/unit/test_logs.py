"""The daemon's own log: closed vocabulary, JSON lines, nothing unredacted, nothing that stops the daemon."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from claudeops import logs
from claudeops.logs import LogEvent, configure, get_logger
from claudeops.text.redact import MASK, Redactor
from support.checkout import ROOT
from support.secret_texts import FORMS, SECRETS

REFERENCE = ROOT / "docs" / "reference" / "logs.md"


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, loud, target = root.handlers[:], root.level, logging.raiseExceptions, logs._Target.current
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], logging.raiseExceptions, logs._Target.current = handlers, loud, target
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def redact(text: str) -> str:
    return text.replace("hunter22", "[redacted]")


def started(*, level: str = "info", fmt: str = "json", stream: io.StringIO | None = None) -> io.StringIO:
    stream = stream if stream is not None else io.StringIO()
    configure(level=level, fmt=fmt, stream=stream, redact=redact)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_event_is_one_json_line_with_utc_time_and_bound_fields() -> None:
    stream = started()

    get_logger(component="engine").bind(session_id=7).info(LogEvent.SESSION_SPAWNED, pid=4711)

    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "event", "component", "session_id", "pid"]
    assert (line["level"], line["event"]) == ("info", "session_spawned")
    assert (line["component"], line["session_id"], line["pid"]) == ("engine", 7, 4711)
    stamp = datetime.fromisoformat(str(line["timestamp"]))
    assert stamp.utcoffset() == UTC.utcoffset(None)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical"])
def test_what_is_below_the_level_is_left_out(level: str) -> None:
    stream = started(level=level)
    log = get_logger()
    levels = ["debug", "info", "warning", "error", "critical"]

    for name in levels:
        getattr(log, name)(LogEvent.DAEMON_READY)

    assert [line["level"] for line in lines(stream)] == levels[levels.index(level) :]


def test_logger_made_before_the_configuration_writes_after_it() -> None:
    log = get_logger()
    stream = started()

    log.info(LogEvent.DAEMON_READY)

    assert len(lines(stream)) == 1


def test_nothing_is_written_before_there_is_a_redactor(capfd: pytest.CaptureFixture[str]) -> None:
    logs._Target.current = None

    get_logger().critical(LogEvent.DAEMON_CRASHED, error="hunter22")

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fmt", ["json", "console"])
@pytest.mark.parametrize(
    "value",
    [
        pytest.param("hunter22", id="text"),
        pytest.param(b"hunter22", id="bytes"),
        pytest.param(Path("/srv/hunter22"), id="path"),
        pytest.param(ValueError("hunter22"), id="exception"),
        pytest.param(["hunter22"], id="list"),
        pytest.param(("a", {"hunter22"}), id="set-in-tuple"),
        pytest.param({"a": [{"b": "hunter22"}]}, id="nested"),
        pytest.param({"hunter22": 1}, id="key"),
        pytest.param([[[[[[[[[[["hunter22"]]]]]]]]]]], id="very-deep"),
        pytest.param(datetime(2026, 1, 1, tzinfo=UTC), id="no-secret"),
    ],
)
def test_secret_reaches_the_log_in_no_shape(value: object, fmt: str) -> None:
    stream = started(fmt=fmt)

    get_logger().warning(LogEvent.CONFIGURATION_WARNING, value=value)

    assert "configuration_warning" in stream.getvalue()
    assert "hunter22" not in stream.getvalue()


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_traceback_is_kept_and_redacted(fmt: str) -> None:
    stream = started(fmt=fmt)

    try:
        int("hunter22")
    except ValueError:
        get_logger().error(LogEvent.SESSION_CRASHED, exc_info=True)

    assert "Traceback (most recent call last)" in stream.getvalue()
    assert "ValueError: invalid literal for int() with base 10: '[redacted]'" in stream.getvalue()
    assert "hunter22" not in stream.getvalue()


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("form", FORMS)
def test_a_line_redacted_at_once_loses_what_its_texts_lose(name: str, form: str) -> None:
    written = FORMS[form](SECRETS[name].strip())
    redactor = Redactor(SECRETS.values())
    at_once, by_texts = io.StringIO(), io.StringIO()
    for stream, redact_line in ((at_once, redactor.line), (by_texts, None)):
        configure(level="info", fmt="json", stream=stream, redact=redactor.text, redact_line=redact_line)
        get_logger().info(LogEvent.DAEMON_READY, **{written: 1}, value=written, deep=[{"a": f"b{written}c"}, written])
        get_logger().info(LogEvent.DAEMON_READY, nothing="to see", at="password=hunter22 and more")

    first, second = (
        [{**line, "timestamp": "", "redacted": MASK in json.dumps(line)} for line in lines(stream)]
        for stream in (at_once, by_texts)
    )
    assert first == second
    assert [line["redacted"] for line in first] == [True, True]


def test_a_line_without_a_secret_is_searched_once() -> None:
    searched: list[object] = []
    stream = io.StringIO()

    def line(raw: bytes) -> bytes:
        searched.append(raw)
        return raw

    def text(text: str) -> str:
        searched.append(text)
        return text

    configure(level="info", fmt="json", stream=stream, redact=text, redact_line=line)
    get_logger(component="engine").info(LogEvent.SESSION_ENDED, outcome="success", checks=["web", "db"], id=7)

    assert searched == [stream.getvalue().rstrip().encode()]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param("\udce9", "\\udce9", id="undecodable-file-name"),
        pytest.param(2**80, str(2**80), id="more-than-64-bits"),
        pytest.param(-(2**63), -(2**63), id="64-bits"),
        pytest.param(float("nan"), None, id="not-a-number"),
        pytest.param(LogEvent.DAEMON_READY, "daemon_ready", id="enum"),
        pytest.param(True, True, id="bool"),
        pytest.param("a\nb", "a\nb", id="two-lines-stay-one-line-of-log"),
        pytest.param(None, None, id="none"),
    ],
)
def test_every_value_has_a_json_form(value: object, written: object) -> None:
    stream = started()

    get_logger().info(LogEvent.DAEMON_READY, value=value)

    (line,) = lines(stream)
    assert line["value"] == written


def test_field_does_not_overwrite_what_the_log_says_itself() -> None:
    stream = started()
    fields = {"event": "x", "level": "critical", "timestamp": 0, "self": 1}

    get_logger().bind(**fields).info(LogEvent.DECISION_MADE)
    get_logger().info(LogEvent.DECISION_MADE, **fields)

    for line in lines(stream):
        assert (line["event"], line["level"]) == ("decision_made", "info")
        assert (line["event_"], line["level_"], line["timestamp_"], line["self_"]) == ("x", "critical", 0, 1)


def test_terminal_gets_the_console_and_no_cursor_movements() -> None:
    stream = started(fmt="auto", stream=Terminal())

    get_logger().info(LogEvent.RESULT_RECEIVED, summary="\x1b[2Jall\x9bwell")

    plain = re.sub(r"\x1b\[\d*m", "", stream.getvalue())
    assert "result_received" in plain
    assert "\ufffd[2Jall\ufffdwell" in plain
    assert not plain.startswith("{")


def test_format_that_is_set_outranks_the_terminal() -> None:
    stream = started(fmt="json", stream=Terminal())

    get_logger().info(LogEvent.DAEMON_READY)

    assert len(lines(stream)) == 1


def test_stream_that_is_gone_costs_the_line_and_not_the_daemon() -> None:
    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(28, "No space left on device")

    started(stream=Full())
    get_logger().info(LogEvent.DAEMON_READY)

    closed = started()
    closed.close()
    get_logger().info(LogEvent.DAEMON_READY)


def test_last_configuration_counts_and_libraries_are_heard_once() -> None:
    first, last = started(), started()

    get_logger().info(LogEvent.DAEMON_READY)
    logging.getLogger("apscheduler.scheduler").warning("missed a run")

    assert lines(first) == []
    assert [line["event"] for line in lines(last)] == ["daemon_ready", "library_message"]


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical"])
def test_libraries_are_heard_from_warning_up_and_redacted(level: str) -> None:
    stream = started(level="debug")

    getattr(logging.getLogger("uvicorn.error"), level)("cannot open %s", "hunter22")

    told = [(line["level"], line["library"], line["message"]) for line in lines(stream)]
    heard = level not in {"debug", "info"}
    assert told == ([(level, "uvicorn.error", "cannot open [redacted]")] if heard else [])


def test_library_that_logs_wrongly_is_heard_all_the_same() -> None:
    stream = started()

    logging.getLogger("some.library").warning("%d things", "seven")

    (line,) = lines(stream)
    assert line["message"] == "%d things"


def test_traceback_of_a_library_is_kept() -> None:
    stream = started()

    try:
        int("hunter22")
    except ValueError:
        logging.getLogger("some.library").exception("job failed")

    (line,) = lines(stream)
    assert "base 10: '[redacted]'" in str(line["exception"])


def test_warning_of_the_interpreter_does_not_go_past_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    stream = started()

    warnings.showwarning("hunter22 is old", DeprecationWarning, "x.py", 1)

    (line,) = lines(stream)
    assert "[redacted] is old" in str(line["message"])
    assert capfd.readouterr() == ("", "")


def test_reference_lists_the_vocabulary() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    spec = importlib.util.spec_from_file_location("make_logs", ROOT / "scripts" / "make_logs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert module.page(text) == text, "run `make reference`"
    assert len(re.findall(r"^\| `[a-z_]+` \| .+ \|$", text, flags=re.MULTILINE)) == len(LogEvent)


def test_every_event_is_called_like_its_member() -> None:
    assert [event.value for event in LogEvent] == [event.name.lower() for event in LogEvent]


def test_every_event_of_the_vocabulary_is_logged_by_somebody() -> None:
    source = REFERENCE.parents[2] / "src" / "claudeops"
    told = "".join(path.read_text(encoding="utf-8") for path in source.rglob("*.py"))

    assert [event for event in LogEvent if f"LogEvent.{event.name}" not in told] == []
