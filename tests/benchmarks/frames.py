"""Streams to measure with: what an ops session prints, at a given size a line, the same for every run.

Text, calls and results take turns, as they do in a session, and their texts are what tools print: log lines, JSON,
tables, paths and addresses; where the model speaks, some characters are not ASCII. No line holds a secret: a line with
one is the exception, and is redacted for as long as it takes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Final

Body = dict[str, object]

_SESSION_ID: Final = "670033f8-2ca5-4a09-8f30-443dd1de556f"
_SERVICES: Final = ("jellyfin", "postgres-main", "ingress-nginx", "media/transcoder", "backup", "grafana")
_WORDS: Final = (
    *("checked", "the", "certificate", "is", "valid", "until", "March", "response", "in", "milliseconds", "disk"),
    *("usage", "at", "percent", "restarting", "connection", "refused", "upstream", "timed", "out", "while"),
    *("reading", "health", "endpoint", "queue", "depth", "token", "bucket", "refilled", "replica", "lag"),
)
_POOL_LINES: Final = 4000


FIRST_CALL: Final = "toolu_000000"
"""The call whose result all results of `stream` repeat, if there are no calls in it."""


def stream(line_bytes: int, total_bytes: int, *, calls: bool = True) -> bytes:
    """Return about ``total_bytes`` of NDJSON, each line of about ``line_bytes``, as whole rounds of a session.

    Without ``calls``, which a daemon expects its gate to have been asked about, results repeat that of `FIRST_CALL`.
    """
    texts = _Texts(random.Random(line_bytes))  # noqa: S311 - the same stream every time, nothing secret
    kinds = (_SHORT if line_bytes < _LONG_FRAME else _LONG) if calls else _without_calls(line_bytes)
    lines: list[bytes] = []
    size = number = 0
    while size < total_bytes:
        make = kinds[number % len(kinds)]
        line = _filled(make, number, line_bytes, texts)
        lines.append(line)
        size += len(line) + 1
        number += 1
    return b"\n".join(lines) + b"\n"


class _Texts:
    """Cuts texts of any length out of a pool of what tools print."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._pool = "\n".join(_output(dice) for _ in range(_POOL_LINES))

    def take(self, characters: int) -> str:
        """Return a text, each time another one."""
        at = self._dice.randrange(len(self._pool))
        text = self._pool[at : at + characters]
        while len(text) < characters:
            text += self._pool[: characters - len(text)]
        return text


def _output(dice: random.Random) -> str:
    """Return one line that some tool may print."""
    said = " ".join(dice.choices(_WORDS, k=dice.randint(4, 14)))
    service = dice.choice(_SERVICES)
    port, number = dice.randint(1024, 65535), dice.getrandbits(48)
    forms: tuple[Callable[[], str], ...] = (
        lambda: f"2026-11-21T08:48:{number % 60:02d}.{number % 1000:03d}Z {service}[{port}]: INFO {said}",
        lambda: f'{{"level":"warn","service":"{service}","took_ms":{number % 900},"msg":"{said}"}}',
        lambda: f"tcp   ESTAB  0  0   10.0.3.{number % 255}:{port}   10.0.7.{port % 255}:5432   {said}",
        lambda: f'GET https://{service}.example.net:{port}/health?probe={number:x} HTTP/1.1" 200 {number % 9999}',
        lambda: f"\t/srv/repos/{service}/deploy/{number:012x}.yaml: {said}",
        lambda: said.capitalize() + ".",
    )
    return dice.choice(forms)()


# --- frames -------------------------------------------------------------------------------------------


def _message(role: str, block: Body) -> Body:
    return {"type": role, "message": {"role": role, "content": [block]}, "session_id": _SESSION_ID}


def _said(_: int, text: str) -> Body:
    return _message("assistant", {"type": "text", "text": text.replace(" checked ", " ✓ ")})  # as models like to


def _called(number: int, text: str) -> Body:
    block: Body = {"type": "tool_use", "id": f"toolu_{number:06d}", "name": "Bash", "input": {"command": text}}
    return _message("assistant", block)


def _answered(number: int, text: str) -> Body:
    # The frame after the call; that is whose id it carries.
    return _message("user", {"type": "tool_result", "tool_use_id": f"toolu_{number - 1:06d}", "content": text})


def _streamed(_: int, text: str) -> Body:
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": delta, "session_id": _SESSION_ID}


def _whole(frame: Body, number: int) -> Body:
    """Add what the CLI prints around a message, as it does on every frame."""
    message = frame["message"]
    if isinstance(message, dict) and frame["type"] == "assistant":
        usage = {"input_tokens": 1000, "output_tokens": 50, "cache_read_input_tokens": 0}
        message |= {"id": f"msg_{number:06d}", "type": "message", "model": "claude-haiku-5-5", "usage": usage}
        message |= {"stop_reason": None, "stop_sequence": None}
    return frame | _about(number) | {"timestamp": "2026-11-21T08:48:33.098Z"}


def _about(number: int) -> Body:
    return {"parent_tool_use_id": None, "uuid": f"00000000-0000-4000-8000-{number:012d}"}


def _said_whole(number: int, text: str) -> Body:
    return _whole(_said(number, text), number)


def _called_whole(number: int, text: str) -> Body:
    return _whole(_called(number, text), number)


def _answered_whole(number: int, text: str) -> Body:
    """Return a result as the CLI prints it: what the model reads, and beside it what the tool printed."""
    half = text[: len(text) // 2]
    printed = {"stdout": half, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    return _whole(_answered(number, half), number) | {"tool_use_result": printed}


_LONG_FRAME: Final = 1000
_SHORT: Final = (_said, _called, _answered, _streamed)
_LONG: Final = (_said_whole, _called_whole, _answered_whole)


def _without_calls(line_bytes: int) -> Sequence[Callable[[int, str], Body]]:
    if line_bytes < _LONG_FRAME:
        return (_said, lambda _, text: _answered(1, text), _streamed)
    return (_said_whole, lambda number, text: _answered_whole(1, text) | _about(number))


def _filled(make: Callable[[int, str], Body], number: int, line_bytes: int, texts: _Texts) -> bytes:
    """Return a frame as one line of about ``line_bytes``."""
    around = len(_encoded(make(number, "")))
    wanted = max(line_bytes - around, 1)
    text = texts.take(wanted)
    # Escapes and characters of several bytes make a text longer on the line than it is.
    share = wanted / max(len(_encoded(make(number, text))) - around, 1)
    return _encoded(make(number, text[: max(int(wanted * share), 1)]))


def _encoded(frame: Body) -> bytes:
    """Return JSON as the CLI writes it: no spaces, characters as they are."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode()
