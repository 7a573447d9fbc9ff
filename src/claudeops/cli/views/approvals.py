"""``list-approvals``: the tool calls that wait for a person, in full, because somebody is about to let them run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from claudeops.cli.text.layout import Looks, relative
from claudeops.cli.views import Answer, Shape, database_url, more, present
from claudeops.domain.gate.approval import (
    UNSEEN,
    Approval,
    ApprovalStatus,
    Script,
    join_people,
    unmistakable,
    unmistakable_line,
    visible,
)
from claudeops.domain.listing import Listing, Page
from claudeops.domain.text.answers import plain
from claudeops.store.reading import opened
from claudeops.store.reading.approvals import input_of, listed, scripts_of, to_entry

_NAME: Final = "list-approvals"


def print_approvals(wanted: Listing, *, everything: bool, shape: Shape) -> int:
    """Print the approvals that wait for an answer, or all of them; return the exit status."""

    def ask(_: datetime) -> Answer:
        with opened(database_url()) as connection:
            found = listed(connection, wanted, everything=everything)
        shown = [plain(to_entry(approval)) for approval in reversed(found.items)]
        return Answer(
            body={"approvals_count": len(shown), "approvals": shown, "before": found.before},
            draw=partial(_drawn, found),
        )

    return present(_NAME, ask, shape)


def _drawn(found: Page[Approval], looks: Looks) -> Sequence[str]:
    """Return the oldest first: it is the first that expires."""
    lines: list[str] = []
    for approval in reversed(found.items):
        lines += [*([""] if lines else []), *approval_text(approval, looks.now, utc=looks.utc).split("\n")]
    return [*(lines or ["no call waits for an answer"]), *more(_NAME, found.before, looks)]


def approval_text(approval: Approval, now: datetime, *, utc: bool = True) -> str:
    """Return an approval for people to read: in full, without control characters that a terminal would obey."""
    waits = approval.status is ApprovalStatus.PENDING and not utc
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
        remedy = f", so no chat takes a yes; `claudeops approve {approval.id} --unseen` says yes all the same"
        lines.append(f"  not whole: {UNSEEN}{remedy if approval.status is ApprovalStatus.PENDING else ''}")
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


def _missing(script: Script) -> Sequence[str]:
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
