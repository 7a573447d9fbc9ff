"""``claudeops policy replay``: what another policy would have said to the calls on record. Puts nothing in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

from claudeops.app.policy import LoadedPolicy
from claudeops.app.wiring import tier_setups
from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, present
from claudeops.cli.policy import estate_or_none, with_policy
from claudeops.cli.text.layout import Column, Layout, Row, Style, TableCell, count_of, pairs, table
from claudeops.domain.answers import document
from claudeops.domain.calls import VerdictKind
from claudeops.engine.session.context import TierSetup
from claudeops.policy.replay import PolicyReplay, RecordedCall, ReplayBound, ReplayCount
from claudeops.settings import Settings
from claudeops.settings.files import read_text
from claudeops.store.reading import Connection, opened
from claudeops.store.reading.calls_made import count_since, recorded_before

_NAME: Final = "policy replay"
_BATCH: Final = 200  # calls
_MOST_BYTES: Final = 500_000  # of the file, as on the page
_COLUMNS: Final = (
    *(Column("session", right=True), Column("tier", right=True), Column("call", shrinks=True)),
    *(Column("on record"), Column("edited"), Column("rule", shrinks=True), Column("", extra=True)),
)
_STYLES: Final = {VerdictKind.ALLOW: Style.GOOD, VerdictKind.ASK: Style.WARN, VerdictKind.DENY: Style.BAD}


def print_replay(file: Path, since: datetime, *, shape: AnswerShape) -> int:
    """Print which calls on record get another verdict by the policy in a file; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        text = read_text(file, origin="FILE", what="policy", limit=_MOST_BYTES)
        settings = with_policy(None)
        with opened(database_url()) as connection:
            found = anyio.run(_replayed, settings, connection, text, since)
        return CommandAnswer(body=document(found), draw=partial(_drawn, found))

    return present(_NAME, ask, shape, target=str(file))


async def _replayed(settings: Settings, connection: Connection, text: str, since: datetime) -> PolicyReplay:
    estate, tiers, count = estate_or_none(settings), tier_setups(settings), ReplayCount()

    async def setups() -> Mapping[int, TierSetup]:
        await anyio.lowlevel.checkpoint()
        return tiers

    policy = LoadedPolicy(settings=settings, tiers=sorted(tiers), setups=setups, estate=lambda: estate, text="")

    async def calls(before: int | None) -> Sequence[RecordedCall]:
        await anyio.lowlevel.checkpoint()
        return recorded_before(connection, before, since=since, limit=_BATCH)

    bound = await policy.replay(text, calls, count)
    return count.sum(since=since, on_record=count_since(connection, since), bound=bound)


def _drawn(found: PolicyReplay, looks: Layout) -> Sequence[str]:
    ends = {None: "", ReplayBound.COUNT: " (no more are taken)", ReplayBound.TIME: " (time was over)"}
    facts = [
        ("replayed", f"{found.replayed} of {count_of(found.on_record, 'call')}{ends[found.bound]}"),
        ("unchanged", str(found.unchanged)),
        ("newly allowed", str(found.newly_allowed)),
        ("newly asked", str(found.newly_asked)),
        ("newly denied", str(found.newly_denied)),
        ("by the edit", f"{found.by_edit} of these; to the others the policy in force says the same today"),
        ("not judged", str(found.not_judged)),
    ]
    changes = table(_COLUMNS, _changes(found), looks)
    return [*pairs(facts, looks), *(["", *changes] if changes else [])]


def _changes(found: PolicyReplay) -> Iterator[Row]:
    for one in found.changes:
        yield (
            str(one.session_id),
            str(one.tier),
            f"{one.tool_name} {one.text}",
            one.recorded.value,
            TableCell(one.verdict.value, _STYLES[one.verdict]),
            one.reason,
            "" if one.by_edit else "by the policy in force too",
        )
