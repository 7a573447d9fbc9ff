r"""Matchers of labels, as Alertmanager writes them: ``severity="critical"``, ``alertname=~"Node.*"``.

A label that is missing counts as empty. Expressions are google-re2's and must match the whole value, so what senders
write into labels costs linear time whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from claudeops.text import regex

SERVICE: Final = "service"
PLAIN: Final = ""
"""Where the plain name of a service stands beside its scoped one, ``shop/checkout``: no label has an empty name."""

MOST_MATCHERS: Final = 50
_MOST_VALUE: Final = 1000  # characters
_NAME: Final = rf"(?:\"((?:[^\"\\]|\\.)+)\"|([{regex.WORD}][{regex.WORD}.:/-]*))"
_TEXT: Final = regex.Pattern(rf"\s*{_NAME}\s*(=~|!~|!=|=)\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\"{{}},=!~]*))\s*")
_ESCAPE: Final = regex.Pattern(r"(?s)\\(.)")


class Operator(StrEnum):
    """How a matcher compares."""

    EQUAL = "="
    UNEQUAL = "!="
    FITS = "=~"
    DIFFERS = "!~"


class Matcher(msgspec.Struct, frozen=True):
    """A condition on one label."""

    name: str
    operator: Operator
    value: str

    def __str__(self) -> str:
        name = self.name if regex.fullmatch(rf"[{regex.WORD}][{regex.WORD}.:/-]*", self.name) else _quoted(self.name)
        return f"{name}{self.operator}{_quoted(self.value)}"

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fulfil the condition; a service is meant by either of its names."""
        is_met = self._fits(labels.get(self.name, ""))
        if not is_met and self.name == SERVICE and (plain := labels.get(PLAIN)):
            is_met = self._fits(plain)
        return is_met is (self.operator in {Operator.EQUAL, Operator.FITS})

    def _fits(self, value: str) -> bool:
        if self.operator in {Operator.EQUAL, Operator.UNEQUAL}:
            return value == self.value
        return regex.fullmatch(self.value, value) is not None


def all_hold(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    """Return whether all conditions are fulfilled; without any, they are."""
    return all(matcher.holds(labels) for matcher in matchers)


def read_matcher(text: str) -> Matcher:
    """Return one matcher. Raises `ValueError` with a clause."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is no matcher: write 'severity=\"critical\"', with =, !=, =~ or !~")
    return _matcher(found)


def read_matchers(texts: Iterable[str]) -> tuple[Matcher, ...]:
    """Return matchers, of which one text may hold several: ``{a="b", c=~"d"}``. Raises `ValueError` with a clause.

    At least one must fail for an alert without labels: what fits everything is a slip.
    """
    matchers = tuple(matcher for text in texts for matcher in _several(text))
    if len(matchers) > MOST_MATCHERS:
        raise ValueError(f"{len(matchers)} matchers are too many: write at most {MOST_MATCHERS}")
    if all_hold(matchers, {}):
        raise ValueError("it fits every alert: write at least one matcher that an alert without labels does not fulfil")
    return matchers


def _several(text: str) -> Iterator[Matcher]:
    inner = text.strip()
    inner = inner[1:-1] if inner.startswith("{") and inner.endswith("}") else inner
    while inner.strip():
        found = _TEXT.match(inner)
        if found is None or inner[found.end() : found.end() + 1] not in {"", ","}:
            raise ValueError(f"{inner[:80]!r} is no matcher: write 'severity=\"critical\"', with =, !=, =~ or !~")
        yield _matcher(found)
        inner = inner[found.end() + 1 :]


def _matcher(found: regex.Match[str]) -> Matcher:
    name = _plain(found[1]) if found[1] is not None else found[2]
    value = _plain(found[4]) if found[4] is not None else (found[5] or "").strip()
    if len(value) > _MOST_VALUE:
        raise ValueError(f"a value of {len(value)} characters is too long: write at most {_MOST_VALUE}")
    matcher = Matcher(name, Operator(found[3]), value)
    if matcher.operator in {Operator.FITS, Operator.DIFFERS}:
        try:
            regex.check(value)
        except regex.ExpressionError as error:
            raise ValueError(f"{value[:80]!r} is no expression of google-re2: {error}") from None
    return matcher


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[0] if found[1] not in '"\\' else found[1], text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
