"""A small name server on loopback, over UDP and TCP, that answers as a test wants."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import dns.flags
import dns.message
import dns.rcode
import dns.rrset
from anyio.abc import ByteStream, UDPSocket

from support.ports import kept_port


@dataclass(kw_only=True)
class NameServer:
    """What it knows, and how it behaves."""

    records: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)  # (name, type) → values
    aliases: Mapping[str, str] = field(default_factory=dict)
    truncates: bool = False  # over UDP, so that the question comes again over TCP
    swallows: int = 0  # the first questions over UDP, as a lossy network does
    garbage: bytes | None = None  # instead of every answer
    rcode: dns.rcode.Rcode | None = None
    asked: list[str] = field(default_factory=list)  # ``udp`` or ``tcp``, in order
    port: int = 0

    def answer(self, question: bytes, over: str) -> bytes | None:
        """Return the bytes of an answer, or None for none."""
        self.asked.append(over)
        if over == "udp" and len(self.asked) <= self.swallows:
            return None
        if self.garbage is not None:
            return self.garbage
        query = dns.message.from_wire(question)
        response = dns.message.make_response(query)
        if over == "udp" and self.truncates:
            response.flags |= dns.flags.TC
            return response.to_wire()
        asked = query.question[0]
        name, kind = asked.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(asked.rdtype)
        hops = 0
        while name in self.aliases and hops < 40:
            response.answer.append(dns.rrset.from_text(name + ".", 60, "IN", "CNAME", self.aliases[name] + "."))
            name, hops = self.aliases[name], hops + 1
        values = self.records.get((name, kind))
        if values:
            response.answer.append(dns.rrset.from_text(name + ".", 60, "IN", kind, *values))
        elif not any(known == name for known, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        if self.rcode is not None:
            response.set_rcode(self.rcode)
        return response.to_wire(max_size=65535)


@asynccontextmanager
async def serving_names(server: NameServer) -> AsyncIterator[NameServer]:
    """Serve on one port, UDP and TCP, while the block runs."""
    with kept_port() as server.port:

        async def stream(connection: ByteStream) -> None:
            async with connection:
                length = int.from_bytes(await connection.receive(2), "big")
                answer = server.answer(await connection.receive(length), "tcp") or b""
                await connection.send(len(answer).to_bytes(2, "big") + answer)

        host, port = "127.0.0.1", server.port
        async with (
            await anyio.create_udp_socket(family=socket.AF_INET, local_host=host, local_port=port) as datagrams,
            await anyio.create_tcp_listener(local_host=host, local_port=port) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_datagrams, datagrams, server)
            tasks.start_soon(listener.serve, stream)
            yield server
            tasks.cancel_scope.cancel()


async def _datagrams(socket: UDPSocket, server: NameServer) -> None:
    async for packet, (host, port) in socket:
        if (answer := server.answer(packet, "udp")) is not None:
            await socket.sendto(answer, host, port)
