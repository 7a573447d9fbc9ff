"""What is told, as lines: one a step, understandable, and nothing in them that a terminal would obey."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from claudeops.cli.text.terminal import LivePrinter
from claudeops.domain.actions import Recheck
from claudeops.domain.calls import VerdictKind
from claudeops.domain.events import EventLevel
from claudeops.domain.live import (
    ActionFollowedUp,
    AssistantSaid,
    CallEnded,
    CallJudged,
    EventRaised,
    LinesLost,
    LiveFact,
    ResultCame,
    SessionBegan,
    SessionEnded,
)
from claudeops.domain.sessions import DecisionReason, Outcome, Trigger
from claudeops.engine.live.lines import MEANINGS, LiveLines, escaped

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def began(reason: str | None = None, session_id: int = 7) -> SessionBegan:
    return SessionBegan(
        at=AT,
        session_id=session_id,
        chain=session_id,
        tier=2,
        model="sonnet",
        trigger=Trigger.ESCALATION,
        reason=reason,
    )


def judged(
    tool_use_id: str, line: str, verdict: VerdictKind = VerdictKind.ALLOW, reason: str = "only looks"
) -> LiveFact:
    return CallJudged(
        at=AT,
        session_id=7,
        chain=7,
        tier=2,
        tool_use_id=tool_use_id,
        tool="Bash",
        line=line,
        verdict=verdict,
        reason=reason,
    )


def answered(tool_use_id: str, text: str, *, line: str = "", is_error: bool = False, characters: int = 0) -> LiveFact:
    return CallEnded(
        at=AT,
        session_id=7,
        chain=7,
        tier=2,
        tool_use_id=tool_use_id,
        line=line,
        is_error=is_error,
        text=text,
        characters=characters,
    )


def over(decision: DecisionReason = DecisionReason.HEALTHY, **changes: object) -> LiveFact:
    given: dict[str, object] = {
        "at": AT,
        "session_id": 7,
        "chain": 7,
        "tier": 2,
        "outcome": Outcome.SUCCESS,
        "decision": decision,
        "cost_usd": 0.0123,
        "duration_ms": 3210,
        "num_turns": 1,
        "summary": "web answers again",
    }
    return SessionEnded(**{**given, **changes})  # type: ignore[arg-type]  # a test names its fields


def plain(*facts: LiveFact, times: bool = False) -> list[str]:
    stream = io.StringIO()
    LivePrinter(stream, times=times).write(facts)
    return stream.getvalue().splitlines()


def test_a_session_reads_like_a_story() -> None:
    assert plain(
        began("web answers 502"),
        AssistantSaid(at=AT, session_id=7, chain=7, tier=2, text="I look."),
        judged("a", "Running: curl -s web..."),
        answered("a", "502 Bad Gateway", characters=1200),
        judged("b", "Running: reboot...", VerdictKind.DENY, "nobody may"),
        answered("b", "nobody may", is_error=True),
        ResultCame(at=AT, session_id=7, chain=7, tier=2, is_error=False, cost_usd=0.0123, num_turns=1),
        EventRaised(at=AT, level=EventLevel.CRITICAL, service="web", message="was down", session_id=7),
        over(),
    ) == [
        "tier 2  starts    session 7 · sonnet · escalation  (web answers 502)",
        "tier 2  says      I look.",
        "tier 2  allowed   Running: curl -s web  (only looks)",
        "tier 2  answer    502 Bad Gateway  (… 1200 characters)",
        "tier 2  denied    Running: reboot  (nobody may)",
        "tier 2  critical  web: was down",
        "tier 2  finds     web answers again",
        "tier 2  ended     success · $0.0123 · 1 turn · 3.2 s",
        "tier 2  next      healthy: there is nothing left to do",
    ]


def test_a_result_says_of_which_call_it_is_when_several_are_open() -> None:
    lines = plain(
        judged("a", "Running: one..."), judged("b", "Running: two..."), answered("a", "1", line="Running: one...")
    )

    assert lines[-1] == "tier 2  answer    Running: one → 1"


def test_what_nobody_knows_is_not_made_up() -> None:
    lines = plain(
        over(DecisionReason.SESSION_FAILED, outcome=Outcome.STALLED, cost_usd=None, summary=None, error="stalled")
    )

    assert lines[0] == "tier 2  ended     stalled · cost unknown · 1 turn · 3.2 s  (stalled)"


def test_the_next_tier_is_named() -> None:
    lines = plain(over(DecisionReason.ESCALATED, next_tier=3, next_session_id=8))

    assert lines[-1] == "tier 2  next      hands over to tier 3 (session 8)"


def test_a_second_try_is_no_handover() -> None:
    lines = plain(over(DecisionReason.SESSION_FAILED, next_tier=2, next_session_id=8))

    assert lines[-1] == "tier 2  next      the session failed, so nothing is known; it is tried once more (session 8)"


def test_an_event_of_no_known_session_is_the_daemons() -> None:
    (line,) = plain(EventRaised(at=AT, level=EventLevel.WARNING, message="disk is nearly full"))

    assert line == "daemon  warning   disk is nearly full"


def test_lost_lines_leave_a_mark() -> None:
    assert plain(LinesLost(at=AT, count=37)) == ["                  … 37 lines lost"]


def test_times_are_shown_on_demand() -> None:
    assert plain(began(), times=True)[0].startswith("03:04:05 tier 2")


@pytest.mark.parametrize("decision", DecisionReason)
def test_every_decision_is_put_into_words(decision: DecisionReason) -> None:
    assert MEANINGS[decision]
    assert plain(over(decision))[-1].endswith(MEANINGS[decision])


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\r", "\n", "\x07", "\x9b", "\u202e", "\u2066", "\u200f", "\u2028", "\ufeff", "\U000e0041"]
)
def test_nothing_that_a_terminal_obeys_gets_through_but_it_is_seen(hostile: str) -> None:
    text = f"all{hostile}well"
    facts: list[LiveFact] = [
        began(text),
        AssistantSaid(at=AT, session_id=7, chain=7, tier=2, text=text),
        judged("a", f"Running: {text}..."),
        judged("b", "Running: x...", VerdictKind.DENY, text),
        answered("a", text),
        EventRaised(at=AT, level=EventLevel.INFO, service=text, message=text),
        over(summary=text, error=text),
    ]
    for fact in facts:
        lines = plain(fact)
        assert hostile not in "\n".join(lines) or hostile == "\n"
        assert all(line.isprintable() for line in lines)
        assert "\\" in "".join(lines)


def test_ordinary_letters_of_any_script_stay() -> None:
    assert escaped("größe 東京 é ✓\u00a0x") == "größe 東京 é ✓ x"


def test_what_nobody_sees_is_escaped_and_an_emoji_is_none_of_it() -> None:
    assert (
        escaped("shop\U000e0100\u034f\u2800\u3164 \u26a0\ufe0f")
        == r"shop\U000e0100\u034f\u2800\u3164 " + "\u26a0\ufe0f"
    )


def test_what_the_stream_cannot_encode_is_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)

    LivePrinter(stream).write([began("東")])

    assert raw.getvalue() == b"tier 2  starts    session 7 \\xb7 sonnet \\xb7 escalation  (\\u6771)\n"


def test_a_stream_that_is_gone_is_given_up() -> None:
    stream = io.StringIO()
    teller = LivePrinter(stream)
    stream.close()

    teller.write([began()])

    assert teller.broken


def test_what_goes_on_is_known_between_the_lines() -> None:
    lines = LiveLines()
    seen = []
    for fact in (began(), judged("a", "Running: curl web..."), answered("a", "ok"), over()):
        lines.of(fact)
        seen.append(lines.doing)

    assert seen == ["tier 2 starts", "tier 2 · Running: curl web", "tier 2 · thinking", ""]


def test_a_wait_for_a_person_is_told_while_it_lasts() -> None:
    lines = LiveLines()
    asks = judged("a", "Running: python3 -c x...", VerdictKind.ASK, "inline code")

    assert [(line.label, line.body) for line in lines.of(asks)] == [("asks", "Running: python3 -c x")]
    assert lines.doing == "tier 2 · waits for a person's yes: Running: python3 -c x"


@pytest.mark.parametrize(
    ("held", "label", "says"),
    [
        (Recheck.HELD, "held", "well by the look of 2026-01-02 03:04 UTC"),
        (Recheck.RELAPSED, "relapsed", "did not hold, by the look of 2026-01-02 03:04 UTC"),
        (Recheck.UNKNOWN, "unknown", "whether it held was not to be seen at 2026-01-02 03:04 UTC"),
        (None, "later", "looked at again from 2026-01-02 03:04 UTC on"),
    ],
)
def test_what_became_of_an_action_is_a_line(held: Recheck | None, label: str, says: str) -> None:
    fact = ActionFollowedUp(at=AT, session_id=7, chain=7, tier=2, action="restart", service="web\x1b[2J", held=held)
    (line,) = LiveLines().of(fact)
    assert (line.tag, line.label, line.body) == ("tier 2", label, f"restart of web\\x1b[2J: {says}")


def test_of_sessions_side_by_side_each_line_says_whose_it_is() -> None:
    of_other = AssistantSaid(at=AT, session_id=9, chain=9, tier=2, text="me too")
    event = EventRaised(at=AT, level=EventLevel.INFO, message="x", session_id=9)
    end = over(session_id=9, summary=None)

    lines = plain(began(), began(session_id=9), of_other, event, end, judged("a", "Running: x..."))

    assert [line.split("  ")[0] for line in lines] == ["tier 2", *["tier 2 #9"] * 5, "tier 2"]
