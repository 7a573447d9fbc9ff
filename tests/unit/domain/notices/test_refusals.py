"""A refusal is the message's, the target's, or it passes; and a bot that gets no answers is known with its remedy."""

from __future__ import annotations

import pytest

from claudeops.domain.notices.refusals import (
    RefusalCause,
    RefusalSubject,
    of_apprise,
    of_slack,
    of_telegram,
    slack_deafness,
    telegram_deafness,
)


def about(cause: RefusalCause | None) -> RefusalSubject | None:
    return None if cause is None else cause.refusal


@pytest.mark.parametrize(
    ("status", "description", "remedy"),
    [
        (401, "Unauthorized", "BotFather"),
        (404, "Not Found", "BotFather"),
        (403, "Forbidden: bot was kicked from the supergroup chat", "add the bot to the chat again"),
        (403, "Forbidden: bot was kicked from the group chat", "add the bot to the chat again"),
        (403, "Forbidden: bot is not a member of the channel chat", "add the bot to the chat again"),
        (403, "Forbidden: bot was blocked by the user", "unblock the bot"),
        (403, "Forbidden: user is deactivated", "name another chat"),
        (403, "Forbidden: the group chat was deactivated", "name another chat"),
        (403, "Forbidden: bot can't initiate conversation with a user", "press Start"),
        (403, "Forbidden: something new", "add the bot to the chat again"),
        (400, "Bad Request: chat not found", "correct the chat's id"),
        (400, "Bad Request: TOPIC_CLOSED", "open the topic again"),
        (400, "Bad Request: message thread not found", "open the topic again"),
        (400, "Bad Request: not enough rights to send text messages to the chat", "add the bot to the chat again"),
        (400, "Bad Request: have no rights to send a message", "add the bot to the chat again"),
        (400, "Bad Request: need administrator rights in the channel chat", "add the bot to the chat again"),
        (400, "Bad Request: CHAT_WRITE_FORBIDDEN", "add the bot to the chat again"),
        (400, "Bad Request: group chat was upgraded to a supergroup chat", "-100"),
    ],
)
def test_a_telegram_chat_that_takes_nothing_any_more_is_known_with_what_to_do(
    status: int, description: str, remedy: str
) -> None:
    cause = of_telegram(status, description)

    assert about(cause) is RefusalSubject.TARGET
    assert cause is not None
    assert remedy in cause.remedy


@pytest.mark.parametrize(
    ("status", "description", "refusal"),
    [
        (400, "Bad Request: message is too long", RefusalSubject.CONTENT),
        (400, "Bad Request: can't parse entities: Can't find end of the entity", RefusalSubject.CONTENT),
        (400, "Bad Request: BUTTON_DATA_INVALID", RefusalSubject.CONTENT),
        (400, "", RefusalSubject.CONTENT),
        (413, "Request Entity Too Large", RefusalSubject.CONTENT),
        (429, "Too Many Requests: retry after 30", None),
        (500, "Internal Server Error", None),
        (502, "Bad Gateway", None),
        (409, "Conflict: terminated by other getUpdates request", None),
        (None, "", None),
    ],
)
def test_what_telegram_says_of_one_message_or_of_now_is_nothing_about_the_chat(
    status: int | None, description: str, refusal: RefusalSubject | None
) -> None:
    assert about(of_telegram(status, description)) is refusal


@pytest.mark.parametrize(
    ("word", "refusal", "remedy"),
    [
        ("invalid_auth", RefusalSubject.TARGET, "new token"),
        ("token_revoked", RefusalSubject.TARGET, "new token"),
        ("account_inactive", RefusalSubject.TARGET, "new token"),
        ("missing_scope", RefusalSubject.TARGET, "scopes"),
        ("channel_not_found", RefusalSubject.TARGET, "/invite"),
        ("not_in_channel", RefusalSubject.TARGET, "/invite"),
        ("is_archived", RefusalSubject.TARGET, "unarchive"),
        ("restricted_action_read_only_channel", RefusalSubject.TARGET, "let the app post"),
        ("msg_too_long", RefusalSubject.CONTENT, ""),
        ("invalid_blocks", RefusalSubject.CONTENT, ""),
        ("ratelimited", None, ""),
        ("internal_error", None, ""),
        ("a_word_of_tomorrow", None, ""),
        ("", None, ""),
    ],
)
def test_what_slack_says_is_the_channels_the_messages_or_passes(
    word: str, refusal: RefusalSubject | None, remedy: str
) -> None:
    cause = of_slack(word)

    assert about(cause) is refusal
    assert cause is None or remedy in cause.remedy


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ("Failed to send JSON notification: Bad Request, error=400.", RefusalSubject.CONTENT),
        ("Failed to send to Discord notification: error=403.", RefusalSubject.CONTENT),
        ("Failed: error=500. Failed to send: Unprocessable, error=422.", RefusalSubject.CONTENT),
        ("Failed to send Slack notification: Not Found, error=404.", RefusalSubject.TARGET),
        ("Failed to send: Unauthorized - Invalid Token., error=401.", RefusalSubject.TARGET),
        ("Failed to send: error=429.", None),
        ("Failed to send: error=503.", None),
        ("A Connection error occurred sending JSON notification to 127.0.0.1.", None),
        ("error=", None),
        ("error=4x0", None),
        ("error=٤٠٠", None),
        ("", None),
    ],
)
def test_what_apprise_says_is_judged_by_the_last_status_in_it(said: str, refusal: RefusalSubject | None) -> None:
    assert about(of_apprise(said)) is refusal


@pytest.mark.parametrize(
    ("status", "description", "remedy"),
    [
        (
            409,
            "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook first",
            "deleteWebhook",
        ),
        (
            409,
            "Conflict: terminated by other getUpdates request; make sure that only one is running",
            "another program",
        ),
        (401, "Unauthorized", "BotFather"),
        (404, "Not Found", "BotFather"),
        (429, "Too Many Requests", ""),
        (502, "Bad Gateway", ""),
        (None, "", ""),
    ],
)
def test_a_bot_that_gets_no_updates_is_known_with_what_to_do(status: int | None, description: str, remedy: str) -> None:
    found = telegram_deafness(status, description)

    assert bool(found) is bool(remedy)
    assert remedy in found


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("token_revoked", "generate a new token"),
        ("invalid_auth", "generate a new token"),
        ("account_inactive", "generate a new token"),
        ("missing_scope", "connections:write"),
        ("a_word_of_tomorrow", "Socket Mode"),
        ("ratelimited", ""),
        ("internal_error", ""),
        ("status 502", ""),
        ("", ""),
    ],
)
def test_an_app_that_slack_connects_no_more_is_known_with_what_to_do(word: str, remedy: str) -> None:
    found = slack_deafness(word)

    assert bool(found) is bool(remedy)
    assert remedy in found
