"""A chain as a tree, and one session of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from claudeops.domain.sessions import Status
from claudeops.store.reading import Connection
from claudeops.store.reading.chain_calls import calls_of
from claudeops.store.reading.chain_diff import chain_before
from claudeops.store.reading.chains import ChainSession, ChainTree, chain_of, tree
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.rendering import see_other
from claudeops.web.pages.site import Site
from claudeops.web.pages.verdict_timeline import LABELS, ROW, WIDTH, drawn
from claudeops.web.ports import LinesPart, LogElsewhereError
from claudeops.web.problems import RefusedError

LINES: Final = 200
"""Lines of a log on a page."""


class OfOther(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With which chain this one is compared."""

    other: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None


async def chain_page(site: Site, call: WebCall) -> Response:
    """Answer with one chain: what each of its sessions was allowed and refused, did, found and cost, and why."""
    number, other = call.number("root"), call.asked(OfOther).other
    if other is not None:
        return see_other(f"/chains/{other}/diff/{number}")
    found = await site.database.read(partial(_tree, number=number))
    if found is None or found.chain != number:
        raise RefusedError(404, f"There is no chain {number}.")
    calls = await site.database.read(partial(calls_of, chain=number))
    values: dict[str, object] = {"chain": found, "walk": tuple(walk(found)), "drawing": drawn(calls, call.at)}
    values |= {"row": ROW, "labels": LABELS, "width": WIDTH}
    values |= {"before": await site.database.read(partial(chain_before, number=number))}
    return await site.page(call, "chain.html", title=f"Chain {number}", values=values)


class OfLines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines of the log are shown."""

    after: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0


async def session_page(site: Site, call: WebCall) -> Response:
    """Answer with one session and lines of its log; a running one's are followed."""
    number, query = call.number("id"), call.asked(OfLines)
    found = await site.database.read(partial(_tree, number=number))
    if found is None:
        raise RefusedError(404, f"There is no session {number}.")
    session = next(one for one in found.sessions if one.session_id == number)
    part, gone = await _lines(site, number, query.after)
    is_over = session.status is Status.ENDED
    values: dict[str, object] = {"chain": found, "session": session, "gone": gone, "after": query.after}
    values |= {"lines": part.lines, "verdicts": part.verdicts, "more": part.more and is_over}
    values |= {"last": part.lines[-1].line if part.lines else query.after, "follows": not is_over and not gone}
    return await site.page(call, "session.html", title=f"Session {number}", values=values)


async def session_of(site: Site, number: int) -> ChainSession:
    """Return a session. Raises `RefusedError` where there is none."""
    found = await site.database.read(partial(_tree, number=number))
    if found is None:
        raise RefusedError(404, f"There is no session {number}.")
    return next(one for one in found.sessions if one.session_id == number)


async def _lines(site: Site, number: int, after: int) -> tuple[LinesPart, str]:
    """Return some lines of a log, and why there are none that can be shown; empty: they are shown."""
    nothing = LinesPart(lines=(), verdicts={}, more=False, ended=False)
    log = await site.logs.open(number)
    if log is None:
        return nothing, "It has no log."
    try:
        part = await log.read(after, limit=LINES)
    except LogElsewhereError as error:
        return nothing, error.strerror or ""
    except FileNotFoundError:
        return nothing, "Its log is not kept any more."
    except OSError as error:
        return nothing, f"Its log cannot be read: {error.strerror or error}."
    finally:
        log.close()
    more = part.more or (not part.ended and len(part.lines) == LINES)
    return LinesPart(lines=part.lines, verdicts=part.verdicts, more=more, ended=part.ended), ""


def walk(shown: ChainTree) -> Iterator[tuple[ChainSession, int]]:
    """Yield the sessions of a chain, each after the one it follows from, with its depth."""
    known = {session.session_id for session in shown.sessions}

    def below(parent: int | None, depth: int) -> Iterator[tuple[ChainSession, int]]:
        for session in shown.sessions:
            of = session.parent_session_id if session.parent_session_id in known else None
            if of == parent:
                yield session, depth
                yield from below(session.session_id, depth + 1)

    yield from below(None, 0)


def _tree(connection: Connection, number: int) -> ChainTree | None:
    chain = chain_of(connection, number)
    return None if chain is None else tree(connection, chain)
