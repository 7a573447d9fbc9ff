"""``claudeops stop``: ends one session, or whatever is left of a chain.

What waits in the queue is ended here, with or without a daemon. What runs is the daemon's: it is asked, and goes on
until nothing of what was meant is left, also of what a session had handed over to before it noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from claudeops.app.asking import Answer, Asked, ask_daemon
from claudeops.app.wiring import escalation_rules
from claudeops.cli.operator import CommandResult, not_found, now, operators_name, refused, run_on_database
from claudeops.cli.output import Exit
from claudeops.domain.commands import CommandName, StopTarget
from claudeops.domain.listing import Reference
from claudeops.domain.model import Session, Status
from claudeops.settings import Settings
from claudeops.store.reading import session_ids
from claudeops.store.store import SqlStore

_NAME: Final = "stop"
_MARGIN_SECONDS: Final = 5.0  # beyond the stop grace: to take the command up, and to write the end


def stop_sessions(wanted: Reference, *, written: str, chain: bool, wait: bool, as_json: bool) -> int:
    """Stop a session, or all of its chain; return the exit status."""
    work = partial(_stop, wanted=wanted, written=written, chain=chain, wait=wait)
    return run_on_database(_NAME, work, as_json=as_json, target=written)


async def _stop(
    settings: Settings, store: SqlStore, *, wanted: Reference, written: str, chain: bool, wait: bool
) -> CommandResult:
    found = await store.database.read(partial(session_ids, wanted=wanted))
    session = await store.records.session(found[0]) if len(found) == 1 else None
    if session is None:
        several = f"{written} fits several sessions ({', '.join(map(str, found))}): write more of it."
        message = several if found else f"There is no session {written}."
        return not_found("session_not_found", written, message)
    # An ended session stands for its chain: whoever follows a chain knows its first session.
    whole_chain = chain or session.status is Status.ENDED
    target = StopTarget(chain=session.root_session_id) if whole_chain else StopTarget(session_id=session.id)
    by, rules = operators_name(), escalation_rules(settings)
    queued, running = await store.queue.end_queued(
        target, why=f"stopped by {by} before it began", rules=rules, now=now()
    )
    if not queued and not running:
        return refused(_NAME, written, f"Session {session.id} has ended, and nothing of its chain is left.")
    asked = None
    if running:
        seconds = settings.stop_grace_seconds + _MARGIN_SECONDS if wait else 0.0
        asked = await ask_daemon(
            store.commands,
            settings.database_url,
            CommandName.STOP,
            by=by,
            arguments=target.arguments,
            done_seconds=seconds,
        )
        if asked.answer is Answer.NO_DAEMON and not queued:
            says = f"Session {running[0]} is on record as running, but no daemon runs: its next start ends it."
            return refused(_NAME, written, says)
    meant = [one for one in await store.records.chain(session.root_session_id) if whole_chain or one.id == session.id]
    touched = {*queued, *running}
    return _result(session, meant, touched, asked)


def _result(session: Session, meant: Sequence[Session], touched: set[int], asked: Asked | None) -> CommandResult:
    left = [one.id for one in meant if one.status is not Status.ENDED]
    before = session.id if session.status is not Status.ENDED else 0
    ended = sorted({one.id for one in meant if one.id in touched or one.id > max(touched, default=before)} - {*left})
    lines = [f"session {number}: ended, as asked" for number in ended]
    lines += [f"session {number}: not ended yet" for number in left]
    if asked is not None and (left or not asked.acknowledged):
        lines.append(asked.says)
    acknowledged = None if asked is None else asked.acknowledged
    return CommandResult(
        text="\n".join(lines),
        body={
            "session_id": session.id,
            "chain": session.root_session_id,
            "handled": not left,
            "stopped": ended,
            "stopping": left,
            "acknowledged": acknowledged,
            "result": None if asked is None else asked.says,
        },
        exit_code=Exit.TRY_LATER if acknowledged is False else Exit.OK,
    )
