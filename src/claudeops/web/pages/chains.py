"""A chain as a tree, and one session of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from starlette.responses import Response

from claudeops.store.reading import Connection
from claudeops.store.reading.chains import ChainSession, ChainTree, chain_of, tree
from claudeops.web.endpoints import Call
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError

_LARGEST = 2**31 - 1


async def chain_page(site: Site, call: Call) -> Response:
    """Answer with one chain: what each of its sessions was allowed and refused, did, found and cost, and why."""
    number = number_of(call, "root")
    found = await site.database.read(partial(_tree, number=number))
    if found is None or found.chain != number:
        raise RefusedError(404, f"There is no chain {number}.")
    values = {"chain": found, "walk": tuple(walk(found))}
    return await site.page(call, "chain.html", title=f"Chain {number}", values=values)


async def session_page(site: Site, call: Call) -> Response:
    """Answer with one session."""
    number = number_of(call, "id")
    found = await site.database.read(partial(_tree, number=number))
    if found is None:
        raise RefusedError(404, f"There is no session {number}.")
    session = next(one for one in found.sessions if one.session_id == number)
    values = {"chain": found, "session": session}
    return await site.page(call, "session.html", title=f"Session {number}", values=values)


def number_of(call: Call, name: str) -> int:
    """Return a number in the path. Raises `RefusedError` for what is none."""
    text = call.params[name]
    if not (text.isascii() and text.isdigit() and 0 < int(text[:12]) <= _LARGEST):
        raise RefusedError(404, f"{text} is no number of anything here.")
    return int(text)


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
