"""What a person's answer is bound to, how it is proved, and how a call is shown to people."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import ToolCall
from claudeops.domain.gate.approval import (
    Answer,
    Approval,
    ApprovalStatus,
    CalledScript,
    answer,
    call_hash,
    people,
    person,
    proven,
    proven_yes,
)
from claudeops.structs import replace
from claudeops.text.escapes import visible
from support.store_values import NOW, after, running

KEY = b"k" * 32
CALL = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": "sh mend.sh", "timeout": 5})
SCRIPT = CalledScript(path="/work/mend.sh", sha256="ab")
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


def said(
    who: str = "ada", *, key: bytes = KEY, status: ApprovalStatus = ApprovalStatus.APPROVED, asked: Approval = ASKED
) -> Answer:
    return answer(key, asked, status=status, decided_by=who, at=after(minutes=1))


def test_answer_of_somebody_who_holds_the_key_is_proven() -> None:
    assert proven(KEY, ASKED, said())


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        pytest.param(ASKED, said(key=b"x" * 32), id="another key"),
        pytest.param(ASKED, replace(said(), mac=""), id="an empty proof"),
        pytest.param(ASKED, replace(said(), mac="\u2028"), id="none at all"),
        pytest.param(ASKED, replace(said(), decided_by="eve"), id="another name"),
        pytest.param(ASKED, replace(said(), decided_at=after(minutes=2)), id="another time"),
        pytest.param(replace(ASKED, id=4), said(), id="another question"),
        pytest.param(replace(ASKED, session_id=8), said(), id="another session"),
        pytest.param(replace(ASKED, call_hash="4567"), said(), id="another call"),
        pytest.param(
            ASKED,
            replace(said(status=ApprovalStatus.DENIED), status=ApprovalStatus.APPROVED),
            id="a no made a yes",
        ),
    ],
)
def test_what_was_not_answered_so_is_not_proven(asked: Approval, given: Answer) -> None:
    assert not proven(KEY, asked, given)


def test_only_answers_with_their_own_proof_are_a_yes_and_each_person_has_one() -> None:
    other = said("bob", asked=replace(ASKED, id=4))
    row = replace(
        ASKED,
        answers=(said("telegram:ada"), said("slack:Ada"), said("ada"), replace(said(), decided_by="bob"), other),
    )

    assert row.agreed == ("telegram:ada", "bob")
    assert proven_yes(KEY, row) == ("telegram:ada",)
    assert proven_yes(KEY, replace(row, answers=(*row.answers, said("bob")))) == ("telegram:ada", "bob")
    assert proven_yes(KEY, ASKED) == ()


def test_a_proven_no_beside_enough_yes_is_a_no_and_a_forged_one_is_nothing() -> None:
    two = (said("ada"), said("bob"))
    no = said("carol", status=ApprovalStatus.DENIED)

    assert proven_yes(KEY, replace(ASKED, answers=(*two, no))) == ()
    assert proven_yes(KEY, replace(ASKED, answers=(*two, replace(no, mac="00")))) == ("ada", "bob")


@pytest.mark.parametrize("name", ["telegram:alice", "slack:Alice", "alice", "ALICE", "slack: alice "])
def test_a_person_is_the_same_whichever_way_the_answer_came(name: str) -> None:
    assert person(name) == "alice"


def test_a_kind_alone_makes_nobody_another_person() -> None:
    assert people(["telegram:", "slack:", ""]) == ("telegram:",)
    assert people(["alice", "telegram:alice:2", "alicia"]) == ("alice", "telegram:alice:2", "alicia")


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
