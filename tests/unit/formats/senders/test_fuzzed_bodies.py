"""100 000 bodies that nobody meant to send: no exception, every alert bounded and visible, every reason given."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from claudeops.domain.alerts.alert import ReportedState, SenderBody, Unparsed
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.formats.senders import is_signed, read, storable
from claudeops.formats.senders.common import MOST_TEXT, SKEW
from support.doses import drawn
from support.fuzzed import fuzzed

RUNS, BODIES = 20, 5_000
RECEIVED = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
SOURCES = {kind: AlertSource(name=kind.value, kind=kind) for kind in SenderKind}
NAMED = AlertSource(name="named", kind=SenderKind.GENERIC, fingerprint=("host", "check"), timestamp_header="X-T")


def assert_is_safe(found: SenderBody | Unparsed) -> None:
    assert len(found.key) == 64
    if isinstance(found, Unparsed):
        assert found.why
        assert found.why.isprintable()
        assert len(found.why) <= 300
        assert "our own code" not in found.why
        return
    assert found.left_out >= 0
    for alert in found.alerts:
        assert alert.state in ReportedState
        assert 0 < len(alert.fingerprint) <= 200
        for text in (alert.name, alert.service, alert.fingerprint, alert.url, found.group_key, found.remark):
            assert text.isprintable()
        assert 0 < len(alert.name) <= 255
        assert 0 < len(alert.service) <= 255
        for texts in (alert.labels, alert.annotations):
            assert sum(len(key.encode()) + len(value.encode()) for key, value in texts.items()) <= MOST_TEXT
            assert all(text.isprintable() for pair in texts.items() for text in pair)
        for at in (alert.starts_at, alert.ends_at, alert.reported_at):
            assert at is None or at <= RECEIVED + SKEW


@pytest.mark.parametrize("seed", drawn(range(RUNS), count=6))
def test_no_body_raises_and_what_is_read_is_safe(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    read_at_all = 0
    for _ in range(BODIES):
        kind, content = fuzzed(draw)
        found = read(SOURCES[kind], content, received_at=RECEIVED)
        assert_is_safe(found)
        assert storable(SOURCES[kind], content) is not None
        read_at_all += isinstance(found, SenderBody)
    assert BODIES * 0.2 < read_at_all < BODIES


def test_a_source_with_settings_of_its_own_reads_junk_as_calmly() -> None:
    draw = random.Random(0)  # noqa: S311 - as above
    for _ in range(1_000):
        _, content = fuzzed(draw)
        assert_is_safe(read(NAMED, content, received_at=RECEIVED, query={"status": "down", "uuid": "\ud800"}))


def test_no_header_raises_and_none_is_a_signature() -> None:
    draw = random.Random(0)  # noqa: S311 - as above
    names = ("x-grafana-alerting-signature", "x-pagerduty-signature", "x-claudeops-signature", "x-t")
    alphabet = "tv1=,0123456789abcdef \u0661\udc80é"
    for _ in range(5_000):
        headers = {name: "".join(draw.choices(alphabet, k=draw.randint(0, 90))) for name in names}
        for source in (*SOURCES.values(), NAMED):
            assert not is_signed(source, b"{}", headers, ["secret-0123456789"], now=RECEIVED)
