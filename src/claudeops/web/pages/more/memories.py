"""Memories: what the agents believe, how firmly, and on what grounds."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from claudeops.store.reading import memories
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import OfMemories, listing, older
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError


async def memory_list(site: Site, call: WebCall) -> Response:
    """Answer with the memories that are believed or in quarantine, or all of them."""
    query = call.asked(OfMemories)
    wanted = listing(query, call.at)
    found = await site.database.read(partial(memories.listed, wanted=wanted, everything=query.all, now=call.at))
    values: dict[str, object] = {"found": found.items, "asked": query, "state_of": memories.state_of}
    values["older"] = older(call.path, call.query, found.before)
    return await site.page(call, "memories.html", title="Memories", values=values)


async def memory_page(site: Site, call: WebCall) -> Response:
    """Answer with one memory, and what it has to do with others."""
    number = call.number("id")
    found = await site.database.read(partial(memories.story, memory_id=number, now=call.at))
    if found is None:
        raise RefusedError(404, f"There is no memory {number}.")
    values = {"memory": found, "state_of": memories.state_of}
    return await site.page(call, "memory.html", title=f"Memory {number}", values=values)
