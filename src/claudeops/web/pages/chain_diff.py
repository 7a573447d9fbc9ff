"""Two chains beside each other, as a page and for programs."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.responses import Response

from claudeops.store.reading import Connection, chain_diff
from claudeops.store.reading.chain_diff import ChainCallsMade, ChainDiff
from claudeops.tasks import Threads, check_abandoned
from claudeops.web.api.answers import single
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError

READING_SECONDS: Final = 5.0
"""For reading the commands of both chains, which may be hostile."""

_COMPARING_SECONDS: Final = 5.0
_READING: Final = Threads(most=1)
_COMPARING: Final = Threads(most=2)


async def diff_page(site: Site, call: WebCall) -> Response:
    """Answer with two chains beside each other."""
    found = await _diff(site, call)
    title = f"Chain {found.first.chain} and {found.second.chain}"
    return await site.page(call, "chain_diff.html", title=title, values={"diff": found})


async def diff_answer(site: Site, call: WebCall) -> Response:
    """Answer with the same for programs."""
    return single(call, await _diff(site, call))


async def _diff(site: Site, call: WebCall) -> ChainDiff:
    numbers = call.number("a"), call.number("b")

    def read(connection: Connection) -> tuple[ChainCallsMade | None, ...]:
        return tuple(chain_diff.made_by(connection, number) for number in numbers)

    first, second = await site.database.read(read)
    if first is None or second is None:
        raise RefusedError(404, f"There is no chain {numbers[0] if first is None else numbers[1]}.")
    try:
        work = partial(chain_diff.compare, first, second, spelling=_canonical)
        return await _READING.run(work, seconds=READING_SECONDS, what="reading commands")
    except TimeoutError:
        work = partial(chain_diff.compare, first, second, spelling=chain_diff.as_written, is_as_written=True)
        return await _COMPARING.run(work, seconds=_COMPARING_SECONDS, what="comparing calls")


def _canonical(tool: str, given: str) -> str:
    check_abandoned()
    return chain_diff.canonical(tool, given)
