"""The legacy text markers and the handoff file: what older prompts write instead of a report.

::

    [EVENT:level:service] message                      service is optional
    [MEMORY:category:service] observation              service is optional, and comes last here
    [COOLDOWN:restart:service] success - message       or redeployment, failure

A marker counts only where the model itself speaks, at the beginning of a line or of a table's cell; Markdown's signs
may stand before it (`claudeops.formats.report.speech`). In block quotes, back-ticks and fenced code, and within a
sentence, it is a quotation: a log line that is quoted forges nothing. What is not read is a warning that names the
line. Further markers may follow on the same line. A repeated marker, for instance in a closing summary, counts once.
COOLDOWN markers are claims: they become events, never entries of the cooldown ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Final

import msgspec

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import (
    MARKER_BEGINNINGS,
    Escalation,
    Extraction,
    ExtractionMethod,
    Report,
    ReportedMemory,
    ServiceCheck,
    ServiceStatus,
)
from claudeops.formats.report.candidate import cut, level_of, plain
from claudeops.formats.report.speech import SpeechLine, emphasis_before, is_fence, lines_of, unquoted, words_begin
from claudeops.text import regex

_MARKER: Final = regex.Pattern(r"\[(EVENT|MEMORY|COOLDOWN):([^\]]{1,300})\]")
_FURTHER: Final = regex.Pattern(rf"[{regex.SPACE}][*_~]{{0,3}}(\[)(?:EVENT|MEMORY|COOLDOWN):[^\]]{{1,300}}\]")
_QUOTATION: Final = regex.Pattern(r"\"[^\"]*\"|\x{201C}[^\x{201D}]*\x{201D}")
_WORD: Final = regex.Pattern(r"[A-Za-z0-9_-]+")
_SERVICE: Final = regex.Pattern(r"[A-Za-z0-9_./@-]+(?::[0-9]{1,5})?")
_CLAIM: Final = regex.Pattern(r"(?i)(success|failure)\b\s*(?:[\x{2014}\x{2013}-]\s*)?(.*)")
_ACTIONS: Final = frozenset({"restart", "redeployment"})

_MOST: Final = 300  # markers of one session
_TEXT_LENGTH: Final = 8000  # characters
_SUMMARY_LENGTH: Final = 500  # characters
_REPEATED: Final = 80  # characters of a marker that a warning repeats
_MOST_WARNINGS: Final = 500

_Text = Annotated[str, msgspec.Meta(min_length=1, pattern=r"\S")]


class Markers(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the markers in a session's texts."""

    events: tuple[NewEvent, ...] = ()
    memories: tuple[ReportedMemory, ...] = ()
    summary: str = ""
    warnings: tuple[str, ...] = ()

    def report(self) -> Report | None:
        """Return the markers as a report, ``None`` when there were none; markers alone never ask for escalation."""
        if not self.events and not self.memories:
            return None
        summary = self.summary or (self.events[0].message if self.events else self.memories[0].observation)
        return Report(
            summary=cut(summary, _SUMMARY_LENGTH),
            escalation=Escalation(needed=False),
            events=self.events,
            memories=self.memories,
        )


def read_markers(texts: Sequence[str]) -> Markers:
    """Read the main agent's texts, oldest first. Never raises."""
    found = _SeenMarkers()
    for text in texts:
        found.text(text)
    statements = list(found.statements.values())
    if len(statements) > _MOST:
        found.warnings.append(f"only the first {_MOST} of {len(statements)} markers were kept")
    return Markers(
        events=tuple(item for item in statements[:_MOST] if isinstance(item, NewEvent)),
        memories=tuple(item for item in statements[:_MOST] if isinstance(item, ReportedMemory)),
        summary=_closing_words(texts) if statements else "",
        warnings=tuple(dict.fromkeys(found.warnings)),
    )


class _SeenMarkers(msgspec.Struct, frozen=True):
    """The markers seen so far."""

    statements: dict[tuple[str, ...], NewEvent | ReportedMemory] = msgspec.field(default_factory=dict)  # each once
    warnings: list[str] = msgspec.field(default_factory=list)

    def text(self, text: str) -> None:
        """Read a text."""
        if not _holds_marker(text):  # nearly none does, and its lines take many times its memory
            return
        fenced = 0
        for line in lines_of(text):
            if not _holds_marker(line.text):
                continue
            if line.fenced:
                fenced += 1
            else:
                self.line(line)
        if fenced:
            self.warn(f"{fenced} lines with markers are in fenced code and were taken as quotations")

    def line(self, line: SpeechLine) -> None:
        """Read a line, or each cell of a table's row, and warn about what of it is no marker of the model's own."""
        parts = line.parts
        beside, nearest = [""] * len(parts), ""
        for at in range(len(parts) - 1, -1, -1):
            beside[at] = nearest
            nearest = parts[at] if parts[at].strip() else nearest
        held = [part for part in parts if _holds_marker(part)]
        unread = [part for part, words in zip(parts, beside, strict=True) if not self.part(part, beside=words)]
        unread = [part for part in unread if _holds_marker(part)]
        for part in [line.text] if len(unread) == len(held) else unread:
            self.unread(part)

    def part(self, part: str, *, beside: str = "") -> bool:
        """Read the markers at the beginning of a part of a line; ``beside`` is the next cell, where words may stand."""
        if not _holds_marker(part):
            return False
        speech = unquoted(part)
        begin = words_begin(speech)
        if not speech.startswith(MARKER_BEGINNINGS, begin):
            return False
        # Of a marker in a quotation the daemon knows only that the one who spoke last is not its author.
        masked = _QUOTATION.sub(lambda quoted: "\x00" * len(quoted[0]), speech[begin:])
        starts = [begin, *(begin + found.start(1) for found in _FURTHER.finditer(masked))]
        for start, following in zip_longest(starts, starts[1:]):
            end = len(part) if following is None else following - len(emphasis_before(part, following))
            found = _MARKER.match(part[start:end])
            if found is None:
                self.misunderstood(part[start:end])
                continue
            behind = part[start + found.end() : end]
            if _holds_marker(behind):
                self.unread(behind)
            self.marker(found[1], found[2], _words(behind, emphasis=emphasis_before(part, start)) or _words(beside))
        return True

    def marker(self, kind: str, inside: str, body: str) -> None:
        """Read one marker: the content of its brackets, and the text after it."""
        first, _, second = inside.partition(":")
        service = second if _SERVICE.fullmatch(second) else None
        if second and service is None:  # the statement matters more than its service
            self.warn(f"marker names a service that cannot be one: {cut(second, _REPEATED)!r}")
            body = f"{plain(second)}: {body}" if body else ""
        body = cut(body, _TEXT_LENGTH)
        item = self.statement(kind, first, service, body) if body and _WORD.fullmatch(first) else None
        if item is None:
            self.misunderstood(f"[{kind}:{inside}] {body}")
            return
        weight = item.level if isinstance(item, NewEvent) else item.category
        words = " ".join(body.casefold().split()).rstrip(".!")
        self.statements.setdefault((kind, first if kind == "COOLDOWN" else weight, second, words), item)

    def statement(self, kind: str, first: str, service: str | None, body: str) -> NewEvent | ReportedMemory | None:
        """Return what a marker says, ``None`` when it is not understood."""
        if kind == "EVENT":
            return NewEvent(level=self.level(first), message=body, service=service)
        if kind == "MEMORY":
            return ReportedMemory(category=first.lower(), observation=body, service=service)
        claim = _CLAIM.match(body)
        if claim is None or first not in _ACTIONS:
            return None
        result = claim[1].casefold()
        return NewEvent(
            level=EventLevel.CRITICAL if result == "failure" else EventLevel.INFO,
            message=f"the session claims a {first}: {result}" + (f" - {claim[2]}" if claim[2] else ""),
            service=service,
        )

    def level(self, word: str) -> EventLevel:
        """Return a marker's level; an unknown word is ``info``."""
        level = level_of(word)
        if level is None:
            self.warn(f"marker with an unknown level, taken as info: {cut(word, _REPEATED)!r}")
        return level or EventLevel.INFO

    def warn(self, warning: str) -> None:
        """Keep a warning, within bounds."""
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(warning)

    def unread(self, words: str) -> None:
        """Warn about words that hold a marker which is not read."""
        self.warn(f"marker in a quotation or sentence, not read: {cut(plain(words), _REPEATED)!r}")

    def misunderstood(self, marker: str) -> None:
        """Warn about a marker that is not understood."""
        self.warn(f"marker not understood: {cut(plain(marker), _REPEATED)!r}")


def _holds_marker(line: str) -> bool:
    return any(marker in line for marker in MARKER_BEGINNINGS)


def _words(text: str, *, emphasis: str = "") -> str:
    """Return what a marker says, without the Markdown around it."""
    words = plain(text)
    closing = emphasis[::-1]
    if closing:  # it ends behind the marker, at the end, or somewhere between
        behind = words.startswith(closing)
        words = words.removeprefix(closing) if behind else words.replace(closing, "", 1)
    words = plain(words)
    for sign in (":", "\N{EN DASH}", "\N{EM DASH}"):
        words = words.removeprefix(f"{sign} ")
    return plain(words).rstrip(" ;,|#")


def _closing_words(texts: Sequence[str]) -> str:
    """Return the last paragraph with more than markers in it, as one line."""
    for text in reversed(texts):
        for paragraph in reversed(regex.split(r"\n[ \t\r]*\n", text)):
            lines = (line for line in paragraph.split("\n") if not _holds_marker(line) and not is_fence(line))
            words = plain(" ".join(" ".join(lines).split()))
            if words:
                return cut(words, _SUMMARY_LENGTH)
    return ""


# --- the handoff file -------------------------------------------------------------------------------------


class HandoffCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One ``check_results[]`` entry."""

    service: _Text
    check_type: _Text
    status: _Text
    error: str | None = None
    response_time_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None

    @property
    def passed(self) -> bool:
        """Return whether the check found nothing wrong."""
        return self.status.strip().casefold() in {"healthy", "ok", "up", "pass", "passed"}


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """``handoff.json``: an older prompt's wish for another tier. ``cooldown_state`` is a claim and is not kept."""

    schema_version: int
    recommended_tier: int
    services_affected: Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]
    check_results: tuple[HandoffCheck, ...]
    investigation_findings: str | None = None
    remediation_attempted: str | None = None


class HandoffError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a handoff file is ignored: a sentence for a critical event."""

    message: str


def parse_handoff(text: str, *, current_tier: int, max_tier: int) -> Handoff | HandoffError:
    """Read a handoff file that a session of ``current_tier`` left behind. Never raises."""
    try:
        handoff = msgspec.json.decode(text.removeprefix("\ufeff").encode("utf-8", "replace"), type=Handoff)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return HandoffError(message=f"the handoff file is invalid: {cut(str(error), 300)}.")
    version, tier = handoff.schema_version, handoff.recommended_tier
    if version != 1:
        return HandoffError(message=f"the handoff file has schema_version {version}; only 1 is known.")
    if tier <= current_tier:
        return HandoffError(message=f"the handoff file asks for tier {tier}, which is not above tier {current_tier}.")
    if tier > max_tier:
        return HandoffError(message=f"the handoff file asks for tier {tier}, but the maximum is {max_tier}.")
    return handoff


def with_handoff(extraction: Extraction, handoff: Handoff) -> Extraction:
    """Add the handoff's wish to what the markers say; a validated report stays as it is."""
    if extraction.method not in (ExtractionMethod.MARKERS, ExtractionMethod.NONE):
        return extraction
    services = tuple(dict.fromkeys(cut(plain(name), 200) for name in handoff.services_affected))
    reason = f"handoff file: {', '.join(services)}"
    failed = tuple(_failed_check(check) for check in handoff.check_results if not check.passed)
    context = "\n".join(
        plain(part) for part in (handoff.investigation_findings, handoff.remediation_attempted) if part and plain(part)
    )
    known = extraction.report
    report = Report(
        summary=known.summary if known else cut(context or reason, _SUMMARY_LENGTH),
        escalation=Escalation(needed=True, reason=cut(reason, 500), context=context or None, failed_checks=failed),
        events=known.events if known else (),
        memories=known.memories if known else (),
        services_checked=tuple(_service_check(check) for check in handoff.check_results),
    )
    return Extraction(method=ExtractionMethod.MARKERS, report=report, warnings=extraction.warnings)


def _failed_check(check: HandoffCheck) -> str:
    what = f"{plain(check.service)} {plain(check.check_type)}: {plain(check.status)}"
    return cut(f"{what} ({plain(check.error)})" if check.error else what, 500)


def _service_check(check: HandoffCheck) -> ServiceCheck:
    word = check.status.strip().casefold()
    failing = ServiceStatus(word) if word in {"down", "unreachable"} else ServiceStatus.DEGRADED
    detail = plain(": ".join(part for part in (check.check_type, check.error) if part))
    return ServiceCheck(
        service=cut(plain(check.service), 200),
        status=ServiceStatus.HEALTHY if check.passed else failing,
        detail=cut(detail, 500),
    )
