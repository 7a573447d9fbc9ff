"""Silences: begun, tried out, and ended before their time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from claudeops.domain.alerts.alert import Silence
from claudeops.domain.alerts.matchers import Matcher
from claudeops.domain.alerts.suppression import preview
from claudeops.store.acts import Refusal, missing, refused
from claudeops.store.alerts.silences import Silences
from claudeops.store.reading.silences import SilenceEntry, to_entry

LOOKED_BACK: Final = timedelta(days=7)
"""For which a silence's preview looks back."""

_SHOWN: Final = 10  # alerts that a preview names


class SilenceAct(msgspec.Struct, frozen=True, kw_only=True):
    """A silence, and what it holds back."""

    handled: bool  # False: a preview, which is not kept
    silence: SilenceEntry
    now_count: int  # alerts that it holds back now
    before_count: int  # more alerts that it would have held back within `LOOKED_BACK`
    now: tuple[str, ...]  # the first of those that it holds back now


class EndedSilence(msgspec.Struct, frozen=True, kw_only=True):
    """A silence that was ended before its time."""

    handled: bool = True
    silence: SilenceEntry


async def silence(
    silences: Silences,
    matchers: tuple[Matcher, ...],
    *,
    lasts: timedelta,
    comment: str,
    only_preview: bool,
    by: str,
    now: datetime,
) -> SilenceAct:
    """Hold back the alerts that fit all matchers for a while, or only say which that would be."""
    wanted = Silence(id=0, matchers=matchers, starts_at=now, ends_at=now + lasts, created_by=by, comment=comment)
    known = await silences.alerts(now - LOOKED_BACK)
    kept = wanted if only_preview else await silences.add(wanted)
    seen = preview(kept, known, since=now - LOOKED_BACK)
    names = {state.key: f"{state.name} of {state.service}" for state in known}
    return SilenceAct(
        handled=not only_preview,
        silence=to_entry(kept),
        now_count=len(seen.now),
        before_count=len(seen.before),
        now=tuple(names[key] for key in seen.now[:_SHOWN]),
    )


async def end_silence(silences: Silences, number: int, *, by: str, now: datetime) -> EndedSilence | Refusal:
    """End a silence before its time; what it has held back and still fires is decided about then."""
    found = await silences.end(number, by=by, now=now)
    if found is None:
        sentence = f"there is no silence {number}; `claudeops list-silences --all` shows them"
        return missing("silence", number, sentence)
    if found.ends_at < now:
        return refused("silence", number, f"Silence {number} is over already.")
    return EndedSilence(silence=to_entry(found))
