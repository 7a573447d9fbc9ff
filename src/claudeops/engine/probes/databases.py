"""The kinds `postgres`, `mysql` and `redis`: is the server ready, asked in its own protocol and without a login.

What refuses a login works: it has looked at the request and answered it.
"""

from __future__ import annotations

import struct
from typing import Final

from claudeops.domain.probes.probe import MysqlLook, PostgresLook, RedisLook, Saw
from claudeops.engine.probes.results import Attempt, LookFailedError, LookResult, down, quote
from claudeops.engine.probes.stream import Means, ProbeStream

_USER: Final = "claudeops_probe"  # stands in the server's log as one that may not log in
_LONGEST_MESSAGE: Final = 16 * 1024

# --- PostgreSQL: "Frontend/Backend Protocol" ------------------------------------------------------------

_PROTOCOL: Final = 196_608  # 3.0


async def look_postgres(look: PostgresLook, means: Means, attempt: Attempt) -> LookResult:
    """Begin a session and look at the first answer, as pg_isready does; raises `LookFailedError`."""
    async with means.connection(look.host, look.port, attempt) as stream:
        settings = f"user\0{_USER}\0database\0{_USER}\0application_name\0claudeops\0\0".encode()
        await stream.send(struct.pack("!II", len(settings) + 8, _PROTOCOL) + settings)
        attempt.begin("waiting for the server's first message")
        kind, length = await _head(stream, "!cI", "PostgreSQL")
        if kind == b"R":
            return LookResult(Saw.UP, "it accepts connections")
        if kind != b"E" or not 4 < length <= _LONGEST_MESSAGE:  # noqa: PLR2004 - the length counts itself
            raise _other_protocol(stream, "PostgreSQL")
        fields = _error_fields(await stream.exactly(length - 4))
    told = f"{quote(fields.get('M', ''))} ({fields.get('C', '')[:5]})"
    match fields.get("C"):
        case "57P03":
            return LookResult(Saw.DOWN, f"it accepts no connections: {told}")
        case "53300":
            return LookResult(Saw.DEGRADED, f"it has no connection left: {told}")
        case _:
            return LookResult(Saw.UP, f"it answers: {told}")


def _error_fields(body: bytes) -> dict[str, str]:
    """Return the fields of an ErrorResponse by their letters."""
    parts = (part.decode("utf-8", "replace") for part in body.split(b"\0") if part)
    return {part[0]: part[1:] for part in parts}


# --- MySQL and MariaDB: "Connection Phase" --------------------------------------------------------------

_GREETING: Final = 10  # version of the handshake
_ERROR: Final = 0xFF
_OTHER_METHOD: Final = 0xFE
_CONNECTIONS_USED_UP: Final = frozenset({1040, 1203})
_HOST_REFUSED: Final = 1129  # "blocked because of many connection errors"
_CAPABILITIES: Final = 0x1 | 0x200 | 0x8000 | 0x80000
"""LONG_PASSWORD, PROTOCOL_41, SECURE_CONNECTION and PLUGIN_AUTH."""


async def look_mysql(look: MysqlLook, means: Means, attempt: Attempt) -> LookResult:
    """Read the greeting, then fail to log in: a server blocks hosts that leave in the middle of its handshake.

    Raises `LookFailedError`.
    """
    async with means.connection(look.host, look.port, attempt) as stream:
        attempt.begin("waiting for the greeting")
        number, packet = await _packet(stream)
        if packet[0] == _ERROR:
            return _mysql_error(packet)
        version, end, _ = packet[1:].partition(b"\0")
        if packet[0] != _GREETING or not end:
            raise _other_protocol(stream, "MySQL")
        version = version.removeprefix(b"5.5.5-")  # MariaDB's, for clients that take 10 for older than 5
        attempt.begin(f"it greets as {quote(version)}; waiting for its answer to a login")
        name = _USER.encode() + b"\0"
        reply = struct.pack("<IIB23x", _CAPABILITIES, 1 << 24, 45) + name + b"\0" + b"mysql_native_password\0"
        await stream.send(_framed(reply, number + 1))
        number, packet = await _packet(stream)
        if packet[0] == _OTHER_METHOD:  # it wants another way to log in, and refuses this one in the end too
            await stream.send(_framed(b"", number + 1))
            await _packet(stream)
    return LookResult(Saw.UP, f"it greets as {quote(version)}")


async def _packet(stream: ProbeStream) -> tuple[int, bytes]:
    head = await stream.exactly(4)
    length = int.from_bytes(head[:3], "little")
    if len(head) < 4 or not 0 < length <= _LONGEST_MESSAGE:  # noqa: PLR2004 - three bytes and a number
        raise _other_protocol(stream, "MySQL")
    body = await stream.exactly(length)
    if len(body) < length:
        raise down("it closed the connection in the middle of a packet")
    return head[3], body


def _framed(body: bytes, number: int) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number & 0xFF]) + body


def _mysql_error(packet: bytes) -> LookResult:
    code = int.from_bytes(packet[1:3], "little")
    words = packet[3:]
    told = f"{quote(words[6:] if words.startswith(b'#') else words)} ({code})"
    if code in _CONNECTIONS_USED_UP:
        return LookResult(Saw.DEGRADED, f"it has no connection left: {told}")
    if code == _HOST_REFUSED:
        return LookResult(Saw.DEGRADED, f"it refuses this host: {told}")
    return LookResult(Saw.UP, f"it answers: {told}")


# --- Redis and Valkey: "RESP" ---------------------------------------------------------------------------

_LONGEST_LINE: Final = 512
_READY: Final = ("NOAUTH", "NOPERM", "WRONGPASS", "DENIED")
_PARTLY: Final = ("LOADING", "BUSY", "MASTERDOWN", "MISCONF", "READONLY", "CLUSTERDOWN", "ERR max number of clients")


async def look_redis(look: RedisLook, means: Means, attempt: Attempt) -> LookResult:
    """Send PING; raises `LookFailedError`."""
    async with means.connection(look.host, look.port, attempt) as stream:
        await stream.send(b"*1\r\n$4\r\nPING\r\n")
        attempt.begin("waiting for the answer to PING")
        line = b""
        while b"\r\n" not in line and len(line) < _LONGEST_LINE and (more := await stream.receive()):
            line += more
        word, ended, _ = line.partition(b"\r\n")
        if not ended or word[:1] not in {b"+", b"-"}:
            raise _other_protocol(stream, "Redis")
    said = word[1:].decode("utf-8", "replace")
    if word == b"+PONG" or (word[:1] == b"-" and said.startswith(_READY)):
        return LookResult(Saw.UP, f"it answers {quote(said)}")
    if said.startswith(_PARTLY):
        return LookResult(Saw.DEGRADED, f"it answers {quote(said)}")
    return LookResult(Saw.DOWN, f"it answers PING with {quote(said)}")


# --- of all three ---------------------------------------------------------------------------------------


async def _head(stream: ProbeStream, form: str, protocol: str) -> tuple[bytes, int]:
    head = await stream.exactly(struct.calcsize(form))
    if len(head) < struct.calcsize(form):
        raise _other_protocol(stream, protocol)
    kind, length = struct.unpack(form, head)
    return kind, length


def _other_protocol(stream: ProbeStream, protocol: str) -> LookFailedError:
    if not stream.first:
        return down("it closed the connection without an answer")
    return down(f"it does not speak the protocol of {protocol}: it answered {quote(stream.first)}")
