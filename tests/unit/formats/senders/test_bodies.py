"""Bodies as senders pack, encode and wrap them: what can be read is read, and what cannot has a place and a reason."""

from __future__ import annotations

import gzip
import zlib
from datetime import UTC, datetime

import msgspec
import pytest

from claudeops.domain.alerts.alert import ReportedState, SenderBody, Unparsed
from claudeops.domain.alerts.rules import AlertSource, SenderKind
from claudeops.formats.senders import read, storable
from claudeops.formats.senders.bodies import is_packed, value_of
from claudeops.formats.senders.common import MOST_ALERTS, MOST_BYTES, Unreadable

RECEIVED = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
WANTED = {"title": "Küche: Disk full 💾", "service": "nas"}
JSON = msgspec.json.encode(WANTED)
TEXT = JSON.decode()
PARTS = (
    '--xyz\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n'
    '--xyz\r\nContent-Disposition: form-data; name="data"; filename="a.json"\r\nContent-Type: application/json\r\n\r\n'
    f"{TEXT}\r\n--xyz--\r\n"
).encode()


def encoded_form(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def found(kind: SenderKind, body: bytes) -> SenderBody | Unparsed:
    return read(AlertSource(name="hc", kind=kind), body, received_at=RECEIVED)


def delivered(kind: SenderKind, body: bytes) -> SenderBody:
    said = found(kind, body)
    assert isinstance(said, SenderBody), said
    return said


def why(kind: SenderKind, body: bytes) -> str:
    said = found(kind, body)
    assert isinstance(said, Unparsed), said
    return said.why


PACKED = {
    "as it is": JSON,
    "gzip": gzip.compress(JSON, mtime=0),
    "gzip in two members": gzip.compress(JSON[:9], mtime=0) + gzip.compress(JSON[9:], mtime=0),
    "deflate": zlib.compress(JSON),
    "UTF-8 with a mark": b"\xef\xbb\xbf" + JSON,
    "UTF-16 LE": b"\xff\xfe" + TEXT.encode("utf-16-le"),
    "UTF-16 BE": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "UTF-16 without a mark": TEXT.encode("utf-16-le"),
    "UTF-16 BE without a mark": TEXT.encode("utf-16-be"),
    "UTF-32": b"\xff\xfe\x00\x00" + TEXT.encode("utf-32-le"),
    "gzip of UTF-16": gzip.compress(b"\xff\xfe" + TEXT.encode("utf-16-le"), mtime=0),
    "a field of a form": f"data={encoded_form(TEXT)}".encode(),
    "a field behind others": f"a=1&payload={encoded_form(TEXT)}&b=2".encode(),
    "a field that is not encoded": f"data={TEXT}".encode(),
    "a form in parts": PARTS,
    "gzip of a form": gzip.compress(PARTS, mtime=0),
    "JSON encoded twice": msgspec.json.encode(TEXT),
    "spaces around it": b"\n\n  " + JSON + b"\r\n",
}


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_the_same_is_read_however_it_is_packed(packed: bytes) -> None:
    assert value_of(packed) == WANTED
    (alert,) = delivered(SenderKind.GENERIC, packed).alerts
    assert (alert.name, alert.service) == (WANTED["title"], "nas")


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_whatever_holds_more_than_its_length_is_known_as_packed(packed: bytes) -> None:
    assert is_packed(packed) is (packed[:2] == b"\x1f\x8b" or packed[:1] == b"x")


@pytest.mark.parametrize("level", range(10))
def test_each_level_of_packing_is_known(level: int) -> None:
    assert is_packed(gzip.compress(JSON, level))
    assert is_packed(zlib.compress(JSON, level))


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_what_is_kept_of_it_can_be_read_by_a_person(packed: bytes) -> None:
    assert "nas" in storable(AlertSource(name="g"), packed)


def test_the_same_content_is_the_same_delivery_though_it_is_packed_anew() -> None:
    keys = {delivered(SenderKind.GENERIC, gzip.compress(JSON, mtime=at)).key for at in (1, 2)}
    assert len(keys) == 1


def test_the_fields_of_a_form_are_those_of_an_alert() -> None:
    (alert,) = delivered(SenderKind.GENERIC, b"title=Disk+full&service=nas&state=down&x=1%262").alerts
    assert (alert.name, alert.service, alert.labels["x"]) == ("Disk full", "nas", "1&2")
    parts = PARTS.replace(TEXT.encode(), b"plain")
    assert value_of(parts) == {"note": "hello", "data": "plain"}


def test_a_line_may_break_within_a_text_as_templates_break_it() -> None:
    (alert,) = delivered(SenderKind.GENERIC, b'{\n"title": "Disk full",\n"message": "first\r\nsecond\tthird"}\n').alerts
    assert alert.annotations["message"] == "first  second third"


def test_a_byte_that_is_no_text_is_shown_and_loses_no_alert() -> None:
    (alert,) = delivered(SenderKind.GENERIC, b'{"title": "K\xfcche is cold"}').alerts
    assert alert.name == "K\ufffdche is cold"


# --- too much ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bomb",
    [
        gzip.compress(b'{"a": "' + b"x" * 50 * MOST_BYTES, mtime=0),
        zlib.compress(b"[" + b"1," * MOST_BYTES),
        b"".join(gzip.compress(b" " * (MOST_BYTES // 2), mtime=0) for _ in range(4)),
    ],
    ids=["gzip", "deflate", "members"],
)
def test_a_bomb_is_unpacked_as_far_as_a_body_may_be_long(bomb: bytes) -> None:
    assert len(bomb) < MOST_BYTES
    assert f"more than {MOST_BYTES} bytes when it is unpacked" in why(SenderKind.GENERIC, bomb)
    assert len(storable(AlertSource(name="g"), bomb)) < 200


def test_thousands_of_empty_members_are_not_unpacked_one_by_one() -> None:
    empty = gzip.compress(b"", mtime=0)
    assert why(SenderKind.GENERIC, empty * (MOST_BYTES // len(empty))) == "it is empty"


def test_what_grows_in_utf_8_keeps_to_the_same_size() -> None:
    assert str(MOST_BYTES) in why(SenderKind.GENERIC, b"\xff\xfe" + "€".encode("utf-16-le") * (MOST_BYTES // 2 - 1))


@pytest.mark.parametrize("kind", SenderKind)
@pytest.mark.parametrize("joint", [b"&a=1", b"&", b";", b"&&=", b"&data=x", b"&status=down&uuid=x"])
def test_no_number_of_fields_is_a_fault_of_ours(kind: SenderKind, joint: bytes) -> None:
    for times in (9, 11, 1000):
        body = b"data=" + joint * times
        said = found(kind, body)
        assert "our own code" not in getattr(said, "why", "")
        assert storable(AlertSource(name="k", kind=kind), body)


# --- what cannot be read -----------------------------------------------------------------------------------

BROKEN = [
    (b'{"uuid": "3c1169a0", "name": "Backup "nas" nightly", "status": "down"}', "line 1, column 39", "quote"),
    (b'{\n  "title": "x",\n  "name": "a "b" c"\n}', "line 3, column 15", "quote"),
    ('{"ä": "€", "name": "a "b" c"}'.encode(), "line 1, column 24", "quote"),
    (b'{"a": 1}\n{"b": 2}\n', "line 2, column 1", "second document"),
    (b'{"a": 1} {"b": 2}', "line 1, column 10", "second document"),
    (b'{"a": 1}\n\n[1]', "line 3, column 1", "second document"),
    (b'{"a": 1', "line 1, column 8", "breaks off"),
    (b'{"a": [1, 2,\n', "line 1, column 13", "breaks off"),
    (b"{'title': 'x'}", "line 1, column 2", "double quotes"),
    (b'{"a": 1,}', "line 1, column 9", "trailing comma"),
    (b"\n\n disk full on nas", "line 3, column 2", "not JSON"),
    (b"<html><body>502</body></html>", "line 1, column 1", "not JSON"),
    (b'{"a": NaN}', "line 1, column 7", "not JSON"),
    (b"", "", "empty"),
    (b" \r\n", "", "empty"),
    (b"[" * 50_000, "", "deeply"),
    (b"\x28\xb5\x2f\xfd rest", "", "zstd"),
    (gzip.compress(JSON, mtime=0)[:-12], "", "breaks off"),
    (b"\x1f\x8b junk junk junk", "", "damaged"),
    (gzip.compress(b'{"a": "b "c" d"}', mtime=0), "line 1, column 11", "quote"),
    (b"\xff\xfe" + '{\n"ä": "b "c" d"}'.encode("utf-16-le"), "line 2, column 10", "quote"),
    (b"data=%7B%22a%22%3A%20%22b%20%22c%22%7D", "line 1, column 11", "quote"),
]


@pytest.mark.parametrize(("body", "place", "reason"), BROKEN)
@pytest.mark.parametrize("kind", SenderKind)
def test_what_cannot_be_read_says_where_and_why(kind: SenderKind, body: bytes, place: str, reason: str) -> None:
    said = why(kind, body)
    assert said.startswith(place)
    assert reason in said


def test_a_reason_repeats_nothing_of_the_text_that_is_broken() -> None:
    body = b'{"password": "hunter2hunter2", "name": "hunter2 "hunter2" x"}'
    assert all("hunter2" not in why(kind, body) for kind in SenderKind)


def test_what_fails_to_be_read_by_a_fault_of_ours_is_kept_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr("claudeops.formats.senders.value_of", fail)
    assert why(SenderKind.GENERIC, JSON) == "our own code failed: ZeroDivisionError"


# --- lists -------------------------------------------------------------------------------------------------


def test_a_list_is_its_entries_whichever_kind_sends_it() -> None:
    down = {"uuid": "3c1169a0-7b50-11ea-873d-3c970e75c219", "status": "down", "name": "nas"}
    beat = {"heartbeat": {"status": 0}, "monitor": {"id": 4, "name": "shop"}}
    alert = {"labels": {"alertname": "A"}}
    event = {"event": {"event_type": "x", "data": {"type": "incident", "id": "P1", "status": "triggered"}}}
    entries: dict[SenderKind, object] = {
        SenderKind.ALERTMANAGER: alert,
        SenderKind.GRAFANA: alert,
        SenderKind.PAGERDUTY: event,
        SenderKind.UPTIME_KUMA: beat,
        SenderKind.HEALTHCHECKS: down,
        SenderKind.GENERIC: {"title": "A"},
    }
    for kind, entry in entries.items():
        said = delivered(kind, msgspec.json.encode([entry, 7, entry]))
        assert len(said.alerts) == 2
        assert said.left_out == 1
        assert said.remark.startswith("1 of 3 entries cannot be read; entry 2 of the list: ")


def test_a_list_of_what_nobody_can_read_has_the_reason_of_the_first() -> None:
    assert why(SenderKind.GENERIC, b"[1, 2]").startswith("entry 1 of the list: ")
    assert why(SenderKind.ALERTMANAGER, b'[{"text": "x"}]').startswith("entry 1 of the list: it has no list of alerts")
    assert why(SenderKind.GENERIC, b"[]") == "it is an empty list"


def test_a_list_is_as_bounded_as_a_list_of_alerts_in_an_object() -> None:
    said = delivered(SenderKind.GENERIC, msgspec.json.encode([{"title": f"a{n}"} for n in range(MOST_ALERTS + 7)]))
    assert (len(said.alerts), said.left_out) == (MOST_ALERTS, 7)
    whole = {"labels": {"alertname": "A"}}
    many = [{"alerts": [whole] * 600}, {"alerts": [whole] * 600}]
    both = delivered(SenderKind.ALERTMANAGER, msgspec.json.encode(many))
    assert (len(both.alerts), both.left_out) == (MOST_ALERTS, 200)


@pytest.mark.parametrize(
    ("ends_at", "status", "said"),
    [
        ("2026-12-01T11:59:00Z", None, ReportedState.RESOLVED),
        ("2026-12-01T12:04:00Z", None, ReportedState.FIRING),  # until Prometheus sends it again
        ("2027-12-01T12:04:00Z", None, ReportedState.FIRING),
        ("0001-01-01T00:00:00Z", None, ReportedState.FIRING),
        (None, None, ReportedState.FIRING),
        ("2026-12-01T11:59:00Z", "firing", ReportedState.FIRING),
        ("0001-01-01T00:00:00Z", "resolved", ReportedState.RESOLVED),
        ("2026-12-01T11:59:00Z", {"state": "active"}, ReportedState.FIRING),
    ],
)
def test_an_alert_without_a_status_is_over_when_its_end_has_passed(
    ends_at: str | None, status: object, said: ReportedState
) -> None:
    entry = {"labels": {"alertname": "A"}, "startsAt": "2026-12-01T10:00:00Z", "endsAt": ends_at, "status": status}
    for body in ([entry], {"version": "4", "status": "firing", "alerts": [entry]}):
        (alert,) = delivered(SenderKind.ALERTMANAGER, msgspec.json.encode(body)).alerts
        assert alert.state is said


# --- secrets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"title=x&password=hunter2",
        gzip.compress(b'{"title": "x", "api_key": "hunter2"}', mtime=0),
        b"\xff\xfe" + '{"title": "x", "smtp": {"Password": "hunter2"}}'.encode("utf-16-le"),
        b'[{"title": "x", "auth_token": "hunter2"}]',
        b'{"event_action": "trigger", "routing_key": "hunter2", "payload": {"summary": "x"}}',
    ],
)
@pytest.mark.parametrize("kind", SenderKind)
def test_what_is_secret_by_its_name_is_not_kept_however_it_is_packed(kind: SenderKind, body: bytes) -> None:
    assert "hunter2" not in storable(AlertSource(name="g", kind=kind), body)


def test_what_cannot_be_unpacked_is_kept_as_what_it_is() -> None:
    kept = storable(AlertSource(name="g"), b"\x1f\x8b junk")
    assert kept == "[7 bytes: it is packed with gzip, and is damaged]"
    with pytest.raises(Unreadable):
        value_of(b"\x1f\x8b junk")
