"""A chain's picture: what is where, what is folded, and that nothing falls out of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.calls import VerdictKind
from claudeops.store.reading.chain_calls import CallSpan, ChainCalls, ModelSpan
from claudeops.web.pages.verdict_timeline import WIDTH, drawn

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def call(
    asked: float, decided: float, ended: float | None, *, session: int = 1, verdict: VerdictKind = VerdictKind.ALLOW
) -> CallSpan:
    return CallSpan(
        session_id=session,
        tier=session,
        tool_name="Bash",
        input=f"call at {asked}",
        verdict=verdict,
        reason="only looks",
        requested_at=after(asked),
        decided_at=after(decided),
        ended_at=None if ended is None else after(ended),
        is_error=False,
    )


def model(began: float, ended: float | None, *, session: int = 1, cost: float | None = 0.25) -> ModelSpan:
    return ModelSpan(
        session_id=session,
        tier=session,
        model="haiku",
        input_tokens=1200,
        output_tokens=30,
        cost_usd=cost,
        started_at=after(began),
        ended_at=None if ended is None else after(ended),
    )


def test_a_chain_without_a_call_has_no_picture() -> None:
    assert drawn(ChainCalls(calls=(), model_calls=()), NOON) is None


def test_a_call_is_drawn_from_the_question_to_the_verdict_and_on_while_it_runs() -> None:
    found = drawn(ChainCalls(calls=(call(0, 2, 10),), model_calls=()), after(10))
    assert found is not None
    judged, ran = found.shapes
    assert (judged.kind, judged.x, judged.width) == ("allow", 0, WIDTH / 5)
    assert (ran.kind, ran.x, ran.width) == ("ran", WIDTH / 5, WIDTH * 4 / 5)
    assert "allow after 2s: only looks" in judged.title
    assert "ran for 8s" in ran.title


def test_a_denied_call_never_ran() -> None:
    found = drawn(ChainCalls(calls=(call(0, 1, None, verdict=VerdictKind.DENY),), model_calls=()), after(9))
    assert found is not None
    assert [shape.kind for shape in found.shapes] == ["deny"]


def test_a_question_and_its_answer_are_one_row() -> None:
    asked, answered = call(0, 0, None, verdict=VerdictKind.ASK), call(0, 300, 301)
    found = drawn(ChainCalls(calls=(asked, answered, call(302, 302, 303)), model_calls=()), after(303))
    assert found is not None
    rows = {shape.title.split("\n")[0]: shape.y for shape in found.shapes}
    assert len({shape.y for shape in found.shapes}) == len(rows) == 2


def test_idle_time_is_folded_and_says_how_long_it_was() -> None:
    spans = ChainCalls(calls=(call(0, 1, 5), call(3605, 3606, 3610)), model_calls=())
    found = drawn(spans, after(3610))
    assert found is not None
    (fold,) = found.folds
    assert fold.title == "1h without a call"
    assert sum(shape.width for shape in found.shapes) > WIDTH * 0.95


def test_a_lane_has_its_calls_and_what_its_model_cost() -> None:
    spans = ChainCalls(calls=(call(0, 1, 2), call(3, 4, 5, session=2)), model_calls=(model(0, 1), model(1, 2)))
    found = drawn(spans, after(5))
    assert found is not None
    assert [lane.label for lane in found.lanes] == ["tier 1: 1 call, $0.50", "tier 2: 1 call, -"]
    assert "1,200 tokens in, 30 out, $0.25" in found.shapes[0].title


SECONDS = st.floats(min_value=0, max_value=100_000)


@given(
    st.lists(st.tuples(SECONDS, SECONDS, st.none() | SECONDS, st.integers(1, 3)), max_size=12),
    st.lists(st.tuples(SECONDS, st.none() | SECONDS, st.integers(1, 3)), max_size=12),
)
def test_whatever_clocks_say_nothing_falls_out_of_the_picture(
    calls: list[tuple[float, float, float | None, int]], models: list[tuple[float, float | None, int]]
) -> None:
    spans = ChainCalls(
        calls=tuple(call(asked, decided, ended, session=number) for asked, decided, ended, number in calls),
        model_calls=tuple(model(began, ended, session=number) for began, ended, number in models),
    )
    found = drawn(spans, after(100_000))
    assert (found is None) is (not calls and not models)
    for shape in found.shapes if found is not None else ():
        assert 0 <= shape.x <= WIDTH + 1
        assert 0 < shape.width <= WIDTH + 2
        assert found is None or 0 <= shape.y < found.height
