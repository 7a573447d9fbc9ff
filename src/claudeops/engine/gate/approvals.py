"""Approvals: asks people whether a call may run, waits for the answer, and checks its proof.

People are asked in the permission request, never in the hook: the hook has to be answered within a minute, and a
permission request may wait as long as it takes. While the call waits, the session's wall clock stands still and the
session holds no slot.

An answer is bound to the whole call and to the scripts that the call names, with their contents. Where the policy wants
several people's yes, the call waits for the last one, and for the first no.

A question that is known to have reached nobody, because every target of such questions failed, is over at once; without
any such target people are expected to look for themselves, and it waits.

The key that proves an operator's answer is that of `claudeops.engine.gate.approval_key`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import anyio
import msgspec

from claudeops.clock import Clock
from claudeops.domain.calls import ToolCall
from claudeops.domain.gate.approval import (
    Approval,
    ApprovalStatus,
    CalledScript,
    NewApproval,
    call_hash,
    join_people,
    proven_yes,
)
from claudeops.domain.sessions import Session
from claudeops.engine.gate.answering import AnswerWaker
from claudeops.engine.gate.view import MACHINE, SessionView
from claudeops.errors import DatabaseUnavailableError, StaleAttemptError
from claudeops.logs import LogEvent, Logger
from claudeops.policy.paths import looks_secret
from claudeops.store.approvals import Approvals
from claudeops.structs import replace
from claudeops.tasks import Threads
from claudeops.text import regex
from claudeops.text.redact import MASK, has_shape

READ_SECONDS: Final = 10.0
"""How long reading the files that a call names may take; the model chose them, and their disk may hang."""

_READERS: Final = Threads(most=16)

ASK_SECONDS: Final = 5.0
"""How long writing or closing a question may take; one that is not written by then is a no."""

STALE: Final = "this session is no longer the current one"
"""Why nothing runs any more for a session that another daemon has taken over, or that has ended."""

_IN_TIME: Final = "nobody answered in time"
_NOBODY: Final = f"needs approval, and {_IN_TIME}"
_UNREAD: Final = "needs approval, and the files that it names could not be read in time"
_CHANGED: Final = "needs approval, and a script that it names was changed since people were asked"

_PARTLY_HIDDEN: Final = (
    "; people did not see all of it, because parts of it look like secrets: read secrets from a file or a variable, "
    "and write nothing else in their form"
)

SHOWN_CHARACTERS: Final = 20_000
"""How much of a script people see; the answer is bound to all of it."""

_MOST: Final = 50  # files; of a call that names more, people see the first ones, and the answer is bound to all names
_CHUNK: Final = 1 << 20
_LARGEST: Final = 64 << 20  # bytes that are read of one file; no person reads a longer script
_SUFFIXES: Final = (
    *(".sh", ".bash", ".zsh", ".py", ".pl", ".rb", ".js", ".mjs", ".ts", ".lua", ".php", ".awk", ".sed", ".jq"),
    *(".sql", ".mk", ".tf", ".hcl", ".yml", ".yaml", ".json", ".toml", ".conf"),
)
_BETWEEN: Final = regex.Pattern(rf"[{regex.SPACE}'\"`;|&<>(){{}}$=,]+")


def _has_shape(call: ToolCall) -> bool:
    return has_shape(json.dumps(dict(call.input), ensure_ascii=False, default=str))


def _uncounted(_status: ApprovalStatus, _decided_by: str | None, _seconds: float) -> None:
    return


class ApprovalDenied(msgspec.Struct, frozen=True, kw_only=True):
    """The call was not approved; the reason is for the model and the record."""

    reason: str


@dataclass(kw_only=True, slots=True)
class ApprovalService:
    """Asks people about the calls of one session."""

    session: Session
    approvals: Approvals
    clock: Clock
    key: bytes = field(repr=False)
    timeout_seconds: float
    workdir: str
    own: tuple[str, ...]  # directories in which the session can write
    redact: Callable[[str], str]
    waiting: Callable[[], AbstractContextManager[None]]  # the session holds no slot and its clock stands still
    log: Logger
    view: SessionView = MACHINE  # what the session sees of the machine's files
    hides: Callable[[ToolCall], bool] = _has_shape  # whether redaction takes more out of the input than known secrets
    read_seconds: float = READ_SECONDS
    waker: AnswerWaker = field(default_factory=AnswerWaker)
    over: Callable[[ApprovalStatus, str | None, float], None] = _uncounted  # status, who decided, seconds
    passkey: bool = False  # a yes counts with a passkey's signature alone

    async def ask(
        self,
        call: ToolCall,
        *,
        redacted_input: str,
        reason: str,
        services: tuple[str, ...] | None = None,
        needed: int = 1,
    ) -> Approval | ApprovalDenied:
        """Ask, and return the approval once the proofs of ``needed`` people's yes are checked, or why there is none.

        Bounded by the approval timeout, by monotonic clocks, and by the caller.
        """
        if (scripts := await self._scripts(call)) is None:
            return ApprovalDenied(reason=_UNREAD)
        bound_to = self._hash(call, scripts)
        now = self.clock.now()
        new = NewApproval(
            session=self.session,
            call=call,
            call_hash=bound_to,
            workdir=self.workdir,
            redacted_input=redacted_input,
            scripts=scripts,
            reason=reason,
            requested_at=now,
            expires_at=now + timedelta(seconds=self.timeout_seconds),
            services=services,
            needed=needed,
            hidden=self.hides(call),
            passkey=self.passkey,
        )
        question = await self._request(new)
        if isinstance(question, ApprovalDenied):
            return question
        log = self.log.bind(approval_id=question.id, tool_use_id=call.tool_use_id)
        log.warning(LogEvent.APPROVAL_REQUESTED, tool=call.tool_name, reason=reason)
        answered = await self._wait(question)
        # As many as the policy says, and by the means that the settings say: the row may have been changed.
        answer = ApprovalDenied(reason=_NOBODY) if answered is None else self._verdict_of(answered, needed)
        if isinstance(answer, ApprovalDenied):
            log.warning(LogEvent.APPROVAL_REFUSED, reason=answer.reason)
            return replace(answer, reason=answer.reason + _PARTLY_HIDDEN) if new.hidden else answer
        if (again := await self._scripts(call)) is None or self._hash(call, again) != bound_to:
            log.warning(LogEvent.APPROVAL_REFUSED, reason=_CHANGED)
            return ApprovalDenied(reason=_CHANGED)
        log.info(LogEvent.APPROVAL_GIVEN, decided_by=answer.decided_by)
        return answer

    async def _request(self, new: NewApproval) -> Approval | ApprovalDenied:
        try:
            # A question that is written is known here: taken back in between, it would stay open. `_wait` closes it.
            with anyio.CancelScope(shield=True), anyio.fail_after(ASK_SECONDS):
                written = await self.approvals.request_approval(new)
        except (DatabaseUnavailableError, TimeoutError):
            return ApprovalDenied(reason="needs approval, and the question could not be written; try again later")
        except StaleAttemptError as error:
            self.log.error(LogEvent.STALE_ATTEMPT, error=str(error))
            return ApprovalDenied(reason=STALE)
        return written

    async def _wait(self, asked: Approval) -> Approval | None:
        """Return the row once nothing more is waited for; ``None`` if the row cannot be read."""
        began, row = self.clock.monotonic(), None
        try:
            with self.waiting():
                row = await self._news(asked)
        except anyio.get_cancelled_exc_class():
            # Nobody waits for the answer any more, so the question must not stay open.
            with anyio.CancelScope(shield=True):
                row = await self._close(asked)
            raise
        finally:
            if row is not None:
                self.over(row.status, row.decided_by, self.clock.monotonic() - began)
        return row

    async def _news(self, asked: Approval) -> Approval | None:
        row: Approval | None = asked
        with self.waker.listening(asked.id) as listening, anyio.move_on_after(self.timeout_seconds):
            row = await self._look(asked.id)  # an answer may have come before anybody listened
            while row is None or (row.status is ApprovalStatus.PENDING and not _reached_nobody(row)):
                await listening.pause()
                row = await self._look(asked.id)
        if row is not None and row.status is not ApprovalStatus.PENDING:
            return row
        return await self._close(asked)

    async def _close(self, asked: Approval) -> Approval | None:
        try:
            with anyio.fail_after(ASK_SECONDS):
                return await self.approvals.close_approval(asked.id, now=self.clock.now())
        except (DatabaseUnavailableError, TimeoutError):
            return None

    async def _look(self, approval_id: int) -> Approval | None:
        try:
            return await self.approvals.approval(approval_id)
        except DatabaseUnavailableError:
            return None  # the next look finds the answer

    async def _scripts(self, call: ToolCall) -> tuple[CalledScript, ...] | None:
        """Return the scripts that a call names; ``None`` when their disk does not answer."""
        try:
            return await _READERS.run(
                partial(
                    named_scripts,
                    call.input,
                    own=self.own,
                    workdir=self.workdir,
                    redact=self.redact,
                    view=self.view,
                ),
                seconds=self.read_seconds,
                what="reading the files that a call names",
            )
        except TimeoutError:
            return None

    def _hash(self, call: ToolCall, scripts: tuple[CalledScript, ...]) -> str:
        return call_hash(session=self.session, workdir=self.workdir, call=call, scripts=scripts)

    def _verdict_of(self, row: Approval, needed: int) -> Approval | ApprovalDenied:
        """Return what a question that is over means; who said yes is what the proofs say, and not what the row does."""
        if row.status is ApprovalStatus.APPROVED:
            agreed = proven_yes(self.key, row, passkey=self.passkey)
            if len(agreed) >= needed:
                return replace(row, decided_by=join_people(agreed))
            proof = "a passkey's signature" if self.passkey else "an operator's proof"
            only = f"only {join_people(agreed)} said yes with {proof}"
            return _too_few(needed, only if agreed else f"the answer carries no {proof.partition(' ')[2]}")
        if row.status is ApprovalStatus.DENIED:
            return ApprovalDenied(reason=f"needs approval, and {row.decided_by or 'somebody'} said no")
        if _reached_nobody(row):
            return ApprovalDenied(reason=f"needs approval, and the question reached nobody: {row.unheard}")
        return _too_few(needed, f"only {join_people(row.agreed)} said yes in time" if row.agreed else _IN_TIME)


def named_scripts(
    given: Mapping[str, object],
    *,
    own: Iterable[str],
    workdir: str,
    redact: Callable[[str], str],
    view: SessionView = MACHINE,
) -> tuple[CalledScript, ...]:
    """Return the scripts that the texts of a call's input name, in the order of their paths. Blocks on the disk.

    A script is a file that may be run or that steers what is run: it is executable, has a shebang or a usual suffix, or
    lies in one of the directories ``own``, where the session could have written it. ``redact`` hides secrets;
    of a file that is one by its path, nothing is shown. ``view``: what the session sees of the machine's files.
    """
    found: dict[str, CalledScript] = {}
    roots = tuple(view.resolve(root) for root in (*own, *view.writable))
    for path in map(view.resolve, _paths(given, workdir)):
        if path in found or len(found) >= _MOST or (outside := view.outside(path)) is None:
            continue
        if (script := _script(path, outside, roots, redact)) is not None:
            found[path] = script
    return tuple(found[path] for path in sorted(found))


def _reached_nobody(row: Approval) -> bool:
    """Tell whether nobody can know of a question; somebody who has answered does."""
    return row.unheard is not None and not row.answers


def _too_few(needed: int, why: str) -> ApprovalDenied:
    return ApprovalDenied(reason=f"needs approval{f' by {needed} people' if needed > 1 else ''}, and {why}")


def _paths(given: object, workdir: str) -> Iterator[str]:
    if isinstance(given, str):
        for word in dict.fromkeys(_BETWEEN.split(given)):
            if word and "\x00" not in word:
                yield f"{workdir}/{word}" if not word.startswith("/") else word
    elif isinstance(given, dict):
        for value in given.values():
            yield from _paths(value, workdir)
    elif isinstance(given, list):
        for value in given:
            yield from _paths(value, workdir)


def _script(path: str, outside: str, roots: tuple[str, ...], redact: Callable[[str], str]) -> CalledScript | None:
    """Return a script by its path in the session, which lies ``outside`` on the machine."""
    try:
        descriptor = os.open(outside, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None
            first = file.read(_CHUNK)
            if not _may_steer(path, about.st_mode, first, roots):
                return None
            digest = hashlib.sha256(first)
            read = len(first)
            while read < _LARGEST and (chunk := file.read(_CHUNK)):
                digest.update(chunk)
                read += len(chunk)
            digest.update(str(about.st_size).encode())  # the part that is not read counts by its length
        except OSError:
            return None
    secret = looks_secret(path)
    if b"\0" in first and not secret:
        program = f"(a program of {about.st_size:,} bytes: its contents are no text)"
        return CalledScript(path=path, sha256=digest.hexdigest(), text=program)
    raw = first.decode("utf-8", "replace")
    text = MASK if secret else redact(raw)
    return CalledScript(
        path=path,
        sha256=digest.hexdigest(),
        text=text[:SHOWN_CHARACTERS],
        hidden=secret or (text != raw and has_shape(raw)),
        cut=len(text) > SHOWN_CHARACTERS or about.st_size > len(first),
    )


def _may_steer(path: str, mode: int, first: bytes, roots: tuple[str, ...]) -> bool:
    if any(path.startswith(f"{root}/") for root in roots) or first.startswith(b"#!"):
        return True
    return bool(mode & 0o111) or path.endswith(_SUFFIXES)
