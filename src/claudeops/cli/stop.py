"""``claudeops stop``: ends one session, or whatever is left of a chain."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from claudeops.app.wiring import escalation_rules
from claudeops.cli.operator import CommandResult, not_done, not_found, now, operators_name, run_on_database
from claudeops.cli.output import Exit
from claudeops.domain.answers import document
from claudeops.domain.listing import Reference
from claudeops.settings import Settings
from claudeops.store.acts import Refusal
from claudeops.store.acts.asking import served_by_another
from claudeops.store.acts.sessions import MARGIN_SECONDS, stop_session
from claudeops.store.reading import session_ids
from claudeops.store.store import SqlStore

_NAME: Final = "stop"


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
    async with served_by_another(settings.database_url) as served:
        done = await stop_session(
            store,
            session,
            chain=chain,
            by=operators_name(),
            rules=escalation_rules(settings),
            served=served,
            now=now,
            seconds=settings.stop_grace_seconds + MARGIN_SECONDS if wait else 0.0,
        )
    if isinstance(done, Refusal):
        return not_done(_NAME, replace(done, name=written))
    lines = [f"session {number}: ended, as asked" for number in done.stopped]
    lines += [f"session {number}: not ended yet" for number in done.stopping]
    if done.result is not None and (done.stopping or not done.acknowledged):
        lines.append(done.result)
    code = Exit.TRY_LATER if done.acknowledged is False else Exit.OK
    return CommandResult(text="\n".join(lines), body=document(done), exit_code=code)
