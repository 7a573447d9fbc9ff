"""All rules of a policy, found by the command that they are for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from claudeops.domain.policy.rules import CommandRule, RefusedError, Wrapper, read_arguments
from claudeops.domain.policy.rules_containers import ALIASES, CLUSTER_RULES, CONTAINER_GROUPS, DOCKER_RULES
from claudeops.domain.policy.rules_network import NETWORK_RULES
from claudeops.domain.policy.rules_system import SYSTEM_GROUPS, SYSTEM_RULES
from claudeops.domain.policy.rules_text import TEXT_RULES
from claudeops.domain.policy.wrappers import REASONS, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from claudeops.domain.policy.rules import CommandGroup, Option
    from claudeops.domain.shell.values import Word


@dataclass(frozen=True, slots=True)
class Found:
    """What the book knows of a command line."""

    path: str  # the command with its subcommands
    arguments: tuple[Word, ...]  # what follows them
    given: tuple[tuple[Option, Word | None], ...]  # options in front of the subcommands
    shared: str  # options that may follow as well
    rules: tuple[CommandRule, ...]
    wrapper: Wrapper | None


class RuleBook:
    """Rules, groups and wrappers by name."""

    def __init__(
        self,
        *,
        rules: Iterable[CommandRule],
        groups: Iterable[CommandGroup],
        wrappers: Iterable[Wrapper],
        aliases: Mapping[str, str],
        reasons: Mapping[str, str],
    ) -> None:
        by_name: defaultdict[str, list[CommandRule]] = defaultdict(list)
        for rule in rules:
            for name in rule.name.split("|"):
                by_name[name].append(rule)
        self._rules = {name: tuple(found) for name, found in by_name.items()}
        self._groups = {group.name: group for group in groups}
        self._wrappers = {name: wrapper for wrapper in wrappers for name in wrapper.name.split("|")}
        self._aliases = dict(aliases)
        self._reasons = dict(reasons)

    def find(self, name: str, arguments: tuple[Word, ...]) -> Found:
        """Return what is known of a command, following its subcommands. Raises `RefusedError` for an unknown one."""
        path, rest, shared = self._aliases.get(name, name), arguments, ""
        given: list[tuple[Option, Word | None]] = []
        while path in self._groups:
            group = self._groups[path]
            try:
                read = read_arguments(rest, f"{shared} {group.options}", harmless=lambda _word: False, mixed=False)
                following = self._following(path, read.positionals)
            except RefusedError as error:
                if path in self._rules:
                    break
                raise RefusedError(f"{path}: {error}") from None
            path, rest = following, read.positionals[1:]
            given += read.options
            shared = f"{shared} {group.options}" if group.shared else shared
        if path not in self._rules and path not in self._wrappers:
            raise RefusedError(f"{path} is in no rule: {self._reasons.get(path, 'it is not allowed at any tier')}")
        return Found(path, rest, tuple(given), shared, self._rules.get(path, ()), self._wrappers.get(path))

    def _following(self, path: str, positionals: tuple[Word, ...]) -> str:
        if not positionals or not positionals[0].constant:
            raise RefusedError("write out what it is to do")
        following = f"{path} {positionals[0].text}"
        if following not in self._rules and following not in self._groups and following not in self._wrappers:
            raise RefusedError(f"{positionals[0].text[:40]!r} is in no rule and not allowed at any tier")
        return following


@cache
def default_book() -> RuleBook:
    """Return the rules that ship with the package."""
    return RuleBook(
        rules=(*SYSTEM_RULES, *TEXT_RULES, *NETWORK_RULES, *DOCKER_RULES, *CLUSTER_RULES),
        groups=(*SYSTEM_GROUPS, *CONTAINER_GROUPS),
        wrappers=WRAPPERS,
        aliases=ALIASES,
        reasons=REASONS,
    )
