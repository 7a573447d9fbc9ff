"""What a session concluded: from its transcript to a report, with what went wrong on the way.

The report is looked for where the CLI puts it, then where it has been seen to end up when the CLI lost it (a JSON
object in prose: a whole reply, a fenced block, or an object between two sentences), then in the legacy markers. Every
candidate is validated, also one that the CLI has validated before: a candidate that is empty or only filler does not
count, so ``structured_output: {}`` silences nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NoReturn, Protocol

from claudeops.domain.model import STRUCTURED_OUTPUT_TOOL, Extraction, ExtractionMethod
from claudeops.domain.report.markers import read_markers
from claudeops.domain.report.schema import ReportSchema
from claudeops.domain.report.values import DEGRADED, Reading, cut, plain, read
from claudeops.domain.text import regex

__all__ = ["DEGRADED", "ReportSchema", "ReportSource", "extract", "shortcomings"]

_MOST_WARNINGS: Final = 20
_WARNING_LENGTH: Final = 400  # characters
_MOST_CANDIDATES: Final = 50  # of each origin; runaway sessions made hundreds of calls
_REPORT_KEYS: Final = frozenset({"summary", "escalation", "services_checked"})  # other JSON in prose is not a report
_MOST_TEXT: Final = 4_000_000  # characters of all texts together


class ReportSource(Protocol):
    """What is read from a transcript. Texts are the main agent's; a subagent's words conclude nothing."""

    @property
    def structured_outputs(self) -> Sequence[object]:
        """``structured_output`` of the result lines that had one, oldest first."""

    @property
    def structured_calls(self) -> Sequence[object]:
        """Inputs of the StructuredOutput calls, oldest first, rejected ones too."""

    @property
    def main_texts(self) -> Sequence[str]:
        """Text blocks of the main agent, oldest first."""

    @property
    def last_assistant_text(self) -> str | None:
        """The last text, for a harness that repeats it in its result line."""

    @property
    def result_text(self) -> str | None:
        """``result`` of the last result line."""


def extract(source: ReportSource, schema: ReportSchema, *, legacy_markers: bool) -> Extraction:
    """Return the report of a session and the way it was found; never raises.

    In this order: the first valid ``structured_output`` of a result line; the latest valid StructuredOutput
    call (each one corrects the one before, so the latest is the model's final word); the latest text that holds
    a valid report as JSON; the legacy markers, if they are allowed; nothing. Where texts were read for markers after a
    structured output was refused, the method is ``markers`` even if they hold none, as it was with Claude Ops;
    a session that delivered nothing has ``none``.
    """
    search = _Search(schema)
    found = search.run(source)
    if found is not None:
        method, reading = found
        return _extraction(method, reading, search.rejected)
    if not legacy_markers:
        return Extraction(method=ExtractionMethod.NONE, report=None, warnings=_bounded(search.rejected))
    spoken = _spoken(source)
    markers = read_markers(spoken)
    report = markers.report()
    stood_in = bool(source.structured_outputs and spoken)
    return Extraction(
        method=ExtractionMethod.NONE if report is None and not stood_in else ExtractionMethod.MARKERS,
        report=report,
        warnings=_bounded([*search.rejected, *markers.warnings]),
    )


def shortcomings(source: ReportSource, schema: ReportSchema) -> tuple[str, ...]:
    """Return what the model should correct, ``()`` when there is a valid report. Markers are not a report here.

    The sentences are about the latest attempt; without any attempt, the one sentence is that the report is missing.
    """
    search = _Search(schema)
    if search.run(source) is not None:
        return ()
    attempts = (*source.structured_calls[-1:], *source.structured_outputs[-1:], *search.texts[:1])
    if not attempts:
        return (f"no report was delivered: call {STRUCTURED_OUTPUT_TOOL} once with the report",)
    return tuple(cut(sentence, _WARNING_LENGTH) for sentence in search.faults(attempts[0])[:_MOST_WARNINGS])


@dataclass(frozen=True, slots=True)
class _Search:
    """One walk over everything that could be the report."""

    schema: ReportSchema
    rejected: list[str] = field(default_factory=list)  # sentences about rejected candidates
    texts: list[Mapping[str, object]] = field(default_factory=list)  # reports found in text, valid or not

    def run(self, source: ReportSource) -> tuple[ExtractionMethod, Reading] | None:
        """Return the first acceptable candidate."""
        for output in islice(source.structured_outputs, _MOST_CANDIDATES):
            if reading := self.accept(output, "structured_output"):
                return ExtractionMethod.STRUCTURED, reading
        for call in islice(reversed(source.structured_calls), _MOST_CANDIDATES):
            if reading := self.accept(call, f"{STRUCTURED_OUTPUT_TOOL} call"):
                return ExtractionMethod.SALVAGED, reading
        for candidate in islice(_written(source), _MOST_CANDIDATES):
            if not _REPORT_KEYS.isdisjoint(candidate):
                self.texts.append(candidate)
                if reading := self.accept(candidate, "report in the text"):
                    return ExtractionMethod.SALVAGED, reading
        return None

    def accept(self, candidate: object, origin: str) -> Reading | None:
        """Return a candidate as a report, or remember why it is rejected."""
        faults = self.faults(candidate)
        if not faults and isinstance(candidate, Mapping):
            return read(candidate)
        sentence = f"rejected {origin}: {'; '.join(faults)}{_wish(candidate)}"
        if sentence not in self.rejected:
            self.rejected.append(sentence)
        return None

    def faults(self, candidate: object) -> tuple[str, ...]:
        """Return why a candidate is not a report: what the schema says, then whether it says anything."""
        errors = self.schema.errors(candidate)
        if errors or not isinstance(candidate, Mapping):
            return errors or ("$: is not an object",)
        return read(candidate).faults


def _extraction(method: ExtractionMethod, reading: Reading, rejected: list[str]) -> Extraction:
    return Extraction(method=method, report=reading.report, warnings=_bounded([*reading.warnings, *rejected]))


def _written(source: ReportSource) -> Iterator[dict[str, object]]:
    """Yield the JSON objects of the texts, the latest text first."""
    for text in _texts(source):
        yield from objects_in(text)


def _texts(source: ReportSource) -> list[str]:
    """Return the main agent's distinct texts, the latest first."""
    return _latest(source.result_text, source.last_assistant_text, *reversed(source.main_texts))


def _spoken(source: ReportSource) -> list[str]:
    """Return the texts that are searched for markers, oldest first.

    ``result`` repeats the last text, or holds the text of an API error instead: it counts only where there is no other
    text.
    """
    spoken = _latest(source.last_assistant_text, *reversed(source.main_texts)) or _latest(source.result_text)
    return spoken[::-1]


def _latest(*newest_first: str | None) -> list[str]:
    """Return the texts that are not empty, each once, as many as fit the bound."""
    texts: list[str] = []
    size = 0
    for text in dict.fromkeys(text for text in newest_first if text):
        size += len(text)
        if texts and size > _MOST_TEXT:
            break
        texts.append(text)
    return texts


def _wish(candidate: object) -> str:
    """Return a rejected candidate's wish for the next tier: readers of the warnings should know about it."""
    escalation = candidate.get("escalation") if isinstance(candidate, Mapping) else None
    if not isinstance(escalation, Mapping) or escalation.get("needed") is not True:
        return ""
    reason = escalation.get("reason")
    return f" (it asked for the next tier: {cut(plain(reason), 120) if isinstance(reason, str) else 'no reason'})"


def _bounded(warnings: list[str]) -> tuple[str, ...]:
    kept = [cut(" ".join(warning.split()), _WARNING_LENGTH) for warning in warnings[:_MOST_WARNINGS]]
    more = len(warnings) - len(kept)
    return (*kept, f"{more} more warnings about the report") if more else tuple(kept)


# --- JSON objects within prose ---------------------------------------------------------------------------


_MOST_CHARACTERS: Final = 1_000_000  # of one text; a report comes at the end, so the end is kept
_WORK: Final = 32  # characters that may be read per character of the text
_ATTEMPT: Final = 100  # characters charged for an attempt as such
_FIRST_WINDOW: Final = 64  # characters; most attempts fail within them
_GROWTH: Final = 8
_LONGEST_WORD: Final = 12  # characters; a window may end within a literal or an escape
_OPENING: Final = regex.Pattern(r'\{\s*"[^"\\\n]{1,100}"\s*:')  # no other brace begins a report


def objects_in(text: str) -> Iterator[dict[str, object]]:
    """Yield the outermost JSON objects of a text, in order.

    Stray braces and braces within strings do not count. The work is bounded: hostile text (a megabyte of braces, or of
    quotes that never close) ends the search instead of slowing it down.
    """
    text = text[-_MOST_CHARACTERS:]
    budget = _WORK * len(text)
    at = 0
    for opening in _OPENING.finditer(text):
        start = opening.start()
        if start < at:
            continue
        value, length, work = _decode_at(text, start)
        budget -= work
        at = start + length
        if value is not None:
            yield value
        if budget <= 0:
            return


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def _decode_at(text: str, start: int) -> tuple[dict[str, object] | None, int, int]:
    """Decode the object that begins at ``start``; return it, how far to go on, and the number of characters read.

    It is decoded in growing windows, because the decoder's errors count the line ends in its whole input.
    """
    size = _FIRST_WINDOW
    work = _ATTEMPT
    while True:
        window = text[start : start + size]
        work += len(window)
        try:
            value, length = _DECODER.raw_decode(window)
        except json.JSONDecodeError as error:
            cut_off = error.msg.startswith("Unterminated") or error.pos > len(window) - _LONGEST_WORD
            if not cut_off or start + size >= len(text):
                return None, 1, work
        except (ValueError, RecursionError):  # not a JSON number; an integer too long for Python; nested too deeply
            return None, 1, work
        else:
            return value, length, work
        size *= _GROWTH
