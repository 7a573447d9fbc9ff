"""``claudeops diff-chains``: the calls of two chains beside each other, and the first one in which they part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, missing, present
from claudeops.cli.chain import named_session
from claudeops.cli.text.layout import Column, Layout, Row, Style, TableCell, count_of, length_of, table, usd
from claudeops.domain.answers import document
from claudeops.domain.listing import Reference
from claudeops.store.reading import opened
from claudeops.store.reading.chain_diff import ChainDiff, DiffCall, DiffChain, DiffRow, canonical, compare, made_by
from claudeops.store.reading.chains import chain_of

_NAME: Final = "diff-chains"
_CALLS: Final = (Column("#", right=True), Column("call", shrinks=True), Column("first"), Column("second"), Column(""))
_CHAINS: Final = (Column(""), Column("first"), Column("second"))


def print_diff(wanted: Sequence[tuple[str, Reference]], *, shape: AnswerShape) -> int:
    """Print the chains of two sessions beside each other; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        made = []
        with opened(database_url()) as connection:
            for written, reference in wanted:
                found = named_session(connection, reference, written)
                if isinstance(found, CommandAnswer):
                    return found
                calls = made_by(connection, chain_of(connection, found) or found)
                if calls is None:
                    return missing("session_not_found", written, f"the chain of session {written} is not kept any more")
                made.append(calls)
        diff = compare(made[0], made[1], spelling=canonical)
        return CommandAnswer(body=document(diff), draw=partial(_drawn, diff))

    return present(_NAME, ask, shape, target=wanted[0][0])


def _drawn(diff: ChainDiff, looks: Layout) -> Sequence[str]:
    lines = table(_CHAINS, _chains(diff.first, diff.second, looks), looks)
    if diff.divergence is None:
        lines += ["", looks.styled("They do not part: the same calls, with the same verdicts and results.", Style.GOOD)]
    else:
        lines += ["", looks.styled(f"They part at call {diff.divergence + 1}.", Style.WARN)]
    for chain in (diff.first, diff.second):
        if chain.calls_left_out:
            lines.append(f"Of chain {chain.chain} the first {count_of(chain.calls, 'call')} are compared.")
    return [*lines, "", *table(_CALLS, _calls(diff), looks)]


def _chains(first: DiffChain, second: DiffChain, looks: Layout) -> Iterator[Row]:
    def row(name: str, *texts: str) -> Row:
        return (TableCell(name, Style.QUIET), *texts)

    both = (first, second)
    yield row("chain", *(str(one.chain) for one in both))
    yield row("began", *(looks.time(one.created_at) for one in both))
    yield row("trigger", *(one.trigger or "-" for one in both))
    yield row("tiers", *(", ".join(map(str, one.tiers)) for one in both))
    yield row("outcome", *("-" if one.outcome is None else one.outcome.value for one in both))
    yield row("ended", *("-" if one.decision_reason is None else one.decision_reason.value for one in both))
    yield row("cost", *(usd(one.cost_usd) for one in both))
    yield row("took", *(_length(one.duration_ms) for one in both))
    yield row("events", *(count_of(len(one.events), "event") for one in both))


def _calls(diff: ChainDiff) -> Iterator[Row]:
    for place, row in enumerate(diff.rows):
        call = row.first or row.second
        text = "" if call is None else f"{call.tool_name} {call.text}"
        here = " <- they part here" if place == diff.divergence else ""
        yield str(place + 1), text, _made(row.first), _made(row.second), TableCell(f"{_differs(row)}{here}", Style.WARN)


def _made(call: DiffCall | None) -> str:
    if call is None:
        return "-"
    return f"{call.verdict.value}, {call.result.value.replace('_', ' ')}"


def _differs(row: DiffRow) -> str:
    return ", ".join(each.value for each in row.differs)


def _length(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else length_of(timedelta(milliseconds=milliseconds))
