"""One question to a person: the call whole and taken apart, what it reaches, and what every answer leads to."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.responses import Response

from claudeops.policy.shell import parse
from claudeops.store.reading import approvals, services
from claudeops.store.reading.approvals import ApprovalStory
from claudeops.structs import replace
from claudeops.tasks import Threads
from claudeops.web.api.answers import single
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.site import Reach, Site
from claudeops.web.problems import RefusedError

NOTHING: Final[Reach] = ((), ())
_SHELL: Final = "Bash"
_SECONDS: Final = 5.0  # for taking a text apart
_MOST: Final = 200  # simple commands, and questions whose reach is kept
_THREADS: Final = Threads(most=2)


async def approval_page(site: Site, call: WebCall) -> Response:
    """Answer with one question to a person."""
    found = await _story(site, call)
    return await site.page(call, "approval.html", title=f"Approval {found.approval_id}", values={"one": found})


async def approval_answer(site: Site, call: WebCall) -> Response:
    """Answer with the same for programs."""
    return single(call, await _story(site, call))


async def _story(site: Site, call: WebCall) -> ApprovalStory:
    number = call.number("id")
    found = await site.database.read(partial(approvals.story, approval_id=number))
    if found is None:
        raise RefusedError(404, f"There is no approval {number}.")
    command = found.input.get("command")
    if found.tool_name != _SHELL or not isinstance(command, str):
        return found
    commands, unclear = await _taken_apart(command)
    hosts, actions = await _reach(site, found, command)
    limits = partial(services.limits_after, rules=site.rules, now=call.at, actions=actions)
    return replace(
        found,
        commands=commands,
        unclear=unclear,
        hosts=hosts,
        limits=await site.database.read(limits) if actions else (),
    )


async def _taken_apart(command: str) -> tuple[tuple[str, ...], str | None]:
    """Return the simple commands of a text that may be hostile, and why they may not be all."""
    try:
        found = await _THREADS.run(partial(parse, command), seconds=_SECONDS, what="reading a command")
    except OSError as error:
        return (), str(error)
    lines = [one.line for one in found.commands if one.argv]
    cut = f"it has {len(lines)} commands, of which the first {_MOST} are shown" if len(lines) > _MOST else None
    return tuple(lines[:_MOST]), found.problem or found.refusal or cut


async def _reach(site: Site, asked: ApprovalStory, command: str) -> Reach:
    """Return what a command reaches as the gate judges it; once, because the page fetches itself again and again."""
    known, tier = site.reached.get(asked.call_hash), asked.tier or 1
    if known is not None or site.policy is None or tier not in site.policy.tiers:
        return known or NOTHING
    verdict = await site.policy.judged(command, tier)
    if isinstance(verdict, str):
        return NOTHING
    if len(site.reached) >= _MOST:
        site.reached.clear()
    site.reached[asked.call_hash] = found = (verdict.hosts, verdict.actions)
    return found
