"""All rules of a policy, found by the command that they are for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from claudeops.domain import regex
from claudeops.domain.policy.rules import CommandGroup, RefusedError, UnclearCommandError, read_arguments
from claudeops.domain.policy.wrappers import REASONS, UNJUDGED, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from claudeops.domain.policy.rules import CommandRule, Option, Wrapper
    from claudeops.domain.shell.values import Word


class _UnknownSubcommandError(RefusedError):
    """What follows a command is none of its subcommands."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the book knows of a command line."""

    path: str  # the command with its subcommands
    arguments: tuple[Word, ...]  # what follows them
    given: tuple[tuple[Option, Word | None], ...]  # options in front of the subcommands
    shared: str  # options that may follow as well
    rules: tuple[CommandRule, ...]
    wrapper: Wrapper | None
    wrapper_tier: int = 1  # the lowest that may use the wrapper


class RuleBook:
    """Rules, groups and wrappers by name."""

    def __init__(
        self,
        *,
        rules: Iterable[CommandRule],
        groups: Iterable[CommandGroup],
        wrappers: Mapping[str, int],
        aliases: Mapping[str, str],
    ) -> None:
        by_name: defaultdict[str, list[CommandRule]] = defaultdict(list)
        for rule in rules:
            for name in rule.name.split("|"):
                by_name[name].append(rule)
        self._rules = {name: tuple(found) for name, found in by_name.items()}
        self._wrappers = {name: wrapper for wrapper in WRAPPERS for name in wrapper.name.split("|") if name in wrappers}
        self._wrapper_tiers = dict(wrappers)
        self._groups = {
            path: CommandGroup(name=path) for name in (*self._rules, *self._wrappers) for path in _above(name)
        }
        self._groups |= {group.name: group for group in reversed(tuple(groups))}
        self._aliases = dict(aliases)

    @property
    def rules(self) -> Mapping[str, tuple[CommandRule, ...]]:
        """Every rule by each of its names."""
        return self._rules

    @property
    def wrappers(self) -> Mapping[str, int]:
        """Commands that run others, with the lowest tier that may use them."""
        return {name: self._wrapper_tiers[name] for name in self._wrappers}

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
                if path in self._rules and not isinstance(error, _UnknownSubcommandError):
                    break
                raise type(error)(f"{path}: {error}") from None
            path, rest = following, read.positionals[1:]
            given += read.options
            shared = f"{shared} {group.options}" if group.shared else shared
        if path not in self._rules and path not in self._wrappers:
            unjudged = regex.sub(r"[\d.]+$", "", path) in UNJUDGED or path in UNJUDGED
            kind = UnclearCommandError if unjudged else RefusedError
            raise kind(f"{path} is in no rule: {REASONS.get(path, 'it is not allowed at any tier')}")
        return Found(
            path,
            rest,
            tuple(given),
            shared,
            self._rules.get(path, ()),
            self._wrappers.get(path),
            self._wrapper_tiers.get(path, 1),
        )

    def _following(self, path: str, positionals: tuple[Word, ...]) -> str:
        if not positionals or not positionals[0].constant:
            kind = UnclearCommandError if positionals else RefusedError
            raise kind("write out what it is to do")
        following = f"{path} {positionals[0].text}"
        if following not in self._rules and following not in self._groups and following not in self._wrappers:
            raise _UnknownSubcommandError(f"{positionals[0].text[:40]!r} is in no rule and not allowed at any tier")
        return following


def _above(name: str) -> list[str]:
    words = name.split(" ")
    return [" ".join(words[:count]) for count in range(1, len(words))]
