"""The listener at Slack: a process that holds a Socket Mode connection and passes on what people press.

Slack's SDK needs threads, and ends only when its process does. Its stdin begins with one line of JSON (`SlackRequest`)
and then is silent; when it closes, the process ends, so that it outlives no parent. On stdout it writes a line for
whatever happens (`SlackLine`). The token never stands in its arguments or environment, nor in what it writes.

Each press is written before it is acknowledged to Slack: should the process die in between, Slack sends it once more
to the next one.

Imports nothing of ours that takes time, and nothing that reads settings.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from slack_sdk.socket_mode import SocketModeClient
    from slack_sdk.socket_mode.client import BaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

CONNECTED: Final = "connected"
PRESSED: Final = "pressed"
LOST: Final = "lost"

MOST_BYTES: Final = 256 * 1024
"""Of a line; what is longer is not passed on."""

_SLACK_SAYS: Final = "Slack says "
_LOOK_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 10  # of Slack, for one call
_PING_SECONDS: Final = 2.0  # a connection that was cut shows after four of them
_BUFFER_BYTES: Final = 16 * 1024  # the SDK reads a message in so many pieces, each one call deeper
_WANTED: Final = ("type", "user", "team", "channel", "container", "actions")
"""Of what Slack sends when something is pressed; the rest is the message itself, which we know."""


class SlackRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to listen to."""

    app_token: str
    api: str
    patience_seconds: float  # without a connection; then the process ends
    environment: dict[str, str] = {}  # proxies may hold passwords: what a process starts with others can read


class SlackLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that has happened."""

    state: str
    error: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"")  # of what was pressed


def main() -> None:
    """Listen to Slack until stdin closes."""
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=SlackRequest)
    os.environ.update(request.environment)
    lines = _Lines(os.dup(1))
    os.dup2(2, 1)  # whatever the SDK prints must not stand between the lines
    client = _client(request, lines)
    try:
        client.connect()
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent tries again later
        lines.write(SlackLine(state=LOST, error=_reason(error)))
        os._exit(1)
    _stay(client, request.patience_seconds, lines)


class _Lines:
    """Writes whole lines, whichever thread calls."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, line: SlackLine) -> None:
        data = memoryview(msgspec.json.encode(line) + b"\n")
        if len(data) > MOST_BYTES:
            return
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]


def _client(request: SlackRequest, lines: _Lines) -> SocketModeClient:
    from slack_sdk.socket_mode import SocketModeClient  # noqa: PLC0415 - takes a quarter of a second
    from slack_sdk.socket_mode.response import SocketModeResponse  # noqa: PLC0415 - as above
    from slack_sdk.web import WebClient  # noqa: PLC0415 - as above

    web = WebClient(base_url=request.api, timeout=_ANSWER_SECONDS, retry_handlers=[])
    client = SocketModeClient(
        app_token=request.app_token, web_client=web, receive_buffer_size=_BUFFER_BYTES, ping_interval=_PING_SECONDS
    )

    issue = client.issue_new_wss_url

    def issued() -> str:
        address = issue()
        if request.api.startswith("https:") and not is_private(address):
            raise ConnectionError("the address is not one of TLS")
        return address

    client.issue_new_wss_url = issued  # type: ignore[method-assign]

    def hello(_: BaseSocketModeClient, message: Mapping[str, Any], __: str | None) -> None:
        if message.get("type") == "hello":
            lines.write(SlackLine(state=CONNECTED))

    def interact(client: BaseSocketModeClient, request: SocketModeRequest) -> None:
        if request.type == "interactive":
            wanted = {name: request.payload[name] for name in _WANTED if name in request.payload}
            lines.write(SlackLine(state=PRESSED, payload=msgspec.Raw(msgspec.json.encode(wanted))))
        client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    client.message_listeners.append(hello)
    client.socket_mode_request_listeners.append(interact)
    return client


def is_private(address: str) -> bool:
    """Return whether the SDK speaks TLS to an address: to any port but the usual one it does not."""
    parts = urlsplit(address)
    return parts.scheme == "wss" and parts.port in {None, 443}


def _stay(client: SocketModeClient, patience_seconds: float, lines: _Lines) -> None:
    """Return never: the SDK reconnects by itself, and a process that does not get through ends."""
    seen = time.monotonic()
    while True:
        readable, _, _ = select.select([0], [], [], _LOOK_SECONDS)
        if readable and not os.read(0, 4096):
            os._exit(0)  # threads of the SDK would keep the process alive
        if client.is_connected():
            seen = time.monotonic()
        elif time.monotonic() - seen > patience_seconds:
            lines.write(SlackLine(state=LOST, error=f"no connection for {patience_seconds:g} s"))
            os._exit(1)


def _reason(error: Exception) -> str:
    """Return what went wrong without what a library quotes: Slack's word for it, or the kind of error."""
    answer = getattr(error, "response", None)
    word = getattr(answer, "data", None)
    if isinstance(word, dict) and isinstance(word.get("error"), str):
        return f"{_SLACK_SAYS}{word['error'][:100]}"
    return type(error).__name__


def word_in(error: str) -> str:
    """Return Slack's own word in the error of a line; empty: it is not Slack's."""
    return error.removeprefix(_SLACK_SAYS) if error.startswith(_SLACK_SAYS) else ""


if __name__ == "__main__":
    main()
