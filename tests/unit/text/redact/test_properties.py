"""What holds for every line and every secret."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from claudeops.text.redact import MASK, SHORTEST, Redactor
from support.secret_texts import as_bytes

EXAMPLES = 25

# Letters that also stand in escapes, encodings and the mask make accidents likely.
letters = st.sampled_from("abcdefnrtuU0123456789%+/=\\\"'& \n{}[]:,._-é日🔑\x00\ud83d")
secrets_ = st.text(letters, min_size=SHORTEST, max_size=12).filter(
    lambda secret: len(secret.strip()) >= SHORTEST and not set(secret) <= set("[redacted]")
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(letters),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(letters), children, max_size=3),
    max_leaves=8,
)


def planted(value: object, secret: str) -> object:
    """Put a secret into every string and key of a value."""
    if isinstance(value, str):
        return value + secret + value
    if isinstance(value, list):
        return [planted(item, secret) for item in value]
    if isinstance(value, dict):
        return {key + secret: planted(item, secret) for key, item in value.items()}
    return value


def strings_of(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in strings_of(item)]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *strings_of(item))]
    return []


@settings(deadline=None, max_examples=EXAMPLES)
@given(value=json_values, secrets=st.lists(secrets_, min_size=1, max_size=3), ascii_only=st.booleans())
def test_json_stays_json_and_no_planted_secret_survives(value: object, secrets: list[str], ascii_only: bool) -> None:
    line = as_bytes(json.dumps(planted({"t": value, "s": ""}, secrets[0]), ensure_ascii=ascii_only))
    redactor = Redactor(secrets)
    redacted = redactor.line(line)
    for text in strings_of(json.loads(redacted.decode("utf-8", "surrogatepass"))):
        for part in text.split(MASK):
            assert not any(secret.strip() in part for secret in secrets)
    for rest in redacted.split(MASK.encode()):
        assert not any(as_bytes(secret.strip()) in rest for secret in secrets)
    assert redactor.line(redacted) is redacted


@settings(deadline=None, max_examples=EXAMPLES)
@given(value=json_values, secret=st.text("XYZ", min_size=SHORTEST, max_size=9))
def test_structure_and_numbers_are_kept(value: object, secret: str) -> None:
    def masked(part: object) -> object:
        if isinstance(part, str):
            return part + MASK + part
        if isinstance(part, list):
            return [masked(item) for item in part]
        if isinstance(part, dict):
            return {key + MASK: masked(item) for key, item in part.items()}
        return part

    line = as_bytes(json.dumps([planted(value, secret), secret]))
    assert json.loads(Redactor([secret]).line(line)) == [masked(value), MASK]


@settings(deadline=None, max_examples=EXAMPLES)
@given(raw=st.binary(max_size=60), secrets=st.lists(secrets_, min_size=1, max_size=3), after=st.text(letters))
def test_redacting_any_line_twice_equals_redacting_it_once(raw: bytes, secrets: list[str], after: str) -> None:
    redactor = Redactor(secrets)
    for line in (raw + as_bytes(secrets[0] + after), as_bytes(after) + raw, as_bytes(after + MASK + secrets[-1])):
        redacted = redactor.line(line)
        assert redactor.line(redacted) is redacted


@settings(deadline=None, max_examples=EXAMPLES)
@given(secrets=st.lists(secrets_, min_size=1, max_size=3), before=st.text(letters), after=st.text(letters))
def test_a_text_is_clean_after_one_go(secrets: list[str], before: str, after: str) -> None:
    redactor = Redactor(secrets)
    redacted = redactor.text(before + secrets[0] + after)
    for part in redacted.split(MASK):
        assert not any(secret.strip() in part for secret in secrets)
    assert redactor.text(redacted) is redacted


pieces = st.lists(
    st.sampled_from(
        (
            *(
                ";token=a",
                "?password=",
                "password=hunter",
                "pwd='",
                "x",
                " ",
                "\n",
                "\0",
                "<",
                ">",
                "<\0>\n",
                "\0>\n",
                "@",
            ),
            *(
                "https://ops:",
                "authorization: ",
                "bearer ",
                "Basic abcdefgh",
                "x-api-key: ",
                "ghp_" + "a" * 20,
                "abcdef",
            ),
            *(
                "-----BEGIN RSA PRIVATE KEY-----",
                "-----END RSA PRIVATE KEY-----",
                "A" * 40 + "\n",
                "[redac",
                "ted]",
                MASK,
            ),
            *(
                "eyJabcdef.abcdef.",
                "sk-ant-abcdefghij",
                "AKIA" + "A" * 16,
                "hooks.slack.com/services/T",
                "\\n",
                "%3d",
                "=",
            ),
        )
    ),
    max_size=12,
).map("".join)


@settings(deadline=None, max_examples=8 * EXAMPLES)
@given(
    before=pieces, after=pieces, secrets=st.lists(st.sampled_from(("abcdef<", ">\nabcdef", "x\0>abcdef", "abcdefx")))
)
def test_a_mask_keeps_what_is_before_it_from_what_is_after_it(before: str, after: str, secrets: list[str]) -> None:
    redactor = Redactor(secrets)
    apart = [redactor.text(part) for part in f"{before}{MASK}{after}".split(MASK)]
    assert redactor.text(f"{before}{MASK}{after}") == MASK.join(apart)
