"""Bytes into lines, lines into frames."""

from __future__ import annotations

import itertools
import json
import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.stream import (
    LINE_BYTES,
    LineSplitter,
    Malformed,
    StreamFrame,
    TranscriptBuilder,
    decode,
    dropped_line,
)

MIB = 1024 * 1024


def lines_of(*chunks: bytes, limit: int = LINE_BYTES) -> list[bytes]:
    splitter = LineSplitter(limit)
    lines = [line for chunk in chunks for line in splitter.push(chunk)]
    last = splitter.flush()
    return lines if last is None else [*lines, last]


def frame(line: bytes) -> StreamFrame:
    item = decode(line)
    assert isinstance(item, StreamFrame), item
    return item


# --- lines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"a\nb\n", [b"a", b"b"], id="whole lines"),
        pytest.param(b"a\nb", [b"a", b"b"], id="missing last newline"),
        pytest.param(b"a\r\nb\r\n", [b"a", b"b"], id="CR LF"),
        pytest.param(b"a\rb\n", [b"a\rb"], id="a lone CR ends nothing"),
        pytest.param(b"a\r", [b"a"], id="CR at the very end"),
        pytest.param(b"\n\na\n", [b"", b"", b"a"], id="blank lines stay lines"),
        pytest.param(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [b"a", b"\xef\xbb\xbfb"], id="byte order mark at the start"),
        pytest.param(b"a\x00b\n\x00\n", [b"a\x00b", b"\x00"], id="NUL"),
        pytest.param("Fehler: Größe\u2028x\n".encode(), ["Fehler: Größe\u2028x".encode()], id="no other line breaks"),
    ],
)
def test_lines(stream: bytes, lines: list[bytes]) -> None:
    assert lines_of(stream) == lines
    assert lines_of(*(bytes([byte]) for byte in stream)) == lines


@given(
    stream=st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"{}", b"\x00", b"\xc3\xa9"])).map(
        b"".join
    ),
    cuts=st.lists(st.integers(min_value=0, max_value=60)),
)
def test_chunking_changes_nothing(stream: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert lines_of(*chunks) == lines_of(stream)
    assert lines_of(*chunks, limit=3) == lines_of(stream, limit=3)


def test_pending_tells_the_size_of_the_unfinished_line() -> None:
    splitter = LineSplitter()
    splitter.push(b"abc\nde")
    splitter.push(b"f")
    assert splitter.pending == 3
    splitter.push(b"\n")
    assert splitter.pending == 0


def test_flush_gives_the_last_line_once() -> None:
    splitter = LineSplitter()
    splitter.push(b"abc")
    assert splitter.flush() == b"abc"
    assert splitter.flush() is None


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_a_line_that_is_too_long_is_dropped_with_its_size_and_the_others_come_as_they_are(chunk: int) -> None:
    stream = b"a\n12345678\n123456789\nb\r\n123456789012\n\n1234567890"
    lines = lines_of(*(stream[start : start + chunk] for start in range(0, len(stream), chunk)), limit=8)
    assert lines == [b"a", b"12345678", dropped_line(9, 8), b"b", dropped_line(12, 8), b"", dropped_line(10, 8)]


def test_what_stands_for_a_dropped_line_is_malformed_and_says_why() -> None:
    line = dropped_line(LINE_BYTES + 1)
    assert line == b"[line dropped: 16777217 bytes, of which 16777216 can be taken]"
    assert decode(line) == Malformed(reason="longer than a line may be")


def test_a_line_without_an_end_takes_no_more_memory_than_the_longest_one_that_is_read() -> None:
    splitter, chunk = LineSplitter(4 * MIB), b"x" * MIB
    tracemalloc.start()
    try:
        for _ in range(1000):
            assert splitter.push(chunk) == []
        (line, last) = splitter.push(b'"}\n{}\n')
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (line, last) == (dropped_line(1000 * MIB + 2, 4 * MIB), b"{}")
    assert peak < 6 * MIB


def test_the_longest_line_is_read_within_a_few_times_its_size() -> None:
    chunk = 1 * MIB
    head, tail = b'{"type":"result","subtype":"success","is_error":false,"result":"', b'","num_turns":7}\n'
    size = LINE_BYTES - len(head) - len(tail) + 1  # the newline is not part of the line
    filling = b"x" * chunk
    splitter, builder = LineSplitter(), TranscriptBuilder()
    tracemalloc.start()
    try:
        lines = splitter.push(head)
        for start in range(0, size, chunk):
            lines += splitter.push(filling[: size - start])
        for line in lines + splitter.push(tail):
            builder.feed(decode(line))
        del line
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    transcript = builder.close()
    assert (len(transcript.result_text or ""), transcript.num_turns) == (size, 7)
    assert peak < 2.5 * LINE_BYTES


# --- frames -------------------------------------------------------------------------------------------


def test_frame_knows_its_type_subtype_and_size() -> None:
    line = b'{"session_id":"s","subtype":"init","type":"system"}'
    assert frame(line) == StreamFrame(
        type="system", subtype="init", body={"session_id": "s", "subtype": "init", "type": "system"}, size=len(line)
    )


@pytest.mark.parametrize("line", [b'{"type":7,"subtype":[]}', b'{"type":null}', b"{}"])
def test_type_that_is_no_string_is_none(line: bytes) -> None:
    assert (frame(line).type, frame(line).subtype) == ("", "")


@pytest.mark.parametrize(
    "line", [b"", b"   ", b"\t\r", b"\x00\x00", b"\xef\xbb\xbf", b"null", b"42", b'"x"', b"[{}]", b"true", b" 1.5 "]
)
def test_what_is_no_object_is_nothing(line: bytes) -> None:
    assert decode(line) is None


@pytest.mark.parametrize(
    "line",
    [b"{", b'{"a":', b'{"a":1}}', b'{"a":1} x', b"error: unknown option", b"{'a':1}", b'{"a":tru}', b"\xff", b"{]"],
)
def test_what_is_no_json_is_malformed(line: bytes) -> None:
    assert isinstance(decode(line), Malformed)


def test_reason_repeats_nothing_of_the_line() -> None:
    item = decode(b'{"token": sk-ant-secret}')
    assert isinstance(item, Malformed)
    assert "secret" not in item.reason


@pytest.mark.parametrize(
    ("line", "value"),
    [
        pytest.param(b'{"a":Infinity}', math.inf, id="Infinity"),
        pytest.param(b'{"a":-Infinity}', -math.inf, id="-Infinity"),
        pytest.param(b'{"a":1e999}', math.inf, id="a float that is none"),
        pytest.param(b'{"a":' + b"9" * 400 + b"}", int("9" * 400), id="400 digits"),
        pytest.param(b'{"a":' + b"9" * 5000 + b"}", math.inf, id="more digits than int takes"),
        pytest.param(b'{"a":1,"a":2}', 2, id="duplicate key"),
        pytest.param(b'{"a":"x\x01y\x00z"}', "x\x01y\x00z", id="control characters in a string"),
        pytest.param(b'{"a":"\xff\xc3"}', "\ufffd\ufffd", id="broken UTF-8"),
        pytest.param(b'{"a":"\xed\xa0\x80"}', "\ufffd\ufffd\ufffd", id="a surrogate in UTF-8"),
        pytest.param(rb'{"a":"\ud83d"}', "\ufffd", id="half a pair"),
        pytest.param(rb'{"a":"\uD83D"}', "\ufffd", id="half a pair in capitals"),
        pytest.param(rb'{"a":"\udE00\uD83D\uDE00\ud83dx"}', "\ufffd\U0001f600\ufffdx", id="halves around a pair"),
        pytest.param(rb'{"a":"\\ud83d \ud83d"}', "\\ud83d \ufffd", id="an escaped backslash is no escape"),
        pytest.param(b'\xef\xbb\xbf{"a":1}', 1, id="byte order mark"),
        pytest.param(b'\x00\x00{"a":1}\x00', 1, id="NUL around"),
        pytest.param(b'\x0b {"a":1}\x0c\r', 1, id="white space around"),
    ],
)
def test_bad_character_does_not_cost_the_line(line: bytes, value: object) -> None:
    assert frame(line).body["a"] == value
    str(frame(line).body["a"]).encode()  # can be written to a file and a database


def test_nan_is_taken() -> None:
    value = frame(b'{"a":NaN}').body["a"]
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize("more", [b"", b" " * (2 << 20)], ids=["short", "long"])
def test_what_is_answered_keeps_every_digit(more: bytes) -> None:
    """The input of a call goes back to the CLI with the yes to it."""
    number = 123_456_789_012_345_678_901_234_567_890
    line = b'{"request":{"input":{"id":%d}},%b"type":"control_request"}' % (number, more)
    assert frame(line).body["request"] == {"input": {"id": number}}


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("inside", [b"%b", b'{"type":"result","structured_output":%b}', b'{"type":"x","x":%b'])
def test_nesting_bomb_is_a_malformed_line(opening: bytes, inside: bytes) -> None:
    assert isinstance(decode(inside % (opening * 200_000)), Malformed)


def test_nesting_bomb_that_closes_is_malformed_too() -> None:
    assert decode(b'{"type":"user","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}") == Malformed(
        reason="nested too deeply"
    )


@given(st.binary())
def test_no_bytes_raise(line: bytes) -> None:
    TranscriptBuilder().feed(decode(line))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_what_the_standard_library_writes_is_read(body: dict[str, object]) -> None:
    assert isinstance(decode(json.dumps(body).encode()), StreamFrame)
