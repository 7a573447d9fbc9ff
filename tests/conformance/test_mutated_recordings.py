"""Ten thousand recordings with something wrong in them, all the way from the bytes to the report."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from claudeops.domain.chains.outcome import ProcessExit, StopCause, judge
from claudeops.formats.report.extraction import ReportSchema, extract, shortcomings
from claudeops.formats.stream import LineSplitter, Transcript, TranscriptBuilder, decode
from claudeops.harness.codex_frames import CodexReader
from claudeops.text.redact import MASK, Redactor
from support.checkout import ROOT
from support.damage import confused, damaged, reordered
from support.doses import drawn
from support.streams import RECORDINGS

MUTATIONS = 10_000
EACH = -(-MUTATIONS // len(RECORDINGS))
ROUND = (damaged, damaged, confused, reordered)

SCHEMA = ReportSchema.load((ROOT / "schemas" / "agent-response.json").read_text(encoding="utf-8"))
SECRET = "tool_use"  # stands in most recordings, so that damaged lines are redacted, too
REDACTOR = Redactor([SECRET])


def chunks(stream: bytes, dice: random.Random) -> Iterator[bytes]:
    size = dice.choice((100, 1000, 4096, 65536))
    return (stream[start : start + size] for start in range(0, len(stream), size))


def lines_of(stream: bytes, dice: random.Random) -> list[bytes]:
    splitter = LineSplitter()
    lines = [line for chunk in chunks(stream, dice) for line in splitter.push(chunk)]
    last = splitter.flush()
    return lines if last is None else [*lines, last]


def conclude(transcript: Transcript, dice: random.Random) -> None:
    extraction = extract(transcript, SCHEMA, legacy_markers=True)
    shortcomings(transcript, SCHEMA)
    exited = ProcessExit(code=dice.choice((None, 0, 1, 137, -9)), stop=dice.choice((None, *StopCause)))
    judge(
        transcript,
        exited,
        heuristics=True,
        has_report=extraction.report is not None,
        background_tasks_disabled=False,
    )


@pytest.mark.parametrize(
    "path", drawn([pytest.param(path, id=f"{path.parent.name}/{path.stem}") for path in RECORDINGS], count=6)
)
def test_no_mutated_recording_raises_or_loses_a_line(path: Path) -> None:
    original = path.read_bytes()
    dice = random.Random(f"{path.parent.name}/{path.stem}")  # noqa: S311 - repeatable damage, nothing secret
    for number in range(EACH):
        stream = ROUND[number % len(ROUND)](original, dice)
        lines = lines_of(stream, dice)
        assert lines == [line.removesuffix(b"\r") for line in stream.removesuffix(b"\n").split(b"\n") if stream]
        reader = CodexReader() if number % 8 == 0 else TranscriptBuilder()
        for line in lines:
            reader.feed(decode(line))
        transcript = reader.close()
        assert transcript.lines == len(lines)
        conclude(transcript, dice)


@pytest.mark.parametrize("path", RECORDINGS, ids=[f"{path.parent.name}/{path.stem}" for path in RECORDINGS])
def test_no_mutated_recording_keeps_a_secret(path: Path) -> None:
    original = path.read_bytes()
    dice = random.Random(f"{path.parent.name}/{path.stem}")  # noqa: S311 - repeatable damage, nothing secret
    for _ in range(EACH // 20):
        lines = lines_of(damaged(original, dice), dice)
        redacted = REDACTOR.lines(lines)
        assert redacted == [REDACTOR.line(line) for line in lines]
        assert SECRET.encode() not in b"\n".join(redacted)
        assert any(MASK.encode() in line for line in redacted) == any(SECRET.encode() in line for line in lines)


def test_they_are_ten_thousand() -> None:
    assert EACH * len(RECORDINGS) >= MUTATIONS
