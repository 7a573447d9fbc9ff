"""What Slack answers is a value, whatever it answers, and never a wait without end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import anyio
import pytest

from claudeops.domain.notices.notice import DeliveryOutcome
from claudeops.notify.slack_api import SlackApi, SlackReply
from support.slack import BOT_TOKEN, CHANNEL, Answer, SlackServer, slack
from support.waiting import PATIENCE_SECONDS

SAID = {"channel": CHANNEL, "text": "shop is down"}


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with slack() as served:
        yield served


async def called(
    url: str,
    method: str,
    *,
    token: str = BOT_TOKEN,
    network: Mapping[str, str] | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> SlackReply:
    api = SlackApi(url, token, network=network or {}, seconds=seconds)
    try:
        return await api.call(method, SAID)
    finally:
        await api.close()


async def post(
    server: SlackServer, answer: Answer | None = None, *, token: str = BOT_TOKEN, seconds: float = PATIENCE_SECONDS
) -> SlackReply:
    server.answers["chat.postMessage"] = [answer] if answer is not None else []
    return await called(server.api, "chat.postMessage", token=token, seconds=seconds)


async def test_a_message_is_posted_and_has_its_name(server: SlackServer) -> None:
    reply = await post(server)

    assert reply == SlackReply(result=DeliveryOutcome.DELIVERED, ts=server.messages[0].ts)
    assert server.messages[0].fields == SAID


@pytest.mark.parametrize(("told", "waits"), [("17", 17.0), ("", 30.0), ("soon", 30.0), ("999999", 3600.0)])
async def test_when_slack_wants_to_be_left_alone_it_says_for_how_long(
    server: SlackServer, told: str, waits: float
) -> None:
    reply = await post(server, Answer(status=429, headers={"Retry-After": told}))

    assert (reply.result, reply.error, reply.retry_after) == (DeliveryOutcome.FAILED, "Slack says ratelimited", waits)


@pytest.mark.parametrize("word", ["invalid_auth", "not_in_channel", "msg_too_long"])
async def test_slacks_own_word_is_passed_on(server: SlackServer, word: str) -> None:
    reply = await post(server, Answer(body={"ok": False, "error": word}))

    assert reply == SlackReply(result=DeliveryOutcome.FAILED, error=f"Slack says {word}", word=word)


async def test_a_wrong_token_is_said_and_shown_nowhere(server: SlackServer) -> None:
    reply = await post(server, token="xoxb-another-one-entirely")

    assert reply.error == "Slack says invalid_auth"
    assert "another-one" not in repr(reply)


async def test_an_answer_that_is_none_leaves_open_what_has_happened(server: SlackServer) -> None:
    reply = await post(server, Answer(status=502, body={"ok": "perhaps"}))

    assert reply == SlackReply(result=DeliveryOutcome.UNKNOWN, error="Slack answered 502")


async def test_a_slack_that_hangs_is_given_up_in_time(server: SlackServer) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):  # it hangs until the server ends
        reply = await post(server, Answer(hangs=True), seconds=0.3)

    assert reply == SlackReply(result=DeliveryOutcome.UNKNOWN, error="Slack has not answered within 0.3 s")


async def test_a_slack_that_is_away_has_heard_nothing() -> None:
    reply = await called("http://127.0.0.1:1/api", "chat.postMessage")

    assert reply.result is DeliveryOutcome.FAILED
    assert "cannot be reached" in reply.error


async def test_a_slack_behind_a_proxy_is_called_through_it(server: SlackServer) -> None:
    network = {"http_proxy": f"http://127.0.0.1:{server.port}"}
    reply = await called("http://slack.invalid/api", "auth.test", network=network)

    assert [call.method for call in server.calls] == ["http://slack.invalid/api/auth.test"]
    assert reply.error == "Slack says unknown_method"
