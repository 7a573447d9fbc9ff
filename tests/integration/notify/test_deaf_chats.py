"""A bot that sends questions and gets no answers, a group that moves, a chat that takes nothing: somebody is told."""

from __future__ import annotations

import io
import json
from datetime import datetime
from functools import partial

import anyio
import pytest

from claudeops import logs
from claudeops.domain.events import EventLevel, NewEvent
from claudeops.domain.notices.notice import Notice, Topic
from claudeops.errors import DatabaseUnavailableError
from claudeops.notify.reception import LASTING_SECONDS, AnswerReception
from claudeops.scripted_api.telegram import TelegramFault
from claudeops.store.store import Store
from support.chatting import ALICE, BOB, ROOM, Chat, ask, chatting
from support.loop_time import loop_time
from support.slack import Answer
from support.slacking import slacking
from support.store_values import NOW, started, wanted
from support.stores import Database, Row

pytest_plugins = ("support.store_fixtures",)

SUPERGROUP = -1001234567890
BY_COMMAND = "answer with `claudeops approve 1` or `claudeops deny 1`"


@pytest.fixture
def database(sqlite: Database) -> Database:
    return sqlite


@pytest.fixture(autouse=True)
def logged() -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level="info", fmt="json", stream=stream, redact=str)
    return stream


def events(database: Database, kind: str, *, open_: bool = True) -> list[Row]:
    return [
        row
        for row in database.rows("events")
        if str(row["fingerprint"]).startswith(kind) and (row["resolved_at"] is None) is open_
    ]


async def tell(store: Store, key: str) -> None:
    await store.outbox.add(Notice(topic=Topic.EVENT, level=EventLevel.WARNING, text=f"{key} is down", key=key), now=NOW)


# --- Telegram, deaf -------------------------------------------------------------------------------------------

REFUSALS = {
    "webhook": (
        TelegramFault(status=409, description="Conflict: can't use getUpdates while webhook is active"),
        "webhook",
    ),
    "poller": (
        TelegramFault(status=409, description="Conflict: terminated by other getUpdates request"),
        "another program",
    ),
    "revoked": (TelegramFault(status=401, description="Unauthorized"), "BotFather"),
}


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_bot_that_gets_no_answers_is_an_event_with_the_remedy_while_that_lasts(
    store: Store, database: Database, kind: str
) -> None:
    fault, remedy = REFUSALS[kind]
    session = await started(store, wanted(3))
    async with chatting(store, impatient=True) as chat:
        chat.telegram.sticks["getUpdates"] = fault
        await chat.until(lambda: events(database, "chat_deaf:"))
        (event,) = events(database, "chat_deaf:")
        deaf = await chat.asked(await ask(store, session))
        said = deaf.text
        await chat.until(lambda: any("are not received" in each.text for each in chat.messages))

        chat.telegram.sticks.clear()
        await chat.until(lambda: events(database, "chat_deaf:", open_=False))
        tapped = await chat.tap(deaf, "Yes", sender=ALICE)
        again = await chat.asked(await ask(store, session, tool_use_id="toolu_2"))

    assert (event["fingerprint"], event["level"]) == ("chat_deaf:ops", "critical")
    assert remedy in str(event["message"])
    assert "until then answer with `claudeops approve N`" in str(event["message"])
    assert BY_COMMAND in said
    assert tapped == "Your yes is taken."  # its buttons wait for the day on which they are received again
    assert "does not arrive" not in again.text


async def test_two_failures_are_no_event_and_neither_is_a_server_that_is_away(store: Store, database: Database) -> None:
    async with chatting(store, impatient=True) as chat:
        chat.telegram.faults["getUpdates"] = [REFUSALS["poller"][0]] * 2
        await chat.until(lambda: sum(call.method == "getUpdates" for call in chat.telegram.calls) == 4)
    async with chatting(store, impatient=True, url="http://127.0.0.1:9", run=False) as chat:
        hearing = chat.bot.reception
        assert hearing is not None
        for _ in range(9):
            await chat.bot._note_reception(await chat.bot.api.call("getUpdates", {}))

    assert not events(database, "chat_deaf:")
    assert not hearing.is_broken


# --- what counts ----------------------------------------------------------------------------------------------


class Events:
    """Keeps events, or is away."""

    def __init__(self) -> None:
        self.standing: dict[str, str] = {}
        self.writes = 0
        self.is_away = False

    async def note(self, event: NewEvent, *, over: bool, now: datetime) -> None:
        del now
        if self.is_away:
            raise DatabaseUnavailableError("the database is away.")
        self.writes += 1
        if over:
            self.standing.pop(event.fingerprint, None)
        else:
            self.standing[event.fingerprint] = event.message


def hearing_of(kept: Events) -> AnswerReception:
    return AnswerReception(
        targets=["team", "ops"],
        events=kept,  # type: ignore[arg-type]
        redact=lambda text: text.replace("hunter2", "[redacted]"),
        now=lambda: NOW,
    )


async def test_the_third_failure_in_a_row_counts_and_one_success_ends_it() -> None:
    kept = Events()
    hearing = hearing_of(kept)
    for _ in range(2):
        await hearing.failed("409 hunter2\u202e", "end the other program")
    await hearing.succeeded()
    for _ in range(2):
        await hearing.failed("409 hunter2\u202e", "end the other program")
    assert (hearing.is_broken, kept.standing) == (False, {})

    for _ in range(5):
        await hearing.failed("409 hunter2\u202e", "end the other program")
    assert kept.standing == {
        "chat_deaf:ops,team": (
            "answers in ops, team are not received (409 [redacted]\\u202e): end the other program; until then answer "
            "with `claudeops approve N` or `claudeops deny N` (`claudeops list-approvals` has the numbers)."
        )
    }
    written = kept.writes
    await hearing.succeeded()
    await hearing.succeeded()
    assert (hearing.is_broken, kept.standing, kept.writes) == (False, {}, written + 1)


async def test_what_may_pass_counts_once_it_has_lasted() -> None:
    kept = Events()
    hearing = hearing_of(kept)
    with loop_time(slowness=1000) as time:
        for _ in range(9):
            await hearing.failed("502 Bad Gateway", "")
        assert kept.standing == {}
        time.leap(LASTING_SECONDS)
        await hearing.failed("502 Bad Gateway", "")

    assert hearing.is_broken
    assert "see that the server can be reached" in kept.standing["chat_deaf:ops,team"]


async def test_a_bot_that_two_programs_poll_is_one_event_although_each_gets_its_turn() -> None:
    kept = Events()
    hearing = hearing_of(kept)
    hearing.settle_seconds = 75
    with loop_time(slowness=1000) as time:
        for _ in range(9):
            for _ in range(3):
                await hearing.failed("409", "end the other program")
            await hearing.succeeded()
            time.leap(50)
            await hearing.succeeded()
        assert (kept.writes, list(kept.standing)) == (1, ["chat_deaf:ops,team"])
        time.leap(50)
        await hearing.succeeded()

    assert kept.standing == {}


async def test_an_event_that_the_database_does_not_take_is_written_later_and_one_of_an_earlier_daemon_ends() -> None:
    kept = Events()
    kept.standing["chat_deaf:ops,team"] = "of an earlier daemon"
    hearing = hearing_of(kept)
    kept.is_away = True
    await hearing.succeeded()
    for _ in range(3):
        await hearing.failed("401", "take a new token")
    assert kept.standing == {"chat_deaf:ops,team": "of an earlier daemon"}
    by_now = hearing.is_broken
    assert by_now  # questions say so all the same

    kept.is_away = False
    await hearing.failed("401", "take a new token")
    assert "take a new token" in kept.standing["chat_deaf:ops,team"]
    await hearing.succeeded()
    assert kept.standing == {}


async def test_what_is_gone_from_the_file_keeps_no_event(store: Store, database: Database) -> None:
    for name in ("target_refused:old", "target_refused:ops", "chat_deaf:old,ops", "chat_moved:old", "disk"):
        event = NewEvent(level=EventLevel.CRITICAL, message="it is so", fingerprint=name)
        await store.probes.note(event, over=False, now=NOW)
    async with chatting(store, run=False) as chat:
        chat.outgoing.kept_events = {"target_refused:ops", "chat_deaf:ops"}
        await chat.outgoing.look_once()

    assert [row["fingerprint"] for row in events(database, "")] == ["target_refused:ops", "disk"]


# --- Slack, deaf ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["token_revoked", "missing_scope"])
async def test_an_app_that_slack_connects_no_more_is_an_event_and_its_questions_say_so(
    store: Store, database: Database, word: str
) -> None:
    session = await started(store, wanted(3))
    async with slacking(store) as chat:
        chat.server.answers["apps.connections.open"] = [Answer(body={"ok": False, "error": word})] * 3
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat.link.run)
            await chat.until(lambda: events(database, "chat_deaf:") or events(database, "chat_deaf:", open_=False))
            await chat.until(lambda: events(database, "chat_deaf:", open_=False))
            tasks.cancel_scope.cancel()
        (event,) = events(database, "chat_deaf:", open_=False)
        hearing = chat.link.reception
        assert hearing is not None
        for _ in range(3):
            await hearing.failed(f"Slack says {word}", "generate a new token")
        posted = await chat.asked(await ask(store, session))

    assert f"Slack says {word}" in str(event["message"])
    assert "connections:write" in str(event["message"])
    assert BY_COMMAND in posted.all_text
    assert list(posted.buttons) == ["No", "Yes"]


# --- a group that moves ---------------------------------------------------------------------------------------


async def test_a_group_that_became_a_supergroup_is_followed_with_its_buttons_and_said_once(
    store: Store, database: Database
) -> None:
    session = await started(store, wanted(3))
    async with chatting(store) as chat:
        chat.telegram.moved[ROOM] = SUPERGROUP
        chat.telegram.chats = (*chat.telegram.chats, SUPERGROUP)
        asked = await ask(store, session)
        message = await chat.asked(asked)
        tapped = await chat.tap(message, "Yes", sender=BOB)
        await chat.until(lambda: "YES: telegram:bob" in message.text)
        await tell(store, "shop")
        await chat.until(lambda: any("shop is down" in each.text for each in chat.messages))
        await chat.until(lambda: any("became a supergroup" in each.text for each in chat.messages))
        refused = [call for call in chat.telegram.calls if call.arguments.get("chat_id") == ROOM]

    assert (message.chat, tapped) == (SUPERGROUP, "Your yes is taken.")
    assert len(refused) == 1
    (event,) = events(database, "chat_moved:")
    assert f'write chat = "{SUPERGROUP}" for ops' in str(event["message"])
    assert not [row for row in database.rows("outbox") if row["result"] == "failed"]


async def test_the_event_of_a_move_ends_once_the_file_has_the_new_id(store: Store, database: Database) -> None:
    for rooms in ([("ops", ROOM)], [("ops", ROOM)], [("ops", SUPERGROUP)]):  # before, after a restart, after an edit
        async with chatting(store, rooms=rooms) as chat:
            chat.telegram.moved[ROOM] = SUPERGROUP
            chat.telegram.chats = (SUPERGROUP,)
            await tell(store, f"service {rooms} {len(database.rows('outbox'))}")
            await chat.until(partial(_is_told, chat))
            await chat.until(partial(_stands, database, "chat_moved:", rooms != [("ops", SUPERGROUP)]))

    told = [row for row in database.rows("outbox") if "became a supergroup" in str(row["payload"])]
    assert {row["target"] for row in told} <= {"ops", "mail"}
    assert len(told) == len({row["target"] for row in told})


def _is_told(chat: Chat) -> bool:
    return any("is down" in each.text for each in chat.messages)


def _stands(database: Database, kind: str, wanted_: bool) -> bool:
    return bool(events(database, kind)) is wanted_


# --- a chat that takes nothing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        (
            TelegramFault(status=403, description="Forbidden: bot was kicked from the group chat"),
            "add the bot to the chat",
        ),
        (TelegramFault(status=400, description="Bad Request: TOPIC_CLOSED"), "open the topic again"),
        (TelegramFault(status=401, description="Unauthorized"), "BotFather"),
    ],
    ids=lambda value: getattr(value, "description", ""),
)
async def test_a_chat_that_refuses_for_good_is_an_event_that_others_are_told(
    store: Store, database: Database, fault: TelegramFault, remedy: str
) -> None:
    async with chatting(store) as chat:
        chat.telegram.sticks["sendMessage"] = fault
        await tell(store, "shop")
        await tell(store, "photos")
        await chat.until(lambda: any("until somebody mends it" in each for each in chat.elsewhere.heard))
        sent = sum(call.method == "sendMessage" for call in chat.telegram.calls)

    (event,) = events(database, "target_refused:")
    assert (event["fingerprint"], event["level"]) == ("target_refused:ops", "critical")
    assert remedy in str(event["message"])
    assert sent == 1  # what concerns the whole chat is not asked for every message


async def test_a_message_that_telegram_does_not_take_keeps_no_other_waiting(store: Store, database: Database) -> None:
    too_long = TelegramFault(status=400, description="Bad Request: message is too long")
    async with chatting(store, run=False) as chat:
        chat.telegram.faults["sendMessage"] = [too_long] * 3
        for key in ("a", "b", "c", "d", "e"):
            await tell(store, key)
        await chat.outgoing.look_once()
        await chat.outgoing.deliver_once(chat.outgoing.targets[0])

    assert [each.text.splitlines()[1] for each in chat.messages] == ["d is down", "e is down"]
    assert not events(database, "target_refused:")


@pytest.mark.parametrize(("word", "remedy"), [("is_archived", "unarchive"), ("not_in_channel", "/invite")])
async def test_a_channel_that_refuses_for_good_is_an_event(
    store: Store, database: Database, logged: io.StringIO, word: str, remedy: str
) -> None:
    async with slacking(store) as chat:
        chat.server.answers["chat.postMessage"] = [Answer(body={"ok": False, "error": word})] * 9
        await tell(store, "shop")
        await chat.until(lambda: events(database, "target_refused:"))

    (event,) = events(database, "target_refused:")
    assert f"Slack says {word}" in str(event["message"])
    assert remedy in str(event["message"])
    failures = [json.loads(line) for line in logged.getvalue().splitlines() if "notification_failed" in line]
    assert failures[0]["target"] == "ops"
