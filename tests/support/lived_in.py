"""A database in which something of everything has happened: for documents of commands, and for pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from claudeops.domain.access.tokens import NewToken
from claudeops.domain.alerts.alert import SenderBody, Silence, Unparsed
from claudeops.domain.alerts.matchers import read_matchers
from claudeops.domain.alerts.register import ReceivedBody
from claudeops.domain.alerts.situation import AlertFiles
from claudeops.domain.gate.approval import NewApproval
from claudeops.domain.memories.operator_changes import Declined
from claudeops.domain.report.report import ReportedMemory, ServiceStatus
from claudeops.domain.sessions import Session
from claudeops.engine.session_log.writer import SessionLog
from claudeops.store.store import Store
from support.alerts import SOURCE, alert, bring, rules_of
from support.estate import report as stated
from support.store_values import (
    NOW,
    OTHER_OWNER,
    OWNER,
    RULES,
    after,
    alarm,
    allow,
    call,
    check,
    ending,
    recorded,
    report,
    restart,
    started,
    wanted,
)

QUEUED: Final = 5
"""The session that waits."""


async def something_of_everything(store: Store) -> Session:
    """Write something into most tables; return the first session."""
    session = await started(store)
    await recorded(store, session, "toolu_1", allow(restart()))
    await store.approvals.request_approval(question(session))
    said = report(check("web", ServiceStatus.DEGRADED, "slow"), events=alarm().events)
    await store.queue.finish(ending(session, said, cost_usd=0.01, num_turns=3), rules=RULES)
    other = await started(store)
    await store.queue.finish(ending(other, alarm()), rules=RULES)
    waiting = await started(store)
    await store.approvals.request_approval(question(waiting))
    for text in ("web starts within 30 s", "the proxy restarts at noon", "the disk of nas is slow"):
        memory = ReportedMemory(category="timing", observation=text, service="web")
        assert not isinstance(await store.memories.add(memory, by="ada", now=NOW), Declined)
    await store.memories.forget(3, by="ada", now=NOW)
    about = AlertFiles(alerts=rules_of(), escalation=RULES)
    silence = Silence(
        id=0, matchers=read_matchers(["service=web"]), starts_at=NOW, ends_at=after(days=36_500), created_by="ada"
    )
    await store.silences.add(silence)
    posted = ReceivedBody(content=SenderBody(source=SOURCE, key="a", alerts=(alert(),), group_key="g"), received_at=NOW)
    scopes, expires = ("alerts:prometheus",), after(days=36_500)
    new = NewToken(name="am", scopes=scopes, digest="0", created_at=NOW, created_by="ada", expires_at=expires)
    await store.tokens.create(new)
    await store.tokens.used({1: NOW})
    for owner, policy in ((OWNER, "0123456789abcdef"), (OTHER_OWNER, "fedcba9876543210")):
        await store.recovery.renew_lease(owner, now=NOW, digests={"policy": policy, "probes": "0011223344556677"})
    queued = await store.queue.enqueue(wanted(), rules=RULES, now=NOW)
    assert isinstance(queued, Session)
    assert queued.id == QUEUED
    await bring(store.alerts, [posted], about, lambda tier, told: wanted(tier, context=told), now=NOW)
    unread = Unparsed(source=SOURCE, key="u", why="line 1, column 1: it is not JSON: send an object in braces")
    await store.alerts.receive([ReceivedBody(content=unread, received_at=NOW, raw="nonsense")], now=NOW)
    return session


def question(session: Session) -> NewApproval:
    """Return a question to people about a call of a session."""
    return NewApproval(
        session=session,
        call=call(f"toolu_{session.id}"),
        call_hash="0123",
        workdir="/work",
        redacted_input='{"command":"docker restart web"}',
        scripts=(),
        reason="restarts the database",
        requested_at=NOW,
        expires_at=after(days=36_500),
        services=(),
    )


def log_of(session: Session, *, says: str = "I look.") -> bytes:
    """Return the log of a session that says something, calls a tool, and ends."""
    named = {"session_id": session.cli_session_id}
    text = {"role": "assistant", "content": [{"type": "text", "text": says}]}
    used = {"usage": {"input_tokens": 12, "output_tokens": 3}, "total_cost_usd": 0.01, "structured_output": stated()}
    frames = [
        {"type": "system", "subtype": "init", **named},
        {"type": "assistant", "message": text, **named},
        {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Well.", **used, **named},
    ]
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


async def with_log(store: Store, session: Session, file: Path, content: bytes) -> None:
    """Give a session a log, with its index."""
    log = SessionLog(file)
    log.extend(content.splitlines(), NOW)
    await log.aclose()
    change = sa.text("UPDATE sessions SET log_path = :path WHERE id = :number")
    await store.database.write(lambda connection: connection.execute(change, {"path": str(file), "number": session.id}))
