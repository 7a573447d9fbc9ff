"""Converts one candidate object to a `Report`, whatever the schema let through.

The schema file is the operator's and may be weaker than ours, so nothing here relies on it: a missing key or a wrong
type costs the entry that it is in, and leaves a warning. Filler ("string", "N/A", "...") is no statement:
it is dropped, and a report that calls everything healthy in such words is not a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.report.report import Escalation, Report, ReportedMemory, ServiceCheck, ServiceStatus
from claudeops.text import regex

DEGRADED: Final = "degraded:"
"""Prefix of the warnings about a report that was kept although parts of it are empty."""

TEXT_LENGTH: Final = 8000  # characters of any one text
_NAME_LENGTH: Final = 200  # characters of a service or category
_ID_DIGITS: Final = 9  # of a memory's id; longer ones do not fit its column
_MOST_ENTRIES: Final = 300  # of one list; a runaway model writes thousands

_LEVELS: Final = {
    **dict.fromkeys(("info", "healthy", "ok", "up", "recovered", "resolved"), EventLevel.INFO),
    **dict.fromkeys(("warning", "warn", "degraded", "unhealthy", "flapping"), EventLevel.WARNING),
    **dict.fromkeys(("critical", "crit", "error", "err", "fatal", "failure", "failed"), EventLevel.CRITICAL),
    **dict.fromkeys(("down", "unreachable", "alert", "emergency"), EventLevel.CRITICAL),
}
_STATUSES: Final = {status.value: status for status in ServiceStatus}
_FLAGS: Final[dict[object, bool]] = {
    **dict.fromkeys(("true", "yes", "1", 1), True),
    **dict.fromkeys(("false", "no", "0", 0), False),
}

_UNSTORABLE: Final = dict.fromkeys((0, *range(0xD800, 0xE000)), "\ufffd")  # for PostgreSQL (NUL) and UTF-8 (halves)
_BRACKETED: Final = regex.Pattern(r"<[^<>]*>|\{+[^{}]*\}+|\[[A-Za-z _-]*\]")
_NAME_FILLER: Final = frozenset({"string", "n/a"})
_TEXT_FILLER: Final = _NAME_FILLER | {
    *("a", "b", "c", "x", "y", "z", "foo", "bar", "baz", "abc", "asdf"),
    *("test", "testing", "text", "example", "sample", "placeholder", "lorem ipsum", "todo", "tbd"),
    *("summary", "message", "value", "reason", "na", "none", "null", "nil", "undefined", "unknown"),
}


def plain(text: str) -> str:
    """Return ``text`` without surrounding space and without characters that a database refuses."""
    return text.translate(_UNSTORABLE).strip()


def cut(text: str, length: int) -> str:
    """Return at most ``length`` characters, the last of them an ellipsis if any are missing."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def level_of(word: str) -> EventLevel | None:
    """Return the level that a word stands for, in any case; ``None`` for other words."""
    return _LEVELS.get(word.strip().casefold())


def is_filler(text: str, *, name: bool = False) -> bool:
    """Return whether a text only fills a field: blank, without a letter or digit, or a known placeholder.

    Names are compared with a shorter list: a service may well be called ``test``.
    """
    word = text.strip().strip("\"'`").casefold().rstrip(".")
    if not any(character.isalnum() for character in word):
        return True
    return word in (_NAME_FILLER if name else _TEXT_FILLER) or _BRACKETED.fullmatch(word) is not None


class ReportReading(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate as a report."""

    report: Report
    warnings: tuple[str, ...]  # what was dropped or changed, each with its JSON path
    faults: tuple[str, ...]  # why this is not a report at all; () when it may be used


def read(candidate: Mapping[str, object]) -> ReportReading:
    """Convert a candidate; never raises.

    A report that asks for the next tier in words of its own is kept, however little else it holds: losing it would
    silence an alarm. A report that does not must be free of filler, or it proves nothing.
    """
    reader = _Reader()
    escalation = reader.escalation(candidate.get("escalation"))
    summary = reader.text(candidate, "$", "summary")
    report = Report(
        summary=summary or escalation.reason or "",
        escalation=escalation,
        events=tuple(reader.events(candidate.get("events"))),
        memories=tuple(reader.memories(candidate.get("memories"))),
        services_checked=tuple(reader.checks(candidate.get("services_checked"))),
    )
    kept = escalation.needed and bool(report.summary)
    degraded = tuple(f"{DEGRADED} {note}" for note in (*reader.gaps, *(reader.filler if kept else ())))
    return ReportReading(
        report=report,
        warnings=(*degraded, *reader.notes),
        faults=() if kept else tuple(reader.filler),
    )


class _Reader(msgspec.Struct, frozen=True):
    """Reads the parts of a candidate and remembers what was wrong with them."""

    notes: list[str] = msgspec.field(default_factory=list)  # an entry was dropped or changed
    gaps: list[str] = msgspec.field(default_factory=list)  # an answer is missing and cannot be filled in
    filler: list[str] = msgspec.field(default_factory=list)  # a statement is missing or only filler

    def text(self, source: Mapping[str, object], path: str, key: str) -> str | None:
        """Return a statement; ``None``, with a note, when there is none."""
        value = source.get(key)
        where = f"{path}.{key}"
        if not isinstance(value, str):
            self.filler.append(f"{where}: is missing" if value is None else f"{where}: is not text")
            return None
        text = plain(value)
        if is_filler(text):
            self.filler.append(f"{where}: {cut(text, 40)!r} is a placeholder" if text else f"{where}: is blank")
            return None
        return cut(text, TEXT_LENGTH)

    def optional(self, source: Mapping[str, object], path: str, key: str, length: int = TEXT_LENGTH) -> str | None:
        """Return an optional text; filler counts as absent."""
        value = source.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.notes.append(f"{path}.{key}: is not text, left out")
            return None
        text = plain(value)
        return None if is_filler(text, name=True) else cut(text, length)

    def entries(self, value: object, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Yield the objects of a list with their paths."""
        if value is None:
            return
        if not isinstance(value, list):
            self.gaps.append(f"{path}: is not a list, left out")
            return
        if len(value) > _MOST_ENTRIES:
            self.notes.append(f"{path}: has {len(value)} entries, only the first {_MOST_ENTRIES} were kept")
        for index, entry in enumerate(value[:_MOST_ENTRIES]):
            if isinstance(entry, dict):
                yield f"{path}[{index}]", entry
            else:
                self.gaps.append(f"{path}[{index}]: is not an object, left out")

    def events(self, value: object) -> Iterator[NewEvent]:
        """Yield the events that are not filler."""
        for path, entry in self.entries(value, "$.events"):
            message = self.text(entry, path, "message")
            if message is not None:
                service = self.optional(entry, path, "service", _NAME_LENGTH)
                yield NewEvent(level=self.level(entry.get("level"), path), message=message, service=service)

    def level(self, value: object, path: str) -> EventLevel:
        """Return an event's level; an unknown word counts as ``info``."""
        level = level_of(value) if isinstance(value, str) else None
        if level is None:
            word = repr(cut(value, 40)) if isinstance(value, str) else "no word"
            self.notes.append(f"{path}.level: {word} is not a level, taken as info")
        return level or EventLevel.INFO

    def memories(self, value: object) -> Iterator[ReportedMemory]:
        """Yield the memories whose keys can be read; the others only cause a warning."""
        for path, entry in self.entries(value, "$.memories"):
            key, observation = entry.get("key"), entry.get("value")
            if not isinstance(key, str) or not isinstance(observation, str) or is_filler(observation):
                self.notes.append(f"{path}: needs a key and a value that says something, left out")
                continue
            service, colon, category = key.partition(":")
            if not colon:
                service, category = "", key
            service, category = plain(service), plain(category)
            if not category:
                self.notes.append(f"{path}.key: {cut(plain(key), 40)!r} names no category, left out")
                continue
            yield ReportedMemory(
                category=cut(category, _NAME_LENGTH),
                observation=cut(plain(observation), TEXT_LENGTH),
                service=cut(service, _NAME_LENGTH) or None,
                supersedes=self.memory_id(entry.get("supersedes"), path),
            )

    def memory_id(self, value: object, path: str) -> int | None:
        """Return the id of the memory that one replaces: 12, "12" or, as prompts write it, "m12"."""
        if value is None:
            return None
        text = str(value).strip().lower() if isinstance(value, str | int) and not isinstance(value, bool) else ""
        digits = text.removeprefix("m")
        if digits.isascii() and digits.isdigit() and len(digits) <= _ID_DIGITS:
            return int(digits)
        if text and not is_filler(text, name=True):
            self.notes.append(f"{path}.supersedes: {cut(text, 40)!r} is no memory's id, left out")
        return None

    def checks(self, value: object) -> Iterator[ServiceCheck]:
        """Yield the checks of named services; one with an unknown status proves nothing and is left out."""
        for path, entry in self.entries(value, "$.services_checked"):
            name, word = entry.get("name"), entry.get("status")
            status = _STATUSES.get(word.strip().casefold()) if isinstance(word, str) else None
            if not isinstance(name, str) or is_filler(name, name=True):
                self.filler.append(f"{path}.name: names no service")
            elif status is None:
                self.gaps.append(f"{path}.status: is not a status, left out")
            else:
                detail = self.optional(entry, path, "detail")
                yield ServiceCheck(service=cut(plain(name), _NAME_LENGTH), status=status, detail=detail)

    def escalation(self, value: object) -> Escalation:
        """Return the wish to escalate; an unreadable answer counts as a wish only with a reason, and leaves a gap."""
        source: Mapping[str, object] = value if isinstance(value, dict) else {"needed": value}
        path = "$.escalation"
        reason = self.optional(source, path, "reason")
        reason = None if reason is not None and is_filler(reason) else reason
        needed = self.flag(source.get("needed"), otherwise=reason is not None)
        if needed and reason is None:
            self.gaps.append(f"{path}.reason: is missing although an escalation is needed")
        return Escalation(
            needed=needed,
            reason=reason,
            context=self.optional(source, path, "context"),
            failed_checks=self.failed_checks(source.get("failed_checks")),
        )

    def flag(self, value: object, *, otherwise: bool) -> bool:
        """Return ``escalation.needed``."""
        if isinstance(value, bool):
            return value
        word: object = value.strip().casefold() if isinstance(value, str) else value
        answer = _FLAGS.get(word) if isinstance(word, str | int | float) else None
        needed = otherwise if answer is None else answer
        self.gaps.append(f"$.escalation.needed: is no true or false, taken as {str(needed).lower()}")
        return needed

    def failed_checks(self, value: object) -> tuple[str, ...]:
        """Return the names of failed checks."""
        checks = [value] if isinstance(value, str) else value
        if checks is None:
            return ()
        if not isinstance(checks, list):
            self.notes.append("$.escalation.failed_checks: is not a list, left out")
            return ()
        texts = [plain(check) for check in checks[:_MOST_ENTRIES] if isinstance(check, str)]
        return tuple(cut(text, TEXT_LENGTH) for text in texts if text)
