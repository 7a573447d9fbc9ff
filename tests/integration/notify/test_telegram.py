"""Questions in a Telegram chat: only named people answer, each once, and no message goes on asking after the answer."""

from __future__ import annotations

import io
import json
import random
from datetime import timedelta
from typing import Any

import anyio
import pytest

from claudeops import logs
from claudeops.domain.events import EventLevel
from claudeops.domain.gate.approval import Answer, Answered, ApprovalStatus, proven_yes
from claudeops.domain.notices.approvers import Approver
from claudeops.domain.notices.channels import TargetKind
from claudeops.domain.notices.notice import Notice, Topic
from claudeops.errors import DatabaseUnavailableError
from claudeops.scripted_api.telegram import TelegramFault
from claudeops.store.acts.approvals import AnswerResult, answer_question
from claudeops.store.store import Store
from claudeops.structs import replace
from claudeops.wording.notices.approving import REFUSALS, ButtonTap, TapRefusal, button_data
from support.chatting import ALICE, BOB, KEY, OTHER_ROOM, ROOM, SECRET, STRANGER, Chat, ask, chatting
from support.loop_time import loop_time
from support.store_values import NOW, started, wanted
from support.stores import Database, Row
from support.waiting import PATIENCE_SECONDS

pytest_plugins = ("support.store_fixtures",)


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


@pytest.fixture(autouse=True)
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


# --- an answer ------------------------------------------------------------------------------------------------


async def test_a_yes_from_the_chat_is_an_answer_with_its_proof_and_the_message_says_so(
    store: Store, logged: io.StringIO
) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)

        assert list(message.buttons) == ["No", "Yes"]
        for part in (f"session {session.id} (tier 3)", "docker restart web", "services: web", "why: restarts the shop"):
            assert part in message.text
        assert "ab" * 32 in message.text  # the script, by its hash
        assert "https://ops.example/s/" in message.text
        (code,) = message.entities
        assert code["type"] == "pre"

        assert await chat.tap(message, "Yes", sender=ALICE) == "Your yes is taken."
        answered = await chat.approval(asked)
        assert (answered.status, answered.decided_by) == (ApprovalStatus.APPROVED, "telegram:alice")
        assert proven_yes(KEY, answered) == ("telegram:alice",)

        await chat.until(lambda: "YES: telegram:alice said yes" in message.text)
        assert message.buttons == {}
    assert "approval_tapped" in logged.getvalue()


async def test_a_no_from_the_chat_is_an_answer(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)

        await chat.tap(message, "No", sender=BOB)

        assert (await chat.approval(asked)).status is ApprovalStatus.DENIED
        await chat.until(lambda: "NO: telegram:bob said no" in message.text)


# --- who may not ----------------------------------------------------------------------------------------------


async def test_a_foreigner_who_taps_changes_nothing_and_is_on_record(store: Store, logged: io.StringIO) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)

        for said in ("Yes", "No"):
            assert await chat.tap(message, said, sender=STRANGER) == REFUSALS[TapRefusal.NOT_LISTED]

        assert (await chat.approval(asked)).status is ApprovalStatus.PENDING
        assert await chat.tap(message, "Yes", sender=ALICE) == "Your yes is taken."  # the tokens are as they were
    refused = [json.loads(line) for line in logged.getvalue().splitlines() if "approval_tap_refused" in line]
    assert [(each["reason"], each["sender"], each["chat"]) for each in refused] == [
        ("not_listed", str(STRANGER), str(ROOM))
    ] * 2


async def test_who_may_not_answer_for_a_tier_or_a_service_changes_nothing(store: Store) -> None:
    people = (
        Approver(name="tier2", ids={TargetKind.TELEGRAM: "21"}, tiers=frozenset({2})),
        Approver(name="shop", ids={TargetKind.TELEGRAM: "22"}, services=("shop-*",)),
        Approver(name="all", ids={TargetKind.TELEGRAM: "23"}),
    )
    session = await started(store, wanted(3))
    async with chatting(store, approvers=people) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)

        for sender in (21, 22):
            assert await chat.tap(message, "Yes", sender=sender) == REFUSALS[TapRefusal.NOT_THEIRS]
        assert (await chat.approval(asked)).status is ApprovalStatus.PENDING
        assert await chat.tap(message, "Yes", sender=23) == "Your yes is taken."


async def test_where_nobody_may_answer_the_card_has_no_buttons(store: Store) -> None:
    session = await started(store, wanted(3))
    people = (
        Approver(name="shop", ids={TargetKind.TELEGRAM: "22"}, services=("shop-*",)),
        Approver(name="slack", ids={TargetKind.SLACK: "U1"}),
    )
    async with chatting(store, approvers=people) as chat:
        message = await chat.asked(await ask(store, session, services=()))

        assert message.buttons == {}
        assert "claudeops approve" in message.text


# --- tokens ---------------------------------------------------------------------------------------------------


async def test_a_replayed_tap_changes_nothing(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)
        yes, no = message.buttons["Yes"], message.buttons["No"]
        await chat.tap(message, "No", sender=ALICE)

        for data in (no, yes):
            assert await chat.heard(chat.telegram.forge(message, data, sender=ALICE)) == REFUSALS[TapRefusal.OVER]

        answered = await chat.approval(asked)
        assert (answered.status, answered.decided_by) == (ApprovalStatus.DENIED, "telegram:alice")


async def test_of_two_taps_at_once_one_wins(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, rooms=(("ops", ROOM), ("boss", OTHER_ROOM))) as chat:
        asked = await ask(store, session)
        await chat.until(lambda: len(chat.messages) == 2)
        one, other = chat.messages
        taps = [chat.telegram.tap(one, "Yes", sender=ALICE), chat.telegram.tap(other, "No", sender=BOB)]

        told = [await chat.heard(tap) for tap in taps]

        assert told == ["Your yes is taken.", REFUSALS[TapRefusal.OVER]]
        await chat.until(lambda: all("YES: telegram:alice" in message.text for message in chat.messages))
        assert not any(message.buttons for message in chat.messages)
        assert (await chat.approval(asked)).decided_by == "telegram:alice"


async def test_two_answers_of_one_token_in_the_same_instant_have_one_winner(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, run=False) as chat:
        asked = await ask(store, session)
        question = await chat.bot.questions.open(
            asked.id, kind=TargetKind.TELEGRAM, target="ops", chat=str(ROOM), limit=4096, again=False
        )
        assert question is not None
        told: list[str] = []

        async def tap(sender: int, data: str) -> None:
            told.append((await chat.bot.questions.take(tapped(sender, data))).text)

        async with anyio.create_task_group() as tasks:
            for sender in (ALICE, BOB) * 5:
                tasks.start_soon(tap, sender, question.buttons.yes)
                tasks.start_soon(tap, sender, question.buttons.no)

        assert len(told) == 20
        assert sum(text.startswith("Your") for text in told) == 1


def tapped(
    sender: int, data: str, *, message: str = "1", chat: int = ROOM, targets: tuple[str, ...] = ("ops",)
) -> ButtonTap:
    return ButtonTap(
        kind=TargetKind.TELEGRAM,
        sender=str(sender),
        chat=str(chat),
        message=message,
        data=data,
        targets=frozenset(targets),
    )


async def test_a_tap_after_expiry_changes_nothing_and_the_message_says_so(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)
        yes = message.buttons["Yes"]

        chat.clock.at = asked.expires_at
        assert await chat.heard(chat.telegram.forge(message, yes, sender=ALICE)) == REFUSALS[TapRefusal.OVER]

        assert (await chat.approval(asked)).status is ApprovalStatus.PENDING
        await chat.until(lambda: "OVER: nobody answered in time" in message.text)
        assert message.buttons == {}


async def test_the_token_of_another_question_or_chat_opens_nothing(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, rooms=(("ops", ROOM), ("boss", OTHER_ROOM))) as chat:
        first = await ask(store, session)
        await chat.until(lambda: len(chat.messages) == 2)
        second = await ask(store, session, tool_use_id="toolu_2", command="rm -rf /srv")
        await chat.until(lambda: len(chat.messages) == 4)
        harmless, harmful = (message for message in chat.messages if message.chat == ROOM)
        stolen = harmful.buttons["Yes"]

        other_message = await chat.heard(chat.telegram.forge(harmless, stolen, sender=ALICE))
        other_chat = await chat.heard(chat.telegram.forge(harmful, stolen, sender=ALICE, chat=OTHER_ROOM))

        assert other_message == REFUSALS[TapRefusal.OTHER_MESSAGE]
        assert other_chat == REFUSALS[TapRefusal.UNKNOWN_TOKEN]
        for asked in (first, second):
            assert (await chat.approval(asked)).status is ApprovalStatus.PENDING


@pytest.mark.parametrize("guesses", [100, pytest.param(10_000, marks=pytest.mark.long)])
async def test_guessed_tokens_open_nothing(store: Store, guesses: int) -> None:
    session = await started(store, wanted(3))
    guess = random.Random(7)  # noqa: S311 - guesses
    async with chatting(store, run=False) as chat:
        asked = await ask(store, session)
        question = await chat.bot.questions.open(
            asked.id, kind=TargetKind.TELEGRAM, target="ops", chat=str(ROOM), limit=4096, again=False
        )
        assert question is not None
        verbs = (ApprovalStatus.APPROVED, ApprovalStatus.DENIED)

        wrong = 0
        for number in range(guesses):
            data = button_data(verbs[number % 2], guess.randbytes(16))
            wrong += (await chat.bot.questions.take(tapped(ALICE, data))).refused is not TapRefusal.UNKNOWN_TOKEN
        yes = question.buttons.yes
        for data in ("", "approve:", "approve", yes[:-1], f"{yes} ", "x" * 5000, "\x00"):
            wrong += (await chat.bot.questions.take(tapped(ALICE, data))).refused is not TapRefusal.UNKNOWN_TOKEN

        assert wrong == 0
        assert (await chat.approval(asked)).status is ApprovalStatus.PENDING
        assert (await chat.bot.questions.take(tapped(ALICE, question.buttons.yes))).refused is None


async def test_no_token_is_stored_as_it_is(store: Store, database: Database) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        message = await chat.asked(await ask(store, session))

        rows = json.dumps(database.rows("approval_messages"), default=str)
        for data in message.buttons.values():
            assert len(data.encode()) <= 64
            assert data not in rows
            assert data.partition(":")[2] not in rows


# --- what is shown --------------------------------------------------------------------------------------------


async def test_a_call_that_does_not_fit_has_no_yes(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session, command="echo " + "x" * 5000 + "; rm -rf /srv")
        message = await chat.asked(asked)

        assert list(message.buttons) == ["No"]
        assert "claudeops list-approvals" in message.text
        assert "xxx" not in message.text  # not cut: not shown at all
        await chat.tap(message, "No", sender=ALICE)
        assert (await chat.approval(asked)).status is ApprovalStatus.DENIED
        await chat.until(lambda: "NO: telegram:alice" in message.text)


@pytest.mark.parametrize("length", [3000, 3600, 3700, 3800, 4000, 4096])
async def test_what_is_shown_with_a_yes_is_shown_whole(store: Store, length: int) -> None:
    session = await started(store, wanted(3))
    command = "\N{PILE OF POO}" * 10 + "x" * (length - 30) + "the-end"
    async with chatting(store) as chat:
        message = await chat.asked(await ask(store, session, command=command))

        assert ("Yes" in message.buttons) == (command in message.text)
        await chat.tap(message, "No", sender=ALICE)
        await chat.until(lambda: "NO: " in message.text)


async def test_what_hides_in_a_command_is_shown_escaped(store: Store) -> None:
    session = await started(store, wanted(3))
    command = "echo safe\u202e\u200b\u2066 # \x1b[2K; @everyone @ops"
    async with chatting(store) as chat:
        asked = await ask(store, session, input_json=json.dumps({"command": command}), reason="says @bob \u202e")
        message = await chat.asked(asked)

        assert r"echo safe\u202e\u200b\u2066 # \u001b[2K; @everyone @ops" in message.text
        assert r"says @ bob \u202e" in message.text
        assert not set(message.text) & set("\u202e\u200b\u2066\x1b")
        (code,) = message.entities
        encoded = message.text.encode("utf-16-le")
        begin, length = int(str(code["offset"])) * 2, int(str(code["length"])) * 2
        assert "@everyone" in encoded[begin : begin + length].decode("utf-16-le")  # nobody is called within code


async def test_planted_secrets_are_in_no_payload(store: Store, logged: io.StringIO) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(
            store,
            session,
            command=f"mysql -p{SECRET}",
            services=(f"web-{SECRET}",),
            reason=f"uses {SECRET[:4]}\u200b{SECRET[4:]} and {SECRET}",
        )
        message = await chat.asked(asked)
        await store.outbox.add(
            Notice(topic=Topic.EVENT, level=EventLevel.WARNING, text=f"the log says {SECRET}", key="k"), now=NOW
        )
        await chat.until(lambda: len(chat.messages) == 2)
        await chat.tap(message, "No", sender=ALICE)
        await chat.until(lambda: "NO: " in message.text)

        assert SECRET not in chat.telegram.said
        assert "[redacted]" in message.text
    assert SECRET not in logged.getvalue()


# --- how messages follow --------------------------------------------------------------------------------------


async def test_an_answer_by_the_shell_edits_every_message(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, rooms=(("ops", ROOM), ("boss", OTHER_ROOM))) as chat:
        asked = await ask(store, session)
        await chat.until(lambda: len(chat.messages) == 2)

        result = await answer_question(
            store.approvals, KEY, asked.id, status=ApprovalStatus.APPROVED, decided_by="root", at=NOW
        )

        assert result.answered is Answered.DECIDED
        await chat.until(lambda: all("YES: root said yes" in each.text for each in chat.messages))
        assert not any(message.buttons for message in chat.messages)


async def test_a_restart_of_the_daemon_edits_what_the_one_before_has_sent(store: Store, database: Database) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)
        await chat.until(lambda: database.rows("approval_messages")[0]["external_id"])

        database.execute("UPDATE approvals SET status = 'denied', decided_by = 'restart of the daemon'")

        await chat.until(lambda: "NO: restart of the daemon said no" in message.text)


async def test_a_reminder_asks_too_and_asks_no_more_after_the_answer(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        await chat.asked(asked)
        chat.clock.at = NOW + timedelta(minutes=8)
        await chat.until(lambda: len(chat.messages) == 2)
        first, reminder = chat.messages
        assert reminder.text.startswith("Still nobody has answered.")
        assert list(reminder.buttons) == ["No", "Yes"]

        await chat.tap(reminder, "Yes", sender=ALICE)

        await chat.until(lambda: all("YES: telegram:alice" in message.text for message in (first, reminder)))
        assert not first.buttons
        assert not reminder.buttons


async def test_an_edit_that_fails_is_made_again(store: Store, logged: io.StringIO) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)
        chat.telegram.faults["editMessageText"] = [
            TelegramFault(status=500),
            TelegramFault(status=429, retry_after=0.1),
        ]

        await chat.tap(message, "No", sender=ALICE)

        await chat.until(lambda: "NO: " in message.text)
        assert message.buttons == {}
        await chat.until(lambda: "chat_reachable" in logged.getvalue())
    assert logged.getvalue().count("chat_unreachable") == 1


async def test_a_message_that_somebody_has_deleted_is_given_up_and_said_so(store: Store, logged: io.StringIO) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)
        query = chat.telegram.tap(message, "No", sender=ALICE)
        chat.messages.clear()

        await chat.heard(query)
        await chat.until(lambda: "chat_message_stale" in logged.getvalue())
        edits = sum(call.method == "editMessageText" for call in chat.telegram.calls)
        await store.outbox.add(
            Notice(topic=Topic.EVENT, level=EventLevel.WARNING, text="a later one", key="k"), now=NOW
        )
        await chat.until(lambda: chat.messages)
        assert sum(call.method == "editMessageText" for call in chat.telegram.calls) == edits == 1


async def test_a_tap_on_a_message_of_which_nobody_knows_whether_it_arrived_counts(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(3))
    with loop_time() as time:
        async with chatting(store, seconds=20) as chat:
            chat.telegram.faults["sendMessage"] = [TelegramFault(hangs=True, done=True)]
            asked = await ask(store, session)
            message = await chat.asked(asked)
            time.leap(20)  # less than any bound of the database
            assert database.rows("approval_messages")[0]["external_id"] is None

            assert await chat.tap(message, "Yes", sender=ALICE) == "Your yes is taken."

            await chat.until(lambda: "YES: telegram:alice" in message.text)


# --- the bot as a target --------------------------------------------------------------------------------------


async def test_ordinary_notices_reach_the_chat(store: Store) -> None:
    async with chatting(store) as chat:
        disk = Notice(topic=Topic.EVENT, level=EventLevel.CRITICAL, text="disk full, says @root", key="k", service="db")
        await store.outbox.add(disk, now=NOW)
        await chat.until(lambda: chat.messages)

        (message,) = chat.messages
        assert message.text.startswith("CRITICAL · db\ndisk full, says @ root")
        assert message.entities == [{"type": "bold", "offset": 0, "length": 13}]
        assert message.buttons == {}


async def tried(chat: Chat, database: Database) -> Row:
    """Return the row of the chat once somebody knows what came of it."""

    def rows() -> list[Row]:
        return [row for row in database.rows("outbox") if row["target"] == "ops" and row["result"] is not None]

    await chat.until(rows)
    return rows()[0]


@pytest.mark.parametrize(
    "fault",
    [
        TelegramFault(hangs=True),
        TelegramFault(drips=True),
        TelegramFault(status=500),
        TelegramFault(status=429, retry_after=30),
    ],
    ids=str,
)
async def test_a_chat_that_misbehaves_delays_no_other_target(
    store: Store, database: Database, fault: TelegramFault
) -> None:
    session = await started(store, wanted(3))
    is_silent = fault.hangs or fault.drips
    async with chatting(store, seconds=20 if is_silent else PATIENCE_SECONDS) as chat:
        chat.telegram.sticks = {"sendMessage": fault, "getUpdates": fault}
        with loop_time() as time:
            asked = await ask(store, session)
            await chat.until(lambda: chat.elsewhere.heard)
            assert f"claudeops approve {asked.id}" in chat.elsewhere.heard[0]
            if is_silent:
                # Only a message that has been sent may have arrived: its bound passes then, and not before.
                await chat.until(lambda: [call for call in chat.telegram.calls if call.method == "sendMessage"])
                time.leap(20)  # less than any bound of the database
            row = await tried(chat, database)
    assert row["result"] == ("unknown" if is_silent else "failed")
    assert row["attempts"] == (0 if fault.status == 429 else 1)  # who asks us to wait a little has not failed
    waits = {429: 30}.get(fault.status, 5)
    assert row["not_before"] == NOW + timedelta(seconds=waits)


async def test_a_bot_api_that_is_away_delays_no_other_target_and_is_undeliverable(
    store: Store, database: Database, logged: io.StringIO
) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, url="http://127.0.0.1:9", seconds=2) as chat:
        await ask(store, session)
        await chat.until(lambda: chat.elsewhere.heard)
        row = await tried(chat, database)
        assert row["result"] == "failed"
        assert "cannot be reached" in str(row["error"])
        await chat.until(lambda: "chat_unreachable" in logged.getvalue())
    assert "token-of-the-scripted-bot" not in logged.getvalue()


async def test_a_tap_that_telegram_tells_twice_is_taken_once(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)
        data = message.buttons["No"]
        first = chat.telegram.forge(message, data, sender=ALICE)
        again = chat.telegram.forge(message, data, sender=ALICE)

        assert await chat.heard(first) == "Your no is taken."
        assert await chat.heard(again) == REFUSALS[TapRefusal.OVER]


async def test_a_bot_with_two_chats_is_polled_by_one(store: Store, logged: io.StringIO) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, rooms=(("ops", ROOM), ("boss", OTHER_ROOM))) as chat:
        await ask(store, session)
        await chat.until(lambda: len(chat.messages) == 2)
        for message in chat.messages:
            await chat.tap(message, "No", sender=STRANGER)
    assert "Conflict" not in logged.getvalue()


async def test_an_answer_that_comes_between_the_card_and_its_name_is_shown(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, run=False) as chat:
        asked = await ask(store, session)
        await chat.outgoing.look_once()
        said = Answer(status=ApprovalStatus.DENIED, decided_by="root", decided_at=NOW, mac="")
        await store.approvals.answer_approval(asked.id, said)

        await chat.outgoing.deliver_once(chat.outgoing.targets[0])

        assert chat.messages == []  # what is answered is not asked


async def test_one_yes_of_two_is_shown_everywhere_and_another_person_uses_any_of_the_buttons(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, rooms=(("ops", ROOM), ("boss", OTHER_ROOM))) as chat:
        asked = await ask(store, session, needed=2)
        await arrived(chat, database, 2)
        one, other = chat.messages
        before = {**one.buttons}

        assert await chat.tap(one, "Yes", sender=ALICE) == "1 of 2: alice said yes. Another person has to say yes too."
        await chat.until(lambda: all("1 of 2: alice said yes." in message.text for message in (one, other)))
        assert list(other.buttons) == ["No", "Yes"]
        assert one.buttons == before

        for message in (one, other):
            assert await chat.tap(message, "Yes", sender=ALICE) == REFUSALS[TapRefusal.SAME_PERSON]
        assert (await chat.approval(asked)).status is ApprovalStatus.PENDING

        assert await chat.tap(one, "Yes", sender=BOB) == "Your yes is taken."
        await chat.until(lambda: all("YES: telegram:alice and telegram:bob" in each.text for each in (one, other)))
        assert not one.buttons
        assert not other.buttons


async def arrived(chat: Chat, database: Database, count: int) -> None:
    """Wait until messages are known to have arrived."""
    await chat.until(lambda: sum(row["external_id"] is not None for row in database.rows("approval_messages")) == count)


@pytest.mark.parametrize(
    "fault",
    [TelegramFault(status=429, retry_after=3600), TelegramFault(status=400), TelegramFault(hangs=True)],
    ids=str,
)
async def test_a_card_that_cannot_be_edited_takes_the_other_persons_answer(
    store: Store, database: Database, fault: TelegramFault
) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, seconds=1 if fault.hangs else PATIENCE_SECONDS) as chat:
        chat.telegram.sticks = {"editMessageText": fault}
        asked = await ask(store, session, needed=2)
        await arrived(chat, database, 1)
        message = await chat.asked(asked)

        assert (await chat.tap(message, "Yes", sender=ALICE)).startswith("1 of 2: alice said yes.")
        await chat.until(lambda: [call for call in chat.telegram.calls if call.method == "editMessageText"])
        assert await chat.tap(message, "Yes", sender=BOB) == "Your yes is taken."

        answered = await chat.approval(asked)
        assert (answered.status, answered.decided_by) == (ApprovalStatus.APPROVED, "telegram:alice and telegram:bob")
        assert proven_yes(KEY, answered) == ("telegram:alice", "telegram:bob")


async def test_a_no_after_a_counted_yes_ends_it_from_any_card(store: Store, database: Database) -> None:
    session = await started(store, wanted(3))
    async with chatting(store, rooms=(("ops", ROOM), ("boss", OTHER_ROOM))) as chat:
        asked = await ask(store, session, needed=2)
        await arrived(chat, database, 2)
        one, other = chat.messages
        await chat.tap(one, "Yes", sender=ALICE)

        assert await chat.tap(other, "No", sender=BOB) == "Your no is taken."
        assert (await chat.approval(asked)).status is ApprovalStatus.DENIED


async def test_a_file_of_targets_that_was_edited_meanwhile_leaves_the_buttons_alive(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session, needed=2)
        await arrived(chat, database, 1)
        message = await chat.asked(asked)
        chat.bot.questions = replace(chat.bot.questions, _buttons_of={})  # as after an edit: everything begins anew

        assert (await chat.tap(message, "Yes", sender=ALICE)).startswith("1 of 2: alice said yes.")
        assert await chat.tap(message, "Yes", sender=BOB) == "Your yes is taken."


async def test_a_call_whose_yes_needs_a_passkey_has_no_yes_in_a_chat(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session, passkey=True)
        message = await chat.asked(asked)

        assert list(message.buttons) == ["No"]
        assert f"yes, with a passkey alone: https://ops.example/approvals/{asked.id}" in message.text
        forged = chat.telegram.forge(message, message.buttons["No"].replace("deny:", "approve:"), sender=ALICE)
        assert await chat.heard(forged) == REFUSALS[TapRefusal.UNKNOWN_TOKEN]


async def test_a_button_that_is_older_than_the_demand_gives_no_yes(store: Store, database: Database) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)
        database.execute("UPDATE approvals SET passkey = true")

        assert await chat.tap(message, "Yes", sender=ALICE) == REFUSALS[TapRefusal.NEEDS_PASSKEY]
        assert (await chat.approval(asked)).status is ApprovalStatus.PENDING
        assert await chat.tap(message, "No", sender=ALICE) == "Your no is taken."


async def test_a_call_that_is_not_shown_whole_has_no_yes(store: Store) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session, command="python3 -c 'x=1;token=[redacted]'", hidden=True)
        message = await chat.asked(asked)
        await chat.until(lambda: chat.elsewhere.heard)

        assert list(message.buttons) == ["No"]
        assert "no yes can be given here" in message.text
        assert (
            "Bash (not whole: parts that look like secrets are hidden, and run too): python3" in chat.elsewhere.heard[0]
        )
        forged = chat.telegram.forge(message, message.buttons["No"].replace("deny:", "approve:"), sender=ALICE)
        assert await chat.heard(forged) == REFUSALS[TapRefusal.UNKNOWN_TOKEN]


async def test_whose_services_are_limited_does_not_answer_for_what_nobody_understands(store: Store) -> None:
    people = (
        Approver(name="bob", ids={TargetKind.TELEGRAM: str(BOB)}, services=("*",)),
        Approver(name="alice", ids={TargetKind.TELEGRAM: str(ALICE)}),
    )
    session = await started(store, wanted(3))
    async with chatting(store, approvers=people) as chat:
        asked = await ask(store, session, services=None)
        message = await chat.asked(asked)

        assert await chat.tap(message, "Yes", sender=BOB) == REFUSALS[TapRefusal.NOT_THEIRS]
        assert await chat.tap(message, "No", sender=BOB) == REFUSALS[TapRefusal.NOT_THEIRS]
        assert (await chat.approval(asked)).status is ApprovalStatus.PENDING
        assert await chat.tap(message, "Yes", sender=ALICE) == "Your yes is taken."


async def test_a_tap_over_which_our_own_code_fails_keeps_no_other_waiting(store: Store, logged: io.StringIO) -> None:
    async def faulty(*_: Any, **__: Any) -> AnswerResult:
        raise RuntimeError("a fault of ours")

    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        first = await chat.asked(await ask(store, session))
        second = await chat.asked(await ask(store, session, tool_use_id="toolu_2"))
        chat.bot.questions.answer = faulty
        chat.telegram.tap(first, "Yes", sender=ALICE)
        await chat.until(lambda: "chat_crashed" in logged.getvalue())

        chat.bot.questions.answer = answer_question
        assert await chat.tap(second, "Yes", sender=ALICE) == "Your yes is taken."


async def test_an_answer_that_cannot_be_written_leaves_its_button_alive(store: Store) -> None:
    async def away(*_: Any, **__: Any) -> AnswerResult:
        raise DatabaseUnavailableError("the database is away.")

    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        message = await chat.asked(asked)
        chat.bot.questions.answer = away
        assert await chat.tap(message, "Yes", sender=ALICE) == REFUSALS[TapRefusal.UNAVAILABLE]

        chat.bot.questions.answer = answer_question
        assert await chat.tap(message, "Yes", sender=ALICE) == "Your yes is taken."


FULL = "CREATE TRIGGER full BEFORE {} BEGIN SELECT RAISE(ABORT, 'disk full'); END"
STILL_FULL = """CREATE TRIGGER still_full BEFORE UPDATE OF used_at ON approval_messages WHEN NEW.used_at IS NULL
BEGIN SELECT RAISE(ABORT, 'disk full'); END"""


@pytest.mark.parametrize(
    "at", ["INSERT ON approval_answers", "UPDATE ON approvals", "UPDATE OF used_at ON approval_messages"]
)
@pytest.mark.parametrize("said", ["Yes", "No"])
async def test_a_tap_is_taken_whole_or_not_at_all_and_may_be_repeated(
    store: Store, database: Database, at: str, said: str
) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        asked = await ask(store, session)
        await arrived(chat, database, 1)
        message = await chat.asked(asked)
        database.execute(FULL.format(at))
        database.execute(STILL_FULL)  # nothing can be put right afterwards, as when the daemon is killed in between
        for _ in range(2):
            assert await chat.tap(message, said, sender=ALICE) == REFUSALS[TapRefusal.UNAVAILABLE]
        assert database.rows("approval_answers") == []
        assert (await chat.approval(asked)).status is ApprovalStatus.PENDING

        database.execute("DROP TRIGGER full")
        assert await chat.tap(message, said, sender=ALICE) == f"Your {said.lower()} is taken."
        (row,) = database.rows("approval_messages")
        assert row["used_at"] == NOW
