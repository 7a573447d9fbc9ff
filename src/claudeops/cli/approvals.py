"""``claudeops approve``, ``deny`` and ``list-approvals``: an operator's yes or no to a call that waits for one."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from claudeops.cli.operator import Answered, answer, not_found, now, operators_name, refused
from claudeops.domain import approval as approvals
from claudeops.domain.approval import Approval, ApprovalStatus, Script, visible
from claudeops.engine.approval_key import read_key

if TYPE_CHECKING:
    from claudeops.settings import Settings
    from claudeops.store.store import SqlStore

_SAID: Final = {ApprovalStatus.APPROVED: "approve", ApprovalStatus.DENIED: "deny"}


def give(approval_id: int, status: ApprovalStatus, *, as_json: bool) -> int:
    """Answer one question."""
    command = _SAID[status]
    work = partial(_give, approval_id, status)
    return answer(command, work, as_json=as_json, target=str(approval_id))


def show_all(*, everything: bool, as_json: bool) -> int:
    """Print the questions that wait, or all of them."""
    return answer("list-approvals", partial(_listed, everything), as_json=as_json)


async def _give(approval_id: int, status: ApprovalStatus, settings: Settings, store: SqlStore) -> Answered:
    key = read_key(settings.state_dir)
    asked = await store.approval(approval_id)
    if asked is None:
        return not_found("approval_not_found", str(approval_id), f"There is no approval {approval_id}.")
    said = approvals.answer(key, asked, status=status, decided_by=operators_name(), at=now())
    if await store.answer_approval(approval_id, said):
        body: dict[str, object] = {"approval_id": approval_id, "handled": True, "status": status.value}
        answered = replace(asked, status=status, decided_by=said.decided_by, decided_at=said.decided_at)
        return Answered(
            text=f"approval {approval_id}: {status.value} by {said.decided_by}\n{_told(answered)}",
            body={**body, "session_id": asked.session_id, "decided_by": said.decided_by},
        )
    latest = await store.approval(approval_id) or asked
    why = "its time is over" if latest.status is ApprovalStatus.PENDING else f"it is {latest.status.value} already"
    return refused(_SAID[status], str(approval_id), f"Approval {approval_id} takes no answer any more: {why}.")


async def _listed(everything: bool, _settings: Settings, store: SqlStore) -> Answered:  # noqa: FBT001 - bound by name
    found = await store.approvals(everything=everything)
    text = "\n\n".join(map(_told, found)) or "no call waits for an answer"
    return Answered(text=text, body={"approvals_count": len(found), "approvals": [_document(asked) for asked in found]})


def _told(asked: Approval) -> str:
    """Return a question as people read it: whole, and with nothing that a terminal would obey."""
    lines = [
        (
            f"approval {asked.id} · {asked.status.value} · session {asked.session_id} (tier {asked.tier}) · "
            f"{visible(asked.tool_name or '')} · until {asked.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        ),
        f"  why: {visible(asked.reason or '')}",
        f"  in:  {visible(asked.workdir or '')}",
        *(_field(name, value) for name, value in _input(asked).items()),
    ]
    for script in _scripts(asked):
        lines += [f"  script {visible(script.path)} (sha256 {script.sha256}):", _indented(visible(script.text))]
    if asked.agent_id is not None:
        lines.append(f"  asked by the subagent {visible(asked.agent_id)}")
    if asked.decided_by is not None:
        lines.append(f"  answered by {visible(asked.decided_by)}")
    return "\n".join(lines)


def _field(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"  {visible(name)}:\n{_indented(visible(text))}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _input(asked: Approval) -> dict[str, object]:
    try:
        given = json.loads(asked.input or "{}")
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"input": asked.input or ""}


def _scripts(asked: Approval) -> tuple[Script, ...]:
    try:
        return msgspec.json.decode(asked.scripts or "[]", type=tuple[Script, ...])
    except msgspec.MsgspecError:
        return ()


def _document(asked: Approval) -> dict[str, object]:
    return {
        "approval_id": asked.id,
        "session_id": asked.session_id,
        "tier": asked.tier,
        "status": asked.status.value,
        "tool_use_id": asked.tool_use_id,
        "tool_name": visible(asked.tool_name or ""),
        "agent_id": asked.agent_id,
        "workdir": visible(asked.workdir or ""),
        "input": {
            visible(name): visible(value) if isinstance(value, str) else value for name, value in _input(asked).items()
        },
        "scripts": [
            {"path": visible(script.path), "sha256": script.sha256, "text": visible(script.text)}
            for script in _scripts(asked)
        ],
        "reason": visible(asked.reason or ""),
        "call_hash": asked.call_hash,
        "requested_at": asked.requested_at,
        "expires_at": asked.expires_at,
        "decided_at": asked.decided_at,
        "decided_by": asked.decided_by,
    }
