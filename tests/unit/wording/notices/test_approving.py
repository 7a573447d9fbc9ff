"""Questions in chats, as values: who may answer, what a tap is worth, and that a card with a yes shows everything."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.gate.approval import Approval, ApprovalStatus
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import TargetKind
from claudeops.structs import replace
from claudeops.text.escapes import visible
from claudeops.text.redact import Redactor
from claudeops.wording.notices.approving import (
    NO,
    REFUSALS,
    YES,
    ButtonTap,
    Card,
    QuestionRow,
    TapRefusal,
    button_data,
    card,
    digest_of,
    has_approver,
    may_answer,
    outcome,
    refusal,
    shown,
    uncalled,
    units,
)
from claudeops.wording.notices.texts import Wording
from support.store_values import NOW

LIMIT = 4096
WORDING = Wording(redact=lambda text: text.replace("hunter2", "[redacted]"), public_url="https://ops.example/")
APPROVAL = Approval(
    id=7,
    session_id=12,
    tool_use_id="toolu_1",
    call_hash="0123",
    status=ApprovalStatus.PENDING,
    requested_at=NOW,
    expires_at=NOW + timedelta(minutes=15),
    tool_name="Bash",
    tier=2,
    workdir="/work",
    input='{"command":"docker restart web","description":"mend it"}',
    scripts='[{"path":"/work/mend.sh","sha256":"abcd","text":"true"}]',
    reason="restarts the shop",
    services='["web","db"]',
)
ALICE = Approver(name="alice", ids={TargetKind.TELEGRAM: "11", TargetKind.SLACK: "U11"})


def of(command: str) -> Approval:
    return replace(APPROVAL, input=json.dumps({"command": command}))


# --- who ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approver", "tier", "services", "may"),
    [
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}), 3, (), True),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}), None, ("web",), True),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, tiers=frozenset({2})), 2, ("web",), True),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, tiers=frozenset({2})), 3, ("web",), False),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, tiers=frozenset({2})), None, ("web",), False),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, services=("shop-*",)), 3, ("Shop-DB",), True),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, services=("shop-*",)), 3, ("shop-db", "web"), False),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, services=("shop-*", "web")), 3, ("shop-db", "web"), True),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, services=("*",)), 3, (), False),  # of none it is known
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, services=("*",)), 3, None, False),  # nor all of it
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, services=("web", "*")), None, None, False),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}, tiers=frozenset({3})), 3, None, True),
        (Approver(name="a", ids={TargetKind.TELEGRAM: "1"}), 3, None, True),
    ],
)
def test_who_may_answer_for_what(
    approver: Approver, tier: int | None, services: tuple[str, ...] | None, may: bool
) -> None:
    found = may_answer([approver], kind=TargetKind.TELEGRAM, sender="1", tier=tier, services=services)

    assert (found is approver) is may


@pytest.mark.parametrize("sender", ["", "12", "U11", "alice", "11 ", "-11"])
def test_an_id_of_nobody_is_nobody(sender: str) -> None:
    people = [ALICE, Approver(name="bob", ids={TargetKind.SLACK: "U12"})]

    assert may_answer(people, kind=TargetKind.TELEGRAM, sender=sender, tier=1, services=()) is None
    assert may_answer(people, kind=TargetKind.APPRISE, sender="11", tier=1, services=()) is None
    assert not has_approver([people[1]], kind=TargetKind.TELEGRAM, approval=APPROVAL)
    assert has_approver(people, kind=TargetKind.SLACK, approval=APPROVAL)


# --- a tap ----------------------------------------------------------------------------------------------------

ASKED = QuestionRow(
    id=1,
    approval_id=7,
    call_hash="0123",
    target="ops",
    chat="-100",
    external_id="77",
    used_at=None,
    says=YES,
)
TAP = ButtonTap(
    kind=TargetKind.TELEGRAM, sender="11", chat="-100", message="77", data="approve:x", targets=frozenset({"ops"})
)
REFUSED = {
    "nobody listed": (replace(TAP, sender="99"), ASKED, APPROVAL, TapRefusal.NOT_LISTED),
    "a token of nobody": (TAP, None, None, TapRefusal.UNKNOWN_TOKEN),
    "another message": (replace(TAP, message="78"), ASKED, APPROVAL, TapRefusal.OTHER_MESSAGE),
    "another chat": (replace(TAP, chat="-101"), ASKED, APPROVAL, TapRefusal.OTHER_MESSAGE),
    "another bot": (replace(TAP, targets=frozenset({"boss"})), ASKED, APPROVAL, TapRefusal.OTHER_MESSAGE),
    "another call": (TAP, replace(ASKED, call_hash="4567"), APPROVAL, TapRefusal.OTHER_MESSAGE),
    "used": (TAP, replace(ASKED, used_at=NOW), APPROVAL, TapRefusal.USED_TOKEN),
    "answered": (TAP, ASKED, replace(APPROVAL, status=ApprovalStatus.DENIED), TapRefusal.OVER),
    "too late": (TAP, ASKED, replace(APPROVAL, expires_at=NOW), TapRefusal.OVER),
}


@pytest.mark.parametrize(("tap", "asked", "approval", "why"), REFUSED.values(), ids=REFUSED)
def test_a_tap_that_is_no_answer_says_why(
    tap: ButtonTap, asked: QuestionRow | None, approval: Approval | None, why: TapRefusal
) -> None:
    assert refusal(tap, asked, approval, [ALICE], now=NOW) is why
    assert refusal(TAP, ASKED, APPROVAL, [ALICE], now=NOW) is None


def test_every_refusal_is_told_in_a_text_that_a_chat_takes() -> None:
    assert set(REFUSALS) == set(TapRefusal)
    assert all(0 < units(text) <= 200 for text in REFUSALS.values())


def test_a_token_is_bound_to_its_answer_and_its_chat() -> None:
    token = bytes(range(16))
    yes, no = button_data(YES, token), button_data(NO, token)

    assert (yes, no) == ("approve:AAECAwQFBgcICQoLDA0ODw", "deny:AAECAwQFBgcICQoLDA0ODw")
    assert len(yes.encode()) <= 64
    assert len({digest_of(data, chat=chat) for data in (yes, no) for chat in ("-100", "-101")}) == 4


# --- a card ---------------------------------------------------------------------------------------------------


def test_a_card_says_who_wants_what_and_why() -> None:
    drawn = card(APPROVAL, wording=WORDING, limit=LIMIT, now=NOW)

    assert drawn.text == (
        "Approval 7: session 12 (tier 2) asks for Bash.\n"
        "services: web, db\n"
        "why: restarts the shop\n"
        "in: /work\n"
        "\n"
        "command:\n"
        "  docker restart web\n"
        "description:\n"
        "  mend it\n"
        "script /work/mend.sh\n"
        "sha256 abcd\n"
        "\n"
        "until 12:15:00 UTC (in 15 min)\n"
        "or: claudeops approve 7 | claudeops deny 7\n"
        "https://ops.example/s/12"
    )
    begin, end = drawn.code
    assert drawn.text[begin:end] == drawn.call


@given(
    length=st.integers(3000, 4300),
    filling=st.sampled_from(["x", "\N{PILE OF POO}", "\u202e", "\N{LATIN SMALL LETTER E WITH ACUTE}"]),
    services=st.sampled_from([None, '["web"]', json.dumps(["@a" * 40] * 9)]),
)
def test_a_card_that_fits_shows_everything_and_leaves_room_for_the_outcome(
    length: int, filling: str, services: str | None
) -> None:
    command = filling * length + "; rm -rf /srv"
    asked = replace(of(command), services=services)

    drawn = card(asked, wording=WORDING, limit=LIMIT, now=NOW)

    assert drawn.fits == (visible(command) in drawn.text)
    assert drawn.fits or filling * 20 not in drawn.text
    over = replace(asked, status=ApprovalStatus.USED, decided_by="@a" * 200, decided_at=NOW)
    assert len(shown(drawn, uncalled(outcome(over, WORDING))).encode("utf-16-le")) <= LIMIT * 2


def test_the_longest_call_that_fits_is_near_the_limit() -> None:
    longest = max(n for n in range(3000, 4096) if card(of("x" * n), wording=WORDING, limit=LIMIT, now=NOW).fits)

    assert longest > 3300


def test_a_card_that_does_not_fit_at_all_still_names_its_question() -> None:
    drawn = card(replace(of("x" * 5000), workdir="/" + "w" * 5000), wording=WORDING, limit=LIMIT, now=NOW)

    assert not drawn.fits
    assert drawn.text.startswith("Approval 7 is needed.")
    assert units(drawn.text) < LIMIT


@given(st.text(max_size=300))
def test_nothing_in_a_card_hides_and_no_secret_stands_there(text: str) -> None:
    hostile = f"{text}hunter2{text}\u202e\u200b"
    asked = replace(of(hostile), reason=hostile, workdir=hostile, services=json.dumps([hostile]), agent_id=hostile)

    drawn = card(asked, wording=WORDING, limit=LIMIT, now=NOW)

    assert "hunter2" not in drawn.text
    assert visible(drawn.text) == drawn.text


HIDING = {
    "query": "python3 -c 'x=(1&token=exec(chr(105)))'",
    "connection": 'python3 -c \'x=1;password=__import__("os").system("id")\'',
    "address": "sh -c ': a://u:$(reboot)@h; true'",
    "libpq": 'sh -c "echo" password=`reboot`',
    "header": "curl -H x-api-key:`reboot`aaaa http://web",
    "authorization": "curl -H 'Authorization: Bearer abc|sh|cat' http://web",
    "bearer": "echo bearer aaaaaaaaaaaaaaaaaaaa/bin/reboot",
    "key": "sh ghp_0123456789012345678901234567890123456",
    "pem": "echo -----BEGIN PRIVATE KEY-----\nreboot\n-----END PRIVATE KEY-----",
    "slack": "sh hooks.slack.com/services/x/bin/reboot",
}


@pytest.mark.parametrize("command", HIDING.values(), ids=HIDING)
@pytest.mark.parametrize("secret", [(), ("hunter2",)], ids=["knows nothing", "knows a secret"])
def test_what_only_has_the_shape_of_a_secret_takes_the_yes_away(command: str, secret: tuple[str, ...]) -> None:
    redactor = Redactor(secret)
    wording = Wording(redact=redactor.text)
    asked = of(f"true hunter2; {command}")
    stored = redactor.line((asked.input or "").encode()).decode()

    for each in (asked, replace(asked, input=stored, hidden=True)):
        drawn = card(each, wording=wording, limit=LIMIT, now=NOW)

        assert (drawn.fits, drawn.hidden) == (False, True)
        assert "no yes can be given here: see `claudeops list-approvals`" in drawn.text
        assert "command:\n  true" in drawn.text  # the rest may be read, and the answer may be no
        assert "[redacted]" in drawn.call


@pytest.mark.parametrize("where", ["name", "deep", "path"])
def test_nothing_of_a_call_hides_by_its_shape_wherever_it_stands(where: str) -> None:
    shape = "?token=exec"
    asked = {
        "name": replace(APPROVAL, input=json.dumps({f"a{shape}": "b"})),
        "deep": replace(APPROVAL, input=json.dumps({"a": [{"b": ["c", shape]}]})),
        "path": replace(APPROVAL, scripts=json.dumps([{"path": f"/work/{shape}.sh", "sha256": "abcd"}])),
    }[where]

    assert not card(asked, wording=Wording(redact=Redactor(()).text), limit=LIMIT, now=NOW).fits


def test_a_known_secret_alone_leaves_the_yes() -> None:
    redactor = Redactor(["hunter2"])
    known = ("docker login -p hunter2", "curl -H 'x-api-key: hunter2' http://web", "psql postgres://u:hunter2@db/shop")
    for command in known:
        line = json.dumps({"command": command}).encode()
        asked = replace(APPROVAL, input=redactor.line(line).decode(), hidden=redactor.hides_unknown(line))

        drawn = card(asked, wording=Wording(redact=redactor.text), limit=LIMIT, now=NOW)

        assert (drawn.fits, drawn.hidden) == (True, False)
        assert "[redacted]" in drawn.call


def test_no_card_can_take_a_yes_to_what_it_hides() -> None:
    with pytest.raises(ValueError, match="not show whole"):
        Card(head="", call="", tail="", fits=True, hidden=True)


def test_a_hidden_call_that_is_too_long_is_neither_shown_nor_answered() -> None:
    drawn = card(replace(of("x" * 5000), hidden=True), wording=WORDING, limit=LIMIT, now=NOW)

    assert (drawn.fits, drawn.hidden, drawn.call) == (False, True, "")


@pytest.mark.parametrize(
    "given",
    [
        {"description": "mend it\ncommand:\nuptime", "command": "rm -rf /srv"},
        {"description\ncommand": "uptime", "command": "rm -rf /srv"},
        {"description": "x\rcommand:\r  uptime\x0bcommand:\u2028  uptime", "command": "rm -rf /srv"},
        {"a": "x\nscript /work/other.sh\nsha256 abcd", "command": "rm -rf /srv"},
    ],
)
def test_no_field_of_a_call_imitates_another(given: dict[str, str]) -> None:
    drawn = card(replace(APPROVAL, input=json.dumps(given)), wording=WORDING, limit=LIMIT, now=NOW)

    labels = [line for line in drawn.call.split("\n") if not line.startswith("  ")]
    assert len(labels) == len(given) + 2
    assert labels.count("command:") == 1
    assert drawn.call.partition("\ncommand:\n")[2].startswith("  rm -rf /srv")
    assert sum(label.startswith("script ") for label in labels) == 1


def test_a_path_of_a_script_is_one_line() -> None:
    scripts = json.dumps([{"path": "/work/a\nsha256 0000\nscript /work/b", "sha256": "abcd"}])

    drawn = card(replace(APPROVAL, scripts=scripts), wording=WORDING, limit=LIMIT, now=NOW)

    assert drawn.call.count("\nsha256 ") == 1


def test_a_card_says_that_not_all_services_are_known() -> None:
    drawn = card(replace(APPROVAL, services=None), wording=WORDING, limit=LIMIT, now=NOW)

    assert "which services it changes is not known" in drawn.head
    assert "is not known" not in card(APPROVAL, wording=WORDING, limit=LIMIT, now=NOW).head


@pytest.mark.parametrize("sign", ["\U000e0100", "\u034f", "\u115f", "\u17b4", "\u2800", "\u3164", "\u00a0", "\ufe0f"])
def test_no_sign_that_is_not_seen_stays_under_a_yes(sign: str) -> None:
    drawn = card(of(f"echo \u26a0{sign}; rm{sign}-rf x"), wording=WORDING, limit=LIMIT, now=NOW)

    assert drawn.fits
    assert sign not in drawn.text


@pytest.mark.parametrize(
    ("status", "by", "said"),
    [
        (ApprovalStatus.APPROVED, "telegram:alice", "YES: telegram:alice said yes at 12:00:00 UTC."),
        (ApprovalStatus.USED, "root", "YES: root said yes at 12:00:00 UTC, and the call was let through."),
        (ApprovalStatus.DENIED, "slack:bob", "NO: slack:bob said no at 12:00:00 UTC."),
        (ApprovalStatus.EXPIRED, None, "OVER: nobody answered in time, or the session has ended."),
        (ApprovalStatus.PENDING, None, "OVER: nobody answered in time, or the session has ended."),
    ],
)
def test_a_message_says_how_its_question_ended(status: ApprovalStatus, by: str | None, said: str) -> None:
    assert outcome(replace(APPROVAL, status=status, decided_by=by, decided_at=NOW), WORDING) == said


@pytest.mark.parametrize(
    ("text", "shown_as"),
    [("@bob", "@ bob"), ("ask (@bob)", "ask (@ bob)"), ("bob@example.org", "bob@example.org"), ("a @ b", "a @ b")],
)
def test_nobody_is_called_by_name(text: str, shown_as: str) -> None:
    assert uncalled(text) == shown_as


@pytest.mark.parametrize("broken", ["", "[", "null", "[1]", '{"a": 1}'])
def test_what_a_row_holds_wrongly_is_shown_as_it_is_or_not_at_all(broken: str) -> None:
    asked = replace(APPROVAL, input=broken, scripts=broken, services=broken)

    drawn = card(asked, wording=WORDING, limit=LIMIT, now=NOW)

    assert drawn.fits
    assert "services:" not in drawn.text
