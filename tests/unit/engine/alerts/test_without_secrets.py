"""What a sender says is kept without secrets, whatever it is said in, and at a price that no sender sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claudeops.domain.alerts.alert import Alert, ReportedState, SenderBody, Unparsed
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.domain.events import EventLevel
from claudeops.engine.alerts.worker import without_secrets
from claudeops.formats.senders import read
from claudeops.structs import replace
from claudeops.text.redact import MASK, Redactor

SECRET = "hunter22-hunter22"
KEY = "sk-ant-" + "a" * 20
REDACT = Redactor([SECRET]).text
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def alert(fingerprint: str = "f", name: str = "Down", **labels: str) -> Alert:
    return Alert(
        fingerprint=fingerprint,
        state=ReportedState.FIRING,
        name=name,
        service="shop",
        severity=EventLevel.CRITICAL,
        labels=labels,
    )


def delivery(*alerts: Alert, group_key: str = "") -> SenderBody:
    return SenderBody(source="am", key="k", alerts=alerts, group_key=group_key)


def cleaned(said: SenderBody, redact: Callable[[str], str] = REDACT) -> SenderBody:
    found = without_secrets(said, redact)
    assert isinstance(found, SenderBody)
    return found


@pytest.mark.parametrize("secret", [SECRET, KEY, "x;token=abcdef", "https://ops:pass-word@db/x"])
def test_no_part_of_an_alert_keeps_a_secret(secret: str) -> None:
    plain = alert(fingerprint=secret, name=secret, job="a")
    whole = replace(
        plain,
        service=secret,
        url=f"http://grafana/?token={secret}",
        labels={secret: "name", "value": secret, "job": "a"},
        annotations={secret: "name", "summary": f"it says {secret}"},
    )
    found = cleaned(replace(delivery(whole, group_key=secret), remark=secret))

    assert REDACT(repr(found)) == repr(found)
    assert MASK in found.alerts[0].name
    assert found.alerts[0].labels["job"] == "a"
    assert found.alerts[0].severity is EventLevel.CRITICAL


def test_what_holds_no_secret_stays_as_it_is() -> None:
    said = delivery(alert(job="a", note=""), alert(fingerprint="g", name="Up"), group_key="{}:{job='a'}")
    assert without_secrets(said, REDACT) == said
    assert without_secrets(delivery(), REDACT) == delivery()


def test_why_a_body_could_not_be_read_keeps_no_secret() -> None:
    found = without_secrets(Unparsed(source="am", key="k", why=f"it says {SECRET}"), REDACT)
    assert isinstance(found, Unparsed)
    assert SECRET not in found.why


@pytest.mark.parametrize("place", ["fingerprint", "dedup_key"])
def test_an_alert_with_a_secret_in_its_identity_is_still_one_alert_and_another_is_another(place: str) -> None:
    def said(word: str, state: str) -> Alert:
        body = json.dumps({"alerts": [{"name": "Down", "status": state, place: f"host-{word}"}]}).encode()
        found = read(AlertSource(name="s", kind=SenderKind.GENERIC), body, received_at=NOW)
        assert isinstance(found, SenderBody)
        return cleaned(found).alerts[0]

    first, over, other = said(KEY, "firing"), said(KEY, "resolved"), said(f"{KEY}b", "firing")
    assert KEY not in first.fingerprint
    assert first.fingerprint == over.fingerprint != other.fingerprint
    assert said("7", "firing").fingerprint == said("7", "resolved").fingerprint


def test_two_groups_that_differ_in_a_secret_stay_two() -> None:
    one, two = (cleaned(delivery(alert(), group_key=f"g-{KEY}{end}")).group_key for end in "ab")
    assert one != two
    assert KEY not in one + two


PIECES = st.lists(
    st.sampled_from(
        (
            *(
                SECRET,
                SECRET[:9],
                SECRET[9:],
                KEY,
                ";token=a",
                "?password=",
                "password=hunter",
                "pwd='",
                "abcdefgh",
                " ",
            ),
            *(
                "authorization: ",
                "bearer ",
                "x-api-key: ",
                "https://ops:",
                "pass@db",
                MASK,
                "<",
                ">",
                "=",
                "\\n",
                "\\u0074",
            ),
            *(
                "-----BEGIN RSA PRIVATE KEY-----",
                "A" * 40,
                "-----END RSA PRIVATE KEY-----",
                "hooks.slack.com/services/T",
            ),
        )
    ),
    max_size=6,
).map("".join)


@settings(deadline=None, max_examples=100)
@given(texts=st.lists(PIECES, min_size=1, max_size=8))
def test_no_text_is_redacted_otherwise_because_of_those_beside_it(texts: list[str]) -> None:
    said = delivery(*(alert(name=text, first=text, second=text[::-1]) for text in texts))
    for before, after in zip(said.alerts, cleaned(said).alerts, strict=True):
        assert after.name == REDACT(before.name)
        assert list(after.labels.values()) == [REDACT(value) for value in before.labels.values()]


def test_many_texts_are_redacted_in_few_goes() -> None:
    goes: list[int] = []

    def redact(text: str) -> str:
        goes.append(len(text))
        return REDACT(text)

    labels = {f"l{number}": f";token=a{number}" for number in range(90)}
    found = cleaned(delivery(*(alert(fingerprint=f"{number}", **labels) for number in range(300))), redact)
    assert {value for each in found.alerts for value in each.labels.values()} == {f";token={MASK}"}
    assert len(goes) <= 3


@pytest.mark.parametrize("place", [0, 57, 199])
def test_a_text_of_which_nothing_is_left_costs_the_others_nothing(place: int) -> None:
    def redact(text: str) -> str:
        return f'"{MASK}"' if "evil" in text else REDACT(text)

    said = delivery(*(alert(name="evil" if number == place else "Down", at=f"{number}") for number in range(200)))
    found = cleaned(said, redact).alerts
    assert [each.name for each in found] == ["Down"] * place + [f'"{MASK}"'] + ["Down"] * (199 - place)
    assert [each.labels["at"] for each in found] == [f"{number}" for number in range(200)]
