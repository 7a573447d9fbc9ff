"""Judges one simple command: its name, its assignments and redirections, its arguments, and the commands it wraps."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from claudeops.domain.estate import forbidden
from claudeops.domain.estate.names import counted_by, counted_names, other_names_of
from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.looks import Look
from claudeops.domain.model import Action
from claudeops.domain.policy import paths
from claudeops.domain.policy import reach as urls
from claudeops.domain.policy.arguments import Setting
from claudeops.domain.policy.flow import refuse_feeding, refuse_sending
from claudeops.domain.policy.identity import plain_name, whole_name, wrapper_parts, wrapper_user
from claudeops.domain.policy.look import look_of, look_within
from claudeops.domain.policy.matching import Match, match, prints_names
from claudeops.domain.policy.never import refuse_line
from claudeops.domain.policy.paths import Place
from claudeops.domain.policy.policy import Never, Policy, TierPolicy
from claudeops.domain.policy.reach import Reach, matches
from claudeops.domain.policy.rule_book import Found, RuleBook
from claudeops.domain.policy.rules import IncompleteError, RefusedError, UnclearCommandError, Wrapper
from claudeops.domain.policy.unfold import Runs, own_arguments, strangers_of, unfold
from claudeops.domain.shell.render import BUILTINS
from claudeops.domain.shell.values import (
    Redirection,
    SimpleCommand,
    UnclearError,
    Word,
    WordKind,
    refuse_value,
    refuse_variable,
)
from claudeops.domain.text import glob, regex

DEEPEST_WRAPPING: Final = 5  # wrappers within wrappers
MOST_JUDGED: Final = 1024  # commands of one call, those in wrappers too

_USUAL_DIRECTORIES: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})
_SCREEN: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/63"})
_CONNECTION: Final = regex.Pattern(r"/dev/(?:tcp|udp)/([^/]+)/(\d{1,5})")


@dataclass(slots=True)
class Finding:
    """The result of judging. Without a ``denial`` and a ``doubt`` the command may run."""

    denial: str = ""
    doubt: str = ""  # why it is not clear what it does
    actions: list[Action] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)  # the session's own files that it changes
    lines: list[str] = field(default_factory=list)  # every judged command line, wrapped ones too
    runs: Runs | None = None  # the command as it runs, where nothing is in doubt
    looks: list[Look] = field(default_factory=list)  # what it looks at, as far as its status proves it
    names: dict[str, set[str]] = field(default_factory=dict)  # of the actions' services, by the counted one
    strangers: list[Stranger] = field(default_factory=list)  # why it is denied where nobody is asked about strangers
    people: dict[str, int] = field(default_factory=dict)  # how many must say yes, by what its rules want it for
    acting: set[str] = field(default_factory=set)  # those of the lines that are actions on services
    asks_for_more: bool = False  # its rules want a yes for a command that is no action on a service

    def add(self, other: Finding) -> None:
        """Add the finding about another command, except how it runs; the first denial and the first doubt count."""
        self.denial = self.denial or other.denial
        self.doubt = self.doubt or other.doubt
        self.actions += other.actions
        self.writes += other.writes
        self.lines += other.lines
        self.looks += other.looks
        self.strangers += other.strangers
        self.acting |= other.acting
        self.asks_for_more = self.asks_for_more or other.asks_for_more
        for name, called in other.names.items():
            self.names[name] = {*self.names.get(name, ()), *called}
        for what, count in other.people.items():
            self.people[what] = max(count, self.people.get(what, 0))

    def act(self, action: Action, counted: Mapping[str, str]) -> None:
        """Add an action on a service, given by its whole name; it goes by the name that the service is counted by."""
        main = counted_by(counted)(action.service)
        self.actions.append(replace(action, service=main))
        self.names[main] = {*self.names.get(main, ()), *names_of(action.service, counted)}

    @property
    def refusal(self) -> str:
        """Why it is denied where nobody is asked about anything, or ""."""
        return self.denial or next(iter(self.strangers), "")


class CommandJudge:
    """Judges commands by the rules of one tier."""

    def __init__(self, tier: TierPolicy) -> None:
        self._policy = tier.policy
        self._book = tier.policy.book
        self._kinds = tier.action_kinds
        self._tier = tier.level
        self._judged = 0
        self._counted: Mapping[str, str] | None = None

    def judge(self, command: SimpleCommand, place: Place, depth: int = 0) -> Finding:
        """Judge a command with everything that it wraps."""
        self._judged += 1
        if self._judged > MOST_JUDGED:
            return Finding(denial=f"more than {MOST_JUDGED} commands within each other: split the call")
        place = replace(place, cwd=command.cwd)
        finding = Finding(lines=[command.line] if command.argv else [], runs=None if command.argv else command)
        for step in (self._around, self._run):
            try:
                step(command, place, depth, finding)
            except UnclearCommandError as refusal:
                finding.doubt = finding.doubt or str(refusal)
                finding.denial = finding.denial or self._what_is_clear(command, place, depth)
            except RefusedError as refusal:
                finding.denial = finding.denial or str(refusal)
        return finding

    def _what_is_clear(self, command: SimpleCommand, place: Place, depth: int) -> str:
        """Return why the known words of a command are enough to refuse it, or ""."""
        known = tuple(word for word in command.argv if word.kind is not WordKind.DYNAMIC)
        if known == command.argv or known[:1] != command.argv[:1]:
            return ""
        try:
            self._run(replace(command, argv=known), place, depth, Finding())
        except (UnclearCommandError, IncompleteError):
            return ""
        except RefusedError as refusal:
            return str(refusal)
        return ""

    def _around(self, command: SimpleCommand, place: Place, _depth: int, finding: Finding) -> None:
        _refuse_assignments(command)
        for redirection in command.redirections:
            self._redirection(redirection, place, finding)

    def _run(self, command: SimpleCommand, place: Place, depth: int, finding: Finding) -> None:
        if not command.argv:
            return
        name = _command_name(command.argv[0])
        line = " ".join([name, *(word.text for word in command.argv[1:])])
        finding.lines.append(line)
        _refuse(refuse_line(line))
        _refuse(_refuse_by_file(line, self._policy.never))
        found = self._book.find(name, command.argv[1:])
        _refuse(refuse_sending(found.path, command))
        fits: Match | None = None
        if found.rules:
            try:
                fits = match(found, place, tier=self._tier, names_only=self._names_only(place))
            except RefusedError:
                if found.wrapper is None:
                    raise
        program = _program(name, command.argv[0].text, place)
        if fits is not None:
            finding.strangers += fits.strangers
            self._effects(fits, command, place, finding)
            finding.runs = replace(command, argv=(program, *command.argv[1:]))
            look = look_of(found, fits, command, place)
            finding.looks += [] if look is None else [look]
        else:
            self._inside(found, replace(command, argv=(program, *command.argv[1:])), place, depth, finding)
        if finding.actions:
            finding.acting |= {command.line, line}

    def _effects(self, fits: Match, command: SimpleCommand, place: Place, finding: Finding) -> None:
        if fits.actions and fits.rule.action not in self._kinds:
            raise RefusedError(f"{fits.path}: tier {self._tier} has no right to a {fits.rule.action}")
        if fits.actions and command.repeated:
            raise RefusedError(f"{fits.path}: in a loop it cannot be counted: write each one out")
        for action in fits.actions:
            whole = replace(action, service=whole_name((*place.where, *fits.where), action.service))
            names = self._names(place)
            _refuse(refuse_action(whole, names, self._policy, place.reach))
            finding.act(whole, names)
        finding.writes += [command.line] if fits.rule.writes else []
        if fits.rule.approvals:
            finding.people[fits.path] = fits.rule.approvals
            finding.asks_for_more = finding.asks_for_more or not fits.actions

    def _inside(self, found: Found, command: SimpleCommand, place: Place, depth: int, finding: Finding) -> None:
        wrapper = found.wrapper
        if wrapper is None:
            raise RefusedError(f"{found.path} is in no rule: it is not allowed at any tier")
        if self._tier < found.wrapper_tier:
            raise RefusedError(f"{found.path} needs tier {found.wrapper_tier}: say in the report why it is needed")
        if depth >= DEEPEST_WRAPPING:
            raise RefusedError(f"{found.path}: too many commands within each other: write the inner one plainly")
        inside = replace(place, cwd=None, local=False) if wrapper.elsewhere else place
        if wrapper.elsewhere or wrapper.fresh or (found.path == "env" and _unsets(found)):
            inside = replace(inside, tame=False)
        if wrapper.elsewhere:
            _refuse(refuse_feeding(found.path, command))
        setting = Setting(place=place, names_only=self._names_only(place))
        unfolded = unfold(found, wrapper, command, setting)
        finding.strangers += strangers_of(wrapper, found, setting) if wrapper.elsewhere else []
        inside = _placed(found, wrapper, setting, inside)
        runs: list[Runs] = []
        within = Finding()
        for inner in unfolded.parsed.commands:
            judged = self.judge(inner, inside, depth + 1)
            within.add(judged)
            runs += [judged.runs] if judged.runs is not None else []
        within.looks[:] = look_within(found, wrapper, command, place, within.looks)
        finding.add(within)
        _refuse(unfolded.parsed.refusal)
        if unfolded.parsed.problem:
            raise UnclearCommandError(unfolded.parsed.problem)
        if len(runs) < len(unfolded.parsed.commands):
            return  # some of them are refused or in doubt
        try:
            finding.runs = unfolded.rebuilt(runs)
        except UnclearError as error:
            raise UnclearCommandError(str(error)) from error

    def _names(self, place: Place) -> Mapping[str, str]:
        """Return the other names of services; they are gathered for the first action of a call."""
        if self._counted is None:
            self._counted = counted_names(place.scope.estate, self._policy.other_names)
        return self._counted

    def _names_only(self, place: Place) -> _NamesOnly:
        return _NamesOnly(self._book, self._tier, place)

    def _redirection(self, redirection: Redirection, place: Place, finding: Finding) -> None:
        target, operator = redirection.target, redirection.operator
        if target is None or (operator in {"<&", ">&"} and regex.fullmatch(r"\d-?", target.text)):
            return
        connection = _CONNECTION.fullmatch(target.text)
        if operator == "<" and connection and target.constant:
            refused = urls.refuse_host(connection[1]) or place.reach.refuse_host(connection[1])
            if isinstance(refused, Stranger):
                finding.strangers.append(refused)
                return
        elif operator == "<":
            refused = paths.readable(target, place)
        elif operator == "<&":
            refused = f"<&{target.text} is not plain: name a number"
        elif target.constant and target.text in _SCREEN:
            return
        elif not (place.reach.write or place.reach.files):
            refused = f"writing to {target.text} is not allowed at tier {self._tier}: leave the output on the screen"
        else:
            refused = paths.writable(target, place)
            finding.writes += [] if target.text in place.reach.files else [f"write {target.text}"]
        if refused and operator == "<" and target.kind is WordKind.DYNAMIC:
            raise UnclearCommandError(refused)
        _refuse(refused)


def refuse_action(action: Action, counted: Mapping[str, str], policy: Policy, reach: Reach) -> str | None:
    """Return why an action on a service, given by its whole name, is refused, or None.

    A service is forbidden by each of its names, wherever it runs and whoever calls it that, but allowed only by its
    whole name, or by the policy's own name for it: a manifest widens nothing.
    """
    name = action.service
    names = names_of(name, counted)
    if any(matches(each, pattern) for pattern in policy.never.services for each in names):
        return f"{name} is a service that the policy forbids at every tier"
    by_name = reach.refuse_service(name, *names)
    refused = by_name and reach.refuse_service(policy.counted_name(name), *names)
    return refused or forbidden.refuse_action(action.kind, names, reach.estate, counted)


def names_of(name: str, counted: Mapping[str, str]) -> tuple[str, ...]:
    """Return every name of a service that is given by its whole name, itself and its plain name among them."""
    main = counted_by(counted)(name)
    return tuple(dict.fromkeys((name, main, plain_name(name), *other_names_of(main, counted))))


class _NamesOnly:
    """Tells whether a dynamic word can only turn out to be names."""

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


def _program(name: str, written: str, place: Place) -> Word:
    """Return the program that a command runs, by its path where the session itself runs it; builtins stay names."""
    if name in BUILTINS:
        return Word(text=name)
    if "/" in written:
        return Word(text=written)
    wanted = "true" if name == ":" else name
    path = place.scope.program(wanted) if place.local else None
    return Word(text=path or wanted)  # one that is not installed fails under its name, as it would by hand


def _placed(found: Found, wrapper: Wrapper, setting: Setting, inside: Place) -> Place:
    """Return the place of the commands in a wrapper: with what the wrapper puts between them and the session."""
    if not (wrapper.elsewhere or wrapper.fresh):
        return inside
    arguments = own_arguments(wrapper, found, setting)
    user = wrapper_user(found.path, arguments)
    return replace(
        inside,
        where=(*inside.where, *wrapper_parts(found.path, arguments, found.given, setting.place)),
        user=inside.user if user is None else user,
    )


def _unsets(found: Found) -> bool:
    """Whether ``env`` may remove something from the environment."""
    return any(not word.constant or word.text.startswith("-") for word in found.arguments[:8])


def _refuse(reason: str | None) -> None:
    if reason:
        raise RefusedError(reason)


def _refuse_by_file(line: str, never: Never) -> str | None:
    for pattern in never.commands:
        if glob.matches(line, pattern):
            return f"{pattern} is forbidden by the policy at every tier"
    return None


def _command_name(word: Word) -> str:
    """Return the name by which rules are found. A path counts as its last part only in the usual directories."""
    if not word.constant:
        raise UnclearCommandError(f"which command {word.text} is, is not known before it runs: write it out")
    directory, name = posixpath.split(word.text)
    if not regex.fullmatch(r"[\w.:\[+-]+", name):
        raise RefusedError(f"{word.text[:80]!r} is not a command")
    if "/" in word.text and directory not in _USUAL_DIRECTORIES:
        raise UnclearCommandError(f"{word.text}: programs and scripts outside the system's directories are not judged")
    return name


def _refuse_assignments(command: SimpleCommand) -> None:
    for name, value in command.assignments:
        reason = refuse_variable(name, exported=bool(command.argv))
        if command.argv and not reason:
            reason = refuse_value(name, value.text) if value.constant else f"{name} is not known before it runs"
        if reason:
            raise RefusedError(reason)
