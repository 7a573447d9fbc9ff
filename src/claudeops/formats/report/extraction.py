"""What a session concluded: from its transcript to a report, with what went wrong on the way.

The report is looked for where the CLI puts it, then where it has been seen to end up when the CLI lost it (a JSON
object in prose: a whole reply, a fenced block, or an object between two sentences), then in the legacy markers. Every
candidate is validated, also one that the CLI has validated before: a candidate that is empty or only filler does not
count, so ``structured_output: {}`` silences nothing.

A finding does not die of its form. What the schema refuses is read once more leniently
(`claudeops.formats.report.lenient`), and validated again. Where even that is no report, the summary of the last attempt
is an event, and the report that is made of it asks for the next tier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Protocol

import msgspec

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import (
    REPORT_CHARACTERS,
    STRUCTURED_OUTPUT_TOOL,
    Escalation,
    Extraction,
    ExtractionMethod,
    Report,
)
from claudeops.formats.report.candidate import DEGRADED, TEXT_LENGTH, ReportReading, cut, plain, read
from claudeops.formats.report.json_text import objects_in
from claudeops.formats.report.lenient import asks_for_help, markup_in, readings, summary_in
from claudeops.formats.report.markers import Markers, read_markers
from claudeops.formats.report.response_schema import ReportSchema

__all__ = [
    "DEGRADED",
    "UNREADABLE",
    "ReportSchema",
    "ReportSource",
    "asks_for_next_tier",
    "extract",
    "objects_in",
    "shortcomings",
]

UNREADABLE: Final = "the report could not be read"
"""Why a chain goes on whose session has tried to deliver a report, and of which only the summary is left."""

_MOST_WARNINGS: Final = 20
_WARNING_LENGTH: Final = 400  # characters
_MOST_CANDIDATES: Final = 50  # of each origin; runaway sessions made hundreds of calls
_REPORT_KEYS: Final = frozenset({"summary", "escalation", "services_checked"})  # other JSON in prose is not a report
_REPEATED: Final = 120  # characters of a report that a warning repeats
_CALL: Final = f"{STRUCTURED_OUTPUT_TOOL} call"
_OUTPUT: Final = "structured_output"
_GIVEN_UP: Final = 5  # attempts to deliver; the CLI makes no more


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
    a valid report as JSON; where a later attempt that cannot be read asks for the next tier, none of these, unless it
    asks for that as well; the summary of the latest attempt, if the session has printed its result or made five; the
    legacy markers, if they are allowed; nothing. Where texts were read for markers after a structured output was
    refused, the method is ``markers`` even if they hold none, as it was with Claude Ops; a session that delivered
    nothing has ``none``.
    """
    search = _Search(schema)
    found = search.run(source)
    contradicting = () if found is None else search.contradicting(found)
    if found is not None and not contradicting:
        return _extraction(found, search.rejected)
    spoken = _spoken(source) if legacy_markers else []
    markers = read_markers(spoken)
    attempts = contradicting or (_last_words(source) if _has_given_up(source) else ())
    if (rescued := _rescued(attempts, schema, markers)) is not None:
        warnings = [f"{UNREADABLE}, only its summary is kept", *search.rejected, *markers.warnings]
        return Extraction(method=ExtractionMethod.SALVAGED, report=rescued, warnings=_bounded(warnings))
    if found is not None:
        return _extraction(found, search.rejected)
    report = None if _is_refused_delivery(source) else markers.report()
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
    found = search.run(source)
    if found is not None and not search.contradicting(found):
        return ()
    attempts = (*source.structured_calls[-1:], *source.structured_outputs[-1:], *search.texts[:1])
    if not attempts:
        return (f"no report was delivered: call {STRUCTURED_OUTPUT_TOOL} once with the report",)
    return tuple(cut(sentence, _WARNING_LENGTH) for sentence in search.faults(attempts[0])[:_MOST_WARNINGS])


def asks_for_next_tier(source: ReportSource) -> bool:
    """Say whether the latest report, valid or not, asks for the next tier; what follows from it is decided later."""
    for delivered in (*source.structured_outputs[-1:], *source.structured_calls[-1:]):
        match delivered:
            case {"escalation": {"needed": bool(is_needed)}}:
                return is_needed
    return False


_Attempt = tuple[str, object]  # how it was made, and what was given


class _AcceptedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is a report."""

    method: ExtractionMethod = ExtractionMethod.SALVAGED
    reading: ReportReading
    later: tuple[_Attempt, ...]  # to deliver another one since, the latest first


class _Search(msgspec.Struct, frozen=True):
    """One walk over everything that could be the report."""

    schema: ReportSchema
    rejected: list[str] = msgspec.field(default_factory=list)  # sentences about rejected candidates
    texts: list[Mapping[str, object]] = msgspec.field(default_factory=list)  # reports found in text, valid or not

    def run(self, source: ReportSource) -> _AcceptedCandidate | None:
        """Return the first acceptable candidate."""
        outputs = tuple(islice(source.structured_outputs, _MOST_CANDIDATES))
        for place, output in enumerate(outputs):
            if reading := self.accept_as_it_is(output, _OUTPUT):
                later = _after_output(source, place)
                return _AcceptedCandidate(method=ExtractionMethod.STRUCTURED, reading=reading, later=later)
        for place, output in enumerate(outputs):
            if reading := self.accept_leniently(output):
                return _AcceptedCandidate(reading=reading, later=_after_output(source, place))
        return self.in_calls(source) or self.beside_attempts(source)

    def in_calls(self, source: ReportSource) -> _AcceptedCandidate | None:
        """Return the latest StructuredOutput call that is a report."""
        attempts = _attempts(source)
        for place, call in enumerate(islice(reversed(source.structured_calls), _MOST_CANDIDATES)):
            if reading := self.accept(call, _CALL):
                return _AcceptedCandidate(
                    reading=reading, later=(*attempts[:place], *attempts[len(source.structured_calls) :])
                )
        return None

    def beside_attempts(self, source: ReportSource) -> _AcceptedCandidate | None:
        """Return the latest report that stands in the texts; nothing in them outweighs a refusal to deliver one."""
        reading = self.in_texts(source)
        if reading is None or (_is_refused_delivery(source) and not reading.report.escalation.needed):
            return None
        return _AcceptedCandidate(reading=reading, later=_attempts(source))

    def contradicting(self, found: _AcceptedCandidate) -> tuple[_Attempt, ...]:
        """Return the later attempts that ask for the next tier where a report does not, and cannot be read."""
        if found.reading.report.escalation.needed:
            return ()
        wishes = (one for one in found.later[:_MOST_CANDIDATES] if asks_for_help(one[1], self.schema.shape))
        return tuple((origin, given) for origin, given in wishes if self.accept(given, origin) is None)

    def in_texts(self, source: ReportSource) -> ReportReading | None:
        """Return the latest report that stands in the texts."""
        for candidate in islice(_written(source), _MOST_CANDIDATES):
            if not _REPORT_KEYS.isdisjoint(candidate):
                self.texts.append(candidate)
                if reading := self.accept(candidate, "report in the text"):
                    return reading
        # The objects in texts have been tried. What else can be a report there is markup, or JSON text within JSON.
        return self.first_lenient(text for text in _texts(source) if "<" in text or text.lstrip().startswith('"'))

    def first_lenient(self, candidates: Iterable[object]) -> ReportReading | None:
        """Return the first of some candidates that is a report in spite of its form."""
        return next((reading for one in candidates if (reading := self.accept_leniently(one)) is not None), None)

    def accept(self, candidate: object, origin: str) -> ReportReading | None:
        """Return a candidate as a report, by its form or in spite of it."""
        return self.accept_as_it_is(candidate, origin) or self.accept_leniently(candidate)

    def accept_leniently(self, candidate: object) -> ReportReading | None:
        """Return what a rejected candidate says, where that fits the schema."""
        for meant in readings(candidate, self.schema.shape):
            if markup_in(meant, self.schema.shape) is None and not self.faults(meant):
                return read(meant)
        return None

    def accept_as_it_is(self, candidate: object, origin: str) -> ReportReading | None:
        """Return a candidate as a report, or remember why it is rejected."""
        faults = self.faults(candidate)
        if not faults and isinstance(candidate, Mapping):
            markup = markup_in(candidate, self.schema.shape)
            if markup is None:
                return read(candidate)
            faults = (f"$.summary: goes on as the markup of a tool call: {cut(plain(markup), _REPEATED)!r}",)
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


def _attempts(source: ReportSource) -> tuple[_Attempt, ...]:
    """Return every attempt to deliver a report: the calls and then the outputs, the latest first."""
    return (*_latest_first(_CALL, source.structured_calls), *_latest_first(_OUTPUT, source.structured_outputs))


def _latest_first(origin: str, given: Sequence[object]) -> tuple[_Attempt, ...]:
    return tuple((origin, one) for one in reversed(given))


def _after_output(source: ReportSource, place: int) -> tuple[_Attempt, ...]:
    """Return the attempts after an output, the latest first: later outputs, and calls since the one that made it."""
    output, calls = source.structured_outputs[place], source.structured_calls
    since = next((at for at in range(len(calls) - 1, -1, -1) if calls[at] == output), len(calls))
    later = source.structured_outputs[place + 1 :]
    return (*_latest_first(_CALL, calls[since + 1 :]), *_latest_first(_OUTPUT, later))


def _last_words(source: ReportSource) -> tuple[_Attempt, ...]:
    """Return the attempts of which something is kept; an output that is an object has passed the CLI's own check."""
    return tuple((origin, one) for origin, one in _attempts(source) if origin is _CALL or isinstance(one, str))


def _has_given_up(source: ReportSource) -> bool:
    """Return whether nothing more was to come: a session that was cut off in mid-work may be tried again."""
    return getattr(source, "result_seen", False) or len(source.structured_calls) >= _GIVEN_UP


def _is_refused_delivery(source: ReportSource) -> bool:
    """Return whether the model declined in the end, after attempts to deliver a report."""
    return getattr(source, "refused", False) and bool(source.structured_calls or source.structured_outputs)


def _rescued(attempts: Sequence[_Attempt], schema: ReportSchema, markers: Markers) -> Report | None:
    """Return what is left of reports that were delivered and cannot be read; ``None``: nothing says anything."""
    for _, attempt in attempts[:_MOST_CANDIDATES]:
        summary = summary_in(attempt, schema.shape)
        if summary is not None:
            summary = cut(summary, TEXT_LENGTH)
            return Report(
                summary=summary,
                escalation=Escalation(needed=True, reason=UNREADABLE, context=summary),
                events=(NewEvent(level=EventLevel.WARNING, message=summary), *markers.events),
                memories=markers.memories,
            )
    return None


def _extraction(found: _AcceptedCandidate, rejected: list[str]) -> Extraction:
    warnings = _bounded([*found.reading.warnings, *rejected])
    return Extraction(method=found.method, report=found.reading.report, warnings=warnings)


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
        if texts and size > REPORT_CHARACTERS:
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
