"""What an edited policy would have said to the calls on record, as a page and for programs. Puts nothing in force."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from claudeops.domain.answers import document
from claudeops.domain.listing import moment
from claudeops.errors import ConfigurationError
from claudeops.policy.replay import PolicyReplay, RecordedCall, ReplayCount
from claudeops.store.reading import calls_made
from claudeops.web.endpoints import WebCall
from claudeops.web.listings import Moment
from claudeops.web.pages.site import Site
from claudeops.web.problems import RefusedError, answer, later

REPLAYS: Final = "Says what an edited policy would have said to the calls on record; puts nothing in force."

_LONGEST: Final = timedelta(days=366)
_BATCH: Final = 200  # calls
_AGAIN_SECONDS: Final = 20


PolicyText = Annotated[str, msgspec.Meta(min_length=1, max_length=500_000, extra_json_schema={"format": "policy"})]
"""A policy file's text, TOML."""


class ReplayBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy, and to which calls it is put."""

    policy: PolicyText
    since: Moment = "30d"


async def replay_page(site: Site, call: WebCall) -> Response:
    """Answer a form with what its policy would have said."""
    body = call.filled(call.form(), ReplayBody)
    found = await _replay(site, call, body)
    return await site.page(call, "policy_replay.html", title="Policy, tried out", values={"found": found, "body": body})


async def replay_answer(site: Site, call: WebCall) -> Response:
    """Answer with the same for programs."""
    return answer(document(await _replay(site, call, call.sent(ReplayBody))), status=HTTPStatus.OK)


async def _replay(site: Site, call: WebCall, body: ReplayBody) -> PolicyReplay:
    """Replay the calls on record. Raises `RefusedError` for a wrong file, and while another replay runs."""
    since, policy, count = _since(body.since, call.at), site.policy, ReplayCount()
    if policy is None:
        raise RefusedError(404, "These pages know no policy.")
    if site.is_replaying:
        raise later("Another policy is tried out now.", seconds=_AGAIN_SECONDS)

    async def calls(before: int | None) -> Sequence[RecordedCall]:
        return await site.database.read(partial(calls_made.recorded_before, before=before, since=since, limit=_BATCH))

    site.is_replaying = True
    try:
        on_record = await site.database.read(partial(calls_made.count_since, since=since))
        bound = await policy.replay(body.policy, calls, count)
    except ConfigurationError as error:
        raise RefusedError(422, str(error), kind=error.kind) from None
    finally:
        site.is_replaying = False
    return count.sum(since=since, on_record=on_record, bound=bound)


def _since(text: str, now: datetime) -> datetime:
    try:
        since = moment(text, now)
    except ValueError as error:
        raise RefusedError(422, f"since: {error}") from None
    if now - since > _LONGEST:
        raise RefusedError(422, f"since: at most {_LONGEST.days} days are looked back.")
    return since
