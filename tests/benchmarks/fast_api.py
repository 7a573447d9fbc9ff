"""A model API that costs no time: answers every request with a stream of events, as fast or slow as it is asked to.

``python fast_api.py`` prints its port; a request's ``x-stainless-timeout`` says ``events=…&pause=…`` (seconds between
events).
"""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import parse_qs

USED = b'"usage":{"input_tokens":12,"output_tokens":1}'
START = b'event: message_start\ndata: {"type":"message_start","message":{%s}}\n\n' % USED
DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
    b'"text":"a few words of the model"}}\n\n'
)
END = (
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":60}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
_AT_ONCE = 400  # events that are written together where there is no pause


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            length = next(int(line[15:]) for line in lines if line.lower().startswith("content-length:"))
            await reader.readexactly(length)
            asked = parse_qs(
                next(line[20:].strip() for line in lines if line.lower().startswith("x-stainless-timeout:"))
            )
            await _stream(writer, int(asked["events"][0]), float(asked["pause"][0]))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _stream(writer: asyncio.StreamWriter, events: int, pause: float) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    _chunk(writer, START)
    left = events
    while left:
        now = 1 if pause else min(left, _AT_ONCE)
        _chunk(writer, DELTA * now)
        left -= now
        await writer.drain()
        if pause:
            await asyncio.sleep(pause)
    _chunk(writer, END)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
