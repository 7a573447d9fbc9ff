"""A file of an operator's in TOML, read: its values, the lines on which they stand, and what is wrong with it.

This is the one door to the parser. It stands here and not in ``formats``, as the policy is read through it too.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, Final, TypeVar

import msgspec

from claudeops.errors import ConfigurationError
from claudeops.text import regex
from claudeops.text.toml_lines import Path, key_lines, line_of

NAME: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What an operator may call a schedule, a source, a target or a person."""

VARIABLE: Final = regex.Pattern(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
"""The name of a variable of the environment."""

_DIGITS: Final = regex.Pattern(r"[0-9_]+")
_POSITION: Final = regex.Pattern(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")
_AT_ENTRY: Final = regex.Pattern(r" - at `\$\.(\w+)\[(\d+)\](?:\.(\w+))?[^`]*`$")
_AT_KEY: Final = regex.Pattern(r" - at `\$\.?(\w*)[^`]*`$")
_EXPECTED: Final = regex.Pattern(r"Expected `([^`]+)`, got `([^`]+)`")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text in quotes",
    "bool": "true or false",
    "array": "a list in brackets",
    "object": "a table",
}
_SHOWN: Final = 40  # characters of an unknown key

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class TomlFault(Exception):  # noqa: N818 - not an error of ours: it describes a fault in an operator's text
    """What is wrong with a file; ``str()`` is a clause with the remedy, ``line`` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class KeyFault(Exception):  # noqa: N818 - as above
    """What is wrong with a key of a table, "" for the table itself; ``str()`` says why and what to write."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


class NotTomlError(ValueError):
    """A text is not TOML; ``str()`` is what the parser says, with the position."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        found = _POSITION.search(sentence)
        self.reason = _POSITION.sub("", sentence)  # without the position
        self.line = int(found[1]) if found and found[1] else None  # None: the text ends too early


def parse(text: str) -> dict[str, Any]:
    """Return the values of a text. Raises `NotTomlError`, and `RecursionError` where it is nested too deeply."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotTomlError(str(error)) from None
    except ValueError:  # of int()
        longest = max(_DIGITS.finditer(text), key=lambda found: len(found[0]))
        line = text.count("\n", 0, longest.start()) + 1
        raise NotTomlError(
            f"A whole number has more digits than can be read: write a shorter one (at line {line}, column 1)"
        ) from None


def nearest(name: str, known: Collection[str]) -> str:
    """Return the remedy for an unknown name: the nearest known one, else all of them."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


@cache  # msgspec evaluates the annotations each time
def keys_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the keys of a table, in their order."""
    return tuple(field.name for field in msgspec.structs.fields(kind))


@cache
def required_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the keys that a table cannot do without."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.required)


def as_struct(
    table: Mapping[str, object], kind: type[_Struct], *, value_of: Callable[[str, object], object] | None = None
) -> _Struct:
    """Return a table as a struct; ``value_of`` changes the values before. Raises `KeyFault`."""
    for key in required_of(kind):
        if key not in table:
            raise KeyFault("", f"{key!r} is missing: add it")
    values = table if value_of is None else {key: value_of(key, value) for key, value in table.items()}
    tag = kind.__struct_config__.tag
    try:
        return msgspec.convert(values if tag is None else {**values, "kind": tag}, kind)
    except msgspec.ValidationError as error:
        found = _AT_KEY.search(str(error))
        key = str(found[1]) if found else ""
        raise KeyFault(key, f"{key}: {_in_words(_AT_KEY.sub('', str(error)))}") from None


def _in_words(message: str) -> str:
    """Return what msgspec says about types as a clause with the remedy."""
    found = _EXPECTED.fullmatch(message)
    if found is None:
        return f"{message[:1].lower()}{message[1:]}: correct it"
    wanted = " or ".join(dict.fromkeys(_WORDS[each] for each in found[1].split(" | ") if each in _WORDS))
    return f"this is {_WORDS.get(found[2], found[2])}: write {wanted}"


@contextmanager
def fault_of(key: str) -> Iterator[None]:
    """Make a fault of a key of what the values of the domain refuse."""
    try:
        yield
    except (ConfigurationError, ValueError) as error:
        raise KeyFault(key, str(error)) from None


class TomlFile:
    """The text of a file, which knows where its keys are."""

    def __init__(self, text: str, *, what: str) -> None:
        """Read a text; ``what`` says what it should be, such as "a file of alerts". Raises `TomlFault`."""
        self._text = text
        try:
            self.values: dict[str, object] = parse(text)
        except NotTomlError as error:
            line = text.count("\n") + 1 if error.line is None else error.line
            raise TomlFault(line, f"this is not TOML: {error.reason}") from None
        except RecursionError:
            raise TomlFault(1, f"this is nested too deeply to be {what}") from None

    @cached_property
    def _lines(self) -> dict[Path, int]:
        return key_lines(self._text)

    def line(self, *path: str | int) -> int:
        """Return the line of a path, or of the nearest thing around it."""
        return line_of(self._lines, path)

    def fault(self, path: Path, reason: str) -> TomlFault:
        """Return a fault at a path."""
        return TomlFault(self.line(*path), reason)

    @contextmanager
    def at(self, *path: str | int, where: str = "") -> Iterator[None]:
        """Give the fault of a key of the table at a path its line; ``where`` stands before the sentence."""
        try:
            yield
        except KeyFault as fault:
            raise self.fault((*path, fault.key), f"{where}{fault}") from None

    def tables(self, name: str) -> Iterator[tuple[int, Mapping[str, object]]]:
        """Yield the tables of an array with their places in it; what is no table is passed over."""
        entries = self.values.get(name)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                yield index, entry

    def check_keys(
        self,
        table: Mapping[str, object],
        path: Path,
        known: Collection[str],
        *,
        where: str = "",
        shown: int | None = _SHOWN,
        remedy: Callable[[str, Collection[str]], str] = nearest,
    ) -> None:
        """Raise `TomlFault` for an unknown key of the table at a path; ``where`` stands before the sentence.

        ``shown``: how many characters of the key the sentence has.
        """
        for key in table:
            if key not in known:
                reason = f"{where}the key {key[:shown]!r} is not known here: {remedy(key, known)}"
                raise self.fault((*path, key), reason)

    def as_document(self, kind: type[_Struct], *, remedy: str) -> _Struct:
        """Return the text as a struct of arrays of tables. Raises `TomlFault`; ``remedy``: for what is no table."""
        try:
            return msgspec.convert(self.values, kind)
        except msgspec.ValidationError as error:
            found = _AT_ENTRY.search(str(error))
            reason = _AT_ENTRY.sub("", str(error)).replace("`", "'")
            if found is None:
                raise TomlFault(1, f"{reason}: {remedy}") from None
            path: Path = (found[1], int(found[2]), *([found[3]] if found[3] else []))
            raise self.fault(path, f"{found[3]}: {reason}" if found[3] else reason) from None
