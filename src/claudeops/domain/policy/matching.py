"""Matches a command with the rules for it, and returns the actions that it then is.

Some rules check all arguments of a command together, where one argument at a time does not tell enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.model import Action
from claudeops.domain.policy import cluster_output, paths
from claudeops.domain.policy.arguments import NOWHERE, Setting, check, service_of
from claudeops.domain.policy.identity import command_parts
from claudeops.domain.policy.never import refuse_service
from claudeops.domain.policy.paths import Place, Searched
from claudeops.domain.policy.rule_book import Found
from claudeops.domain.policy.rules import (
    Arguments,
    CommandRule,
    IncompleteError,
    Option,
    RefusedError,
    UnclearCommandError,
    assign_kinds,
    option_table,
    read_arguments,
)
from claudeops.domain.shell.simple import BINARY_TESTS, UNARY_TESTS
from claudeops.domain.shell.values import SimpleCommand, Word, WordKind
from claudeops.domain.text import regex

_READ_KINDS: Final = frozenset({"path", "listing", "archive"})


class MissingOptionError(RefusedError):
    """A rule requires an option that was not given: another rule for the command may fit better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A command that fits a rule."""

    path: str  # the command with its subcommands
    rule: CommandRule
    actions: tuple[Action, ...] = ()
    where: tuple[str, ...] = ()  # where the services of the actions are, relative to where the command runs
    strangers: tuple[Stranger, ...] = ()  # reasons that refuse it where nobody is asked about them


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
    # A command that changes something must be clear: to be counted, an action must name its service.
    unclear = isinstance(reason, UnclearCommandError) and not any(each.action or each.writes for each in found.rules)
    kind = UnclearCommandError if unclear else IncompleteError if isinstance(reason, IncompleteError) else RefusedError
    raise kind(f"{found.path}: {reason}" + (f" ({rule.hint})" if rule.hint else ""))


def prints_names(commands: tuple[SimpleCommand, ...], first: Match | None) -> bool:
    """Whether a pipeline prints only names, so that none of its words can be an option."""
    if first is None or first.rule.output != "names" or commands[0].piped or commands[0].redirections:
        return False
    return all(command.piped and _keeps_lines(command) for command in commands[1:])


def _higher(found: Found, place: Place, tier: int, names_only: Callable[[Word], bool]) -> int | None:
    """Return the lowest higher rule's tier that would allow the command, or None."""
    for rule in found.rules:
        if rule.tier > tier:
            try:
                _apply(rule, found, place, names_only)
            except RefusedError:
                continue
            return rule.tier
    return None


def _keeps_lines(command: SimpleCommand) -> bool:
    """Whether a command prints only whole lines of its input."""
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
    strangers: list[Stranger] = []
    for kind, value, name in values:
        if kind is not None and value is not None:
            strangers += _refuse(check(kind, value, setting), f"{name}: ", value)
            named.append((kind, value))
    for kind, word in assign_kinds(rule.arguments, arguments.positionals, harmless=names_only):
        strangers += _refuse(check(kind, word, setting), "", word)
        named.append((kind, word))
    if setting.deep and not any(kind == "path" for kind, _ in named):
        raise RefusedError("name the directory that is to be searched, by its absolute path")
    last_kind = rule.arguments.rpartition(" ")[2].rstrip("?*+")
    # rg permutes arguments like GNU's getopt everywhere; other programs may take an option's value for a file.
    for word in arguments.late if last_kind in _READ_KINDS and rule.deep != "*" else ():
        _refuse(check(last_kind, word, setting), "", word)
    if rule.check:
        _refuse(ARGUMENT_CHECKS[rule.check](found, arguments, place), "")
    services = [(kind, service_of(kind, word, setting)) for kind, word in named]
    known = [(kind, service) for kind, service in services if service is not None]
    fits = _matched(rule, found, (*found.given, *arguments.options), known, place)
    return replace(fits, strangers=tuple(strangers))


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


def _refuse(reason: str | None, prefix: str, word: Word | None = None) -> tuple[Stranger, ...]:
    """Raise `RefusedError` for a reason; return it if the tier may ask a person about it."""
    if isinstance(reason, Stranger):
        return (reason,)
    if reason:
        unclear = word is not None and word.kind is WordKind.DYNAMIC
        raise (UnclearCommandError if unclear else RefusedError)(prefix + reason)
    return ()


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
    """Return which names a recursive command reads, according to its options."""
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


# --- checks of all arguments together -------------------------------------------------------------------


_HOST_AND_NOWHERE: Final = 2


def _test(found: Found, arguments: Arguments, _place: Place) -> str | None:
    """Refuse tests in which an unknown value could become an operator: ``-v 'a[$(…)]'`` runs commands."""
    words = list(arguments.positionals)
    if found.path == "[" and (not words or words.pop().text != "]"):
        return "a closing ] is missing"
    texts = [word.text for word in words]
    if all(word.constant for word in words):
        return "tests of shell variables are not allowed" if {"-v", "-R", "-o"} & set(texts[:2]) else None
    if any(word.kind is WordKind.PATTERN or not word.single for word in words):
        return "quote what is not known before it runs"
    if words[0].constant and texts[0] == "!":
        words, texts = words[1:], texts[1:]
    plain = (
        len(words) == 1
        or (len(words) == 2 and words[0].constant and texts[0] in UNARY_TESTS)  # noqa: PLR2004 - operator, operand
        or (len(words) == 3 and words[1].constant and texts[1] in BINARY_TESTS)  # noqa: PLR2004 - operand, operator, operand
    )
    return None if plain else "compare one value at a time: [ … ] && [ … ]"


def _compose(found: Found, _arguments: Arguments, place: Place) -> str | None:
    """Refuse to deploy a project from a directory that others can write to, if only the directory identifies it."""
    named = {name for option, _ in found.given for name in option.names}
    if named & {"--file", "--project-directory"} or place.cwd is None:
        return None
    return paths.project(Word(text=place.cwd), place)


def _git(_found: Found, arguments: Arguments, place: Place) -> str | None:
    """Refuse git where nothing prevents it from running the programs that a repository names."""
    if not place.tame:
        return "only plainly, in this session's own environment: elsewhere the repository could run any program"
    names = arguments.names()
    if {"-p", "--patch"} & names and not {"--no-ext-diff", "--no-textconv"} <= names:
        return "with -p, --no-ext-diff and --no-textconv are needed: the repository could run any program"
    return None


def _git_diff(found: Found, arguments: Arguments, place: Place) -> str | None:
    """Refuse arguments that git could take for files of the working tree: comparing those runs its filters."""
    return _git(found, arguments, place) or (None if arguments.dashed else "end the command with --")


def _cluster(found: Found, arguments: Arguments, _place: Place) -> str | None:
    """Refuse to print objects of a cluster in a form that shows the environment of what runs in them."""
    words = list(arguments.positionals)
    given = [(option.names, value) for option, value in (*found.given, *arguments.options) if value is not None]
    if found.path.endswith(" describe"):
        return cluster_output.refuse_whole([word.text if word.constant else "(unknown)" for word in words])
    for names, value in given:
        if "--sort-by" in names and (reason := cluster_output.refuse_order(value.text)) is not None:
            return f"--sort-by: {reason}"
        if "--output" in names:
            resources = [word.text if word.constant else "(unknown)" for word in words]
            reason = cluster_output.refuse_output(resources, value.text)
            if reason:
                return reason
    return None


def _repository(_found: Found, _arguments: Arguments, place: Place) -> str | None:
    """Refuse to follow the files of a directory that is not one of the operator's repositories."""
    if place.cwd is None or not place.local:
        return f"go there first: cd {place.scope.repos_dir}/… && …"
    return paths.deployable(Word(text=place.cwd), place)


def _redirects(_found: Found, arguments: Arguments, _place: Place) -> str | None:
    """Refuse to follow redirects unless all unnamed hosts lead nowhere; curl takes the first entry that fits."""
    given = [value.text for option, value in arguments.options if value is not None and "--connect-to" in option.names]
    if len(given) < _HOST_AND_NOWHERE or given[-1] != NOWHERE or NOWHERE in given[:-1]:
        return f"name each host by --connect-to, and last of all --connect-to {NOWHERE}"
    return None


ARGUMENT_CHECKS: Final[dict[str, Callable[[Found, Arguments, Place], str | None]]] = {
    "test": _test,
    "compose": _compose,
    "git": _git,
    "gitdiff": _git_diff,
    "cluster": _cluster,
    "repository": _repository,
    "redirects": _redirects,
}
"""The checks by the names that rules give."""
