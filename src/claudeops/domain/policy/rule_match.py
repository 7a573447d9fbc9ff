"""Matching of a command with the rules for it, and the actions that it then is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from claudeops.domain import regex
from claudeops.domain.model import Action
from claudeops.domain.policy.argument_checks import ARGUMENT_CHECKS
from claudeops.domain.policy.argument_kinds import Setting, check, service_of
from claudeops.domain.policy.identity import command_parts
from claudeops.domain.policy.never import refuse_service
from claudeops.domain.policy.paths import Searched
from claudeops.domain.policy.rules import (
    Arguments,
    CommandRule,
    IncompleteError,
    RefusedError,
    UnclearCommandError,
    assign_kinds,
    option_table,
    read_arguments,
)
from claudeops.domain.shell.values import WordKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from claudeops.domain.policy.paths import Place
    from claudeops.domain.policy.rule_book import Found
    from claudeops.domain.policy.rules import Option
    from claudeops.domain.shell.values import SimpleCommand, Word

_READ_KINDS: Final = frozenset({"path", "listing", "archive"})


class MissingOptionError(RefusedError):
    """A rule asks for an option that was not given: another rule for the command may fit better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A command that fits."""

    path: str  # the command with its subcommands
    rule: CommandRule
    actions: tuple[Action, ...] = ()
    where: tuple[str, ...] = ()  # the services of the actions are, beside where the command runs


def match(found: Found, place: Place, *, tier: int, names_only: Callable[[Word], bool]) -> Match:
    """Return the first rule of the tier that a command fits. Raises `RefusedError` when none does."""
    refusals: list[tuple[CommandRule, RefusedError]] = []
    for rule in found.rules:
        if rule.tier <= tier:
            try:
                return _apply(rule, found, place, names_only)
            except RefusedError as refusal:
                refusals.append((rule, refusal))
    higher = _higher(found, place, tier, names_only)
    if higher is not None:
        raise RefusedError(f"{found.path} needs tier {higher}: at tier {tier} say in the report why it is needed")
    if not found.rules:
        raise RefusedError(f"{found.path} is in no rule: it is not allowed at any tier")
    if not refusals:
        lowest = min(rule.tier for rule in found.rules)
        raise RefusedError(f"{found.path} needs tier {lowest}, and other arguments: name single services")
    telling = [pair for pair in refusals if not isinstance(pair[1], MissingOptionError)] or refusals
    rule, reason = telling[-1]
    # What changes something is never a matter of doubt: whom an action is about must be known to be counted.
    unclear = isinstance(reason, UnclearCommandError) and not any(each.action or each.writes for each in found.rules)
    kind = UnclearCommandError if unclear else IncompleteError if isinstance(reason, IncompleteError) else RefusedError
    raise kind(f"{found.path}: {reason}" + (f" ({rule.hint})" if rule.hint else ""))


def _higher(found: Found, place: Place, tier: int, names_only: Callable[[Word], bool]) -> int | None:
    """Return the tier that might do what this one may not."""
    for rule in found.rules:
        if rule.tier > tier:
            try:
                _apply(rule, found, place, names_only)
            except RefusedError:
                continue
            return rule.tier
    return None


def prints_names(commands: tuple[SimpleCommand, ...], first: Match | None) -> bool:
    """Whether a pipeline prints names only, so that none of its words can be an option."""
    if first is None or first.rule.output != "names" or commands[0].piped or commands[0].redirections:
        return False
    return all(command.piped and _keeps_lines(command) for command in commands[1:])


def _keeps_lines(command: SimpleCommand) -> bool:
    """Whether a command prints whole lines of what it is piped, and nothing else."""
    if command.stdin or command.redirections or not all(word.constant for word in command.argv):
        return False
    program, *arguments = [word.text for word in command.argv]
    name = program.rpartition("/")[2]
    if name == "grep":
        options, patterns = arguments[:-1], arguments[-1:]
        return (
            bool(patterns) and all(regex.fullmatch(r"-[vEiFwx]+", text) for text in options) and patterns[0][:1] != "-"
        )
    return bool(
        regex.fullmatch(r"(?:sort|uniq)(?: -[rnu]+)?|(?:head|tail) (?:-n ?|-)\d+", " ".join([name, *arguments]))
    )


def _apply(rule: CommandRule, found: Found, place: Place, names_only: Callable[[Word], bool]) -> Match:
    if rule.tokens or rule.line is not None:
        _match_text(rule, found.arguments)
        return _matched(rule, found, found.given, [], place)
    arguments = _arguments(rule, found, names_only)
    setting = _setting(rule, arguments, place, names_only)
    values = [(option.kind, value, option.names[-1]) for option, value in (*found.given, *arguments.options)]
    named: list[tuple[str, Word]] = []
    for kind, value, name in values:
        if kind is not None and value is not None:
            _refuse(check(kind, value, setting), f"{name}: ", value)
            named.append((kind, value))
    for kind, word in assign_kinds(rule.arguments, arguments.positionals, harmless=names_only):
        _refuse(check(kind, word, setting), "", word)
        named.append((kind, word))
    if setting.deep and not any(kind == "path" for kind, _ in named):
        raise RefusedError("name the directory that is to be searched, by its absolute path")
    last_kind = rule.arguments.rpartition(" ")[2].rstrip("?*+")
    # rg permutes like GNU's getopt everywhere; of others a value may be a file to the machine's own version.
    for word in arguments.late if last_kind in _READ_KINDS and rule.deep != "*" else ():
        _refuse(check(last_kind, word, setting), "", word)
    if rule.check:
        _refuse(ARGUMENT_CHECKS[rule.check](found, arguments, place), "")
    services = [(kind, service_of(kind, word, setting)) for kind, word in named]
    known = [(kind, service) for kind, service in services if service is not None]
    return _matched(rule, found, (*found.given, *arguments.options), known, place)


def _matched(
    rule: CommandRule,
    found: Found,
    given: tuple[tuple[Option, Word | None], ...],
    services: list[tuple[str, str]],
    place: Place,
) -> Match:
    actions = _actions(rule, services)
    return Match(
        path=found.path, rule=rule, actions=actions, where=command_parts(found.path, given, place) if actions else ()
    )


def _refuse(reason: str | None, prefix: str, word: Word | None = None) -> None:
    if reason:
        unclear = word is not None and word.kind is WordKind.DYNAMIC
        raise (UnclearCommandError if unclear else RefusedError)(prefix + reason)


def _match_text(rule: CommandRule, words: tuple[Word, ...]) -> None:
    for word in words:
        if not word.constant:
            raise UnclearCommandError(
                f"{word.text} is not known before it runs, or could be a file name: write it out, in quotes"
            )
        if not regex.fullmatch(r"\S+", word.text) or (rule.tokens and not regex.fullmatch(rule.tokens, word.text)):
            raise RefusedError(f"the argument {word.text[:80]!r} is not allowed")
    line = " ".join(word.text for word in words)
    fits = rule.line is None or regex.fullmatch(rule.line, line)
    if not fits or (rule.excludes and regex.search(rule.excludes, line)):
        raise RefusedError("not with these arguments")


def _arguments(rule: CommandRule, found: Found, names_only: Callable[[Word], bool]) -> Arguments:
    if rule.inert:
        return Arguments((), found.arguments)
    arguments = read_arguments(
        found.arguments,
        f"{rule.options} {found.shared}",
        harmless=names_only,
        mixed=not rule.ordered,
        long_options=rule.long_options,
    )
    given = arguments.names()
    for needed in rule.required.split():
        if not given & set(needed.split("|")):
            raise MissingOptionError(f"it needs {needed.replace('|', ' or ')}")
    return arguments


def _setting(rule: CommandRule, arguments: Arguments, place: Place, names_only: Callable[[Word], bool]) -> Setting:
    deep = rule.deep == "*" or bool(arguments.names() & set(rule.deep.split()))
    return Setting(place=place, names_only=names_only, deep=deep, searched=_searched(rule, arguments))


def _searched(rule: CommandRule, arguments: Arguments) -> Searched:
    """Return which names a recursive command reads, by its options."""
    given = [(set(option.names), word.text) for option, word in arguments.options if word is not None]
    globs = [text for names, text in given if names & {"-g", "--glob"}]
    out = [text[1:] for text in globs if text.startswith("!")]
    known = option_table(rule.options)
    by = ("-g '!{}'",) if "-g" in known else ("--exclude='{}'", "--exclude-dir='{}'") if "--exclude" in known else ()
    return Searched(
        only=(*(text for names, text in given if "--include" in names), *(text for text in globs if text[:1] != "!")),
        left_out=(*(text for names, text in given if "--exclude" in names), *out),
        left_out_below=(*(text for names, text in given if "--exclude-dir" in names), *out),
        by=by,
    )


def _actions(rule: CommandRule, services: list[tuple[str, str]]) -> tuple[Action, ...]:
    if not rule.action:
        return ()
    for kind, service in services:
        reason = refuse_service(service, unit=kind == "unit")
        if reason:
            raise RefusedError(f"{service}: {reason}")
    names = [service for _, service in services] or [rule.service]
    if not all(names):
        raise RefusedError("name the services")
    return tuple(Action(kind=rule.action, service=name) for name in names)
