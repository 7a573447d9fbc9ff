"""Secrets that nobody told us: known by their shape, and nothing else taken for one."""

from __future__ import annotations

import json

import pytest

from claudeops.text.redact import MASK, Redactor

A = "Ab1" * 20
SHAPES = {
    "anthropic": f"sk-ant-api03-{A}_-AA",
    "openai": f"sk-{A}",
    "openai-project": f"sk-proj-{A}-_x",
    "github": f"ghp_{A[:36]}",
    "github-oauth": f"gho_{A[:36]}",
    "github-fine-grained": f"github_pat_{A[:22]}_{A[:59]}",
    "gitlab": f"glpat-{A[:20]}",
    "slack-bot": "xoxb-123456789012-123456789012-" + A[:24],
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws-session": "ASIAIOSFODNN7EXAMPLE",
    "google": "AIza" + A[:35],
    "hugging-face": f"hf_{A[:34]}",
    "npm": f"npm_{A[:36]}",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{A}",
    "stripe": f"sk_live_{A[:24]}",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    "jwt-unsigned": "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",
    "telegram": "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",
    "vault": f"hvs.{A[:24]}",
}
UNKNOWING = Redactor([])  # knows shapes only
AROUND = (
    "{}",
    "key={}",
    'export K="{}"',
    "({}),",
    "\n{}\n",
    "\t{} ",
    "[{}]",
    "MY_{}",
    "é{}é",
    "`{}`",
    "\x1b[31m{}\x1b[0m",
    "x%3d{}",
)


@pytest.mark.parametrize("name", SHAPES)
def test_a_key_of_a_common_provider_is_taken_out_unknown_as_it_is(name: str) -> None:
    for around in AROUND:
        assert UNKNOWING.text(around.format(SHAPES[name])) == around.format(MASK)
        frame = {"text": around.format(SHAPES[name])}
        assert json.loads(UNKNOWING.line(json.dumps(frame).encode())) == {"text": around.format(MASK)}
        nested = {"text": json.dumps(frame)}
        assert SHAPES[name] not in json.loads(UNKNOWING.line(json.dumps(nested).encode()))["text"]


PHRASES = {
    "bearer": ("Authorization: Bearer abc.DEF-123_~+/==", "Authorization: Bearer {}"),
    "bearer-quoted": ("-H 'authorization:bearer  abcdef12' -v", "-H 'authorization:bearer  {}' -v"),
    "bearer-json": ('{"Authorization": "Bearer abcdef12", "x": 1}', '{"Authorization": "Bearer {}", "x": 1}'),
    "bearer-alone": ("bearer 0123456789abcdefghij== x", "bearer {} x"),
    "basic": ("Authorization: Basic dXNlcjpwYXNz\nHost: x", "Authorization: Basic {}\nHost: x"),
    "api-key-header": ('curl -H "X-Api-Key: 0123456789"', 'curl -H "X-Api-Key: {}"'),
    "aws-environment": ("AWS_SECRET_ACCESS_KEY=wJalr/K7+x\nX=1", "AWS_SECRET_ACCESS_KEY={}\nX=1"),
    "aws-file": ("aws_secret_access_key = wJalr/K7+x", "aws_secret_access_key = {}"),
    "aws-json": ('{"SecretAccessKey": "wJalr/K7+x"}', '{"SecretAccessKey": "{}"}'),
    "postgres": ("postgresql://ops:s3cret@db:5432/x?y=1", "postgresql://ops:{}@db:5432/x?y=1"),
    "password-with-at": ("amqp://u:p@ss:w0rd@mq/", "amqp://u:{}@mq/"),
    "redis-no-user": ("redis://:s3cret@cache:6379", "redis://:{}@cache:6379"),
    "escaped-slashes": (r"https:\/\/u:s3cret@host\/p", r"https:\/\/u:{}@host\/p"),
    "query": (
        "GET /x?token=abc123&page=2&api_key=k#f",
        "GET /x?token={}&page=2&api_key={}#f",
    ),
    "query-more": (
        "/x?a=1&access_token=abc&client_secret=d%20e&X-Amz-Signature=ff",
        "/x?a=1&access_token={}&client_secret={}&X-Amz-Signature={}",
    ),
    "query-escaped": (r"/x?a=1\u0026password=abc\u0026b=2", r"/x?a=1\u0026password={}\u0026b=2"),
    "ado": ("Server=db;User Id=u;Password=abc123;Timeout=3", "Server=db;User Id=u;Password={};Timeout=3"),
    "libpq": ("host=db user=u password=abc123 dbname=x", "host=db user=u password={} dbname=x"),
    "slack-webhook": (
        "https://hooks.slack.com/services/T0000/B0000/XXXXXXXX done",
        "https://hooks.slack.com/{} done",
    ),
    "discord-webhook": (
        "https://discord.com/api/webhooks/123456/abc-DEF_1 done",
        "https://discord.com/api/webhooks/{} done",
    ),
    "telegram-url": (
        "https://api.telegram.org/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1/send",
        "https://api.telegram.org/{}/send",
    ),
}


@pytest.mark.parametrize("name", PHRASES)
def test_only_the_secret_part_of_a_phrase_is_taken_out(name: str) -> None:
    text, expected = PHRASES[name]
    assert UNKNOWING.text(text) == expected.replace("{}", MASK)
    line = UNKNOWING.line(json.dumps({"text": text}).encode())
    assert json.loads(line) == {"text": expected.replace("{}", MASK)}


BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDAbcdEFGH12345"] * 3 + ["QKBgQDx=="])


@pytest.mark.parametrize("kind", ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("-----BEGIN {k}-----\n{b}\n-----END {k}-----\nThen {x}", f"{MASK}\nThen {{x}}", id="whole"),
        pytest.param("a -----BEGIN {k}-----\n{b}", f"a {MASK}", id="no end"),
        pytest.param("{b}\n-----END {k}-----\nThen", f"{MASK}\nThen", id="no beginning"),
        pytest.param('"-----BEGIN {k}-----\n{b}", "x"', f'"{MASK}", "x"', id="cut, quoted"),
        pytest.param("     1\t-----BEGIN {k}-----\n     2\t{b}\n", f"     1\t{MASK}", id="numbered lines"),
    ],
)
def test_a_private_key_is_taken_out_whole_or_cut(kind: str, text: str, kept: str) -> None:
    original = text.replace("{k}", kind).replace("{b}", BODY)
    assert UNKNOWING.text(original) == kept
    assert json.loads(UNKNOWING.line(json.dumps({"t": original}).encode()))["t"] == kept
    escaped = UNKNOWING.text(json.dumps(original))
    assert "MIIE" not in escaped
    assert "QKBg" not in escaped
    assert "MIIE" not in json.loads(UNKNOWING.line(json.dumps({"t": json.dumps(original)}).encode()))["t"]


@pytest.mark.parametrize(
    "text",
    [
        "c37e77d2-023b-4ae6-bfbc-e6e7d195adc3",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "took 1234567890123 ms, 0.000123 USD, 2026-11-21T10:42:00.123456Z",
        "toolu_01A09q90qw90lq917835lq9 msg_01XFDUDYJgAACzvnptvVoYEL",
        "task-force disk-0 flask-app-7d9f8b6c5d-x2x4z risk-averse",
        "pypi-server-deployment-7d9f8b6c5d-abcde is running",
        "http://registry:5000/img@sha256:abc and http://[::1]:8080/a@b",
        "ssh://ops@host:22 mailto:a@b.c git@github.com:org/repo.git",
        "docker ps --filter name=web; curl -s http://host:8080/health?verbose=1&full=1",
        'grep -rn "-----BEGIN CERTIFICATE-----" /etc/ssl',
        "the bearer token is missing; Authorization: required",
        "curl -H 'Authorization: Bearer $TOKEN' -H \"x-api-key: ${KEY}\"",
        "next_page_token is set, password= is empty, tokens=12",
        "apikeySource=none apiKeySource ANTHROPIC_API_KEY",
        "https://hooks.slack.com is reachable",
        "AKIA is a prefix, sk- too, ghp_ as well, eyJ.x.y",
        "10.0.0.1:5432 fe80::1 aa:bb:cc:dd:ee:ff",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert UNKNOWING.text(text) == text
    line = json.dumps({"t": text}).encode()
    assert UNKNOWING.line(line) is line
