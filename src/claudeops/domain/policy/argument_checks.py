"""Checks of all arguments of a command together, where one argument at a time does not tell enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.domain.policy import cluster_output, paths
from claudeops.domain.policy.argument_kinds import NOWHERE
from claudeops.domain.shell.conditions import BINARY_TESTS, UNARY_TESTS
from claudeops.domain.shell.values import Word, WordKind

_HOST_AND_NOWHERE: Final = 2

if TYPE_CHECKING:
    from collections.abc import Callable

    from claudeops.domain.policy.paths import Place
    from claudeops.domain.policy.rule_book import Found
    from claudeops.domain.policy.rules import Arguments


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
    """Refuse to deploy a project that lies where others can write, when only the directory says which it is."""
    named = {name for option, _ in found.given for name in option.names}
    if named & {"--file", "--project-directory"} or place.cwd is None:
        return None
    return paths.project(Word(text=place.cwd), place)


def _git(_found: Found, arguments: Arguments, place: Place) -> str | None:
    """Refuse git where nothing holds it back from running the programs that a repository names."""
    if not place.tame:
        return "only plainly, in this session's own environment: elsewhere the repository could run any program"
    names = arguments.names()
    if {"-p", "--patch"} & names and not {"--no-ext-diff", "--no-textconv"} <= names:
        return "with -p, --no-ext-diff and --no-textconv are needed: the repository could run any program"
    return None


def _git_diff(found: Found, arguments: Arguments, place: Place) -> str | None:
    """Refuse whatever git could take for files of the working tree: comparing those runs the repository's filters."""
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
    """Refuse to take orders from a directory that is not one of the operator's repositories."""
    if place.cwd is None or not place.local:
        return f"go there first: cd {place.scope.repos_dir}/… && …"
    return paths.deployable(Word(text=place.cwd), place)


def _redirects(_found: Found, arguments: Arguments, _place: Place) -> str | None:
    """Refuse redirects unless every host but those that are named leads nowhere; curl takes the first that fits."""
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
"""By the name that a rule gives."""
