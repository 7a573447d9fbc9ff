"""``spend`` and ``stats``: what sessions cost, and how they went, over a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, present
from claudeops.cli.text.layout import Column, Layout, Style, TableCell, length_of, pairs, table, usd
from claudeops.domain.answers import document
from claudeops.settings.where import budgets
from claudeops.store.reading import opened
from claudeops.store.reading.figures import CountedFigures, figures
from claudeops.store.reading.spending import SpendingAnswer, spending_of
from claudeops.text.escapes import visible
from claudeops.wording.readable import count_of

_SPEND: Final = "spend"
_STATS: Final = "stats"
_SINCE: Final = timedelta(days=7)
"""How far both look back unless they are told."""

_MILLISECOND: Final = timedelta(milliseconds=1)


# --- spend ------------------------------------------------------------------------------------------------


def print_spend(*, since: datetime | None, by: str | None, limit: int, shape: AnswerShape) -> int:
    """Print what was spent, by ``day``, ``tier``, ``model``, ``chain`` or all of them; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        chain_usd, daily_usd, timezone = budgets(os.environ, cwd=Path.cwd())
        with opened(database_url()) as connection:
            found = spending_of(
                connection,
                since=now - _SINCE if since is None else since,
                now=now,
                timezone=timezone,
                day_budget_usd=daily_usd,
                chain_budget_usd=chain_usd,
                limit=limit,
            )
        return CommandAnswer(body=document(found), draw=partial(_spend, found, by))

    return present(_SPEND, ask, shape)


def _spend(found: SpendingAnswer, by: str | None, looks: Layout) -> Sequence[str]:
    over = found.today_usd >= found.day_budget_usd
    today = f"{usd(found.today_usd)} of {usd(found.day_budget_usd)}"
    reserved = f", {usd(found.reserved_usd)} reserved for what runs" if found.under_way else ""
    lines = pairs(
        [
            ("today", TableCell(today + reserved, Style.BAD if over else Style.PLAIN)),
            (f"since {found.since:%Y-%m-%d}", f"{usd(found.booked_usd)} booked"),
            ("nothing found", f"{usd(found.nothing_found_usd)} of it"),
            ("saved", f"{usd(found.saved_usd)} by {count_of(found.saved_fires, 'fire')} without a change"),
        ],
        looks,
    )
    parts: Mapping[str, Callable[[SpendingAnswer, Layout], list[str]]] = {
        "day": _days,
        "tier": _tiers,
        "model": _models,
        "service": _services,
        "verdict": _verdicts,
        "chain": _chains,
    }
    for name, draw in parts.items():
        drawn = draw(found, looks) if by in {None, name} else []
        lines += ["", *drawn] if drawn else []
    return [*lines, *_under_way(found, looks)]


def _days(found: SpendingAnswer, looks: Layout) -> list[str]:
    columns = [Column("DAY"), Column("BOOKED", right=True), Column("SESSIONS", right=True), Column("OF THE BUDGET")]
    rows = [
        (
            day.day,
            usd(day.booked_usd),
            str(day.sessions),
            TableCell(_bar(day.booked_usd, found.day_budget_usd, looks), _budget_style(day.booked_usd, found)),
        )
        for day in found.days
    ]
    return table(columns, rows, looks)


def _bar(usd_spent: float, budget: float, looks: Layout) -> str:
    share = usd_spent / budget if budget else 0.0
    block = "█" if looks.ellipsis == "…" else "#"
    return f"{block * min(round(share * 20), 40)} {share:.0%}".strip()


def _budget_style(usd_spent: float, found: SpendingAnswer) -> Style:
    return Style.BAD if usd_spent >= found.day_budget_usd else Style.GOOD


def _tiers(found: SpendingAnswer, looks: Layout) -> list[str]:
    columns = [Column("TIER"), Column("BOOKED", right=True), Column("SESSIONS", right=True), Column("EACH", right=True)]
    rows = [
        (f"tier {tier.tier}", usd(tier.booked_usd), str(tier.sessions), usd(tier.booked_usd / max(tier.sessions, 1)))
        for tier in found.tiers
    ]
    return table(columns, rows, looks)


def _models(found: SpendingAnswer, looks: Layout) -> list[str]:
    columns = [
        Column("MODEL", shrinks=True),
        Column("COST", right=True),
        Column("CALLS", right=True),
        Column("IN", right=True),
        Column("OUT", right=True),
        Column("CACHE READ", right=True, extra=True),
        Column("CACHE WRITTEN", right=True, extra=True),
        Column(""),
    ]
    rows = [
        (
            TableCell(model.model, Style.NAME),
            usd(model.cost_usd),
            str(model.calls),
            f"{model.input_tokens:,}",
            f"{model.output_tokens:,}",
            f"{model.cache_read_tokens:,}",
            f"{model.cache_write_tokens:,}",
            TableCell(f"{model.without_price} without a price" if model.without_price else "", Style.WARN),
        )
        for model in found.models
    ]
    return table(columns, rows, looks)


def _services(found: SpendingAnswer, looks: Layout) -> list[str]:
    columns = [Column("SERVICE", shrinks=True), Column("BOOKED", right=True), Column("SESSIONS", right=True)]
    rows = [(visible(one.service or "none"), usd(one.booked_usd), str(one.sessions)) for one in found.services]
    return table(columns, rows, looks)


def _verdicts(found: SpendingAnswer, looks: Layout) -> list[str]:
    columns = [Column("VERDICT"), Column("BOOKED", right=True), Column("SESSIONS", right=True)]
    rows = [(one.verdict or "none", usd(one.booked_usd), str(one.sessions)) for one in found.verdicts]
    return table(columns, rows, looks)


def _chains(found: SpendingAnswer, looks: Layout) -> list[str]:
    columns = [Column("CHAIN"), Column("BOOKED", right=True), Column("SESSIONS", right=True), Column("LAST")]
    rows = [
        (
            f"chain {chain.chain}",
            TableCell(usd(chain.booked_usd), Style.BAD if chain.booked_usd >= found.chain_budget_usd else Style.PLAIN),
            str(chain.sessions),
            looks.time(chain.last_at),
        )
        for chain in found.chains
    ]
    return table(columns, rows, looks)


def _under_way(found: SpendingAnswer, looks: Layout) -> list[str]:
    columns = [Column("RUNS"), Column("TIER", right=True), Column("USED", right=True), Column("RESERVED", right=True)]
    rows = [
        (f"session {one.session_id}", str(one.tier), usd(one.charged_usd), usd(one.reserved_usd))
        for one in found.under_way
    ]
    return ["", *table(columns, rows, looks)] if rows else []


# --- stats ------------------------------------------------------------------------------------------------


def print_stats(*, since: datetime | None, shape: AnswerShape) -> int:
    """Print how sessions went; return the exit status."""

    def ask(now: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = figures(connection, now - _SINCE if since is None else since)
        return CommandAnswer(body=document(found), draw=partial(_stats, found))

    return present(_STATS, ask, shape)


def _stats(found: CountedFigures, looks: Layout) -> Sequence[str]:
    columns = [
        Column("TIER"),
        Column("SESSIONS", right=True),
        Column("SUCCESS", right=True),
        Column("MEAN TIME", right=True),
        Column("TURNS", right=True, extra=True),
        Column("EACH", right=True, extra=True),
        Column("COST", right=True),
    ]
    rows = [
        (
            f"tier {tier.tier}",
            str(tier.sessions),
            f"{tier.succeeded / tier.sessions:.0%}" if tier.sessions else "-",
            "-" if tier.mean_duration_ms is None else length_of(tier.mean_duration_ms * _MILLISECOND),
            "-" if tier.mean_turns is None else f"{tier.mean_turns:.1f}",
            usd(tier.mean_cost_usd),
            usd(tier.cost_usd),
        )
        for tier in found.tiers
    ]
    facts: list[tuple[str, TableCell | str]] = [
        ("chains", str(found.chains)),
        ("sessions", str(found.sessions)),
        ("outcomes", _listed(found.outcomes)),
        ("decisions", _listed(found.decisions)),
        ("started by", _listed(found.triggers)),
        ("tool calls", _listed(found.verdicts)),
        ("actions", f"{found.actions}, {found.actions_failed} failed"),
        ("repairs", _listed(found.actions_held)),
        ("events", _listed(found.events)),
        ("checks", _listed(found.checks)),
    ]
    head = looks.styled(f"since {found.since:%Y-%m-%d %H:%M}Z", Style.QUIET)
    drawn = table(columns, rows, looks)
    return [head, *pairs(facts, looks), *(["", *drawn] if drawn else [])]


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
