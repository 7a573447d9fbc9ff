r"""Regular expressions in linear time: google-re2 behind the interface of Python's `re`.

Everything that agents, repositories and models write is read with these and never with `re`, whose backtracking a text
of a few hundred characters can turn into minutes. Differences from `re`: no look-around and no back-references; ``\d``,
``\w``, ``\s`` and ``\b`` know ASCII only (`WORD` and `SPACE` are what `re` means by ``\w`` and ``\s``); ``$`` is the
very end of the text; flags are written in front of the expression, ``(?is)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, AnyStr, Final, Generic, Protocol, cast

import re2

WORD: Final = r"\pL\pN_"
"""Within brackets: letters, digits and the underscore of every script."""

SPACE: Final = r"\s\v\x1c-\x1f\x{85}\pZ"
"""Within brackets: everything that counts as space for `str.isspace`."""

_HALVES: Final = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # of surrogate pairs, which UTF-8 cannot encode
_MOST_EXPRESSIONS: Final = 2048  # compiled ones in this module's cache; a policy has some hundreds


class ExpressionError(ValueError):
    """google-re2 rejects an expression; ``str()`` says why."""


class Match(Generic[AnyStr]):
    """A match of an expression; positions are those of the given text."""

    __slots__ = ("_engine", "_found", "_text")

    def __init__(self, text: AnyStr, found: _Found, engine: _Engine) -> None:
        self._text: AnyStr = text
        self._found = found
        self._engine = engine

    def __getitem__(self, group: int | str) -> AnyStr | Any:
        """Return what a group matched, None when it did not take part."""
        start, end = self.span(group)
        return None if start < 0 else self._text[start:end]

    def span(self, group: int | str = 0) -> tuple[int, int]:
        """Return where a group begins and ends, (-1, -1) when it did not take part."""
        return self._found.span(group if isinstance(group, int) else self._engine.groupindex[group])

    def start(self, group: int | str = 0) -> int:
        """Return where a group begins."""
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        """Return where a group ends."""
        return self.span(group)[1]


class Pattern(Generic[AnyStr]):
    """An expression, compiled at its first use; every byte of a bytes expression is one Latin-1 character.

    Every method raises `ExpressionError` when google-re2 rejects the expression.
    """

    __slots__ = ("_compiled", "expression")

    def __init__(self, expression: AnyStr) -> None:
        self.expression: AnyStr = expression
        self._compiled: _Engine | None = None

    def __repr__(self) -> str:
        return f"Pattern({self.expression!r})"

    @property
    def engine(self) -> _Engine:
        """The expression as compiled by google-re2."""
        if self._compiled is None:
            self._compiled = _compile(self.expression)
        return self._compiled

    def fullmatch(self, text: AnyStr) -> Match[AnyStr] | None:
        """Return the match of the whole text, or None."""
        engine = self.engine
        found = engine.fullmatch(_encoded(text))
        return None if found is None else Match(text, found, engine)

    def match(self, text: AnyStr) -> Match[AnyStr] | None:
        """Return the match at the beginning of a text, or None."""
        engine = self.engine
        found = engine.match(_encoded(text))
        return None if found is None else Match(text, found, engine)

    def search(self, text: AnyStr) -> Match[AnyStr] | None:
        """Return the first match in a text, or None."""
        engine = self.engine
        found = engine.search(_encoded(text))
        return None if found is None else Match(text, found, engine)

    def finditer(self, text: AnyStr) -> Iterator[Match[AnyStr]]:
        """Yield the matches in a text, none overlapping another."""
        engine = self.engine
        return (Match(text, found, engine) for found in engine.finditer(_encoded(text)))

    def split(self, text: AnyStr, maxsplit: int = 0) -> list[AnyStr]:
        """Return what is between the matches, and the rest after ``maxsplit`` (0: all) of them; groups do not count."""
        parts: list[AnyStr] = []
        done = 0
        for count, match in enumerate(self.finditer(text), 1):
            start, end = match.span()
            parts.append(text[done:start])
            done = end
            if count == maxsplit:
                break
        parts.append(text[done:])
        return parts

    def sub(self, replacement: AnyStr | Callable[[Match[AnyStr]], AnyStr], text: AnyStr) -> AnyStr:
        """Return a text with every match replaced; a backslash in the replacement is a plain character."""
        parts: list[AnyStr] = []
        done = 0
        for match in self.finditer(text):
            start, end = match.span()
            parts += [text[done:start], replacement(match) if callable(replacement) else replacement]
            done = end
        if not parts:
            return text
        parts.append(text[done:])
        return text[:0].join(parts)


def fullmatch(expression: str, text: str) -> Match[str] | None:
    """Return the match of the whole text, or None; the compiled expression is kept."""
    return _pattern(expression).fullmatch(text)


def match(expression: str, text: str) -> Match[str] | None:
    """Return the match at the beginning of a text, or None; the compiled expression is kept."""
    return _pattern(expression).match(text)


def search(expression: str, text: str) -> Match[str] | None:
    """Return the first match in a text, or None; the compiled expression is kept."""
    return _pattern(expression).search(text)


def split(expression: str, text: str, maxsplit: int = 0) -> list[str]:
    """Return what is between the matches; the compiled expression is kept."""
    return _pattern(expression).split(text, maxsplit)


def sub(expression: str, replacement: str | Callable[[Match[str]], str], text: str) -> str:
    """Return a text with every match replaced; the compiled expression is kept."""
    return _pattern(expression).sub(replacement, text)


def escape(text: str) -> str:
    """Return the expression that matches exactly this text."""
    return cast("str", re2.escape(text))


def check(expression: str) -> None:
    """Raise `ExpressionError` when google-re2 rejects an expression."""
    _ = _pattern(expression).engine


class _Found(Protocol):
    def span(self, group: int = 0) -> tuple[int, int]: ...


class _Engine(Protocol):
    groupindex: dict[str, int]

    def search(self, text: str | bytes) -> _Found | None: ...
    def match(self, text: str | bytes) -> _Found | None: ...
    def fullmatch(self, text: str | bytes) -> _Found | None: ...
    def finditer(self, text: str | bytes) -> Iterator[_Found]: ...


@lru_cache(maxsize=_MOST_EXPRESSIONS)
def _pattern(expression: str) -> Pattern[str]:
    return Pattern(expression)


def _compile(expression: str | bytes) -> _Engine:
    options = re2.Options()
    options.log_errors = False  # they would go to stderr
    if isinstance(expression, bytes):
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return cast("_Engine", re2.compile(expression, options))
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else ""
        message = reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)
        raise ExpressionError(message) from None


def _encoded(text: str | bytes) -> str | bytes:
    """Return a text for the engine, with the same number of characters; ASCII as bytes, which it counts faster."""
    if isinstance(text, bytes):
        return text
    if text.isascii():
        return text.encode()
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.translate(_HALVES)
    return text
