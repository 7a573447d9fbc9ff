"""What a person's answer is bound to, how it is proved, and how a call is shown to people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from claudeops.domain.gate.approval import Approval, ApprovalStatus, Script, answer, call_hash, proven, visible
from claudeops.domain.model import ToolCall
from support.store_values import NOW, after, running

KEY = b"k" * 32
CALL = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": "sh mend.sh", "timeout": 5})
SCRIPT = Script(path="/work/mend.sh", sha256="ab")
BOUND = {"session": running(3), "workdir": "/work", "call": CALL, "scripts": (SCRIPT,)}


@pytest.mark.parametrize(
    "change",
    [
        {"session": running(3, id=8)},
        {"session": running(3, attempt=2)},
        {"session": running(2)},
        {"workdir": "/other"},
        {"call": replace(CALL, agent_id="agent-1")},
        {"call": replace(CALL, tool_use_id="toolu_2")},
        {"call": replace(CALL, tool_name="Write")},
        {"call": replace(CALL, input={"command": "sh mend.sh ", "timeout": 5})},
        {"call": replace(CALL, input={"command": "sh mend.sh"})},
        {"scripts": (replace(SCRIPT, sha256="cd"),)},
        {"scripts": (replace(SCRIPT, path="/work/other.sh"),)},
        {"scripts": ()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_answer_is_bound_to_everything_that_the_call_is(change: dict[str, object]) -> None:
    assert call_hash(**{**BOUND, **change}) != call_hash(**BOUND)  # type: ignore[arg-type]  # the test names them


def test_order_of_the_input_means_nothing() -> None:
    turned = replace(CALL, input=dict(reversed(list(CALL.input.items()))))

    assert call_hash(**{**BOUND, "call": turned}) == call_hash(**BOUND)  # type: ignore[arg-type]  # as above


ASKED = Approval(
    id=3,
    session_id=7,
    tool_use_id="toolu_1",
    call_hash="0123",
    status=ApprovalStatus.PENDING,
    requested_at=NOW,
    expires_at=after(minutes=15),
)


def answered(key: bytes = KEY, status: ApprovalStatus = ApprovalStatus.APPROVED) -> Approval:
    said = answer(key, ASKED, status=status, decided_by="ada", at=after(minutes=1))
    return replace(ASKED, status=said.status, decided_by=said.decided_by, decided_at=said.decided_at, mac=said.mac)


def test_answer_of_somebody_who_holds_the_key_is_proven() -> None:
    assert proven(KEY, answered())


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(answered(key=b"x" * 32), id="another key"),
        pytest.param(replace(answered(), mac=None), id="no proof"),
        pytest.param(replace(answered(), mac=""), id="an empty one"),
        pytest.param(replace(answered(), mac="\u2028"), id="none at all"),
        pytest.param(replace(answered(), decided_by="eve"), id="another name"),
        pytest.param(replace(answered(), decided_at=after(minutes=2)), id="another time"),
        pytest.param(replace(answered(), decided_at=None), id="no time"),
        pytest.param(replace(answered(), id=4), id="another question"),
        pytest.param(replace(answered(), session_id=8), id="another session"),
        pytest.param(replace(answered(), call_hash="4567"), id="another call"),
        pytest.param(
            replace(answered(status=ApprovalStatus.DENIED), status=ApprovalStatus.APPROVED), id="a no made a yes"
        ),
        pytest.param(ASKED, id="no answer"),
    ],
)
def test_what_was_not_answered_so_is_not_proven(row: Approval) -> None:
    assert not proven(KEY, row)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("docker restart web\n\tnow", "docker restart web\n\tnow"),
        ("grep '\\.' gr\u00fc\u00df \u4e16 \U0001f600", "grep '\\.' gr\u00fc\u00df \u4e16 \U0001f600"),
        ("\x1b[2Kls\r", "\\u001b[2Kls\\u000d"),
        ("rm\u202e fdp.a\u2066x\u2069", "rm\\u202e fdp.a\\u2066x\\u2069"),
        ("a\u200bb\u00adc\ufeffd\x7f\x9b", "a\\u200bb\\u00adc\\ufeffd\\u007f\\u009b"),
        ("a\u2028b\u2029c\ud800\ue000", "a\\u2028b\\u2029c\\ud800\\ue000"),
        ("\U000e0041", "\\U000e0041"),
    ],
    ids=["plain", "letters", "escape", "bidi", "invisible", "separators", "tag"],
)
def test_nothing_that_a_terminal_obeys_or_hides_is_shown_as_it_is(text: str, shown: str) -> None:
    assert visible(text) == shown
