"""The fixed form of ``find``: ``find -P DIRECTORY… TESTS``, and at its end perhaps one ``-exec PROGRAM … {} +``.

find reads the word behind ``-exec`` and everything up to its end as another program's, wherever it stands, and tests
behind it do not limit it. So it must be last, and what it may be given is judged as every file that could be found.
"""

from __future__ import annotations

from typing import Final

import msgspec

from claudeops.policy.arguments import CheckContext, check, form
from claudeops.policy.places import ANY_DEPTH
from claudeops.policy.rules import RuleRefusedError, UnclearCommandError, option_table
from claudeops.policy.shell.language import Glob, Literal, Word
from claudeops.text import regex

_MOST_ROOTS: Final = 32
TESTS: Final = (
    "-empty -depth -mount -xdev -print -print0 -ls -prune -quit -true -false -nouser -nogroup -readable -writable"
    " -executable -daystart -noleaf -o -or -a -and -not ! ( ) ,"
    " -name=text -iname=text -path=text -ipath=text -wholename=text -regex=text -iregex=text -regextype=text -type=text"
    " -xtype=text -size=text -perm=text -user=text -group=text -uid=text -gid=text -links=text -inum=text -fstype=text"
    " -mtime=text -mmin=text -atime=text -amin=text -ctime=text -cmin=text -newermt=text -maxdepth=int -mindepth=int"
    " -printf=text -newer=listing -anewer=listing -cnewer=listing -samefile=listing"
)
"""What an expression may hold besides ``-exec``, written like options."""

_ACTS: Final = frozenset({"-delete", "-execdir", "-ok", "-okdir", "-fls", "-fprint", "-fprint0", "-fprintf"})
_CHOICES: Final = frozenset({"-o", "-or", "!", "-not", ",", "("})
_SHOW_METADATA: Final = frozenset({"ls", "du", "stat"})
_BEGINS_EXPRESSION: Final = regex.Pattern(r"(?s)-.*|[(),!]")


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A search that has been read."""

    roots: tuple[str, ...]  # absolute
    tests: tuple[str, ...]
    names: str  # pattern of the names that can be found
    program: tuple[Literal, ...] = ()  # what ``-exec`` runs, without the ``{}`` at its end
    end: str = "+"

    def written(self, program: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the words behind ``find``; ``program`` is what ``-exec`` runs in its canonical form."""
        words: tuple[Word, ...] = tuple(map(Literal, ("-P", *self.roots, *self.tests)))
        if not self.program:
            return words
        reads = self.program[0].text.rpartition("/")[2] not in _SHOW_METADATA
        if reads and (
            self.tests[-2:] != ("-type", "f") or not _CHOICES.isdisjoint(self.tests)
        ):  # a link to a file would be followed
            words = (*words, Literal("-type"), Literal("f"))
        return (*words, Literal("-exec"), *program, Literal(self.end))


def read_find(words: tuple[Word, ...], setting: CheckContext) -> Search:
    """Read the words behind ``find``. Raises `RuleRefusedError`."""
    acts = next((word.text for word in words if isinstance(word, Literal) and word.text in _ACTS), None)
    if acts:
        raise RuleRefusedError(f"find {acts} is not allowed: find may only look")
    if not all(isinstance(word, Literal) for word in words):
        raise UnclearCommandError("find: quote its patterns, and write everything out")
    texts = [word.text for word in words if isinstance(word, Literal)]
    if texts[:1] in (["-L"], ["-H"]):
        raise RuleRefusedError(
            f"find {texts[0]} is not allowed: it could follow a link to anywhere; name the directory itself"
        )
    texts = texts[1:] if texts[:1] == ["-P"] else texts
    start = next((at for at, text in enumerate(texts) if _BEGINS_EXPRESSION.fullmatch(text)), len(texts))
    roots = texts[:start] or ["."]
    if len(roots) > _MOST_ROOTS:
        raise RuleRefusedError(f"find: more than {_MOST_ROOTS} directories: split the call")
    for root in roots:
        if reason := check("listing", Literal(root), setting):
            raise RuleRefusedError(f"find: {reason}")
    tests, names, rest = _tests(texts[start:], setting)
    program, end = _program(rest)
    return Search(
        roots=tuple(form("listing", root, setting) for root in roots),
        tests=tuple(tests),
        names=names[-1] if names and not _CHOICES & set(tests) else "*",
        program=program,
        end=end,
    )


def executed(search: Search) -> tuple[tuple[Word, ...], ...]:
    """Return what ``-exec`` runs, once for each directory, with a pattern for the files that are found there."""
    if not search.program:
        return ()
    return tuple((*search.program, Glob(f"{root.rstrip('/')}/{ANY_DEPTH}/{search.names}")) for root in search.roots)


def _tests(texts: list[str], setting: CheckContext) -> tuple[list[str], list[str], list[str]]:
    """Return the tests of an expression, the names that ``-name`` wants, and what begins with ``-exec``."""
    tests: list[str] = []
    names: list[str] = []
    rest = list(texts)
    while rest and rest[0] != "-exec":
        token = rest.pop(0)
        option = option_table(TESTS).get(token)
        if option is None or (option.kind and not rest):
            raise RuleRefusedError(f"find {token} is not allowed: find may only look")
        tests.append(token)
        if option.kind:
            value = rest.pop(0)
            if reason := check(option.kind, Literal(value), setting):
                raise RuleRefusedError(f"find {token}: {reason}")
            tests.append(form(option.kind, value, setting))
            names += [value] if option.names[0] == "-name" else []
    return tests, names, rest


def _program(words: list[str]) -> tuple[tuple[Literal, ...], str]:
    if not words:
        return (), "+"
    *program, mark, end = words[1:] if len(words) > 3 else ("", "", "")  # noqa: PLR2004 - -exec PROGRAM {} +
    if mark != "{}" or end not in {"+", ";"} or any("{}" in word or word in {";", "+"} for word in program):
        raise RuleRefusedError("find: write one -exec at the end: -exec PROGRAM … {} +")
    return tuple(map(Literal, program)), end
