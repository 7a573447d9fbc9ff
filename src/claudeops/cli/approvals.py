"""``list-approvals``: the tool calls that wait for a person, in full, because somebody is about to let them run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, database_url, more, present
from claudeops.cli.on_database import not_done, now, operators_name, run_on_database
from claudeops.cli.reply import CommandResult, refused
from claudeops.cli.text.layout import Layout, relative
from claudeops.domain.answers import document, plain
from claudeops.domain.gate.approval import UNSEEN, Approval, ApprovalStatus, CalledScript, join_people
from claudeops.domain.listing import Listing, Page
from claudeops.engine.gate.approval_key import read_key
from claudeops.errors import ClaudeopsError
from claudeops.settings.where import state_dir
from claudeops.store.acts import Refusal
from claudeops.store.acts.approvals import Unseen, answer_approval
from claudeops.store.approvals import Approvals
from claudeops.store.database import Database
from claudeops.store.reading import opened
from claudeops.store.reading.approvals import input_of, listed, scripts_of, to_entry
from claudeops.structs import replace
from claudeops.text.escapes import unmistakable, unmistakable_line, visible

_NAME: Final = "list-approvals"


def print_approvals(wanted: Listing, *, everything: bool, shape: AnswerShape) -> int:
    """Print the approvals that wait for an answer, or all of them; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        with opened(database_url()) as connection:
            found = listed(connection, wanted, everything=everything)
        base = pages_url(found.items)
        shown = [plain(to_entry(approval)) for approval in reversed(found.items)]
        return CommandAnswer(
            body={"approvals_count": len(shown), "approvals": shown, "before": found.before},
            draw=partial(_drawn, found, base),
        )

    return present(_NAME, ask, shape)


def _drawn(found: Page[Approval], base: str, looks: Layout) -> Sequence[str]:
    """Return the oldest first: it is the first that expires."""
    lines: list[str] = []
    for approval in reversed(found.items):
        lines += [*([""] if lines else []), *approval_text(approval, looks.now, utc=looks.utc, base=base).split("\n")]
    return [*(lines or ["no call waits for an answer"]), *more(_NAME, found.before, looks)]


def pages_url(found: Sequence[Approval]) -> str:
    """Return where people reach the pages, if one of these calls can be approved there alone; empty: not known."""
    if not any(approval.passkey and approval.status is ApprovalStatus.PENDING for approval in found):
        return ""
    from claudeops.settings import load_settings  # noqa: PLC0415 - other lists need no more than the database

    try:
        return load_settings(os.environ, cwd=Path.cwd()).settings.listener.pages_url
    except ClaudeopsError:
        return ""


def approval_text(approval: Approval, now: datetime, *, utc: bool = True, base: str = "") -> str:
    """Return an approval for people to read: in full, without control characters that a terminal would obey.

    ``base`` is where people reach the pages.
    """
    is_pending = approval.status is ApprovalStatus.PENDING
    waits = is_pending and not utc
    left = f" ({relative(approval.expires_at, now)})" if waits else ""
    so_far = f" ({progress_of(approval)})" if approval.needed > 1 else ""
    lines = [
        (
            f"approval {approval.id} · {approval.status.value}{so_far} · "
            f"session {approval.session_id} (tier {approval.tier}) · {unmistakable_line(approval.tool_name or '')} · "
            f"until {approval.expires_at:%Y-%m-%d %H:%M:%S} UTC{left}"
        ),
        f"  why: {unmistakable_line(approval.reason or '')}",
        f"  in:  {unmistakable_line(approval.workdir or '')}",
        *(_field(name, value) for name, value in input_of(approval).items()),
    ]
    if approval.hidden:
        by_shell = "" if approval.passkey else f"; `claudeops approve {approval.id} --unseen` says yes all the same"
        remedy = f", so no chat takes a yes{by_shell}"
        lines.append(f"  not whole: {UNSEEN}{remedy if is_pending else ''}")
    if approval.passkey and is_pending:
        lines.append(f"  takes a yes with a passkey alone, on its page: {base}/approvals/{approval.id}")
    for script in scripts_of(approval):
        path = unmistakable_line(script.path)
        lines += [f"  script {path} (sha256 {script.sha256}):", _indented(unmistakable(script.text))]
        lines += [f"  not whole: {why}; read {path} itself" for why in _missing(script)]
    if approval.agent_id is not None:
        lines.append(f"  asked by the subagent {unmistakable_line(approval.agent_id)}")
    if approval.unheard is not None:
        lines.append(f"  reached nobody: {visible(approval.unheard)}")
    if approval.decided_by is not None:
        lines.append(f"  answered by {visible(approval.decided_by)}")
    elif approval.agreed:
        missing = approval.needed - len(approval.agreed)
        lines.append(f"  yes from {visible(join_people(approval.agreed))}; {missing} more needed")
    return "\n".join(lines)


def _missing(script: CalledScript) -> Sequence[str]:
    """Return what the shown text of a script lacks."""
    found = [UNSEEN] if script.hidden else []
    return [*found, *(["the script goes on after this"] if script.cut else [])]


def progress_of(approval: Approval) -> str:
    """Return how many of the people who must say yes have done so: ``1 of 2``."""
    return f"{len(approval.agreed)} of {approval.needed}"


def _field(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"  {unmistakable_line(name)}:\n{_indented(unmistakable(text))}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


_VERBS: Final = {ApprovalStatus.APPROVED: "approve", ApprovalStatus.DENIED: "deny"}


def decide(approval_id: int, status: ApprovalStatus, *, as_json: bool, unseen: bool = False) -> int:
    """Approve or deny a tool call that waits for a person; return the exit status.

    ``unseen``: approve it though parts of it are hidden.
    """
    command = _VERBS[status]
    work = partial(_decide, approval_id, status, unseen)
    return run_on_database(command, work, as_json=as_json, target=str(approval_id))


async def _decide(
    approval_id: int,
    status: ApprovalStatus,
    unseen: bool,  # noqa: FBT001 - bound
    database: Database,
) -> CommandResult:
    approvals, who, at = Approvals(database), operators_name(), now()
    key = read_key(state_dir(os.environ, cwd=Path.cwd()))
    done = await answer_approval(approvals, key, approval_id, status=status, by=who, now=at, unseen=unseen)
    if isinstance(done, Refusal):
        return not_done(_VERBS[status], done)
    if isinstance(done, Unseen):
        return _not_whole(done.approval, at)
    found = await approvals.approval(approval_id)
    counted = done.status is ApprovalStatus.PENDING
    base = pages_url(() if found is None else (found,))
    said = f"{done.answers} of {done.needed} people have said yes" if counted else f"{done.status.value} by {who}"
    shown = "" if found is None else f"\n{approval_text(replace(found, status=done.status), at, base=base)}"
    return CommandResult(text=f"approval {approval_id}: {said}{shown}", body=document(done))


def _not_whole(asked: Approval, at: datetime) -> CommandResult:
    """Return the refusal of a yes to what the operator cannot have seen, with what there is to see."""
    message = f"Approval {asked.id} was not given: the call is not shown whole, because {UNSEEN}."
    hint = f"Deny it, and the session is told why; or run `claudeops approve {asked.id} --unseen`."
    result = refused(_VERBS[ApprovalStatus.APPROVED], str(asked.id), message, hint=hint)
    return result._replace(text=f"{result.text}\n{approval_text(asked, at)}")
