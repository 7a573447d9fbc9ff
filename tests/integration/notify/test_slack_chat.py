"""Questions in Slack: only named people answer, each once, by whichever way, and no message goes on asking."""

from __future__ import annotations

import io
import json
import os
import random
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import anyio
import pytest

from claudeops import logs
from claudeops.domain.events import EventLevel
from claudeops.domain.gate.approval import ApprovalStatus, proven
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import TargetKind
from claudeops.domain.notices.notice import Notice, Topic
from claudeops.errors import DatabaseUnavailableError
from claudeops.notify.channels.slack import MOST_WAITING
from claudeops.store.acts.approvals import AnswerResult
from claudeops.store.store import Store
from claudeops.wording.notices.approving import NO, REFUSALS, YES, ButtonTap, TapRefusal, button_data
from support.chatting import KEY, SECRET, ask
from support.loop_time import loop_time
from support.slack import BOT_TOKEN, CHANNEL, Answer, Posted, SlackServer, slack
from support.slacking import ALICE, BOB, BOSS, OPS, OTHER_CHANNEL, STRANGER, slacking
from support.store_values import NOW, started, wanted
from support.stores import Database
from support.waiting import PATIENCE_SECONDS

LONG: Final = 3600.0  # seconds: whoever waits for a Slack that hangs waits longer than the test

pytest_plugins = ("support.store_fixtures",)


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


@pytest.fixture(autouse=True)
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


@pytest.fixture
def second() -> Iterator[SlackServer]:
    with slack(channels=(OTHER_CHANNEL,)) as served:
        yield served


def alarm(text: str = "shop is down", key: str = "event:1") -> Notice:
    return Notice(topic=Topic.EVENT, level=EventLevel.CRITICAL, text=text, key=key)


# --- told ---------------------------------------------------------------------------------------------------


async def test_an_ordinary_notice_is_a_message_that_calls_nobody(store: Store) -> None:
    async with slacking(store) as place:
        await store.outbox.add(alarm("<!channel> shop & <https://evil.example|db> are down @here"), now=NOW)
        await place.until(lambda: place.messages)

        (message,) = place.messages
        assert "blocks" not in message.fields
        assert message.fields["text"].startswith("CRITICAL\n&lt; !channel&gt; shop &amp; &lt;https://evil.example|db")
        assert "@here" not in message.fields["text"]
        assert message.fields["unfurl_links"] is False


async def test_slack_is_left_alone_for_as_long_as_it_says(store: Store, logged: io.StringIO) -> None:
    async with slacking(store) as place:
        place.server.answers["chat.postMessage"] = [Answer(status=429, headers={"Retry-After": "17"})]
        for number in range(3):
            await store.outbox.add(alarm(key=f"event:{number}"), now=NOW)
        await place.until(lambda: len(place.elsewhere.heard) == 3)
        await place.until(lambda: "ratelimited" in logged.getvalue())
        assert len(place.server.called("chat.postMessage")) == 1  # the others were not even tried

        place.clock.at += timedelta(seconds=16)
        await place.settled()
        assert len(place.server.called("chat.postMessage")) == 1
        place.clock.at += timedelta(seconds=2)
        await place.until(lambda: len(place.messages) == 3)


@pytest.mark.parametrize(
    "answer",
    [Answer(hangs=True), Answer(status=429, headers={"Retry-After": "60"}), Answer(status=500, body={}), None],
    ids=["hangs", "429", "500", "away"],
)
async def test_a_slack_in_trouble_delays_no_other_target_and_no_other_slack(
    store: Store, second: SlackServer, answer: Answer | None
) -> None:
    session = await started(store, wanted(3))
    if answer is None:
        second.channels = ()
        second.port = 1
    else:
        second.answers = {name: [answer] * 50 for name in ("chat.postMessage", "chat.update", "chat.postEphemeral")}
    async with slacking(store, rooms=(OPS, BOSS), second=second, seconds=LONG) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)
        await place.until(lambda: place.elsewhere.heard)
        place.press(message, "Yes", user=ALICE)
        await place.until(lambda: "YES: slack:alice" in message.all_text)

        assert (await place.approval(asked)).status is ApprovalStatus.APPROVED


async def test_strangers_at_a_slack_that_hangs_delay_nobodys_answer(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store, seconds=LONG) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)
        place.server.answers["chat.postEphemeral"] = [Answer(hangs=True)] * 50

        for _ in range(50):
            place.press(message, "Yes", user=STRANGER)
        place.press(message, "Yes", user=ALICE)

        await place.until(lambda: "YES: slack:alice" in message.all_text)


# --- an answer ----------------------------------------------------------------------------------------------


async def test_a_yes_over_socket_mode_is_an_answer_with_its_proof_and_every_message_says_so(
    store: Store, logged: io.StringIO
) -> None:
    session = await started(store, wanted(3))
    async with slacking(store, rooms=(OPS, BOSS), listens=True) as place:
        asked = await ask(store, session)
        message, other = await place.asked(asked), await place.asked(asked, OTHER_CHANNEL)
        assert list(message.buttons) == ["No", "Yes"]
        for part in (f"session {session.id} (tier 3)", "docker restart web", "services: web", "why: restarts the shop"):
            assert part in message.all_text
        assert "ab" * 32 in message.all_text  # the script, by its hash
        assert "https://ops.example/s/" in message.all_text

        await place.until(lambda: place.link.is_connected)
        envelope = place.server.tap(message, message.buttons["Yes"]["value"], user=ALICE)
        await place.until(lambda: all("YES: slack:alice said yes" in each.all_text for each in (message, other)))

        await place.until(lambda: envelope in place.server.acks)
        assert (message.buttons, other.buttons) == ({}, {})
        answered = await place.approval(asked)
        assert (answered.status, answered.decided_by) == (ApprovalStatus.APPROVED, "slack:alice")
        assert [proven(KEY, answered, said) for said in answered.answers] == [True]
    assert "approval_tapped" in logged.getvalue()


async def test_a_no_over_http_is_an_answer(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)

        place.press(message, "No", user=BOB)

        await place.until(lambda: "NO: slack:bob said no" in message.all_text)
        assert (await place.approval(asked)).status is ApprovalStatus.DENIED
        assert place.server.ephemeral == []


# --- who may not --------------------------------------------------------------------------------------------


async def test_a_foreigner_is_told_so_alone_and_changes_nothing(store: Store, logged: io.StringIO) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)

        for count, said in enumerate(("Yes", "No"), start=1):
            place.press(message, said, user=STRANGER)
            assert await place.whispered(STRANGER, count) == REFUSALS[TapRefusal.NOT_LISTED]

        assert (await place.approval(asked)).status is ApprovalStatus.PENDING
        assert message.edits == []
        place.press(message, "Yes", user=ALICE)  # the tokens are as they were
        await place.until(lambda: "YES: slack:alice" in message.all_text)
    refused = [json.loads(line) for line in logged.getvalue().splitlines() if "approval_tap_refused" in line]
    assert [(each["reason"], each["sender"], each["chat"]) for each in refused] == [
        ("not_listed", STRANGER, CHANNEL)
    ] * 2


async def test_who_may_not_answer_for_a_tier_or_a_service_changes_nothing(store: Store) -> None:
    people = (
        Approver(name="tier2", ids={TargetKind.SLACK: "U21"}, tiers=frozenset({2})),
        Approver(name="shop", ids={TargetKind.SLACK: "U22"}, services=("shop-*",)),
        Approver(name="all", ids={TargetKind.SLACK: "U23"}),
    )
    session = await started(store, wanted(3))
    async with slacking(store, approvers=people) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)

        for user in ("U21", "U22"):
            place.press(message, "Yes", user=user)
            assert await place.whispered(user) == REFUSALS[TapRefusal.NOT_THEIRS]
        assert (await place.approval(asked)).status is ApprovalStatus.PENDING


async def test_the_ids_of_telegram_are_nobodys_in_slack(store: Store) -> None:
    people = (
        Approver(name="alice", ids={TargetKind.TELEGRAM: ALICE}),
        Approver(name="bob", ids={TargetKind.SLACK: BOB}),
    )
    session = await started(store, wanted(3))
    async with slacking(store, approvers=people) as place:
        asked = await ask(store, session)
        place.press(await place.asked(asked), "Yes", user=ALICE)

        assert await place.whispered(ALICE) == REFUSALS[TapRefusal.NOT_LISTED]
        assert (await place.approval(asked)).status is ApprovalStatus.PENDING


async def test_where_nobody_may_answer_the_card_has_no_buttons(store: Store) -> None:
    session = await started(store, wanted(3))
    people = (Approver(name="shop", ids={TargetKind.SLACK: ALICE}, services=("shop-*",)),)
    async with slacking(store, approvers=people) as place:
        message = await place.asked(await ask(store, session, services=()))

        assert message.buttons == {}
        assert "claudeops approve" in message.all_text


# --- tokens -------------------------------------------------------------------------------------------------


async def test_a_replay_changes_nothing(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)
        yes, no = (message.buttons[name]["value"] for name in ("Yes", "No"))
        place.press(message, "No", user=ALICE)
        await place.until(lambda: message.edits)

        for count, value in enumerate((no, yes), start=1):
            place.press(message, "", user=ALICE, value=value)
            assert await place.whispered(ALICE, count) == REFUSALS[TapRefusal.OVER]
        answered = await place.approval(asked)
        assert (answered.status, answered.decided_by) == (ApprovalStatus.DENIED, "slack:alice")


async def test_of_two_presses_at_once_over_both_ways_one_wins(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store, listens=True) as place:
        for number in range(5):
            asked = await ask(store, session, tool_use_id=f"toolu_{number}")
            message = await place.asked(asked)
            await place.until(lambda: place.link.is_connected)
            yes, no = (message.buttons[name]["value"] for name in ("Yes", "No"))
            envelope = place.server.tap(message, yes, user=ALICE)
            place.press(message, "", user=BOB, value=no)
            place.press(message, "", user=ALICE, value=yes)
            await place.until(lambda each=envelope: each in place.server.acks)  # type: ignore[misc]
            await place.until(lambda each=message: each.edits)  # type: ignore[misc]

            answered = await place.approval(asked)
            said = {ApprovalStatus.APPROVED: "YES: slack:alice", ApprovalStatus.DENIED: "NO: slack:bob"}
            assert said[answered.status] in message.all_text
            assert [proven(KEY, answered, said) for said in answered.answers] == [True]
        await place.until(lambda: len(place.server.ephemeral) == 10)  # two of three, each time


async def test_a_press_after_the_time_changes_nothing_and_the_message_says_so(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)
        yes = message.buttons["Yes"]["value"]
        place.clock.at += timedelta(minutes=15)

        place.press(message, "", user=ALICE, value=yes)

        assert await place.whispered(ALICE) == REFUSALS[TapRefusal.OVER]
        await place.until(lambda: "OVER: nobody answered in time" in message.all_text)
        assert message.buttons == {}
        assert (await place.approval(asked)).status is ApprovalStatus.PENDING  # whoever waits closes it


async def test_a_token_counts_in_its_own_message_channel_and_app_alone(store: Store, logged: io.StringIO) -> None:
    session = await started(store, wanted(3))
    async with slacking(store, rooms=(OPS, BOSS)) as place:
        one, other = await ask(store, session), await ask(store, session, tool_use_id="toolu_2")
        mine, theirs = await place.asked(one), await place.asked(other)
        boss = await place.asked(one, OTHER_CHANNEL)
        yes = mine.buttons["Yes"]["value"]

        place.press(theirs, "", user=ALICE, value=yes)
        assert await place.whispered(ALICE, 1) == REFUSALS[TapRefusal.OTHER_MESSAGE]
        place.press(boss, "", user=ALICE, value=yes)
        assert await place.whispered(ALICE, 2) == REFUSALS[TapRefusal.UNKNOWN_TOKEN]
        place.press(mine, "", user=ALICE, value=yes, channel=OTHER_CHANNEL)
        assert await place.whispered(ALICE, 3) == REFUSALS[TapRefusal.UNKNOWN_TOKEN]
        place.press(mine, "", user=ALICE, value=yes, targets=["boss"])  # proven by another app's secret
        place.press(mine, "", user=ALICE, value=yes, targets=[])
        await place.until(lambda: logged.getvalue().count(f'"{TapRefusal.OTHER_MESSAGE}"') == 3)
        place.press(mine, "", user=ALICE, value=f"{yes}x")
        assert await place.whispered(ALICE, 4) == REFUSALS[TapRefusal.UNKNOWN_TOKEN]

        assert [(await place.approval(each)).status for each in (one, other)] == [ApprovalStatus.PENDING] * 2


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
async def test_guesses_are_no_answer(store: Store, count: int) -> None:
    session, guesses = await started(store, wanted(3)), random.Random(7)  # noqa: S311 - a guesser's
    async with slacking(store) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)

        for number in range(count):
            data = button_data(YES if number % 2 else NO, guesses.randbytes(16))
            tap = ButtonTap(
                kind=TargetKind.SLACK,
                sender=ALICE,
                chat=CHANNEL,
                message=message.ts,
                data=data,
                targets=frozenset({"ops"}),
            )
            assert (await place.chat.questions.take(tap)).refused is TapRefusal.UNKNOWN_TOKEN

        assert (await place.approval(asked)).status is ApprovalStatus.PENDING


# --- what is shown ------------------------------------------------------------------------------------------


async def test_a_call_that_does_not_fit_has_no_yes_and_can_be_refused(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session, command="echo " + "x" * 3000)
        message = await place.asked(asked)

        assert list(message.buttons) == ["No"]
        assert "does not fit" in message.all_text
        assert "https://ops.example/s/" in message.all_text
        place.press(message, "No", user=ALICE)
        await place.until(lambda: "NO: slack:alice" in message.all_text)


async def test_secrets_are_in_nothing_that_slack_is_sent(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session, command=f"curl -H {SECRET} \u202e", reason=f"because of {SECRET}")
        message = await place.asked(asked)
        await store.outbox.add(alarm(f"shop says {SECRET}"), now=NOW)
        await place.until(lambda: len(place.messages) == 2)
        place.press(message, "Yes", user=ALICE)
        await place.until(lambda: message.edits)

        assert SECRET not in place.server.sent
        assert BOT_TOKEN not in place.server.sent
        assert "\\u202e" in message.code
        assert "\u202e" not in message.all_text


async def test_an_answer_from_elsewhere_is_shown_as_well(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store, rooms=(OPS, BOSS)) as place:
        asked = await ask(store, session)
        messages = [await place.asked(asked), await place.asked(asked, OTHER_CHANNEL)]
        answering = place.chat.questions

        await answering.answer(
            store.approvals, KEY, asked.id, status=ApprovalStatus.DENIED, decided_by="operator", at=NOW
        )

        await place.until(lambda: all("NO: operator said no" in each.all_text for each in messages))


async def test_an_edit_that_slack_refuses_is_tried_again_and_one_that_is_for_nothing_is_not(
    store: Store, logged: io.StringIO
) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)
        place.server.answers["chat.update"] = [Answer(status=500, body={})]
        place.press(message, "Yes", user=ALICE)
        await place.until(lambda: "chat_reachable" in logged.getvalue())
        assert len(message.edits) == 1
        events = [json.loads(line)["event"] for line in logged.getvalue().splitlines()]
        assert [each for each in events if each.startswith("chat_")] == ["chat_unreachable", "chat_reachable"]

        gone = await ask(store, session, tool_use_id="toolu_2")
        removed = await place.asked(gone)
        place.messages.remove(removed)
        before = len(place.server.called("chat.update"))
        place.press(removed, "No", user=ALICE)
        await place.until(lambda: "chat_message_stale" in logged.getvalue())
        await place.settled()
        assert len(place.server.called("chat.update")) == before + 1


async def test_a_message_whose_arrival_nobody_knows_of_can_be_answered(store: Store) -> None:
    session = await started(store, wanted(3))
    with loop_time() as time:
        async with slacking(store, seconds=20) as place:
            place.server.answers["chat.postMessage"] = [Answer(hangs=True, works=True)]
            asked = await ask(store, session)
            await place.until(lambda: place.messages)
            (message,) = place.messages
            time.leap(20)  # less than any bound of the database

            place.press(message, "Yes", user=ALICE)

            await place.until(lambda: "YES: slack:alice" in message.all_text)
            assert (await place.approval(asked)).status is ApprovalStatus.APPROVED


@pytest.mark.parametrize(
    "refused", [None, Answer(status=429, headers={"Retry-After": "60"}), Answer(status=500, body={})]
)
async def test_the_first_of_two_is_counted_and_the_same_buttons_take_the_second(
    store: Store, refused: Answer | None
) -> None:
    session = await started(store, wanted(3))
    async with slacking(store, rooms=(OPS, BOSS)) as place:
        if refused is not None:
            place.server.answers["chat.update"] = [refused] * 2
        asked = await ask(store, session, needed=2)
        messages = [await place.asked(asked), await place.asked(asked, OTHER_CHANNEL)]
        old = [message.buttons["Yes"]["value"] for message in messages]

        place.press(messages[0], "Yes", user=ALICE)

        assert "Another person" in await place.whispered(ALICE)
        await place.until(lambda: len(place.server.called("chat.update")) == 2)
        if refused is None:
            await place.until(lambda: all("1 of 2: alice said yes" in each.all_text for each in messages))
        assert [message.buttons["Yes"]["value"] for message in messages] == old
        place.press(messages[1], "Yes", user=ALICE)
        assert await place.whispered(ALICE, 2) == REFUSALS[TapRefusal.SAME_PERSON]
        place.press(messages[0], "", user=BOB, value=old[0])
        await place.until(lambda: all("YES: slack:alice and slack:bob" in each.all_text for each in messages))
        assert (await place.approval(asked)).status is ApprovalStatus.APPROVED


async def test_mail_shows_the_call_and_how_to_answer_and_nothing_that_is_worth_a_yes(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session, command=f"docker restart web {SECRET}")
        message = await place.asked(asked)
        await place.until(lambda: place.elsewhere.heard)

        (said,) = place.elsewhere.heard
        assert "Bash: docker restart web [redacted]" in said
        assert f"`claudeops approve {asked.id}` or `claudeops deny {asked.id}`" in said
        assert f"https://ops.example/s/{session.id}" in said
        for button in message.buttons.values():
            assert button["value"].partition(":")[2] not in said


# --- what dies ----------------------------------------------------------------------------------------------


async def test_a_killed_ear_loses_nothing_but_the_moment(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store, listens=True) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)
        await place.until(lambda: place.link.is_connected and place.server.links)
        assert place.link.pid is not None
        os.kill(place.link.pid, signal.SIGKILL)
        await place.until(lambda: place.server.opened == 2 and place.link.is_connected)

        place.server.tap(message, message.buttons["Yes"]["value"], user=ALICE)

        await place.until(lambda: "YES: slack:alice" in message.all_text)
        assert (await place.approval(asked)).decided_by == "slack:alice"


async def test_a_press_while_the_database_is_away_says_so_and_can_be_repeated(store: Store) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)
        answer = place.chat.questions.answer

        async def away(*_: object, **__: object) -> AnswerResult:
            raise DatabaseUnavailableError("the database is away.", target="x")

        place.chat.questions.answer = away
        place.press(message, "Yes", user=ALICE)
        assert await place.whispered(ALICE) == REFUSALS[TapRefusal.UNAVAILABLE]
        place.chat.questions.answer = answer
        place.press(message, "Yes", user=ALICE)

        await place.until(lambda: "YES: slack:alice" in message.all_text)


async def test_a_fault_of_ours_in_one_press_does_not_end_the_others(store: Store, logged: io.StringIO) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as place:
        asked = await ask(store, session)
        message = await place.asked(asked)
        answer = place.chat.questions.answer

        async def faulty(*_: object, **__: object) -> AnswerResult:
            place.chat.questions.answer = answer
            raise RuntimeError(SECRET)

        place.chat.questions.answer = faulty
        place.press(message, "Yes", user=ALICE)
        await place.until(lambda: "chat_crashed" in logged.getvalue())
        place.press(message, "No", user=STRANGER)
        assert await place.whispered(STRANGER) == REFUSALS[TapRefusal.NOT_LISTED]
    assert SECRET not in logged.getvalue()


async def test_a_flood_is_bounded_and_slack_is_told_so(store: Store) -> None:
    async with slacking(store) as place:
        message = Posted(channel=CHANNEL, ts="1", fields={})
        payload = json.dumps(place.server.pressed(message, "approve:x", user=STRANGER)).encode()

        took = [place.chat.take(payload, frozenset({"ops"})) for _ in range(MOST_WAITING + 50)]

        assert took == [True] * MOST_WAITING + [False] * 50
        with anyio.fail_after(PATIENCE_SECONDS):
            await place.until(lambda: len(place.server.ephemeral) == MOST_WAITING)
