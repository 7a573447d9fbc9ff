"""``claudeops chain``: the tree of an escalation, with what each session was allowed, did, found and cost, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, missing, present
from claudeops.cli.lists import held_cell, result_cell
from claudeops.cli.text.layout import LEVEL_STYLES, Layout, Style, TableCell, count_of, length_of, pairs, usd
from claudeops.domain.answers import document
from claudeops.domain.calls import VerdictKind
from claudeops.domain.listing import Reference
from claudeops.domain.sessions import DecisionReason, Outcome, Status
from claudeops.store.reading import Connection, opened, session_ids
from claudeops.store.reading.chains import ChainSession, ChainTree, chain_of, tree
from claudeops.text.escapes import visible
from claudeops.wording.why import DECISIONS

_NAME: Final = "chain"
_INPUT_CHARACTERS: Final = 160  # of a refused call's input
_MILLISECOND: Final = timedelta(milliseconds=1)


def print_chain(wanted: Reference, *, written: str, shape: AnswerShape) -> int:
    """Print the chain of a session; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = named_session(connection, wanted, written)
            if isinstance(found, CommandAnswer):
                return found
            chain = chain_of(connection, found)
            shown = tree(connection, found if chain is None else chain)
        return CommandAnswer(body=document(shown), draw=partial(_drawn, shown))

    return present(_NAME, ask, shape, target=written)


def named_session(connection: Connection, wanted: Reference, written: str) -> int | CommandAnswer:
    """Return the session that a person named, or the answer that there is none, or more than one."""
    found = session_ids(connection, wanted)
    if len(found) == 1:
        return found[0]
    if not found:
        return missing("session_not_found", written, f"there is no session {written}")
    fits = ", ".join(map(str, found))
    return missing("session_not_found", written, f"{written} fits several sessions ({fits}): write more of it")


# --- text -------------------------------------------------------------------------------------------------


def _drawn(shown: ChainTree, looks: Layout) -> Sequence[str]:
    first, last = shown.sessions[0], shown.sessions[-1]
    facts = [
        f"chain {shown.chain}",
        _started(first),
        count_of(shown.sessions_count, "session"),
        usd(shown.cost_usd),
        looks.time(first.created_at),
    ]
    lines = [looks.styled(" · ".join(facts), Style.HEAD)]
    if shown.status is Status.ENDED and last.decision_reason is not None:
        lines.append(looks.styled(f"ended: {DECISIONS[last.decision_reason]}", _decision_style(last.decision_reason)))
    lines += [f"looks whether the repairs of chain {number} hold" for number in shown.follows_up]
    for session, depth in _walk(shown):
        lines += ["", *_session(session, depth, looks)]
    if shown.followed_up_by:
        chains = ", ".join(map(str, shown.followed_up_by))
        lines += ["", f"Whether its repairs held: claudeops chain {chains}"]
    return lines


def _started(session: ChainSession) -> str:
    return f"{session.trigger} by {visible(session.started_by)}" if session.started_by else session.trigger


def _walk(shown: ChainTree) -> Iterator[tuple[ChainSession, int]]:
    """Yield the sessions, each after the one it follows from, with its depth."""
    known = {session.session_id for session in shown.sessions}

    def below(parent: int | None, depth: int) -> Iterator[tuple[ChainSession, int]]:
        for session in shown.sessions:
            of = session.parent_session_id if session.parent_session_id in known else None
            if of == parent:
                yield session, depth
                yield from below(session.session_id, depth + 1)

    yield from below(None, 0)


def _session(session: ChainSession, depth: int, looks: Layout) -> list[str]:
    indent = "   " * max(depth - 1, 0)
    branch = (("└─ " if looks.ellipsis == "…" else "`- ") if depth else "") + f"session {session.session_id}"
    tier = f"tier {session.tier} · {visible(session.model)} · {_started(session)}"
    ran = None if session.duration_ms is None else session.duration_ms * _MILLISECOND
    used = " · ".join(
        part
        for part in (
            length_of(ran) if ran is not None else "",
            count_of(session.num_turns, "turn") if session.num_turns is not None else "",
            usd(session.cost_usd) if session.cost_usd is not None else "",
        )
        if part
    )
    outcome = session.outcome.value if session.outcome is not None else session.status.value
    style = _outcome_style(session)
    head = f"{indent}{looks.styled(branch, Style.HEAD)}  {tier}  {looks.styled(outcome, style)}"
    return [f"{head}  {used}".rstrip(), *pairs(_facts(session, looks), looks, indent=3 * depth + 2)]


def _facts(session: ChainSession, looks: Layout) -> Iterator[tuple[str, TableCell | str]]:
    if asked := session.reason or session.prompt:
        yield "asked to", asked
    if session.checks:
        yield "saw", ", ".join(f"{check.service} {check.status.value}" for check in session.checks)
    if sum(session.verdicts.values()):
        yield "calls", ", ".join(f"{count} {kind}" for kind, count in session.verdicts.items() if count)
    for call in session.refused:
        what = "refused" if call.verdict is VerdictKind.DENY else "asked"
        yield what, TableCell(f"{call.tool_name} {_shortened(call.input)}: {call.reason}", Style.WARN)
    for action in session.actions:
        held = held_cell(action, looks).text
        words = f"{action.action_type} of {action.service}: {result_cell(action).text}"
        yield "did", TableCell(words if held == "-" else f"{words}, {held}", result_cell(action).style)
    for event in session.events:
        about = f"{event.service}: " if event.service else ""
        state = "" if event.resolved_at is None else " (resolved)"
        yield event.level.value, TableCell(f"{about}{event.message}{state}", LEVEL_STYLES[event.level])
    if session.summary:
        yield "summary", session.summary
    if session.error and session.outcome is not Outcome.SUCCESS:
        yield "error", TableCell(session.error, Style.BAD)
    if session.decision_reason is not None:
        words = f"{session.decision_reason.value}: {DECISIONS[session.decision_reason]}"
        yield "decision", TableCell(words, _decision_style(session.decision_reason))


def _shortened(text: str) -> str:
    return text if len(text) <= _INPUT_CHARACTERS else text[:_INPUT_CHARACTERS] + " …"


def _outcome_style(session: ChainSession) -> Style:
    if session.outcome is None:
        return Style.NAME
    return Style.GOOD if session.outcome is Outcome.SUCCESS else Style.BAD


def _decision_style(reason: DecisionReason) -> Style:
    match reason:
        case DecisionReason.HEALTHY:
            return Style.GOOD
        case DecisionReason.ESCALATED | DecisionReason.MAINTENANCE | DecisionReason.PAUSED:
            return Style.NAME
        case DecisionReason.DRY_RUN | DecisionReason.NO_EVIDENCE:
            return Style.WARN
        case _:
            return Style.BAD
