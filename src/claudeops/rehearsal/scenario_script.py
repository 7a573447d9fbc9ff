"""A scenario's tiers as the script that the Messages API plays."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.errors import ConfigurationError
from claudeops.rehearsal import script
from claudeops.rehearsal.marks import fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.rehearsal.scenario import Scenario, Step

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def play_of(scenario: Scenario, values: Mapping[str, str] = _NOTHING, *, pace_seconds: float = 0) -> script.Script:
    """Return what the model says, tier by tier; a tier's every session goes the same way.

    ``values`` replace the marks that are known before anything runs. Each answer comes ``pace_seconds`` later than
    the scenario says, for somebody who reads along. Raises `ConfigurationError` that names the step.
    """
    tiers = {}
    for number, tier in scenario.tiers.items():
        steps = tuple(
            _step(step, values, place=f"tiers.{number}.steps[{index}]", pace_seconds=pace_seconds)
            for index, step in enumerate(tier.steps)
        )
        tiers[number] = script.Tier(steps=steps, repeat_last=True)
    return script.Script(tiers=tiers, by_number=True)


def _step(step: Step, values: Mapping[str, str], *, place: str, pace_seconds: float) -> script.Step:
    try:
        made = script.Step(
            text=step.say,
            tools=tuple(_calls(step)),
            report=step.report,
            error=step.error,
            hang=step.hang,
            when=_when(step),
            capture=step.capture,
            times=step.times,
            delay_seconds=step.delay_seconds + pace_seconds,
        )
    except ValueError as error:
        raise ConfigurationError(f"{place}: {_in_own_words(str(error))}") from None
    filled = fill(msgspec.to_builtins(made), values)
    return msgspec.convert(filled, script.Step)


def _calls(step: Step) -> list[script.ToolUse]:
    commands = step.run_all if step.run is None else (step.run,)
    calls = [script.ToolUse(name="Bash", input={"command": command}) for command in commands]
    if step.read is not None:
        calls.append(script.ToolUse(name="Read", input={"file_path": step.read}))
    if step.tool is not None:
        calls.append(step.tool)
    return calls


def _when(step: Step) -> script.When | None:
    if not (step.when or step.unless or step.when_matches or step.when_seen):
        return None
    return script.When(contains=step.when, not_contains=step.unless, matches=step.when_matches, seen=step.when_seen)


def _in_own_words(complaint: str) -> str:
    """Return a complaint about a script's step with the names that a scenario's step has."""
    return complaint.replace("text, tool, tools or report", "say, run, run_all, read, tool or report").replace(
        "it needs tool or tools", "it needs run, run_all, read or tool"
    )
