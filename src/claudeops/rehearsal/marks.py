"""The marks in a scenario's texts: ``{{web.url}}`` is known when the services run, a captured ``{{pod}}`` later."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.errors import ConfigurationError
from claudeops.rehearsal.reading import nearest
from claudeops.rehearsal.script import LAST_RESULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from claudeops.rehearsal.scenario import Scenario

MARK: Final = re.compile(r"\{\{([a-z][a-z0-9_.-]*)\}\}")
OF_SERVICES: Final = ("url", "host", "port")
"""What can be said of a service: ``http://127.0.0.1:8123/``, ``127.0.0.1:8123``, ``8123``."""

REPOS: Final = "repos"
_OF_TEMPLATES: Final = frozenset({"end", "else"})  # of docker's and kubectl's own --format


def check_marks(scenario: Scenario) -> None:
    """Raise `ConfigurationError` for a mark that nothing will replace."""
    always = (REPOS, LAST_RESULT, *(f"{name}.{what}" for name in scenario.services for what in OF_SERVICES))
    for number, tier in scenario.tiers.items():
        captured: list[str] = []
        for index, step in enumerate(tier.steps):
            known = (*always, *captured)
            for mark in _marks(msgspec.to_builtins(step)):
                if mark not in known and mark not in _OF_TEMPLATES:
                    raise ConfigurationError(
                        f"tiers.{number}.steps[{index}]: nothing is known by the name {{{{{mark}}}}}, "
                        f"{nearest(mark, known)}"
                    )
            captured += step.capture


def fill(value: object, values: Mapping[str, str]) -> object:
    """Return a value with every mark replaced that has a value, in every string but the keys."""
    match value:
        case str():
            return MARK.sub(lambda found: values.get(found[1], found[0]), value)
        case dict():
            return {key: fill(item, values) for key, item in value.items()}
        case list() | tuple():
            return [fill(item, values) for item in value]
        case _:
            return value


def _marks(value: object) -> Iterator[str]:
    match value:
        case str():
            yield from MARK.findall(value)
        case dict():
            for item in value.values():
                yield from _marks(item)
        case list():
            for item in value:
                yield from _marks(item)
