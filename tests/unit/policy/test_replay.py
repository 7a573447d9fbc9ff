"""The sums of a replay: no call may be counted twice or be lost, and what the edit changes is never crowded out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.calls import VerdictKind
from claudeops.policy.replay import MOST_CHANGES, RecordedCall, ReplayCount

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KINDS = st.sampled_from(VerdictKind)
CALLS = st.lists(st.tuples(KINDS, KINDS | st.none(), KINDS | st.none()), max_size=40)
"""Verdicts on record, of the edited policy (None: not judged), and of the policy in force."""


def recorded(number: int, verdict: VerdictKind) -> RecordedCall:
    return RecordedCall(
        call_id=number,
        session_id=1,
        tier=1,
        tool_name="Bash",
        input={},
        text="x" * 1000,
        verdict=verdict,
        reason="on record",
        requested_at=NOW,
    )


@given(CALLS)
def test_every_call_is_counted_once(
    calls: Sequence[tuple[VerdictKind, VerdictKind | None, VerdictKind | None]],
) -> None:
    count = ReplayCount()
    for number, (before, edited, in_force) in enumerate(calls):
        if edited is None:
            count.skip()
        elif edited is before:
            count.keep()
        else:
            count.change(recorded(number, before), edited, "a rule", in_force=in_force)
    found = count.sum(since=NOW, on_record=len(calls), bound=None)
    changed = found.newly_allowed + found.newly_asked + found.newly_denied
    assert found.replayed == len(calls) == found.unchanged + found.not_judged + changed
    assert len(found.changes) == changed
    assert found.by_edit == sum(change.by_edit for change in found.changes)
    assert all(change.recorded is not change.verdict for change in found.changes)
    assert [change.call_id for change in found.changes] == sorted(change.call_id for change in found.changes)


def test_what_has_changed_by_itself_does_not_crowd_out_what_the_edit_does() -> None:
    count = ReplayCount()
    for number in range(MOST_CHANGES + 5):
        count.change(recorded(number, VerdictKind.DENY), VerdictKind.ALLOW, "r", in_force=VerdictKind.ALLOW)
    count.change(recorded(999, VerdictKind.DENY), VerdictKind.ALLOW, "r", in_force=VerdictKind.DENY)
    found = count.sum(since=NOW, on_record=1000, bound=None)
    assert (found.newly_allowed, found.by_edit, len(found.changes)) == (MOST_CHANGES + 6, 1, MOST_CHANGES + 1)
    assert found.changes[-1].call_id == 999
    assert len(found.changes[0].text) == 500
