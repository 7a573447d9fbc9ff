"""Sessions: started on a request, and stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from claudeops.domain.chains.escalation import EscalationRules
from claudeops.domain.commands import CommandName, StopTarget
from claudeops.domain.sessions import NewSession, Session, Status, Suppressed
from claudeops.errors import StoreError
from claudeops.store import queries
from claudeops.store.acts import Refusal, refused
from claudeops.store.acts.commands import Served, ShellAnswer, ShellRequest, ask_daemon
from claudeops.store.holds import start_refusal
from claudeops.store.reading import session_rows
from claudeops.store.reading.session_rows import ListedSession
from claudeops.store.store import Store
from claudeops.text.escapes import visible

SITES: Final = "`claudeops list-nodes` lists the daemons and their sites."
"""The hint where a session cannot be queued for its site."""

MARGIN_SECONDS: Final = 5.0
"""Beyond the grace of a session that is stopped: the daemon takes the command up, and writes the end."""


class StopAct(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of what was to be stopped."""

    session_id: int
    chain: int
    handled: bool  # nothing of it is left
    stopped: tuple[int, ...]
    stopping: tuple[int, ...]  # that have not ended yet
    acknowledged: bool | None  # by the daemon; None: it was asked nothing, because nothing ran
    result: str | None  # what the daemon says


async def queue_unless_held(
    store: Store, new: NewSession, *, rules: EscalationRules, now: datetime
) -> Session | Suppressed:
    """Queue a session for whoever wants one now: while sessions are held, none is queued.

    Every way of starting one by hand comes here, so that all of them keep the same rule.
    """
    return await start_refusal(store.holds, now) or await store.queue.enqueue(new, rules=rules, now=now)


async def site_fault(store: Store, new: NewSession) -> str | None:
    """Return why a session cannot be queued for its site; ``None``: a daemon runs there.

    A chain that goes on does so on a daemon that is alone, which may have another site than when the chain began.
    """
    places = await store.database.read(queries.places)
    goes_on = new.parent_session_id is not None and any(place.is_alone for place in places)
    if new.site is None or goes_on or new.site in {place.site for place in places}:
        return None
    return f"No daemon of site {visible(new.site)} runs on this database, so nothing was queued."


async def start_session(
    store: Store, new: NewSession, *, rules: EscalationRules, now: datetime
) -> ListedSession | Refusal:
    """Queue a session for the daemon; for that of a site where one runs there."""
    if new.site is not None and (why := await site_fault(store, new)) is not None:
        return refused("session", "", why, hint=SITES)
    queued = await queue_unless_held(store, new, rules=rules, now=now)
    if isinstance(queued, Suppressed):
        hint = "`claudeops list-actions` shows what is left of the limits, `claudeops status` what holds sessions."
        return refused("session", "", queued.message, hint=hint)
    found = await store.database.read(partial(session_rows.one, session_id=queued.id))
    if found is None:
        raise StoreError(f"session {queued.id} was queued and is not there any more.")
    return found


async def stop_session(
    store: Store,
    session: Session,
    *,
    chain: bool,
    by: str,
    rules: EscalationRules,
    served: Served,
    now: Callable[[], datetime],
    seconds: float,
) -> StopAct | Refusal:
    """Stop a session, or what is left of its chain; wait for its end for at most some ``seconds``.

    What waits in the queue is ended here. What runs is the daemon's: it is asked, and goes on until nothing of what was
    meant is left, also of what a session had handed over to before it noticed. A session that has ended stands for its
    chain: whoever follows a chain knows its first session.
    """
    whole_chain = chain or session.status is Status.ENDED
    target = StopTarget(chain=session.root_session_id) if whole_chain else StopTarget(session_id=session.id)
    why = f"stopped by {by} before it began"
    queued, running = await store.queue.end_queued(target, why=why, rules=rules, now=now())
    if not queued and not running:
        return refused("session", session.id, f"Session {session.id} has ended, and nothing of its chain is left.")
    asked = None
    if running:
        asked = await ask_daemon(
            store.commands,
            CommandName.STOP,
            by=by,
            served=served,
            now=now,
            arguments=target.arguments,
            done_seconds=seconds,
        )
        if asked.answer is ShellAnswer.NO_DAEMON and not queued:
            says = f"Session {min(running)} is on record as running, but no daemon runs: its next start ends it."
            return refused("session", session.id, says)
    meant = [one for one in await store.records.chain(session.root_session_id) if whole_chain or one.id == session.id]
    return _stopped(session, meant, {*queued, *running}, asked)


def _stopped(session: Session, meant: Sequence[Session], touched: set[int], asked: ShellRequest | None) -> StopAct:
    left = [one.id for one in meant if one.status is not Status.ENDED]
    before = session.id if session.status is not Status.ENDED else 0
    ended = {one.id for one in meant if one.id in touched or one.id > max(touched, default=before)} - {*left}
    return StopAct(
        session_id=session.id,
        chain=session.root_session_id,
        handled=not left,
        stopped=tuple(sorted(ended)),
        stopping=tuple(left),
        acknowledged=None if asked is None else asked.acknowledged,
        result=None if asked is None else asked.says,
    )
