"""Which step answers: a cursor for every session, sessions given out in the order in which they first ask. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from claudeops.rehearsal.script import Script, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The step that answers a request."""

    place: str  # as the script says it: tiers.haiku.sessions[0].steps[2]
    step: Step
    captured: Mapping[str, str] = field(default_factory=dict)  # what earlier steps of the session took from results


@dataclass(frozen=True, kw_only=True, slots=True)
class Exhausted:
    """No step answers; ``problem`` is one sentence that names tier, session and step."""

    problem: str


class Cursor:
    """Where one session stands in its steps. It only ever moves forward."""

    def __init__(self, steps: tuple[Step, ...], place: str) -> None:
        self._steps = steps
        self._place = place
        self._index = 0
        self._answered = 0  # requests that the current step has answered
        self._seen: list[str] = []  # results of the session, oldest first
        self._captured: dict[str, str] = {}

    def take(self, last_result: str) -> Chosen | Exhausted:
        """Return the next step whose condition holds, and count it as used."""
        self._note(last_result)
        seen = "\n".join(self._seen)
        while self._index < len(self._steps):
            step = self._steps[self._index]
            if self._answered < step.times and (step.when is None or step.when.holds(last_result, seen)):
                self._answered += 1
                return Chosen(place=f"{self._place}[{self._index}]", step=step, captured=dict(self._captured))
            self._index += 1
            self._answered = 0
        return Exhausted(problem=f"{self._place}[{self._index}]: the script ends here, but one more request came")

    def _note(self, last_result: str) -> None:
        """Keep the results, and take from them what the step asked for whose calls they answer."""
        if not self._seen or self._seen[-1] != last_result:
            self._seen.append(last_result)
        if self._answered:
            for name, pattern in self._steps[self._index].capture.items():
                if (found := re.search(pattern, last_result, re.MULTILINE)) is not None:
                    self._captured[name] = found[1] or ""


class Cursors:
    """The cursors of all sessions seen so far."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._cursors: dict[tuple[str, str], Cursor] = {}  # by tier and session key

    def take(self, *, tier: str, session: str, last_result: str) -> Chosen | Exhausted:
        """Return the step that answers the next request of a session.

        A session that no cursor knows takes the tier's next scripted session. One CLI session that talks to
        two tiers has a cursor in each.
        """
        known = self._cursors.get((tier, session))
        cursor = known or self._open(tier)
        if isinstance(cursor, Exhausted):
            return cursor
        self._cursors[tier, session] = cursor
        return cursor.take(last_result)

    def _open(self, tier: str) -> Cursor | Exhausted:
        """Give out the next scripted session. A refused session stays unknown, and is refused again."""
        rules = self._script.tiers[tier]
        ordinal = sum(1 for taken, _ in self._cursors if taken == tier)
        scripted = len(rules.scripted)
        if ordinal >= scripted and not rules.repeat_last:
            problem = f"tiers.{tier}: scripted are {scripted} sessions, but session number {ordinal + 1} began"
            return Exhausted(problem=f"{problem}; script it or say repeat_last")
        index = min(ordinal, scripted - 1)
        return Cursor(rules.scripted[index].steps, f"tiers.{tier}.{rules.place(index)}")
