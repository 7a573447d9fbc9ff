"""Two ways in which a session looks finished and is not, by clauditor's rules.

It asked a question that nobody answers, or it started subagents in the background and did not wait for them.
Both are guesses: they name a category and a warning, never an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from claudeops.domain import regex
from claudeops.domain.model import ErrorCategory

if TYPE_CHECKING:
    from claudeops.domain.stream.transcript import Transcript

_HANG: Final = "interactive-hang: the session may have asked for input, and nobody answers (heuristic)"
_BACKGROUND: Final = "background-task: subagents were started in the background and not waited for (heuristic)"
_WAITING: Final = regex.Pattern(r"(?i)\b(waiting on|still waiting|continuing|in progress|in the background)\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspicion:
    """What the heuristics think."""

    category: ErrorCategory | None = None
    warnings: tuple[str, ...] = ()


NOTHING_SUSPECTED: Final = Suspicion()


def suspect(transcript: Transcript, *, has_report: bool, background_tasks_disabled: bool) -> Suspicion:
    """Return what is suspicious about a session that ended without an error.

    A validated report may well end in a question mark, so with one only too few turns for the launches still
    warn, without a category.
    """
    if has_report:
        warned = not background_tasks_disabled and _too_few_turns(transcript)
        return Suspicion(warnings=(_BACKGROUND,)) if warned else NOTHING_SUSPECTED
    if _asks(transcript):
        return Suspicion(category=ErrorCategory.INTERACTIVE, warnings=(_HANG,))
    if not background_tasks_disabled and _waits(transcript):
        return Suspicion(category=ErrorCategory.BACKGROUND_TASK, warnings=(_BACKGROUND,))
    return NOTHING_SUSPECTED


def _asks(transcript: Transcript) -> bool:
    if transcript.num_turns != 1 or transcript.stop_reason != "end_turn":
        return False
    return transcript.ask_user_question or transcript.text.strip().endswith("?")


def _waits(transcript: Transcript) -> bool:
    """Say whether background work was left; the phrase counts without a result line too."""
    if transcript.background_launches == 0:
        return False
    return _WAITING.search(transcript.text) is not None or _too_few_turns(transcript)


def _too_few_turns(transcript: Transcript) -> bool:
    """Say whether the turns do not suffice for one look at each launch and a conclusion."""
    launches, turns = transcript.background_launches, transcript.num_turns
    return launches > 0 and turns is not None and turns < launches + 2
