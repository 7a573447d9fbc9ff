"""Known secrets: out of every line, in every form, without harm to what stands around them."""

from __future__ import annotations

import gc
import json
from functools import cache
from pathlib import Path

import pytest

from claudeops.text.redact import MASK, SHORTEST, Redactor, compiled
from support.secret_texts import FORMS, SECRETS, as_bytes, in_base64
from support.streams import RECORDINGS


@cache
def knowing(secret: str) -> Redactor:
    return Redactor([secret])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SECRETS)
def test_no_form_of_a_known_secret_survives(name: str, form: str) -> None:
    secret = SECRETS[name].strip()
    written = FORMS[form](secret)
    redactor = knowing(secret)
    for around in ("{}", "before {} after", "x={}&y", '"{}"'):
        redacted = redactor.text(around.format(written))
        assert MASK in redacted
        assert written not in redacted
        assert core(written) not in redacted

    frame = json.dumps({"type": "user", "text": f"out: {written} end", "n": 1.50}, ensure_ascii=False)
    line = redactor.line(as_bytes(frame))
    assert core(written) not in json.loads(line)["text"]
    assert json.loads(line)["type"] == "user"
    assert b'"n": 1.5' in line


def test_no_expression_outlives_its_redactor() -> None:
    """The library keeps the last 128: the secrets of as many sessions, and up to a MiB for each."""
    kind = type(compiled(b"x"))

    def left() -> dict[int, object]:
        gc.collect()
        return {id(each): each for each in gc.get_objects() if isinstance(each, kind)}

    before = left()  # and kept, so that no number comes again
    for number in range(3):
        Redactor([f"secret-of-session-{number}"]).text("what a session says, and token=another-thing-in-it")
    assert left().keys() - before.keys() == set()


def core(written: str) -> str:
    """Return the middle of a written secret: its edges may be shared with what stands beside it (base64)."""
    return written[len(written) // 4 : -len(written) // 4] if len(written) > 12 else written


def test_a_line_without_a_hit_is_the_same_object() -> None:
    redactor = Redactor(SECRETS.values())
    for line in (
        b"",
        b"\n",
        b"not json at all",
        b'{"type":"assistant","message":{"content":[{"type":"text","text":"all \\u003cwell\\u003e \\n"}]}}',
        b'{"session_id":"c37e77d2-023b-4ae6-bfbc-e6e7d195adc3","duration_ms":1234567890123,"cost":0.00025}',
        b'{"type":"result","total_cost_usd":1e-05,"big":123456789012345678901234567890}\r\n',
        b"\xff\xfe broken",
    ):
        assert redactor.line(line) is line


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_sessions_hold_nothing_to_take_out(path: Path) -> None:
    redactor = Redactor(SECRETS.values())
    for line in path.read_bytes().splitlines(keepends=True):
        assert redactor.line(line) is line


def test_a_text_without_a_hit_is_the_same_object() -> None:
    text = "nothing here but us chickens"
    assert Redactor(["hunter2hunter2"]).text(text) is text


def test_a_trigger_that_is_no_secret_leaves_the_line_the_same_object() -> None:
    line = rb'{"text":"\u0061bc: the x-api-key: $KEY header and -----BEGIN RSA PRIVATE","n":1.0}'
    assert Redactor([]).line(line) is line


def test_a_line_with_a_hit_keeps_everything_else_as_it_was_written() -> None:
    line = (
        b'{ "b" : 1.50, "a":[1e400,-0.0,123456789012345678901234567890, true,null],'
        b'"text" : "token hunter2hunter2 \\u00e9 \\ud83d \\/","a":"\\u0041","k hunter2hunter2":{}}\r\n'
    )
    assert Redactor(["hunter2hunter2"]).line(line) == (
        b'{ "b" : 1.50, "a":[1e400,-0.0,123456789012345678901234567890, true,null],'
        b'"text" : "token [redacted] \\u00e9 \\ud83d /","a":"\\u0041","k [redacted]":{}}\r\n'
    )


def test_a_number_longer_than_python_reads_does_not_stop_redaction() -> None:
    digits = b"7" * 5000
    line = b'{"n":' + digits + b',"t":"' + rb'one\nabcdef"}'  # as text it would be cut behind the backslash
    assert Redactor(["nabcdef"]).line(line) == b'{"n":' + digits + b',"t":"one[redacted]"}'


def test_a_secret_written_as_a_number_becomes_a_string() -> None:
    assert Redactor(["31415926"]).line(b'{"pin":31415926,"n":3141592}') == b'{"pin":"[redacted]","n":3141592}'


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"assistant","text":"hunter2hunter2', id="cut off"),
        pytest.param(b"hunter2hunter2", id="bare"),
        pytest.param(b"\xff\xfe hunter2hunter2 \xff", id="no utf-8"),
        pytest.param(b'\xff{"a":"hunter2hunter2"}', id="junk before"),
        pytest.param(b"[" * 100_000 + b'"hunter2hunter2"', id="too deep"),
        pytest.param(b"hunter2\\u0068unter2", id="escaped"),
    ],
)
def test_a_line_that_is_no_json_is_redacted_as_text(line: bytes) -> None:
    redacted = Redactor(["hunter2hunter2"]).line(line)
    assert b"hunter2" not in redacted
    assert MASK.encode() in redacted


def test_a_line_that_only_a_lenient_reader_takes_stays_readable() -> None:
    line = b'\x00{"a":NaN,"b":"tab\there hunter2hunter2","c":"\xff"}'
    redacted = Redactor(["hunter2hunter2"]).line(line)
    assert redacted == b'\x00{"a":NaN,"b":"tab\\there [redacted]","c":"\xff"}'


def test_an_escape_sequence_is_not_cut_in_two() -> None:
    line = rb'{"text":"one\nabcdef two\\nabcdef three"}'
    redacted = Redactor(["nabcdef"]).line(line)
    assert b"nabcdef" not in redacted
    assert json.loads(redacted)["text"].endswith(" three")


@pytest.mark.parametrize("secret", ['"},{"a":"', '"a":"b"', '{"a":0', "0,1,2,3", '":"x","'])
def test_a_secret_made_of_jsons_own_signs_costs_the_line_but_never_its_validity(secret: str) -> None:
    line = b'[{"a":"b"},{"a":"x","a":"y"},{"a":0,"b":[0,1,2,3]}]\n'
    redacted = Redactor([secret]).line(line)
    assert secret.encode() not in redacted
    assert redacted.endswith(b"\n")
    json.loads(redacted)


def test_overlapping_secrets_leave_no_remainder_of_either() -> None:
    redactor = Redactor(["abcdefgh", "efghijkl", "abcdefghij-long", "hijklm"])
    assert redactor.text("<abcdefghijklm>") == f"<{MASK}>"
    assert redactor.text("<abcdefghij-long>") == f"<{MASK}>"
    assert redactor.text("<abcdefghefghijkl> abcdefgh") == f"<{MASK}> {MASK}"


def test_the_longest_of_several_readings_counts() -> None:
    redactor = Redactor(["%41%41", "AABCDE"])
    assert redactor.text("x %41%41%42%43%44%45 y") == f"x {MASK} y"


@pytest.mark.parametrize(
    ("secrets", "text", "expected"),
    [
        (["hunter22", "d]foobar"], "hunter22foobar", f"{MASK}foobar"),
        (["hunter22", "foo[red"], "foohunter22", f"foo{MASK}"),
        (["hunter22", "ted][red"], "hunter22 hunter22hunter22", f"{MASK} {MASK}"),
    ],
)
def test_no_secret_matches_into_a_mask(secrets: list[str], text: str, expected: str) -> None:
    redactor = Redactor(secrets)
    assert redactor.text(text) == expected
    assert redactor.text(expected) is expected
    line = json.dumps({"t": text}).encode()
    assert json.loads(redactor.line(line)) == {"t": expected}


def test_a_secret_within_a_shape_takes_the_whole_shape_along() -> None:
    redactor = Redactor(["middle-part"])
    assert redactor.text("key sk-ant-api03-abcdefmiddle-partghijklmnop!") == f"key {MASK}!"


def test_values_too_short_or_made_of_the_mask_are_left() -> None:
    redactor = Redactor(["", "  ", "abc", " abc ", "12345", "redacted", "x[redacted]y", "longenough"])
    assert redactor.text("abc 12345 redacted x[redacted]y longenough") == f"abc 12345 redacted x[redacted]y {MASK}"
    assert SHORTEST == 6


def test_space_around_a_configured_value_does_not_hide_it() -> None:
    assert Redactor(["  hunter2hunter2\n"]).text("hunter2hunter2") == MASK


def test_line_ends_of_a_configured_value_do_not_hide_it() -> None:
    redactor = Redactor(["first line\r\nsecond line"])
    for written in ("first line\r\nsecond line", "first line\nsecond line"):
        assert redactor.text(written) == MASK
        assert redactor.text(in_base64(written, 0)).startswith(MASK)


def test_each_of_very_many_secrets_is_found() -> None:
    secrets = ["".join(chr(33 + (n * k) % 94) for k in range(60, 210)) for n in range(1, 26)]
    redactor = Redactor(secrets)
    for secret in secrets:
        assert redactor.text(f"<{secret}>") == f"<{MASK}>"


def test_a_part_of_a_key_file_is_known_by_its_long_lines() -> None:
    body = ["b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAA", "Q2xhdWRlT3BzQ2xhdWRlT3BzQ2xhdWRlT3Bz"]
    key = "\n".join(["name: short lines are no secrets", *body])
    redacted = Redactor([key]).text(f"  17\t{body[0]}\n  18\t{body[1]}\nname: short")
    assert redacted == f"  17\t{MASK}\n  18\t{MASK}\nname: short"


def test_a_long_secret_is_still_found_in_its_usual_forms() -> None:
    secret = "".join(f'line {n} "quoted" \\ back/slash é\n' for n in range(100)).strip()
    redactor = Redactor([secret])
    for form in ("as-it-is", "json", "json-ascii", "json-in-json", "url", "base64", "base64-offset-2", "hexadecimal"):
        assert redactor.text(FORMS[form](secret)).replace(MASK, "").strip("/8w=") == "", form


def test_a_long_secret_that_was_cut_off_is_found_as_far_as_whole_pieces_go() -> None:
    secret = "".join(f"<{n}>" for n in range(200))
    redacted = Redactor([secret]).text(f"preview: {secret[:450]}")
    assert redacted == f"preview: {MASK}{secret[400:450]}"


def test_secrets_too_long_to_be_looked_for_are_refused_without_being_quoted() -> None:
    with pytest.raises(ValueError, match=r"^the secrets have 60007 characters in all, 50000 can be redacted") as caught:
        Redactor(["hunter2" + "x" * 30_000, "y" * 30_000])
    assert "hunter2" not in str(caught.value)


def test_an_expression_that_is_refused_is_not_quoted() -> None:
    with pytest.raises(ValueError, match=r"refuses$") as caught:
        compiled(b"hunter2(")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_hostile_text_is_redacted_in_bounded_work() -> None:
    redactor = Redactor(["aaaaaa", "nabcdef"])
    for hostile in (
        b"a" * 30_000,
        b'{"t":"' + b"a" * 30_000 + b'"}',
        b'{"t":"' + rb"\nabcdef" * 10_000 + b'"}',
        b"-----BEGIN PRIVATE KEY-----" * 10_000,
        b"AKIAIOSFODNN7EXAMPLE " * 10_000,
        b"://:" * 50_000 + b"@",
        b"password=" * 20_000,
        b"[redacted]" * 20_000 + b"aaaaaa",
    ):
        redacted = redactor.line(hostile)
        assert b"aaaaaa" not in redacted
        assert redactor.line(redacted) is redacted
