"""Trust: whether what a session has learnt may stand in prompts, or waits in quarantine.

A session is *clean* when all of this holds. What any other session has learnt waits, because what it read may have been
written by whoever, or whatever, made the service unwell.

- It succeeded, and something was looked at.
- It began without a handover, and its chain had found nothing down and acted on nothing. The trust of what is derived
  is the lowest of its sources, and a handover is the word of a session that found something unwell.
- Its report finds every service healthy, asks for no other tier, and lacks no evidence.
- No memory of its report was refused.
- None of its calls was denied as hostile: for what is never allowed at any tier, or for an address out of reach. Other
  denied calls (a limit, a command that the tier does not have) are clumsy, not hostile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from claudeops.domain.report.evidence import Background, Proof
from claudeops.domain.report.report import Report, ServiceStatus
from claudeops.domain.sessions import Ending, Outcome, Session
from claudeops.text import regex

_HOSTILE: Final = regex.Pattern(
    r"(?i)\bnever\b|, at any tier$|\bwould show environments\b|\bnot among the (?:hosts|urls)\b|\bnot in the estate\b"
)


def is_hostile(reason: str) -> bool:
    """Tell whether the reason of a denied call says that the call was hostile."""
    return _HOSTILE.search(reason) is not None


def doubts(
    session: Session,
    ending: Ending,
    *,
    proof: Proof,
    before: Background,
    refused: int,
    denials: Iterable[str],
) -> tuple[str, ...]:
    """Return why a session is not clean, in clauses; none: it is. ``denials`` are the reasons of its denied calls."""
    report = ending.extraction.report
    found = list(_of_the_chain(session, before))
    if ending.outcome is not Outcome.SUCCESS:
        found.append("it did not succeed")
    if report is not None:
        found += _of_the_report(report, proof)
    if not (proof.looked and ending.calls_ran):
        found.append("nothing was looked at")
    if refused:
        found.append("a memory of its report was refused")
    if any(map(is_hostile, denials)):
        found.append("a call of it was denied as hostile")
    return tuple(found)


def _of_the_chain(session: Session, before: Background) -> Iterator[str]:
    if session.context is not None:
        yield "it took over from another session"
    if before.down:
        yield "its chain had found something down"
    if before.acted_on:
        yield "its chain had acted"


def _of_the_report(report: Report, proof: Proof) -> Iterator[str]:
    if any(check.status is not ServiceStatus.HEALTHY for check in report.services_checked):
        yield "not every service was healthy"
    if report.escalation.needed:
        yield "it asked for the next tier"
    if proof.lacks or proof.unproven:
        yield "its report lacks evidence"
