"""A scripted Slack on loopback: the Web API and Socket Mode, which record, hold to Slack's limits, and misbehave.

It knows what Slack documents of the few methods that we call, and refuses as Slack does what is outside its limits.
People are played by `SlackServer.tap`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

BOT_TOKEN: Final = "xoxb-4711-the-bot-token"
APP_TOKEN: Final = "xapp-1-A1-the-app-token"
SIGNING_SECRET: Final = "8f742231b10e8888abcd99aaa00085a5"
CHANNEL: Final = "C0000OPS"
MOST_BLOCKS: Final = 50
MOST_SECTION: Final = 3000
MOST_BUTTON: Final = 75
MOST_VALUE: Final = 2000
MOST_HEADER: Final = 150
MOST_TEXT: Final = 40_000

_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA

Json = dict[str, Any]


@dataclass(frozen=True)
class Called:
    """One call of a method."""

    method: str
    token: str
    fields: Json
    at: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a call is answered with instead of what it asks for."""

    status: int = 200
    body: Json = field(default_factory=lambda: {"ok": False, "error": "internal_error"})
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False  # until the server ends
    works: bool = False  # the call is carried out all the same: the answer alone is lost


@dataclass
class Posted:
    """A message in a channel, as it is now."""

    channel: str
    ts: str
    fields: Json
    edits: list[float] = field(default_factory=list)  # when

    @property
    def blocks(self) -> list[Json]:
        """Return its blocks."""
        return list(self.fields.get("blocks") or [])

    @property
    def buttons(self) -> dict[str, Json]:
        """Return its buttons by what stands on them."""
        elements = [element for block in self.blocks for element in block.get("elements", ())]
        return {each["text"]["text"]: each for each in elements if each["type"] == "button"}

    @property
    def code(self) -> str:
        """Return what stands in its blocks of code."""
        return "".join(_runs(block) for block in self.blocks if block["type"] == "rich_text")

    @property
    def all_text(self) -> str:
        """Return everything that somebody reads in it, but for its buttons."""
        texts = [
            block["text"]["text"] if "text" in block else _runs(block)
            for block in self.blocks
            if block["type"] != "actions"
        ]
        return "\n".join([str(self.fields.get("text", "")), *texts])


@dataclass
class SlackServer:
    """What happened, and what happens next."""

    calls: list[Called] = field(default_factory=list)
    answers: dict[str, list[Answer]] = field(default_factory=dict)  # of the next calls of a method
    messages: list[Posted] = field(default_factory=list)
    ephemeral: list[Json] = field(default_factory=list)
    acks: dict[str, float] = field(default_factory=dict)  # envelopes, and when they were acknowledged
    links: list[socket.socket] = field(default_factory=list)  # open ones
    opened: int = 0  # links, ever
    port: int = 0
    channels: tuple[str, ...] = (CHANNEL,)  # in which the app is
    released: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _envelopes: int = 0

    @property
    def api(self) -> str:
        """Where the Web API is."""
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def sent(self) -> str:
        """Everything that was sent here, but for the tokens of its calls."""
        return json.dumps([call.fields for call in self.calls])

    def called(self, method: str) -> list[Called]:
        """Return the calls of a method."""
        return [call for call in self.calls if call.method == method]

    # --- people -------------------------------------------------------------------------------------------

    def pressed(self, message: Posted, value: str, *, user: str, channel: str = "") -> Json:
        """Return what Slack says when somebody presses a button."""
        where = channel or message.channel
        buttons = [button for button in message.buttons.values() if button.get("value") == value]
        button = buttons[0] if buttons else {"action_id": "approval_yes", "type": "button"}
        return {
            "type": "block_actions",
            "user": {"id": user, "username": "somebody", "name": "somebody", "team_id": "T0000001"},
            "api_app_id": "A0000001",
            "token": "the-old-verification-token",
            "container": {"type": "message", "message_ts": message.ts, "channel_id": where, "is_ephemeral": False},
            "trigger_id": "1.2.abc",
            "team": {"id": "T0000001", "domain": "example"},
            "enterprise": None,
            "is_enterprise_install": False,
            "channel": {"id": where, "name": "ops"},
            "message": {"type": "message", "ts": message.ts, **message.fields},
            "state": {"values": {}},
            "response_url": "https://hooks.slack.invalid/actions/T0000001/1/abc",
            "actions": [{**button, "value": value, "type": "button", "action_ts": f"{time.time():.6f}"}],
        }

    def tap(self, message: Posted, value: str, *, user: str, channel: str = "") -> str:
        """Press a button over Socket Mode; return the envelope's id."""
        return self.push("interactive", self.pressed(message, value, user=user, channel=channel))

    def push(self, kind: str, payload: Json) -> str:
        """Send an envelope down the newest link."""
        with self._lock:
            self._envelopes += 1
            envelope = f"envelope-{self._envelopes}"
        body = {"envelope_id": envelope, "type": kind, "accepts_response_payload": True, "payload": payload}
        _send(self.links[-1], _TEXT, json.dumps(body).encode())
        return envelope

    def say(self, body: Json) -> None:
        """Send something that is no envelope down every link, such as ``disconnect``."""
        for link in [*self.links]:
            _send(link, _TEXT, json.dumps(body).encode())

    def cut(self) -> None:
        """Cut every link."""
        for link in [*self.links]:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    # --- the methods --------------------------------------------------------------------------------------

    def answer(self, method: str, token: str, fields: Json) -> Answer:
        """Carry out a call."""
        with self._lock:
            self.calls.append(Called(method, token, fields, time.monotonic()))
            planned = self.answers.get(method) or []
            instead = planned.pop(0) if planned else None
            if instead is not None and not instead.works:
                return instead
            done = self._carry_out(method, token, fields)
            return instead or Answer(body=done)

    def _carry_out(self, method: str, token: str, fields: Json) -> Json:
        if token != (APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN):
            return {"ok": False, "error": "invalid_auth"}
        match method:
            case "auth.test":
                return {"ok": True, "team": "Example", "user": "claudeops", "bot_id": "B1"}
            case "apps.connections.open":
                return {"ok": True, "url": f"ws://127.0.0.1:{self.port}/link/?ticket=abc"}
            case "chat.postMessage" | "chat.update" | "chat.postEphemeral":
                return self._message(method, fields)
            case _:
                return {"ok": False, "error": "unknown_method"}

    def _message(self, method: str, fields: Json) -> Json:
        channel = fields.get("channel")
        if channel not in self.channels:
            return {"ok": False, "error": "channel_not_found"}
        if wrong := faults(fields):
            return {"ok": False, "error": "invalid_blocks", "response_metadata": {"messages": wrong}}
        if method == "chat.postEphemeral":
            self.ephemeral.append(fields)
            return {"ok": True, "message_ts": "1.1"}
        if method == "chat.postMessage":
            posted = Posted(channel=channel, ts=f"1700000000.{len(self.messages) + 1:06d}", fields=fields)
            self.messages.append(posted)
            return {"ok": True, "channel": channel, "ts": posted.ts, "message": {"type": "message", **fields}}
        for posted in self.messages:
            if (posted.channel, posted.ts) == (channel, fields.get("ts")):
                posted.fields = fields
                posted.edits.append(time.monotonic())
                return {"ok": True, "channel": channel, "ts": posted.ts, "text": fields.get("text", "")}
        return {"ok": False, "error": "message_not_found"}


def faults(fields: Json) -> list[str]:
    """Return what is outside Slack's limits in a message."""
    blocks = fields.get("blocks") or []
    wrong = ["no text"] if not fields.get("text") and not blocks else []
    wrong += ["text too long"] if len(fields.get("text", "")) > MOST_TEXT else []
    wrong += ["too many blocks"] if len(blocks) > MOST_BLOCKS else []
    for block in blocks:
        if block["type"] == "rich_text":
            wrong += ["code too long"] if not 1 <= len(_runs(block)) <= MOST_SECTION else []
            continue
        text = block.get("text", {}).get("text")
        most = MOST_HEADER if block["type"] == "header" else MOST_SECTION
        if text is not None and not 1 <= len(text) <= most:
            wrong.append(f"{block['type']} with {len(text)} characters")
        for button in block.get("elements", ()):
            if len(button["text"]["text"]) > MOST_BUTTON or len(button.get("value", "")) > MOST_VALUE:
                wrong.append("button too long")
    return wrong


def _runs(block: Json) -> str:
    return "".join(run["text"] for part in block["elements"] for run in part["elements"])


def signed(payload: Json, *, secret: str = SIGNING_SECRET, at: float | None = None) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers with which Slack posts an interaction to an address of ours."""
    body = urlencode({"payload": json.dumps(payload)}).encode()
    stamp = str(int(time.time() if at is None else at))
    proof = hmac.new(secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return body, {
        "content-type": "application/x-www-form-urlencoded",
        "x-slack-request-timestamp": stamp,
        "x-slack-signature": f"v0={proof}",
    }


# --- the server -------------------------------------------------------------------------------------------


@contextmanager
def slack(*, channels: tuple[str, ...] = (CHANNEL,)) -> Iterator[SlackServer]:
    """Serve until the block ends."""
    server = SlackServer(channels=channels)
    handler = type("Handler", (_Handler,), {"slack": server})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        server.port = serving.server_port
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            serving.shutdown()
            server.cut()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    slack: SlackServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Open a link."""
        key = self.headers["Sec-WebSocket-Key"].encode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        proof = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest()).decode()
        self.send_header("Sec-WebSocket-Accept", proof)
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        hello = {"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A0000001"}}
        _send(self.connection, _TEXT, json.dumps(hello).encode())
        self.slack.links.append(self.connection)
        self.slack.opened += 1
        try:
            self._converse()
        except (OSError, EOFError):
            pass
        finally:
            self.slack.links.remove(self.connection)

    def _converse(self) -> None:
        while True:
            opcode, data = self._frame()
            if opcode == _CLOSE:
                return
            if opcode == _PING:
                _send(self.connection, _PONG, data)
            elif opcode == _TEXT:
                said = json.loads(data)
                self.slack.acks.setdefault(said["envelope_id"], time.monotonic())

    def _frame(self) -> tuple[int, bytes]:
        first, second = self._read(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._read(8))
        assert second & 0x80, "a client masks what it sends"
        mask = self._read(4)
        return first & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(self._read(length)))

    def _read(self, count: int) -> bytes:
        data = self.rfile.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def do_POST(self) -> None:
        """Answer a method."""
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.headers.get("Content-Type", "").startswith("application/json"):
            fields = json.loads(content or "{}")
        else:
            fields = dict(parse_qsl(content))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        said = self.slack.answer(self.path.removeprefix("/api/"), token, fields)
        if said.hangs:
            self.slack.released.wait()
            self.close_connection = True
            return
        answer = json.dumps(said.body).encode()
        self.send_response(said.status)
        for name, value in {**said.headers, "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def _send(link: socket.socket, opcode: int, data: bytes) -> None:
    head = bytes([0x80 | opcode])
    if len(data) < 126:
        head += bytes([len(data)])
    elif len(data) < 65536:
        head += struct.pack("!BH", 126, len(data))
    else:
        head += struct.pack("!BQ", 127, len(data))
    link.sendall(head + data)
