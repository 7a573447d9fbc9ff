"""Single things: a session, a chain, an incident, sums, the state of everything."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from starlette.responses import Response

from claudeops.store.acts.holds import holding
from claudeops.store.holds import standing
from claudeops.store.reading import Connection, figures, homepage, memories, session_rows, silences
from claudeops.store.reading.chains import ChainTree, chain_of, tree
from claudeops.store.reading.incidents.story import IncidentStory, TimelineEntry, awaits_look, timeline
from claudeops.store.reading.incidents.story import story as story_of
from claudeops.store.verify import Verified, verify
from claudeops.structs import replace
from claudeops.web.api.answers import read_one, single, whole
from claudeops.web.api.queries import OfFigures, OfSums, since_of
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.site import Site
from claudeops.web.pages.spend import spent

_SUMS: Final = {
    "day": "days",
    "tier": "tiers",
    "model": "models",
    "service": "services",
    "verdict": "verdicts",
    "chain": "chains",
}


class TimedIncident(IncidentStory, frozen=True, kw_only=True):
    """An incident, all that belongs to it, and what happened in order."""

    timeline: tuple[TimelineEntry, ...]
    awaits_look: bool  # all that is missing for its end is a session that looks


async def session(site: Site, call: WebCall) -> Response:
    """Answer with a session."""
    number = call.number("id")
    return await read_one(site, call, partial(session_rows.one, session_id=number), f"There is no session {number}.")


async def chain(site: Site, call: WebCall) -> Response:
    """Answer with a chain and all its sessions."""
    number = call.number("root")

    def read(connection: Connection) -> ChainTree | None:
        return tree(connection, number) if chain_of(connection, number) == number else None

    return await read_one(site, call, read, f"There is no chain {number}.")


async def incident(site: Site, call: WebCall) -> Response:
    """Answer with an incident and its timeline."""
    number = call.number("number")

    def read(connection: Connection) -> TimedIncident | None:
        story = story_of(connection, number, now=call.at)
        if story is None:
            return None
        return TimedIncident(
            **{name: getattr(story, name) for name in story.__struct_fields__},
            timeline=timeline(story),
            awaits_look=awaits_look(connection, number),
        )

    return await read_one(site, call, read, f"There is no incident {number}.")


async def memory(site: Site, call: WebCall) -> Response:
    """Answer with a memory."""
    number = call.number("id")
    read = partial(memories.story, memory_id=number, now=call.at)
    return await read_one(site, call, read, f"There is no memory {number}.")


async def silence(site: Site, call: WebCall) -> Response:
    """Answer with a silence."""
    number = call.number("id")
    read = partial(silences.story, silence_id=number, now=call.at)
    return await read_one(site, call, read, f"There is no silence {number}.")


async def verified(site: Site, call: WebCall) -> Response:
    """Answer whether the record of a session's tool calls is as it was written."""
    number = call.number("id")

    def read(connection: Connection) -> Verified | None:
        key = None if site.acting is None else site.acting.key
        found = verify(connection, session_id=number, key=key)
        return found if found.sessions or found.faults else None

    return await read_one(site, call, read, f"There is no session {number}.")


async def spend(site: Site, call: WebCall) -> Response:
    """Answer with what was spent."""
    asked = call.asked(OfSums)
    found = await spent(site, call, since=asked.since, limit=asked.limit)
    left_out: dict[str, Any] = {} if asked.by is None else {_SUMS[name]: () for name in set(_SUMS) - {asked.by}}
    return single(call, replace(found, **left_out))


async def sums(site: Site, call: WebCall) -> Response:
    """Answer with the figures that the command `stats` prints."""
    since = since_of(call.asked(OfFigures).since, call.at)
    return await read_one(site, call, partial(figures.figures, since=since))


async def status(site: Site, call: WebCall) -> Response:
    """Answer with what the database says at a glance, at most a second old."""
    return single(call, await site.seen())


async def schedule(site: Site, _: WebCall) -> Response:
    """Answer with when each schedule fires next, and what came of its last fire."""
    return whole(await site.schedules())


async def stats(site: Site, call: WebCall) -> Response:
    """Answer with the figures for Homepage, by Claude Ops' names."""
    found, last = await site.database.read(partial(homepage.counted, now=call.at))
    value = homepage.Homepage(
        stats=found,
        last_session=last,
        next_run=min((fire.at for fire in site.next_fires() if fire.at is not None), default=None),
        interval_seconds=round(site.interval_seconds),
    )
    return single(call, value)


async def pause(site: Site, call: WebCall) -> Response:
    """Answer whether sessions start."""
    found = await site.database.read(partial(standing, now=call.at))
    return single(call, holding(found))
