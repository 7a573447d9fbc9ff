"""Judges one simple command: its name, its assignments and redirections, its arguments, and the commands it wraps."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Final

import msgspec

from claudeops.domain.actions import Action
from claudeops.domain.estate import forbidden
from claudeops.domain.estate.service_names import ServiceNames
from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.gate.granted import Grant
from claudeops.domain.looks import EvidenceLook, LookCall
from claudeops.policy import paths
from claudeops.policy.arguments import CheckContext
from claudeops.policy.flow import refuse_feeding, refuse_sending
from claudeops.policy.identity import uncertainty, whole_name, wrapper_parts, wrapper_user
from claudeops.policy.look import look_of, look_within
from claudeops.policy.matching import RuleFit, match
from claudeops.policy.never import refuse_line, refuse_service
from claudeops.policy.paths import PathContext
from claudeops.policy.places import ANY_DEPTH
from claudeops.policy.policy import Never, Policy, TierPolicy
from claudeops.policy.programs import docker, kubernetes
from claudeops.policy.reach import matches
from claudeops.policy.rule_book import RuleMatch
from claudeops.policy.rules import Arguments, IncompleteError, RuleRefusedError, UnclearCommandError, Wrapper
from claudeops.policy.shell.language import (
    Glob,
    Literal,
    NamedPath,
    Redirection,
    SimpleCommand,
    UnclearError,
    Word,
    shown,
)
from claudeops.policy.shell.render import BUILTINS
from claudeops.policy.unfold import Runs, Unfolded, unfold
from claudeops.structs import replace
from claudeops.text import glob, regex

DEEPEST_WRAPPING: Final = 5  # wrappers within wrappers
MOST_JUDGED: Final = 1024  # commands of one call, those in wrappers too

_USUAL_DIRECTORIES: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})
_PROGRAM_PLACES: Final = regex.Pattern(r"/(?:nix/store/[\w.+-]+|run/current-system/sw|opt|snap)/bin")
_SCREEN: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_MOST_NAMES: Final = 512  # that one pattern may find
_MOST_PATTERNS: Final = 32  # in one call
_ZONE: Final = regex.Pattern(r"[A-Z][A-Za-z_]*(?:/[A-Z][A-Za-z_+-]*)?(?:[+-]\d{1,2})?")
_LEFT_OUT: Final = regex.Pattern(
    r"LANG=.*|LANGUAGE=\w*|LC_[A-Z]+=.*|NO_COLOR=\w*|TERM=\w*|COLUMNS=\d*|LINES=\d*|DEBIAN_FRONTEND=\w*|[A-Z_]*PAGER=(?:cat)?"
)
"""Variables that are left out: what runs has LC_ALL=C, no terminal and no pager, whatever is set."""


class CommandFinding(msgspec.Struct):
    """The result of judging. Without a ``denial`` and a ``doubt`` the command may run."""

    denial: str = ""
    doubt: str = ""  # why it is not clear what it does
    actions: list[Action] = msgspec.field(default_factory=list)
    writes: list[str] = msgspec.field(default_factory=list)  # the session's own files that it changes
    lines: list[str] = msgspec.field(default_factory=list)  # every judged command line, wrapped ones too
    runs: SimpleCommand | None = None  # the command as it runs, where nothing is in doubt
    text: str = ""  # of a whole Bash call: what runs instead of it
    runs_apart: list[LookCall] = msgspec.field(default_factory=list)  # what the daemon runs for it
    grants: list[Grant] = msgspec.field(default_factory=list)  # what it changes behind the daemon's filters
    looks: list[EvidenceLook] = msgspec.field(default_factory=list)  # what it looks at, as far as its status proves it
    names: dict[str, set[str]] = msgspec.field(default_factory=dict)  # of the actions' services, by the counted one
    strangers: list[Stranger] = msgspec.field(
        default_factory=list
    )  # why it is denied where nobody is asked about strangers
    people: dict[str, int] = msgspec.field(default_factory=dict)  # how many must say yes, by what its rules want it for
    acting: set[str] = msgspec.field(default_factory=set)  # those of the lines that are actions on services
    asks_for_more: bool = False  # its rules want a yes for a command that is no action on a service

    def add(self, other: CommandFinding) -> None:
        """Add the finding about another command, except how it runs; the first denial and the first doubt count."""
        self.denial = self.denial or other.denial
        self.doubt = self.doubt or other.doubt
        self.actions += other.actions
        self.writes += other.writes
        self.lines += other.lines
        self.looks += other.looks
        self.runs_apart += other.runs_apart
        self.grants += other.grants
        self.strangers += other.strangers
        self.acting |= other.acting
        self.asks_for_more = self.asks_for_more or other.asks_for_more
        for name, called in other.names.items():
            self.names[name] = {*self.names.get(name, ()), *called}
        for what, count in other.people.items():
            self.people[what] = max(count, self.people.get(what, 0))

    def act(self, action: Action, services: ServiceNames) -> None:
        """Add an action on a service, given by its whole name; it goes by the name that the service is counted by."""
        main = services.counts_as(action.service)
        self.actions.append(replace(action, service=main))
        self.names[main] = {*self.names.get(main, ()), *services.all_of(action.service)}

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
        self._patterns = 0
        self._looks = 0

    def judge(self, command: SimpleCommand, place: PathContext, depth: int = 0) -> CommandFinding:
        """Judge a command with everything that it wraps."""
        self._judged += 1
        if self._judged > MOST_JUDGED:
            return CommandFinding(denial=f"more than {MOST_JUDGED} commands within each other: split the call")
        place = replace(place, cwd=_directory(command, place))
        finding = CommandFinding(lines=[command.line] if command.argv else [])
        try:
            around = self._around(command, place, finding)
            finding.runs = around
        except RuleRefusedError as refusal:
            finding.denial, around = str(refusal), command
        try:
            self._run(around, place, depth, finding)
        except UnclearCommandError as refusal:
            finding.doubt = str(refusal)
            finding.denial = finding.denial or self._what_is_clear(command, place, depth)
        except RuleRefusedError as refusal:
            finding.denial = finding.denial or str(refusal)
        return finding

    def _what_is_clear(self, command: SimpleCommand, place: PathContext, depth: int) -> str:
        """Return why the known words of a command are enough to refuse it, or ""."""
        known: list[Word] = []
        for word in command.argv:
            if isinstance(word, Literal):
                known.append(word)
            elif len(known) > 1 and shown(known[-1]).startswith("-"):
                known.pop()  # the option whose value it is
        if len(known) == len(command.argv) or known[:1] != [*command.argv[:1]]:
            return ""
        try:
            self._run(replace(command, argv=tuple(known)), place, depth, CommandFinding())
        except (UnclearCommandError, IncompleteError):
            return ""
        except RuleRefusedError as refusal:
            return str(refusal)
        return ""

    def _around(self, command: SimpleCommand, place: PathContext, finding: CommandFinding) -> SimpleCommand:
        """Judge what stands around a command's words; return it with plain words, paths and variables."""
        redirections = tuple(self._redirection(each, place, finding) for each in command.redirections)
        argv = tuple(named for word in command.argv for named in self._expanded(word, place))
        return replace(command, argv=argv, environment=_environment(command), redirections=redirections)

    def _expanded(self, word: Word, place: PathContext) -> tuple[Word, ...]:
        """Return the names that a pattern finds; without any it is the word itself, as for bash."""
        if not isinstance(word, Glob) or ANY_DEPTH in word.pattern.split("/"):
            return (word,)
        self._patterns += 1
        if self._patterns > _MOST_PATTERNS:
            raise RuleRefusedError(f"more than {_MOST_PATTERNS} patterns for file names in one call: split it")
        if not place.local:
            raise RuleRefusedError(
                f"{word.pattern}: on another host or in a container write the names out, or quote it"
            )
        found = place.scope.expand(paths.absolute(word.pattern, place) or word.pattern)
        if found is None or len(found) > _MOST_NAMES:
            reason = f"{word.pattern} finds more than {_MOST_NAMES} names, or among too many files"
            raise RuleRefusedError(f"{reason}: use find, or name a directory")
        return tuple(map(NamedPath, found)) or (
            Literal(regex.sub(r"\[([*?\[])\]", lambda inner: inner[1], word.pattern)),
        )

    def _run(self, command: SimpleCommand, place: PathContext, depth: int, finding: CommandFinding) -> None:
        if not command.argv:
            return
        finding.runs = None
        name = _command_name(command.argv[0])
        line = " ".join([name, *map(shown, command.argv[1:])])
        finding.lines.append(line)
        _refuse(refuse_line(line))
        _refuse(_refuse_by_file(line, self._policy.never))
        found = self._book.find(name, command.argv[1:])
        _refuse(refuse_sending(found.path, command))
        fits: RuleFit | None = None
        if found.rules:
            try:
                fits = match(found, place, tier=self._tier)
            except RuleRefusedError:
                if found.wrapper is None:
                    raise
        program = _program(name, shown(command.argv[0]), place)
        if fits is not None:
            finding.strangers += fits.strangers
            self._effects(fits, command, place, finding)
            finding.runs = replace(command, argv=(program, *fits.words))
            finding.grants += _grants(found, fits.arguments, place)
            if fits.look is not None:
                finding.runs = replace(command, argv=self._looked(fits.look, place, finding))
            look = look_of(found, fits, command, place)
            finding.looks += [] if look is None else [look]
        else:
            self._inside(found, replace(command, argv=(program, *command.argv[1:])), place, depth, finding)
        if finding.actions:
            finding.acting |= {command.line, line}

    def _looked(self, look: LookCall, place: PathContext, finding: CommandFinding) -> tuple[Literal, ...]:
        """Note a look that the daemon runs; return the words that stand for it in what the session runs."""
        self._looks += 1
        name = f"{place.call}-{self._looks}"
        finding.runs_apart.append(replace(look, id=name))
        return tuple(map(Literal, (*place.scope.look_client, name)))

    def _effects(self, fits: RuleFit, command: SimpleCommand, place: PathContext, finding: CommandFinding) -> None:
        if fits.actions and fits.rule.action not in self._kinds:
            raise RuleRefusedError(f"{fits.path}: tier {self._tier} has no right to a {fits.rule.action}")
        if fits.actions and command.repeated:
            raise RuleRefusedError(f"{fits.path}: in a loop it cannot be counted: write each one out")
        if fits.actions:
            _refuse(place.unsure)
        for action in fits.actions:
            for around in (*place.where, *fits.where):  # a project, a namespace or a container of the supervisor's
                _refuse(refuse_service(around.rpartition(":")[2], unit=False))
            whole = replace(action, service=whole_name((*place.where, *fits.where), action.service))
            _refuse(refuse_action(whole, place, self._policy))
            if fits.rule.arguments == "stack":
                _refuse(refuse_stack(action.service, place, self._policy))
            finding.act(whole, place.services)
        finding.writes += [command.line] if fits.rule.writes else []
        if fits.rule.approvals:
            finding.people[fits.path] = fits.rule.approvals
            finding.asks_for_more = finding.asks_for_more or not fits.actions

    def _inside(
        self, found: RuleMatch, command: SimpleCommand, place: PathContext, depth: int, finding: CommandFinding
    ) -> None:
        wrapper = found.wrapper
        if wrapper is None:
            raise RuleRefusedError(f"{found.path} is in no rule: it is not allowed at any tier")
        if self._tier < found.wrapper_tier:
            raise RuleRefusedError(f"{found.path} needs tier {found.wrapper_tier}: say in the report why it is needed")
        if depth >= DEEPEST_WRAPPING:
            raise RuleRefusedError(f"{found.path}: too many commands within each other: write the inner one plainly")
        inside = replace(place, cwd=None, local=False) if wrapper.elsewhere else place
        if wrapper.elsewhere:
            _refuse(refuse_feeding(found.path, command))
        unfolded = unfold(found, wrapper, command, CheckContext(place=place))
        finding.strangers += unfolded.strangers
        inside = _placed(found, wrapper, unfolded.own, place, inside)
        runs: dict[int, SimpleCommand] = {}
        within = CommandFinding()
        for inner in unfolded.parsed.commands:
            judged = self.judge(inner, inside, depth + 1)
            within.add(judged)
            if judged.runs is not None:
                runs[inner.number] = judged.runs
        within.looks[:] = look_within(found, wrapper, command, place, within.looks)
        finding.add(within)
        _refuse(unfolded.parsed.refusal)
        if unfolded.parsed.problem:
            raise UnclearCommandError(unfolded.parsed.problem)
        if len(runs) < len(unfolded.parsed.commands):
            return  # some of them are refused or in doubt
        finding.runs = _rebuilt(unfolded, runs)
        known = all(isinstance(word, Literal) for each in unfolded.parsed.commands for word in each.argv)
        words = [word for each in runs.values() for word in each.argv] if known else []  # xargs adds to what it says
        finding.grants += _grants(found, unfolded.own, place, words)

    def _redirection(self, redirection: Redirection, place: PathContext, finding: CommandFinding) -> Redirection:
        """Judge a redirection; return it with an absolute path. Raises `RuleRefusedError`."""
        target, operator = redirection.target.text, redirection.operator
        if operator == ">&" or target == "/dev/null":
            return redirection
        path = paths.absolute(target, place) or target
        if path.startswith(("/dev/tcp/", "/dev/udp/")):
            raise RuleRefusedError("whether a port answers, nc says: nc -z -w 3 HOST PORT")
        if operator == "<":
            _refuse(paths.readable(target, place) or paths.refuse_other_than_file(target, place))
        elif target not in _SCREEN:
            if not (place.reach.write or place.reach.files):
                raise RuleRefusedError(
                    f"writing to {target} is not allowed at tier {self._tier}: leave the output on the screen"
                )
            _refuse(paths.writable(target, place))
            finding.writes += [] if path in place.reach.files else [f"write {path}"]
        return replace(redirection, target=Literal(path))


def _grants(found: RuleMatch, arguments: Arguments, place: PathContext, inner: Sequence[Word] = ()) -> list[Grant]:
    """Return what a command may change behind the daemon's filters."""
    return [
        *docker.grants_of(found, arguments, place, inner),
        *kubernetes.grants_of(found, arguments, place, inner),
    ]


def _rebuilt(unfolded: Unfolded, runs: Runs) -> SimpleCommand:
    try:
        return unfolded.rebuilt(runs)
    except UnclearError as error:
        raise UnclearCommandError(str(error)) from error


def refuse_action(action: Action, place: PathContext, policy: Policy) -> str | None:
    """Return why an action on a service, given by its whole name, is refused, or None.

    A service is forbidden by each of its names, wherever it runs and whoever calls it that, but allowed only by its
    whole name, or by the policy's own name for it: a manifest widens nothing.
    """
    name = action.service
    names = place.services.all_of(name)
    if any(matches(each, pattern) for pattern in policy.never.services for each in names):
        return f"{name} is a service that the policy forbids at every tier"
    by_name = place.reach.refuse_service(name, *names)
    refused = by_name and place.reach.refuse_service(policy.counted_name(name), *names)
    return refused or forbidden.refuse_action(action.kind, names, place.scope.estate, place.services.counted)


def refuse_stack(stack: str, place: PathContext, policy: Policy) -> str | None:
    """Return why a stack of swarm may not be deployed, or None: that changes every service STACK_NAME."""
    excluded = (*policy.never.services, *(each[1:] for each in place.reach.services if each.startswith("!")))
    pattern = next((each for each in excluded if glob.overlap(f"{stack}_*".lower(), each.lower())), None)
    if pattern is not None:
        return f"the stack {stack} could hold {pattern}, on which nothing may act"
    return forbidden.refuse_stack(stack, place.scope.estate, place.services.counted)


def _program(name: str, written: str, place: PathContext) -> Literal:
    """Return the program that a command runs, by its path where the session itself runs it; builtins stay names."""
    if name in BUILTINS:
        return Literal(name)
    if "/" in written:
        return Literal(written)
    return Literal((place.scope.program(name) if place.local else None) or name)


def _placed(found: RuleMatch, wrapper: Wrapper, own: Arguments, place: PathContext, inside: PathContext) -> PathContext:
    """Return the place of the commands in a wrapper: with what the wrapper puts between them and the session."""
    if not (wrapper.elsewhere or wrapper.fresh):
        return inside
    user = wrapper_user(found.path, own)
    directory = next((value for option, value in own.options if "--workdir" in option.names), None)
    return replace(
        inside,
        cwd=directory if wrapper.elsewhere else inside.cwd,
        where=(*inside.where, *wrapper_parts(found.path, own, found.given, place)),
        user=inside.user if user is None else user,
        unsure=inside.unsure or uncertainty(found, own, place),
    )


def _directory(command: SimpleCommand, place: PathContext) -> str | None:
    """Return the directory that a command is in, absolute, or None where that is not known."""
    if command.cwd is None:
        return place.cwd
    return paths.absolute(command.cwd, place)


def _environment(command: SimpleCommand) -> tuple[tuple[str, str], ...]:
    """Return the variables that a command is given: a time zone, and nothing else. Raises `RuleRefusedError`."""
    kept = []
    for name, value in command.environment:
        if name == "TZ" and _ZONE.fullmatch(value):
            kept.append((name, value))
        elif not _LEFT_OUT.fullmatch(f"{name}={value}"):
            raise RuleRefusedError(f"setting {name} for a command is not allowed: leave {name}= out")
    return tuple(kept)


def _refuse(reason: str | None) -> None:
    if reason:
        raise RuleRefusedError(reason)


def _refuse_by_file(line: str, never: Never) -> str | None:
    for pattern in never.commands:
        if glob.matches(line, pattern):
            return f"{pattern} is forbidden by the policy at every tier"
    return None


def _command_name(word: Word) -> str:
    """Return the name by which rules are found. A path counts as its last part only in the usual directories."""
    if not isinstance(word, Literal):
        raise UnclearCommandError(f"which command {shown(word)} is, is not known before it runs: write it out")
    directory, name = posixpath.split(word.text)
    if not regex.fullmatch(r"[\w.:\[+-]+", name):
        raise RuleRefusedError(f"{word.text[:80]!r} is not a command")
    if "/" in word.text and directory not in _USUAL_DIRECTORIES and not _PROGRAM_PLACES.fullmatch(directory):
        raise UnclearCommandError(f"{word.text}: programs and scripts outside the system's directories are not judged")
    return name
