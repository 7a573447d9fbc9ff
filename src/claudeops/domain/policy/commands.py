"""Judges one simple command: its name, its assignments and redirections, its arguments, and what it wraps."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from claudeops.domain.policy import paths, urls
from claudeops.domain.policy.argument_kinds import Setting
from claudeops.domain.policy.rule_match import Match, match, prints_names
from claudeops.domain.policy.rules import RefusedError
from claudeops.domain.policy.unfold import unfold
from claudeops.domain.shell.variables import refuse_value, refuse_variable

if TYPE_CHECKING:
    from claudeops.domain.model import Action
    from claudeops.domain.policy.paths import Place
    from claudeops.domain.policy.rule_book import RuleBook
    from claudeops.domain.shell.values import Redirection, SimpleCommand, Word

DEEPEST_WRAPPING: Final = 5  # wrappers within wrappers

_USUAL_DIRECTORIES: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})
_SCREEN: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/63"})
_CONNECTION: Final = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/(\d{1,5})")


@dataclass(slots=True)
class Finding:
    """What judging found out. Without a ``denial`` the command may run."""

    denial: str = ""
    actions: list[Action] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)  # files of the session's own that it changes
    lines: list[str] = field(default_factory=list)  # every command line judged, wrapped ones too

    def add(self, other: Finding) -> None:
        """Take over what another command was found to be; the first denial stands."""
        self.denial = self.denial or other.denial
        self.actions += other.actions
        self.writes += other.writes
        self.lines += other.lines


class CommandJudge:
    """Judges commands by the rules of one tier."""

    def __init__(self, *, book: RuleBook, tier: int, may_write: bool) -> None:
        self._book = book
        self._tier = tier
        self._may_write = may_write

    def judge(self, command: SimpleCommand, place: Place, depth: int = 0) -> Finding:
        """Return what a command is, with everything that it wraps."""
        place = replace(place, cwd=command.cwd)
        finding = Finding(lines=[command.line] if command.argv else [])
        try:
            _refuse_assignments(command)
            for redirection in command.redirections:
                self._redirection(redirection, place, finding)
            if command.argv:
                self._run(command, place, depth, finding)
        except RefusedError as refusal:
            finding.denial = str(refusal)
        return finding

    def _run(self, command: SimpleCommand, place: Place, depth: int, finding: Finding) -> None:
        name = _command_name(command.argv[0])
        found = self._book.find(name, command.argv[1:])
        finding.lines.append(" ".join([name, *(word.text for word in command.argv[1:])]))
        fits: Match | None = None
        if found.rules:
            try:
                fits = match(found, place, tier=self._tier, names_only=self._names_only(place))
            except RefusedError:
                if found.wrapper is None:
                    raise
        if fits is not None:
            if fits.actions and command.repeated:
                raise RefusedError(f"{found.path}: in a loop it cannot be counted: write each one out")
            finding.actions += fits.actions
            finding.writes += [command.line] if fits.rule.writes else []
        elif found.wrapper is not None:
            if depth >= DEEPEST_WRAPPING:
                raise RefusedError(f"{found.path}: too many commands within each other: write the inner one plainly")
            inside = replace(place, cwd=None, local=False) if found.wrapper.elsewhere else place
            setting = Setting(place=place, names_only=self._names_only(place))
            for inner in unfold(found, found.wrapper, command, setting):
                finding.add(self.judge(inner, inside, depth + 1))

    def _names_only(self, place: Place) -> _NamesOnly:
        return _NamesOnly(self._book, self._tier, place)

    def _redirection(self, redirection: Redirection, place: Place, finding: Finding) -> None:
        target, operator = redirection.target, redirection.operator
        if target is None or (operator in {"<&", ">&"} and re.fullmatch(r"\d-?", target.text)):
            return
        connection = _CONNECTION.fullmatch(target.text)
        if operator == "<":
            refused = urls.refuse_host(connection[1]) if connection else paths.readable(target, place)
        elif operator == "<&":
            refused = f"<&{target.text} is not plain: name a number"
        elif target.constant and target.text in _SCREEN:
            return
        elif not self._may_write:
            refused = f"writing to {target.text} is not allowed at tier {self._tier}: leave the output on the screen"
        else:
            refused = paths.own(target, place)
            finding.writes.append(f"write {target.text}")
        if refused:
            raise RefusedError(refused)


class _NamesOnly:
    """Answers whether a dynamic word can only turn out to be names."""

    def __init__(self, book: RuleBook, tier: int, place: Place) -> None:
        self._book = book
        self._tier = tier
        self._place = place

    def __call__(self, word: Word) -> bool:
        if not word.outputs or not word.outputs[0].argv:
            return False
        first = word.outputs[0]
        try:
            found = self._book.find(_command_name(first.argv[0]), first.argv[1:])
            fits = match(found, self._place, tier=self._tier, names_only=lambda _word: False)
        except RefusedError:
            return False
        return prints_names(word.outputs, fits)


def _command_name(word: Word) -> str:
    """Return the name that rules go by. A path counts as its last part only in the usual directories."""
    if not word.constant:
        raise RefusedError(f"which command {word.text} is, is not known before it runs: write it out")
    directory, name = posixpath.split(word.text)
    if not re.fullmatch(r"[\w.:\[+-]+", name):
        raise RefusedError(f"{word.text[:80]!r} is no command")
    if "/" in word.text and directory not in _USUAL_DIRECTORIES:
        raise RefusedError(f"{word.text}: programs and scripts outside the system's directories are not judged")
    return name


def _refuse_assignments(command: SimpleCommand) -> None:
    for name, value in command.assignments:
        reason = refuse_variable(name, exported=bool(command.argv))
        if command.argv and not reason:
            reason = refuse_value(name, value.text) if value.constant else f"{name} is not known before it runs"
        if reason:
            raise RefusedError(reason)
