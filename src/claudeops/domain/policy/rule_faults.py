"""What can be wrong with a rule for commands, found when a policy file is read and not when a command comes."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from claudeops.domain import regex
from claudeops.domain.policy.argument_checks import ARGUMENT_CHECKS
from claudeops.domain.policy.argument_kinds import KINDS, SERVICE_KINDS
from claudeops.domain.policy.never import refuse_line
from claudeops.domain.policy.rules import option_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from claudeops.domain.policy.rules import CommandGroup, CommandRule


class RuleFault(Exception):  # noqa: N818 - says what is wrong with somebody's text
    """A rule that cannot be applied; ``str()`` says why and what to write, ``key`` where."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def command_fault(rule: CommandRule, *, kinds: Collection[str], highest: int) -> None:
    """Raise `RuleFault` unless the rule can be applied; ``kinds`` are the actions that have a limit."""
    for name in rule.name.split("|"):
        _check_name(name)
    if not 1 <= rule.tier <= highest:
        raise RuleFault("tier", f"there is no tier {rule.tier}: tiers go from 1 to {highest}")
    if (rule.tokens or rule.line is not None) and (rule.arguments or rule.options):
        raise RuleFault("arguments", "'tokens' and 'line' stand instead of 'options' and 'arguments': leave one out")
    if rule.excludes and not rule.tokens and rule.line is None:
        raise RuleFault("excludes", "'excludes' stands beside 'tokens' or 'line': add one of them")
    for key in ("tokens", "line", "excludes"):
        _check_expression(key, getattr(rule, key) or "")
    _check_options("options", rule.options)
    arguments = [kind[:-1] if kind[-1] in "?*+" else kind for kind in rule.arguments.split()]
    _check_kinds("arguments", arguments)
    _check_words(rule)
    _check_action(rule, arguments, kinds)


def group_fault(group: CommandGroup) -> None:
    """Raise `RuleFault` unless the group can be applied."""
    _check_options("options", group.options)


def _check_name(name: str) -> None:
    if not name.strip() or regex.search(r"[^\w .:\[+-]", name) or "  " in name or name != name.strip():
        raise RuleFault("name", f"{name!r} is no name of a command: write it with its subcommands, 'docker ps'")
    # ``kill -0`` only asks; of the others no argument makes anything harmless.
    if (reason := refuse_line(f"{name} x")) is not None and refuse_line(f"{name} -0 1") is not None:
        raise RuleFault("name", f"{name!r} can be allowed at no tier: {reason}")


def _check_words(rule: CommandRule) -> None:
    given = option_table(rule.options).keys()
    for key, named in (("required", rule.required.replace("|", " ")), ("deep", rule.deep)):
        for option in named.split():
            if option not in given and option != "*":
                raise RuleFault(key, f"{option} is not among the options: add it there")
    if rule.output not in {"", "names"}:
        raise RuleFault("output", f"{rule.output!r} is not known: write 'names', or leave it out")
    if rule.check and rule.check not in ARGUMENT_CHECKS:
        raise RuleFault("check", f"{rule.check!r} is not known: known are {', '.join(ARGUMENT_CHECKS)}")


def _check_action(rule: CommandRule, arguments: list[str], kinds: Collection[str]) -> None:
    if not rule.action:
        return
    if rule.action not in kinds:
        raise RuleFault("action", f"the action {rule.action!r} has no limit: add [actions.{rule.action}]")
    values = [option.kind for option in option_table(rule.options).values()]
    if not rule.service and not any(kind in SERVICE_KINDS for kind in (*arguments, *values)):
        raise RuleFault(
            "action",
            "no argument names the service: use one of the kinds "
            f"{', '.join(sorted(SERVICE_KINDS))}, or say which one it is with 'service'",
        )


def _check_options(key: str, options: str) -> None:
    for token in options.split():
        if not regex.match(r"-[^=]*(?:=|$)|[!(),](?:=|$)|#$", token.partition("|")[0]) or token.startswith("|"):
            raise RuleFault(key, f"{token!r} is no option: write -x, --long, -x|--long or --long=KIND")
    _check_kinds(key, [option.kind for option in option_table(options).values() if option.kind])


def _check_kinds(key: str, kinds: Iterable[str]) -> None:
    for kind in kinds:
        name, _, parameter = kind.partition(":")
        if name not in KINDS:
            near = difflib.get_close_matches(name, KINDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(KINDS))}"
            raise RuleFault(key, f"{name!r} is no kind of value: {hint}")
        if name == "re":
            _check_expression(key, parameter)
        if name == "int" and not regex.fullmatch(r"(?:\d+-)?\d+|", parameter):
            raise RuleFault(key, f"{kind!r}: write int, int:MOST or int:LEAST-MOST")


def _check_expression(key: str, pattern: str) -> None:
    try:
        regex.check(pattern)
    except regex.ExpressionError as error:
        hint = "; it has no look-around: say in 'excludes' what must not occur" if "(?" in str(error) else ""
        raise RuleFault(key, f"{pattern!r} is no regular expression of google-re2: {error}{hint}") from None
