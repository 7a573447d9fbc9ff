"""When the probes answer for a model session, and what they tell it otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from claudeops.domain.probes.probe import Probe, ProbeState, Standing
from claudeops.domain.probes.tier0 import ModelVerdict, Need, Tier0Gate, gate, table
from claudeops.domain.sessions import DecisionReason
from claudeops.structs import replace
from support.probes import NOON, probe, standing

DAY = timedelta(hours=24)
LOOKED = NOON - timedelta(hours=1)
HEALTHY = ModelVerdict(reason=DecisionReason.HEALTHY, looked_from=LOOKED)


def up(**changes: object) -> Standing:
    """Return how a probe stands that has been up since long before the verdict, and was looked at at noon."""
    plain = standing(ProbeState.UP, NOON - timedelta(days=3), last_checked_at=NOON)
    return replace(plain, **changes)  # type: ignore[arg-type]  # a test names its fields


def asked(
    standings: Mapping[str, Standing] | None = None,
    *,
    probes: Sequence[Probe] = (probe("shop"), probe("db")),
    expected: Sequence[str] = ("Shop", "db"),
    verdict: ModelVerdict | None = HEALTHY,
    now: datetime = NOON,
    other_names: Mapping[str, str] | None = None,
) -> Tier0Gate:
    known = {"shop": up(), "db": up(), **(standings or {})}
    return gate(
        probes,
        known,
        expected=expected,
        verdict=verdict,
        max_age=DAY,
        now=now,
        other_names=other_names,
    )


def test_an_unchanged_estate_needs_no_model() -> None:
    found = asked()

    assert found.may_skip
    assert found.sentence == "2 probes are up and unchanged since a model looked at 2026-03-01 11:00 UTC"


@pytest.mark.parametrize(
    ("standings", "need", "sentence"),
    [
        ({"db": standing(ProbeState.DOWN)}, Need.NOT_UP, "the probe db is down"),
        ({"db": standing(ProbeState.DEGRADED)}, Need.NOT_UP, "the probe db is degraded"),
        ({"db": standing(ProbeState.FLAPPING)}, Need.NOT_UP, "the probe db is flapping"),
        ({"db": standing(ProbeState.SILENCED, beneath=ProbeState.UP)}, Need.NOT_UP, "the probe db is silenced"),
        ({"db": Standing()}, Need.NOT_UP, "the probe db is unknown"),
        ({"db": up(failures=1)}, Need.WAVERING, "the last looks of the probe db disagree"),
        ({"db": up(blind=1)}, Need.WAVERING, "the last looks of the probe db disagree"),
        ({"db": up(since=NOON)}, Need.CHANGED, "the probe db has changed since a model last looked"),
        ({"db": up(since=LOOKED)}, Need.CHANGED, "the probe db has changed since a model last looked"),
        ({"db": up(last_checked_at=LOOKED)}, Need.STALE, "the probe db has not been looked at in time"),
        ({"db": up(last_checked_at=NOON + DAY)}, Need.STALE, "the probe db has not been looked at in time"),
    ],
)
def test_a_probe_that_cannot_answer_needs_a_model(standings: dict[str, Standing], need: Need, sentence: str) -> None:
    assert asked(standings) == Tier0Gate(need=need, sentence=sentence)


@pytest.mark.parametrize(
    ("reason", "looked_from", "need"),
    [
        (DecisionReason.HEALTHY, NOON - DAY, Need.OLD_VERDICT),
        (DecisionReason.HEALTHY, NOON + DAY, Need.OLD_VERDICT),
        (DecisionReason.NO_EVIDENCE, LOOKED, Need.NOT_HEALTHY),
        (DecisionReason.ESCALATED, LOOKED, Need.NOT_HEALTHY),
        (DecisionReason.SESSION_FAILED, LOOKED, Need.NOT_HEALTHY),
    ],
)
def test_only_a_young_healthy_verdict_can_be_relied_upon(
    reason: DecisionReason, looked_from: datetime, need: Need
) -> None:
    assert asked(verdict=ModelVerdict(reason=reason, looked_from=looked_from)).need is need


def test_without_a_verdict_or_a_probe_a_model_looks() -> None:
    assert asked(verdict=None).need is Need.NO_VERDICT
    assert asked(probes=()).need is Need.NO_PROBES


def test_a_service_that_no_probe_looks_at_needs_a_model() -> None:
    found = asked(expected=("shop", "db", "mail"))

    assert found == Tier0Gate(need=Need.UNWATCHED, sentence="no probe looks at mail")
    assert asked(expected=("shop", "db", "mail"), other_names={"Mail": "Shop"}).may_skip


# --- the table ----------------------------------------------------------------------------------------


def test_the_table_shows_the_unwell_first() -> None:
    probes = [probe(name) for name in ("a", "b", "c", "d")]
    standings = {
        "a": up(latency_ms=12.4),
        "b": standing(ProbeState.DOWN, NOON - timedelta(minutes=3), explained_by="d"),
        "d": standing(ProbeState.DEGRADED, NOON - timedelta(hours=30), detail="expires\nin 9 days | x"),
    }

    assert table(probes, standings, now=NOON) == (
        "4 in all: 1 down, 1 degraded, 1 unknown, 1 up",
        "b (tcp b:80, service b) | down for 3 min | explained by d | refused",
        "d (tcp d:80, service d) | degraded for 1 d | expires in 9 days / x",
        "c (tcp c:80, service c) | unknown",
        "a (tcp a:80, service a) | up for 3 d | 12 ms",
    )


def test_the_services_that_a_session_is_about_stand_before_the_unwell() -> None:
    probes = [probe("a"), probe("b"), probe("c", service="Shop")]
    standings = {"a": standing(ProbeState.DOWN), "b": up(), "c": up()}

    rows = table(probes, standings, now=NOON, about=("basket", "B"), other_names={"Basket": "shop"})

    assert [row.split()[0] for row in rows[1:]] == ["b", "c", "a"]


def test_no_secret_stands_in_the_table_and_no_part_of_one_that_was_cut() -> None:
    secret = "s3cr3t" * 10
    standings = {"a": standing(ProbeState.DOWN, detail="x" * 140 + secret)}

    _, row = table([probe("a")], standings, now=NOON, redact=lambda text: text.replace(secret, "(redacted)"))

    assert "s3cr3t" not in row
    assert row.endswith("x(redacted)")


def test_without_probes_there_is_no_table() -> None:
    assert table((), {}, now=NOON) == ()


def test_the_table_is_bounded_and_says_what_it_leaves_out() -> None:
    probes = [probe(f"p{count:04}") for count in range(1000)]
    standings = {each.name: up(detail="x" * 500) for each in probes} | {"p0999": standing(ProbeState.DOWN)}
    rows = table(probes, standings, now=NOON)

    assert len(rows) == 62
    assert rows[0] == "1000 in all: 1 down, 999 up"
    assert rows[1].startswith("p0999 ")
    assert rows[-1] == "and 940 more: 940 up"
    assert sum(map(len, rows)) < 25_000
