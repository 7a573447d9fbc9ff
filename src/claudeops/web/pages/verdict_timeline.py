"""Where time and money of a chain went, as a picture: lanes of sessions, in each its models and its calls.

Each call is two bars: from the question to the verdict, in the verdict's colour, and, paler, how long it ran. Time in
which nothing happened is folded, and a fold says how long it was. Pure: spans in, shapes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

import msgspec

from claudeops.store.reading.chain_calls import CallSpan, ChainCalls, ModelSpan
from claudeops.structs import replace
from claudeops.wording.readable import count_of, length_of, usd

WIDTH: Final = 1000.0
"""Of the picture, without the names of lanes; a browser makes it fit."""

ROW: Final = 16.0
"""Height of a row."""

LABELS: Final = 150.0
_FOLD: Final = 14.0  # width of a gap that is folded
_IDLE: Final = timedelta(seconds=20)  # a gap from here on is folded
_LEAST: Final = 2.0  # width of what took no time


class TimelineBar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar."""

    x: float
    y: float
    width: float
    kind: str  # allow, ask, deny, ran, failed, model
    title: str  # what a pointer on it shows


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    session_id: int
    tier: int
    y: float
    height: float
    label: str


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """Time in which nothing happened."""

    x: float
    title: str


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A picture, in units of its own."""

    height: float
    lanes: tuple[Lane, ...]
    shapes: tuple[TimelineBar, ...]
    folds: tuple[Fold, ...]


def drawn(found: ChainCalls, now: datetime) -> Drawing | None:
    """Return the picture of a chain; None where there is nothing to see yet."""
    if not found.calls and not found.model_calls:
        return None
    scale = _Scale(_busy(found, now))
    lanes: list[Lane] = []
    shapes: list[TimelineBar] = []
    y = 0.0
    sessions = {one.session_id for one in found.calls} | {one.session_id for one in found.model_calls}
    for session_id in sorted(sessions):
        calls = [one for one in found.calls if one.session_id == session_id]
        models = [one for one in found.model_calls if one.session_id == session_id]
        shapes += [_model(one, scale, y + ROW * 0.25, now) for one in models]
        rows = _rows(calls)
        for number, row in enumerate(rows, start=1):
            for call in row:
                shapes += _call(call, scale, y + number * ROW, now)
        height = (len(rows) + 1) * ROW
        lanes.append(_lane(session_id, calls, models, y, height))
        y += height + ROW / 2
    return Drawing(height=y, lanes=tuple(lanes), shapes=tuple(shapes), folds=scale.folds)


class _Scale:
    """From moments to places: busy stretches keep their proportions, gaps between them are folded."""

    def __init__(self, busy: Sequence[tuple[datetime, datetime]]) -> None:
        total = sum(((end - start).total_seconds() for start, end in busy), 0.0)
        room = WIDTH - _FOLD * (len(busy) - 1)
        self._per_second = room / total if total else 0.0
        self._stretches: list[tuple[datetime, datetime, float]] = []
        folds, x = [], 0.0
        for number, (start, end) in enumerate(busy):
            if number:
                idle = start - busy[number - 1][1]
                folds.append(Fold(x=round(x + _FOLD / 2, 1), title=f"{length_of(idle)} without a call"))
                x += _FOLD
            self._stretches.append((start, end, x))
            x += (end - start).total_seconds() * self._per_second
        self.folds = tuple(folds)

    def at(self, moment: datetime) -> float:
        """Return the place of a moment."""
        for start, end, x in self._stretches:
            if moment <= end:
                return x + max(0.0, (moment - start).total_seconds()) * self._per_second
        start, end, x = self._stretches[-1]
        return x + (end - start).total_seconds() * self._per_second


def _busy(found: ChainCalls, now: datetime) -> Sequence[tuple[datetime, datetime]]:
    """Return the stretches in which something happened, in order, with gaps of at least `_IDLE` between them."""
    spans = sorted(
        [
            *((one.requested_at, max(one.decided_at, one.ended_at or one.decided_at)) for one in found.calls),
            *((one.started_at, one.ended_at or now) for one in found.model_calls),
        ]
    )
    merged: list[tuple[datetime, datetime]] = []
    for start, end in spans:
        if merged and start - merged[-1][1] < _IDLE:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, max(start, end)))
    return merged


def _rows(calls: Iterable[CallSpan]) -> Sequence[Sequence[CallSpan]]:
    """Return the calls by rows: a question and its answer are one row, every other call has its own."""
    return [list(group) for _, group in groupby(calls, key=lambda one: (one.tool_name, one.input, one.requested_at))]


def _call(call: CallSpan, scale: _Scale, y: float, now: datetime) -> list[TimelineBar]:
    asked, decided = scale.at(call.requested_at), scale.at(call.decided_at)
    took = length_of(call.decided_at - call.requested_at)
    words = f"{call.tool_name} {call.input}"
    said = f"{call.verdict.value} after {took}: {call.reason}"
    shapes = [_bar(asked, decided, y, call.verdict.value, f"{words}\n{said}")]
    if call.ended_at is not None:
        ran = "failed" if call.is_error else "ran"
        how = f"{ran} for {length_of(call.ended_at - call.decided_at)}"
        shapes.append(_bar(decided, scale.at(min(call.ended_at, now)), y, ran, f"{words}\n{how}"))
    return shapes


def _model(one: ModelSpan, scale: _Scale, y: float, now: datetime) -> TimelineBar:
    tokens = f"{one.input_tokens:,} tokens in, {one.output_tokens:,} out, {usd(one.cost_usd)}"
    took = "" if one.ended_at is None else f", {length_of(one.ended_at - one.started_at)}"
    shape = _bar(scale.at(one.started_at), scale.at(one.ended_at or now), y, "model", f"{one.model}{took}\n{tokens}")
    return replace(shape, y=round(y, 1))


def _bar(start: float, end: float, y: float, kind: str, title: str) -> TimelineBar:
    return TimelineBar(
        x=round(start, 1), y=round(y, 1), width=round(max(end - start, _LEAST), 1), kind=kind, title=title
    )


def _lane(session_id: int, calls: Sequence[CallSpan], models: Sequence[ModelSpan], y: float, height: float) -> Lane:
    tier = calls[0].tier if calls else models[0].tier
    known = [one.cost_usd for one in models if one.cost_usd is not None]
    label = f"tier {tier}: {count_of(len(calls), 'call')}, {usd(sum(known) if known else None)}"
    return Lane(session_id=session_id, tier=tier, y=round(y, 1), height=round(height, 1), label=label)
