"""Matches a command with the rules for it: the canonical form in which it runs, and the actions that it then is.

Some rules check all arguments of a command together, where one argument at a time does not tell enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from claudeops.domain.actions import Action
from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.looks import InRepository, LookCall
from claudeops.policy import paths
from claudeops.policy.arguments import NOWHERE, STDIN, CheckContext, check, form, services_of
from claudeops.policy.identity import command_parts, located, refuse_project
from claudeops.policy.never import refuse_service
from claudeops.policy.paths import PathContext, Searched
from claudeops.policy.programs import cluster_output, kubectl
from claudeops.policy.programs.git import read_git
from claudeops.policy.programs.network import network_look, refuse_processes
from claudeops.policy.programs.ps import read_ps
from claudeops.policy.rule_book import RuleMatch
from claudeops.policy.rules import (
    Arguments,
    CommandRule,
    Given,
    IncompleteError,
    Option,
    RuleRefusedError,
    UnclearCommandError,
    assign_kinds,
    beyond,
    option_table,
    read_arguments,
    written,
)
from claudeops.policy.shell.language import Given as GivenWord
from claudeops.policy.shell.language import Glob, Literal, NamedPath, StreamFile, Text, Word, shown
from claudeops.policy.shell.render import BUILTINS
from claudeops.structs import replace
from claudeops.text import regex

PAST_FILTERS: Final = {
    "docker": frozenset({"--context", "-c", "--host", "-H", "--url", "--connection", "--config"}),
    "kubernetes": kubectl.PAST,
}
"""Options of an operator's own that lead elsewhere, or make another client: a rule that needs a filter has none."""

_SHORT: Final = 160  # characters of the values that a sentence shows


class MissingOptionError(RuleRefusedError):
    """A rule requires an option that was not given: another rule for the command may fit better."""


class ValueRefusedError(RuleRefusedError):
    """The options fit a rule, and a value does not: that is what a sentence should be about."""


class WholeReasonError(ValueRefusedError):
    """The reason says itself what to write: the rule's hint is about something else."""


class NotHereError(RuleRefusedError):
    """A command fits a rule, and cannot be run here: no other rule is tried."""


class RuleFit(msgspec.Struct, frozen=True, kw_only=True):
    """A command that fits a rule."""

    path: str  # the command with its subcommands
    rule: CommandRule
    arguments: Arguments
    words: tuple[Word, ...]  # the canonical form, behind the program
    actions: tuple[Action, ...] = ()
    where: tuple[str, ...] = ()  # where the services of the actions are, relative to where the command runs
    strangers: tuple[Stranger, ...] = ()  # reasons that refuse it where nobody is asked about them
    look: LookCall | None = None  # what the daemon runs in its place, without an id


def match(found: RuleMatch, place: PathContext, *, tier: int) -> RuleFit:
    """Return the first rule of the tier that a command fits. Raises `RuleRefusedError` when none does."""
    refusals: list[tuple[CommandRule, RuleRefusedError]] = []
    rules = [rule for rule in found.rules if not rule.filter or _is_filtered(rule.filter, place)]
    for rule in rules:
        if rule.tier <= tier:
            try:
                return _apply(rule, found, place)
            except NotHereError as refusal:
                raise RuleRefusedError(f"{found.path}: {refusal}") from None
            except RuleRefusedError as refusal:
                refusals.append((rule, refusal))
    higher = _higher(replace(found, rules=tuple(rules)), place, tier)
    if higher is not None:
        raise RuleRefusedError(f"{found.path} needs tier {higher}: at tier {tier} say in the report why it is needed")
    if not found.rules:
        raise RuleRefusedError(f"{found.path} is in no rule: it is not allowed at any tier")
    if not refusals:
        lowest = min(rule.tier for rule in found.rules)
        raise RuleRefusedError(f"{found.path} needs tier {lowest}, and other arguments: name single services")
    rule, reason = max(reversed(refusals), key=lambda pair: (_weight(pair[1]), bool(pair[0].filter)))
    hinted = rule.hint and not isinstance(reason, WholeReasonError)
    # A command that changes something must be clear: to be counted, an action must name its service.
    unclear = isinstance(reason, UnclearCommandError) and not any(each.action or each.writes for each in found.rules)
    kind = (
        UnclearCommandError if unclear else IncompleteError if isinstance(reason, IncompleteError) else RuleRefusedError
    )
    raise kind(f"{found.path}: {reason}" + (f" ({rule.hint})" if hinted else ""))


def _is_filtered(name: str, place: PathContext) -> bool:
    """Whether programs here reach what a rule is about through a filter; another user has other settings."""
    return place.local and not place.user and name in place.scope.filters


def _weight(reason: RuleRefusedError) -> int:
    """Return how much a refusal tells: one about a value more than one about an option, an option that lacks least."""
    return (
        2
        if isinstance(reason, ValueRefusedError | UnclearCommandError)
        else 0
        if isinstance(reason, MissingOptionError)
        else 1
    )


def _higher(found: RuleMatch, place: PathContext, tier: int) -> int | None:
    """Return the lowest higher rule's tier that would allow the command, or None."""
    for rule in found.rules:
        if rule.tier > tier:
            try:
                _apply(rule, found, place)
            except RuleRefusedError:
                continue
            return rule.tier
    return None


def _apply(rule: CommandRule, found: RuleMatch, place: PathContext) -> RuleFit:
    if rule.reading == "git":
        return RuleFit(path=found.path, rule=rule, arguments=Arguments(), words=(), look=_git(found, place))
    found = located(found, place) if rule.check == "compose" else found
    arguments = _arguments(rule, found)
    if past := PAST_FILTERS.get(rule.filter, frozenset()) & _option_names(found.given, arguments.options):
        raise RuleRefusedError(f"the option {min(past)} leads past the filter, which masks what it would show")
    setting = _setting(rule, arguments, place)
    kinds = _without_left_out(assign_kinds(rule.arguments, arguments.positionals), setting)
    strangers: list[Stranger] = []
    for option, value in (*found.given, *arguments.options):
        if option.kind is not None and value is not None:
            strangers += _refuse(option.kind, Literal(value), setting, option, found)
    for kind, word in kinds:
        strangers += _refuse(kind, word, setting)
    if setting.deep and not any(kind == "file" for kind, _ in kinds):
        raise RuleRefusedError("name the directory that is to be searched, by its absolute path")
    if rule.check and (reason := ARGUMENT_CHECKS[rule.check](found, arguments, place)):
        if not isinstance(reason, Stranger):
            raise (WholeReasonError if rule.check == "compose" else ValueRefusedError)(reason)
        strangers.append(reason)
    words = (
        read_ps(found.arguments) if rule.reading == "ps" else _written(rule, found, arguments.options, kinds, setting)
    )
    actions = _actions(rule, (*found.given, *arguments.options), kinds, setting)
    given = (*found.given, *arguments.options)
    where = command_parts(found.path, given, place) if actions else ()
    return RuleFit(
        path=found.path,
        rule=rule,
        arguments=arguments,
        words=words,
        actions=actions,
        where=where,
        strangers=tuple(strangers),
        look=_apart(rule, found, given, words, place),
    )


def _without_left_out(kinds: list[tuple[str, Word]], setting: CheckContext) -> list[tuple[str, Word]]:
    """Leave out what a pattern found that is no file where files are read, or that nobody lists; keep at least one."""
    kept = [
        (kind, word)
        for kind, word in kinds
        if not isinstance(word, NamedPath)
        or not (
            (kind == "file" and not setting.deep and paths.refuse_other_than_file(word.text, setting.place))
            or (kind == "listing" and paths.listable(word.text, setting.place))
        )
    ]
    return kept or kinds


def _spelt(option: Option, found: RuleMatch) -> str:
    """Return an option's name as it was given."""
    texts = [shown(word) for word in found.arguments]
    given = (name for name in option.names for text in texts if text == name or text.startswith(f"{name}="))
    return next(given, option.names[0])


def _apart(
    rule: CommandRule, found: RuleMatch, given: Given, words: tuple[Word, ...], place: PathContext
) -> LookCall | None:
    """Return what the daemon runs in the place of a command, without files of the session; raises `NotHereError`."""
    if rule.look == "processes" and (reason := refuse_processes(place)):
        raise NotHereError(reason)
    if rule.look not in {"network", "docker", "kubectl"} or (rule.look == "kubectl" and kubectl.leads_past(given)):
        return None
    look = network_look(found.path.partition(" ")[0], (*found.arguments, *words), words, place)
    if look is not None and rule.look == "kubectl" and (reason := kubectl.refuse_kubectl(found.path, words, place)):
        raise NotHereError(reason)
    if isinstance(look, str):
        raise NotHereError(look)
    return look


def _git(found: RuleMatch, place: PathContext) -> LookCall:
    """Read a look at a repository; raises `RuleRefusedError` where the daemon cannot run it."""
    if not place.local or place.cwd is None:
        raise RuleRefusedError(
            "only repositories of this machine are looked at, plainly: elsewhere they could run any program"
        )
    if place.user:
        raise RuleRefusedError("it is run by the daemon, as nobody else: leave sudo out")
    if "git" not in place.scope.looks:
        raise RuleRefusedError(
            "git runs in a cell of its own, which needs bubblewrap: read the repository's files instead"
        )
    if why := place.scope.looks["git"]:
        raise RuleRefusedError(f"{why}: read the repository's files instead")
    look = read_git(found.arguments, place.cwd)
    if look.arguments != ("version",) and not paths.in_repositories(look.directory, place):
        raise RuleRefusedError(
            f"{look.directory}: go to a repository below {place.scope.repos_dir}, or name it by git -C"
        )
    if reason := paths.listable(look.directory, place):
        raise RuleRefusedError(reason)
    where = InRepository(directory=look.directory, root=place.scope.repos_dir)
    return LookCall(program="git", arguments=look.arguments, where=where)


def _refuse(
    kind: str, word: Word, setting: CheckContext, option: Option | None = None, found: RuleMatch | None = None
) -> tuple[Stranger, ...]:
    """Raise `RuleRefusedError` for a word that is not of a kind; return a reason about which a person may be asked."""
    reason = check(kind, word, setting)
    if isinstance(reason, Stranger):
        return (reason,)
    if reason:
        given = "" if option is None or found is None else f"{_spelt(option, found)} {shown(word)[:40]}: "
        raise (ValueRefusedError if isinstance(word, Literal | Glob) else UnclearCommandError)(given + reason)
    return ()


def _arguments(rule: CommandRule, found: RuleMatch) -> Arguments:
    if rule.reading == "ps":
        return Arguments()
    always = tuple(map(Literal, rule.always.split()))
    words = found.arguments[len(always) :] if found.arguments[: len(always)] == always else found.arguments
    arguments = read_arguments(words, f"{rule.options} {found.shared}", rule.reading, rule.first)
    given = _option_names(found.given, arguments.options)
    for needed in rule.required.split():
        if not given & set(needed.split("|")):
            raise MissingOptionError(f"it needs {needed.replace('|', ' or ')}")
    return arguments


def _option_names(*given: Given) -> frozenset[str]:
    return frozenset(name for options in given for option, _ in options for name in option.names)


def _written(
    rule: CommandRule, found: RuleMatch, options: Given, kinds: list[tuple[str, Word]], setting: CheckContext
) -> tuple[Word, ...]:
    """Return the canonical form: subcommands, what always stands there, options, ``--``, arguments."""
    words: list[Word] = []
    for given, subcommand in found.steps:
        words += [*written(_formed(given, setting), attached=rule.attached), Literal(subcommand)]
    words += map(Literal, rule.always.split())
    given = _formed(beyond(rule.always, options), setting)
    words += written(sorted(given, key=_narrows) if setting.deep else given, attached=rule.attached)
    dashes = rule.dashes and rule.reading != "words" and found.path not in BUILTINS
    words += [Literal("--")] if kinds and dashes else []
    for position, (kind, word) in enumerate(kinds):
        match word:
            case Literal(text):
                word = Literal(form(kind, text, setting))  # noqa: PLW2901 - its canonical text
                if word.text.startswith("-") and word.text != "-" and not dashes and rule.reading != "words":
                    raise ValueRefusedError(f"{text[:80]!r}: an argument may not begin with a dash here")
            case GivenWord():
                if position + 1 < len(kinds) or not dashes:
                    raise UnclearCommandError("what xargs adds must be the last argument, of a program that knows --")
                continue  # xargs itself adds it, behind the ``--``
            case Glob():
                word = Literal("{}")  # noqa: PLW2901 - find puts the file there
            case Text() | StreamFile():
                pass
        words.append(word)
    return tuple(words)


def _narrows(given: tuple[Option, str | None]) -> bool:
    """Whether an option is none that names what is searched: those come first.

    grep searches a file that no pattern fits unless the first one is ``--include``, and of several that fit the last
    one counts, for grep and rg.
    """
    option, value = given
    return "--include" not in option.names and ("--glob" not in option.names or (value or "").startswith("!"))


def _formed(options: Given, setting: CheckContext) -> Given:
    return tuple(
        (option, value if value is None or option.kind is None else form(option.kind, value, setting))
        for option, value in options
    )


def _setting(rule: CommandRule, arguments: Arguments, place: PathContext) -> CheckContext:
    deep = rule.deep == "*" or bool(arguments.names() & set(rule.deep.split()))
    return CheckContext(place=place, deep=deep, searched=_searched(rule, arguments))


def _searched(rule: CommandRule, arguments: Arguments) -> Searched:
    """Return which names a recursive command reads, according to its options."""
    given = [(set(option.names), value) for option, value in arguments.options if value is not None]
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


def _actions(
    rule: CommandRule, options: Given, kinds: list[tuple[str, Word]], setting: CheckContext
) -> tuple[Action, ...]:
    if not rule.action:
        return ()
    named = [(option.kind, value) for option, value in options if option.kind is not None and value is not None]
    named += [(kind, word.text) for kind, word in kinds if isinstance(word, Literal)]
    names: list[str] = []
    for kind, text in named:
        for service in services_of(kind, text, setting):
            if (reason := refuse_service(service, unit=kind == "unit")) is not None:
                raise RuleRefusedError(f"{service}: {reason}")
            names.append(service)
    if not all(names or [rule.service]):
        raise RuleRefusedError("name the services")
    return tuple(Action(kind=rule.action, service=name) for name in names or [rule.service])


# --- checks of all arguments together -------------------------------------------------------------------


_STATUS: Final = regex.Pattern(r"[0-9]{1,3}")
_HOST_AND_NOWHERE: Final = 2
_UNARY: Final = frozenset(f"-{letter}" for letter in "nzefdrwxsLhbcpSugkOGNt")
_BINARY: Final = frozenset({"=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})


def _test(found: RuleMatch, arguments: Arguments, _place: PathContext) -> str | None:
    """Refuse tests that could be read in more than one way: one to three words, with a constant operator."""
    words = list(arguments.positionals)
    if found.path == "[" and (not words or words.pop() != Literal("]")):
        return "a closing ] is missing"
    if words and words[0] == Literal("!"):
        words = words[1:]
    texts = [word.text if isinstance(word, Literal) else None for word in words]
    plain = (
        len(words) == 1
        or (len(words) == 2 and texts[0] in _UNARY)  # noqa: PLR2004 - operator, operand
        or (len(words) == 3 and texts[1] in _BINARY)  # noqa: PLR2004 - operand, operator, operand
    )
    return None if plain else "compare one value at a time, with =, !=, -eq, -gt and the like: [ … ] && [ … ]"


def _files(_found: RuleMatch, arguments: Arguments, place: PathContext) -> str | None:
    """Refuse directories, whose files diff prints; on another host only their names tell."""
    for word in arguments.positionals:
        if (
            isinstance(word, Literal)
            and not place.local
            and not (word.text == STDIN or paths.named_like_a_file(word.text, place))
        ):
            return f"{word.text} could be a directory: name a file with its suffix, or cat FILE | diff - OTHER"
    return None


def _exit(_found: RuleMatch, arguments: Arguments, _place: PathContext) -> str | None:
    """Refuse what is no status: zsh computes the argument of exit, and a subscript in it can run a command."""
    words = [word.text for word in arguments.positionals if isinstance(word, Literal)]
    return None if all(_STATUS.fullmatch(word) for word in words) else "write a plain number from 0 to 255"


def _compose(found: RuleMatch, _arguments: Arguments, place: PathContext) -> str | None:
    return refuse_project(found, place)


def _cluster(found: RuleMatch, arguments: Arguments, _place: PathContext) -> str | None:
    """Refuse to print objects of a cluster in a form that shows the environment of what runs in them."""
    words = list(arguments.positionals)
    given = [(option.names, value) for option, value in (*found.given, *arguments.options) if value is not None]
    if found.path.endswith(" describe"):
        return cluster_output.refuse_whole(list(map(shown, words)))
    for names, value in given:
        if "--sort-by" in names and (reason := cluster_output.refuse_order(value)) is not None:
            return f"--sort-by: {reason}"
        if "--output" in names and (reason := cluster_output.refuse_output(list(map(shown, words)), value)) is not None:
            return reason
    return None


def _secrets(_found: RuleMatch, arguments: Arguments, _place: PathContext) -> str | None:
    """Refuse objects that are secrets, by their kind or by their name."""
    return cluster_output.refuse_secrets(list(map(shown, arguments.positionals)))


def _repository(_found: RuleMatch, _arguments: Arguments, place: PathContext) -> str | None:
    """Refuse to follow the files of a directory that is not one of the operator's repositories."""
    if place.cwd is None or not place.local:
        return f"go there first: cd {place.scope.repos_dir}/… && …"
    return paths.deployable(place.cwd, place)


def _redirects(_found: RuleMatch, arguments: Arguments, _place: PathContext) -> str | None:
    """Refuse to follow redirects unless all unnamed hosts lead nowhere; curl takes the first entry that fits."""
    given = [value for option, value in arguments.options if value is not None and "--connect-to" in option.names]
    if len(given) < _HOST_AND_NOWHERE or given[-1] != NOWHERE or NOWHERE in given[:-1]:
        return f"name each host by --connect-to, and last of all --connect-to {NOWHERE}"
    return None


ARGUMENT_CHECKS: Final[dict[str, Callable[[RuleMatch, Arguments, PathContext], str | None]]] = {
    "test": _test,
    "files": _files,
    "exit": _exit,
    "compose": _compose,
    "cluster": _cluster,
    "secrets": _secrets,
    "repository": _repository,
    "redirects": _redirects,
}
"""The checks by the names that rules give."""
