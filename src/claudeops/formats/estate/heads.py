"""One line about a service, as lists have it: ``**shop** (web1): https://shop.example.org/, needs db``."""

from __future__ import annotations

from typing import Final

import msgspec

from claudeops.domain.estate import hosts, words
from claudeops.domain.estate.words import Facet
from claudeops.formats.estate import rules
from claudeops.formats.estate.vocabulary import SIGNS
from claudeops.formats.estate.windows import windows_in
from claudeops.text import regex

HEAD: Final = regex.Pattern(
    rf"(?:\*\*([^*]+)\*\*|__([^_]+)__|`([^`]+)`|\[([^\[\]]+)\]\(([^()\s]+)\)|([{regex.WORD}][{regex.WORD}./-]*))(.*)"
)
"""A name, marked or not, and what comes behind it."""

ALSO: Final = regex.Pattern(r"(?i)^(?:aka|a\.k\.a\.|also known as|also called|alias(?:es)?:?|also)\s+(.+)$")
ADDRESS: Final = regex.Pattern(r"(?i)^[`<]?[a-z][a-z0-9+.-]*://\S+$")
IDENTIFIER: Final = regex.Pattern(rf"[{regex.WORD}][{regex.WORD}./-]*")

_SEPARATED: Final = regex.Pattern(
    r"\s*(?:(:)|\(|,|;|[\x{2013}\x{2014}@]|-\s|\|)(.*)|\s+(?:on|at|runs on|lives on|in|needs|depends on)\s.*"
)
_PHRASES: Final = (
    (regex.Pattern(r"(?i)^(?:it )?(?:needs|depends on|requires|uses|relies on)\s+(.+)$"), Facet.DEPENDENCIES),
    (ALSO, Facet.ALIASES),
    (regex.Pattern(r"(?i)^restart(?:ed)?(?: it)?(?: with| by| via|:)\s+(.+)$"), Facet.RESTART),
    (regex.Pattern(r"(?i)^(?:runs |lives |running |is )?(?:on|at|@|host:?|in)\s+`?([\w.@-]+)`?$"), Facet.HOST),
)
_EXPECTED: Final = regex.Pattern(
    r"(?i)^(?:expect(?:s|ed)?|normal(?:ly)?|healthy|should|answers|returns|must)\b[:\s]*(.*)$"
)
_NUMBERED: Final = regex.Pattern(
    r"(?i)[*_`]*(?:(?:ct|vm|lxc|id|container)[ -]?)?#?(?:(\d+)[*_`]*\s*[:=)|\x{2013}\x{2014}-]|(\d{3,}))[*_`]*\s+(\S.*)"
)
"""``101: nextcloud``: the number of a virtual machine or container, and its name."""

_SIGNS: Final = "".join(sorted(SIGNS))
_SIGNED_NAME: Final = regex.Pattern(rf"^\s*([*_`\[]*)([{_SIGNS}][{_SIGNS}\x{{fe0f}}\s]*)(\S.*)$")  # "**\u26d4 web**"
_SIGN: Final = regex.Pattern(rf"\s+[^{regex.WORD}\s]")  # such as a warning sign
_SIGNED: Final = regex.Pattern(rf"([{regex.WORD}][{regex.WORD}./-]*)\s+([^{regex.WORD}\s].*)")
_DASHES: Final = " :,;@|-\N{EN DASH}\N{EM DASH}"
_DEEPEST: Final = 3  # brackets in brackets; numbers and signs in front of a name


class Details(msgspec.Struct, kw_only=True):
    """What stands behind a name."""

    facets: list[tuple[Facet, str]] = msgspec.field(default_factory=list)
    prose: list[str] = msgspec.field(default_factory=list)

    def has(self, part: Facet) -> bool:
        """Whether something of this kind was found."""
        return any(known is part for known, _ in self.facets)


class ServiceHead(msgspec.Struct, frozen=True, kw_only=True):
    """A line that names a service."""

    name: str
    details: Details


def read_head(text: str, depth: int = 0) -> ServiceHead | None:
    """Return what a line says of the service that it names; None when it names none. ``depth``: what is in front."""
    signed = _SIGNED_NAME.match(text)
    if signed is not None and depth < _DEEPEST:
        return _with_sign(read_head(signed[1] + signed[3], depth + 1), signed[2])
    found = HEAD.fullmatch(text.strip())
    if found is None:
        return None
    marked = found[1] or found[2] or found[3] or found[4]
    name, rest = words.name_in(marked or found[6]), found[7]
    numbered = _NUMBERED.fullmatch(text.strip()) if depth < _DEEPEST else None
    head = read_head(numbered[3], depth + 1) if numbered is not None and not ADDRESS.match(numbered[3]) else None
    if numbered is not None and head is not None:
        head.details.facets.insert(0, (Facet.ALIASES, numbered[1] or numbered[2]))
        return head
    if marked is None and words.key_form(name) in words.NOT_NAMES:
        return None
    apart = _SEPARATED.fullmatch(rest) is not None or (_SIGN.match(rest) is not None and rules.forbids(rest))
    if rest.strip() and not apart and not (marked or "").endswith(":"):
        return None
    details = read_details(rest)
    if found[5]:
        details.facets.insert(0, (Facet.ADDRESS, found[5]))
    return ServiceHead(name=name, details=details)


def _with_sign(head: ServiceHead | None, sign: str) -> ServiceHead | None:
    if head is not None:
        head.details.prose.append(sign.strip())
    return head


def split_name(text: str, depth: int = 0) -> tuple[str, str]:
    """Return the name in a cell or heading, and what stands behind it: in brackets, or forbidden behind a dash."""
    whole = words.plain(text)
    barred = _SIGNED_NAME.match(whole)
    if barred is not None and depth < _DEEPEST:
        name, rest = split_name(barred[1] + barred[3], depth + 1)
        return name, f"{barred[2].strip()} {rest}".strip()
    name, found, rest = whole.partition(" (")
    if found:
        return words.name_in(name), rest.removesuffix(")").strip()
    for divider in (" - ", " \N{EN DASH} ", " \N{EM DASH} ", ": ", ", "):
        name, found, rest = whole.partition(divider)
        if found and rules.forbids(rest):
            return words.name_in(name), rest.strip()
    signed = _SIGNED.fullmatch(whole)
    if signed is not None and rules.forbids(signed[2]):
        return signed[1], signed[2]
    return words.name_in(whole), ""


def read_details(text: str) -> Details:
    """Return what the pieces of a text say."""
    details = Details()
    _take(text, details, 0)
    return details


def _take(text: str, details: Details, depth: int) -> None:
    for piece in words.fragments(text.strip().lstrip(_DASHES)):
        if piece.startswith("(") and depth < _DEEPEST:
            inner, found, after = piece[1:].partition(")")
            _take(inner if found else piece[1:], details, depth + 1)
            _take(after, details, depth + 1)
        else:
            before, found, inner = piece.partition(" (")
            apart = bool(found) and depth < _DEEPEST and rules.forbids(inner)
            _detail(before if apart else piece, details)
            _take(inner.removesuffix(")") if apart else "", details, depth + 1)


def _detail(piece: str, details: Details) -> None:
    if rules.reads_as_prohibition(piece):
        details.prose.append(piece)
        return
    for pattern, meaning in _PHRASES:
        found = pattern.match(piece)
        if found is not None:
            details.facets.append((meaning, found[1]))
            return
    spoken = words.key_value(piece)
    part = words.part_of(spoken[0]) if spoken is not None and not ADDRESS.match(piece) else None
    if spoken is not None and part is not None:
        details.facets.append((part, spoken[1]))
    elif windows_in(words.plain(piece)) is not None:
        details.facets.append((Facet.MAINTENANCE, piece))
    elif hosts.address_in(words.linked(piece)) or piece.startswith("`"):
        details.facets.append((Facet.CHECK, piece))
    elif (expected := _EXPECTED.match(piece)) is not None:
        details.facets.append((Facet.HEALTHY, expected[1] or piece))
    elif IDENTIFIER.fullmatch(words.plain(piece)):
        _one_word(words.plain(piece), details)
    else:
        details.prose.append(piece)


def _one_word(word: str, details: Details) -> None:
    """Take a single word: the host if none is known yet and it can be one, else what it runs as."""
    if word.casefold() in words.NOT_NAMES:
        details.prose.append(word)
        return
    if word.isdecimal():
        return  # an id or a port, and no host
    part = Facet.KIND if word.casefold() in words.PLATFORMS or details.has(Facet.HOST) else Facet.HOST
    if not details.has(part):
        details.facets.append((part, word))
