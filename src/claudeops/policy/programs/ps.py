"""The fixed form of ``ps``: what is selected, and which fields are shown.

ps reads one word as letters with or without a dash, and the letters mean different things; ``e`` shows environments.
So only known letters are read, and what runs has one spelling: ``-e -o FIELDS --sort=KEY``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from claudeops.policy.rules import RuleRefusedError, UnclearCommandError
from claudeops.policy.shell.language import Literal, Word, shown
from claudeops.text import regex

_USER: Final = "user,pid,pcpu,pmem,vsz,rss,tname,stat,start_time,bsdtime,args"  # as ``ps u`` shows
_FULL: Final = "user,pid,ppid,c,stime,tname,time,args"  # as ``ps -f`` shows
_FIELDS: Final = regex.Pattern(r"[a-z%_]+(?::\d{1,3})?(?:=[A-Za-z%]*)?(?:,[a-z%_]+(?::\d{1,3})?(?:=[A-Za-z%]*)?)*")
_KEYS: Final = regex.Pattern(r"[+-]?[a-z%_]+(?:,[+-]?[a-z%_]+)*")
_IDS: Final = regex.Pattern(r"\d+(?:,\d+)*")
_NAMES: Final = regex.Pattern(r"[A-Za-z0-9_][\w.@+-]*(?:,[A-Za-z0-9_][\w.@+-]*)*")
_VALUES: Final = {
    "-o": _FIELDS,
    "-p": _IDS,
    "--ppid": _IDS,
    "-C": _NAMES,
    "-u": _NAMES,
    "--sort": _KEYS,
    "--cols": _IDS,
}
_LONG: Final = {"--format": "-o", "--pid": "-p", "--user": "-u", "--columns": "--cols", "--width": "--cols"}
_FLAGS: Final = frozenset({"--forest", "--no-headers"})
_PLAIN: Final = {"a": "-e", "x": "-e", "u": _USER, "f": "--forest", "w": "", "o": "-o", "p": "-p"}
_DASHED: Final = {
    "e": "-e",
    "A": "-e",
    "a": "-e",
    "x": "-e",
    "f": _FULL,
    "F": _FULL,
    "w": "",
    "L": "-L",
    "H": "--forest",
    "o": "-o",
    "p": "-p",
    "C": "-C",
    "u": "-u",
}
_HINT: Final = "write ps aux, ps -ef, or ps -e -o pid,ppid,user,pcpu,pmem,stat,args --sort=-pcpu"


def read_ps(words: tuple[Word, ...]) -> tuple[Literal, ...]:
    """Return the words behind ``ps`` in their one form. Raises `RuleRefusedError` for letters that are not known."""
    selected: dict[str, str] = {}
    fields: list[str] = []
    others: dict[str, str] = {}
    for name, value in _read(words):
        if name in {_USER, _FULL}:
            fields = fields or [name]
        elif name == "-o":
            fields = [*(each for each in fields if each not in {_USER, _FULL}), value]
        elif name in {"-e", "-p", "-C", "-u", "--ppid"}:
            selected[name] = value
        elif name:
            others[name] = value
    written = [part for name, value in selected.items() for part in (name, value) if part]
    for each in fields:
        written += ["-o", each]
    written += [f"{name}={value}" if value else name for name, value in others.items()]
    return tuple(map(Literal, written))


def _read(words: tuple[Word, ...]) -> Iterator[tuple[str, str]]:
    """Yield options by their canonical names, with their values or ""."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not isinstance(word, Literal):
            raise UnclearCommandError(f"ps: {shown(word)} is not known before it runs: write it out")
        text = word.text
        if _IDS.fullmatch(text):
            yield "-p", text
        elif text.startswith("--"):
            name, attached, value = text.partition("=")
            name = _LONG.get(name, name)
            if name not in _VALUES and name not in _FLAGS:
                raise RuleRefusedError(f"ps {text[:40]} is not allowed: {_HINT}")
            yield name, _value(name, value if attached else None, rest) if name in _VALUES else ""
        else:
            yield from _letters(text, rest)


def _letters(text: str, rest: list[Word]) -> Iterator[tuple[str, str]]:
    # ps reads ``-aux`` as ``aux`` unless there is a user x; everybody means the latter.
    known = _DASHED if text.startswith("-") and not text.startswith("-au") else _PLAIN
    letters = text.removeprefix("-")
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter not in known:
            raise RuleRefusedError(f"ps {text[:40]}: the letter {letter!r} is not allowed: {_HINT}")
        name = known[letter]
        if name in _VALUES:
            yield name, _value(name, letters or None, rest)
            return
        yield name, ""


def _value(name: str, value: str | None, rest: list[Word]) -> str:
    word = Literal(value) if value is not None else rest.pop(0) if rest else Literal("")
    text = word.text if isinstance(word, Literal) else ""
    if not _VALUES[name].fullmatch(text) or "environ" in text:
        raise RuleRefusedError(f"ps {name} {text[:40]}: the value is not plain: {_HINT}")
    return text
