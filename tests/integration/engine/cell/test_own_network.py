"""The network of a session: what is listed is reached, the same as outside; nothing else is there."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from functools import cache, partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import LOOK_CLIENT, interpreter
from claudeops.engine.cell.cell import Cell, IsolationLevel, OwnNetwork, SandboxSpec
from claudeops.engine.cell.forwarder import NotConnected, OpenNetwork, open_network
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.own_network import Network, hosts_file, name_servers
from support.levels import PATH, needs
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

PYTHON = LOOK_CLIENT[0]
RESETS = 100

# What the program inside finds: for each try a word. Bounded by its own sockets' timeouts, which only a hang reaches.
TRY = f"""
import contextlib, errno, json, socket, struct, sys, threading, time
def result(act):
    try:
        return act()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
def stream(address, port, said):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as mine:
        mine.settimeout({PATIENCE_SECONDS})
        mine.connect((address, port))
        mine.sendall(said.encode())
        mine.shutdown(socket.SHUT_WR)
        got = b""
        while more := mine.recv(65536):
            got += more
        return got.decode()
def ask(address, port, said):
    with socket.create_connection((address, port), {PATIENCE_SECONDS}) as mine:
        mine.sendall(said.encode())
        return mine.recv(65536).decode()
def until_it_answers(address, port, said):
    end = time.monotonic() + {PATIENCE_SECONDS}
    while time.monotonic() < end:
        with contextlib.suppress(ConnectionError):
            return stream(address, port, said)
    return "never"
def until_reset(times, address, port):
    end, resets = time.monotonic() + {PATIENCE_SECONDS}, 0
    while time.monotonic() < end and resets < times:
        try:
            ask(address, port, "")
        except ConnectionResetError:
            resets += 1
        except ConnectionError:
            pass
    return resets
def much(address, port, size):
    said = (bytes(range(256)) * (size // 256))
    with socket.create_connection((address, port), {PATIENCE_SECONDS}) as mine:
        sending = threading.Thread(target=lambda: (mine.sendall(said), mine.shutdown(socket.SHUT_WR)))
        sending.start()
        got = bytearray()
        while more := mine.recv(65536):
            got += more
        sending.join()
    return "all of it" if got == said else len(got)
def datagram(address, port, said):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
        mine.settimeout({PATIENCE_SECONDS})
        mine.connect((address, port))
        mine.send(said.encode())
        return mine.recv(65536).decode()
def abstract(name, said):
    with socket.socket(socket.AF_UNIX) as mine:
        mine.settimeout({PATIENCE_SECONDS})
        mine.connect(chr(0) + name)
        return "connected"
def scan(address):
    open_ones = []
    for port in range(1, 65536):
        with socket.socket() as mine:
            # A port that is free may be one's own for the length of a try. A peer may have gone by now.
            if mine.connect_ex((address, port)) == 0 and mine.getsockname() != (address, port):
                open_ones.append(port)
    return open_ones
def change_network(address):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as kernel:
        data = socket.inet_aton(address)
        body = struct.pack("=BBBBi", 2, 32, 0, 254, 1)
        body += struct.pack("=HH", 8, 2) + data + struct.pack("=HH", 8, 1) + data
        kernel.send(struct.pack("=IHHII", 16 + len(body), 20, 0x405, 1, 0) + body)
        return errno.errorcode.get(-struct.unpack_from("=i", kernel.recv(4096), 16)[0], "changed")
def own(address, port):
    with socket.socket() as mine:
        mine.bind((address, port))
        mine.listen()
        return "listens"
def named(name):
    try:
        return sorted({{found[4][0] for found in socket.getaddrinfo(name, 80)}})
    except socket.gaierror:
        return "unknown"
def shown(path):
    with open(path) as file:
        return file.read()
acts = globals()
print(json.dumps([result(lambda: acts[kind](*words)) for kind, *words in json.loads(sys.argv[1])]))
"""


@cache
def cell_of() -> Cell:
    found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert not isinstance(found, str), found
    return found


def tried(root: Path, opened: OpenNetwork | None, network: Network, *tries: tuple[object, ...]) -> list[object]:
    """Return what each try comes to in a session's place."""
    cell = cell_of()
    workspace = workspaces.make(root / "session", template_home=None)
    cell.hand_over(workspace)
    (root / "repos").mkdir(exist_ok=True)
    spec = SandboxSpec(
        workspace=workspace,
        binary=Path(PYTHON),
        repos_dir=root / "repos",
        path=PATH,
        shown=interpreter(),
        network=None
        if opened is None
        else OwnNetwork(door=opened.door, hosts=hosts_file(network), name_servers=name_servers(network)),
    )
    enclosed = cell.enclose(spec)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"go\n")
        done = subprocess.run(
            [*enclosed.before, str(theirs.fileno()), enclosed.binary, "-I", "-S", "-c", TRY, json.dumps(tries)],
            env={"HOME": str(workspace.home), "PATH": PATH},
            cwd=workspace.workdir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(*enclosed.inherited, theirs.fileno()),
            check=False,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    result: list[object] = json.loads(done.stdout)
    return result


def outside(*tries: tuple[object, ...]) -> list[object]:
    """Return what the same program finds on the machine's own network."""
    command = [sys.executable, "-I", "-S", "-c", TRY, json.dumps(tries)]
    result: list[object] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


@contextmanager
def echoing(address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Answer connections with what they sent, once they have sent all of it; yield the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as reading:
                    connection.sendall(reading.read())

        threading.Thread(target=answer, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def echoing_datagrams() -> Iterator[int]:
    """Answer datagrams with themselves; yield the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))

        def answer() -> None:
            while True:
                content, client = own.recvfrom(65535)
                if content == b"stop":
                    return
                own.sendto(content, client)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        port = own.getsockname()[1]
        try:
            yield port
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.sendto(b"stop", ("127.0.0.1", port))
            thread.join(PATIENCE_SECONDS)


@asynccontextmanager
async def session(
    root: Path, network: Network, failures: list[NotConnected] | None = None
) -> AsyncIterator[Callable[..., Awaitable[list[object]]]]:
    needs(IsolationLevel.BUBBLEWRAP)
    async with open_network(network, ([] if failures is None else failures).append) as opened:

        async def run(*tries: tuple[object, ...]) -> list[object]:
            with anyio.fail_after(PATIENCE_SECONDS * 4):
                return await anyio.to_thread.run_sync(lambda: tried(root, opened, network, *tries))

        yield run


def free_port() -> int:
    """Return a port at which nothing listens, and which the kernel gives to nobody else soon."""
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


async def test_what_is_listed_is_reached_and_nothing_else(tmp_path: Path) -> None:
    hidden_name = f"claudeops-test-{tmp_path.name}"
    with echoing() as listed, echoing() as unlisted, ExitStack() as held:
        hidden = held.enter_context(closing(socket.socket(socket.AF_UNIX)))
        hidden.bind(f"\0{hidden_name}")
        hidden.listen()
        tries = (
            ("stream", "127.0.0.1", listed, "hello"),
            ("stream", "127.0.0.1", unlisted, "hello"),
            ("stream", "127.0.0.2", listed, "hello"),
            ("abstract", hidden_name, "hello"),
            ("own", "127.0.0.1", 0),
        )
        network = Network(tcp=(("127.0.0.1", listed),))
        async with session(tmp_path, network) as run:
            within = await run(*tries)
        assert within == ["hello", "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED", "listens"]
        assert outside(*tries) == ["hello", "hello", "ECONNREFUSED", "connected", "listens"]


async def test_of_all_ports_of_this_machine_only_the_listed_one_answers(tmp_path: Path) -> None:
    with echoing() as listed, echoing() as unlisted:
        async with session(tmp_path, Network(tcp=(("127.0.0.1", listed),))) as run:
            assert await run(("scan", "127.0.0.1")) == [[listed]]
        (seen,) = outside(("scan", "127.0.0.1"))
    assert isinstance(seen, list)
    assert {listed, unlisted} <= {*seen}


async def test_a_session_changes_nothing_of_its_network(tmp_path: Path) -> None:
    async with session(tmp_path, Network(tcp=(("203.0.113.5", 443),))) as run:
        assert await run(("change_network", "203.0.113.9")) == ["EPERM"]


async def test_an_address_outside_of_the_list_is_unreachable_at_once(tmp_path: Path) -> None:
    async with session(tmp_path, Network(tcp=(("203.0.113.5", 443),))) as run:
        tries = (("stream", "203.0.113.6", 443, ""), ("stream", "2001:db8::6", 443, ""), ("own", "203.0.113.5", 443))
        within = await run(*tries)
    assert within == ["ENETUNREACH", "ENETUNREACH", "EACCES"], "a privileged port, which is taken as well"


async def test_only_servers_on_the_list_are_asked_for_names(tmp_path: Path) -> None:
    async with session(tmp_path, Network(udp=(("203.0.113.53", 53),))) as run:
        (listed,) = await run(("shown", "/etc/resolv.conf"))
    async with session(tmp_path, Network(udp=(("203.0.113.53", 514),))) as run:
        (unlisted,) = await run(("shown", "/etc/resolv.conf"))
    assert [line for line in str(listed).splitlines() if "nameserver" in line] == ["nameserver 203.0.113.53"]
    assert "nameserver" not in str(unlisted)


async def test_without_a_list_nothing_is_reached(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    with echoing() as port:
        tries = (("stream", "127.0.0.1", port, "hello"),)
        assert await anyio.to_thread.run_sync(lambda: tried(tmp_path, None, Network(), *tries)) == ["ECONNREFUSED"]


async def test_much_arrives_whole_both_ways(tmp_path: Path) -> None:
    with echoing() as port:
        async with session(tmp_path, Network(tcp=(("127.0.0.1", port),))) as run:
            assert await run(("much", "127.0.0.1", port, 16 * 1024 * 1024)) == ["all of it"]


async def test_what_refuses_outside_is_reset_then_refused_and_reported_with_the_reason(tmp_path: Path) -> None:
    port, failures = free_port(), list[NotConnected]()
    async with session(tmp_path, Network(tcp=(("127.0.0.1", port),)), failures) as run:
        first, second = await run(("stream", "127.0.0.1", port, ""), ("stream", "127.0.0.1", port, ""))
    assert first in {"ECONNRESET", "ECONNREFUSED"}
    assert second == "ECONNREFUSED"
    assert failures == [NotConnected(address="127.0.0.1", port=port, error="Connection refused")]


async def test_what_comes_up_again_is_reached_again_within_the_same_session(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    port, served = free_port(), ExitStack()

    def failed(failure: NotConnected) -> None:
        served.enter_context(echoing(port=failure.port))

    network = Network(tcp=(("127.0.0.1", port),))
    with served:
        async with open_network(network, failed) as opened:
            tries = (("until_it_answers", "127.0.0.1", port, "hello"),)
            assert await anyio.to_thread.run_sync(lambda: tried(tmp_path, opened, network, *tries)) == ["hello"]


async def test_a_refusal_ends_with_the_next_call(tmp_path: Path) -> None:
    """Nothing listens outside, so the call alone ends an exact refusal: by themselves so many would take minutes."""
    needs(IsolationLevel.BUBBLEWRAP)
    port, failures = free_port(), list[NotConnected]()
    network = Network(tcp=(("127.0.0.1", port),))
    async with open_network(network, failures.append) as opened:

        async def calls() -> None:
            while True:
                opened.listen_again()
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(calls)
            tries = (("until_reset", RESETS, "127.0.0.1", port),)
            assert await anyio.to_thread.run_sync(lambda: tried(tmp_path, opened, network, *tries)) == [RESETS]
            tasks.cancel_scope.cancel()
    assert opened.tally.failed >= RESETS


async def test_a_reset_outside_is_a_reset_inside(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)  # before a thread waits for a connection
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def reset() -> None:
            connection, _ = listener.accept()
            connection.recv(5)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        thread = threading.Thread(target=reset, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        async with session(tmp_path, Network(tcp=(("127.0.0.1", port),))) as run:
            assert await run(("ask", "127.0.0.1", port, "hello")) == ["ECONNRESET"]
        thread.join(PATIENCE_SECONDS)


async def test_datagrams_go_through_where_they_are_listed(tmp_path: Path) -> None:
    with echoing_datagrams() as listed, echoing_datagrams() as unlisted:
        async with session(tmp_path, Network(udp=(("127.0.0.1", listed),))) as run:
            tries = (("datagram", "127.0.0.1", listed, "hello"), ("datagram", "127.0.0.1", unlisted, "hello"))
            assert await run(*tries) == ["hello", "ECONNREFUSED"]
            assert outside(*tries) == ["hello", "hello"]


async def test_a_whole_network_is_reached_at_its_ports_alone(tmp_path: Path) -> None:
    with echoing("127.5.0.9") as port, echoing("127.6.0.9", port):
        network = Network(networks=(("127.5.0.0/24", (port,)),))
        async with session(tmp_path, network) as run:
            tries = (
                ("stream", "127.5.0.9", port, "hello"),
                ("stream", "127.5.0.9", port + 1, "hello"),
                ("stream", "127.6.0.9", port, "hello"),
            )
            inside, other_port, other_network = await run(*tries)
        assert (inside, other_port) == ("hello", "ECONNREFUSED")
        assert other_network in {"ECONNRESET", "EPIPE"}, "it arrives, and is not connected"


async def test_a_host_in_a_listed_network_and_one_of_this_machine_share_its_port(tmp_path: Path) -> None:
    with echoing() as port:
        network = Network(
            tcp=(("127.5.0.9", port), ("127.0.0.1", port)),
            networks=(("127.5.0.0/24", (port,)), ("10.0.0.0/8", (port,))),
        )
        async with session(tmp_path, network) as run:
            assert await run(("stream", "127.0.0.1", port, "hello")) == ["hello"]


async def test_what_is_excluded_from_a_listed_network_is_not_reached(tmp_path: Path) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    network_of = "127.5.0.0/24"
    with echoing("127.5.0.9") as port:
        network = Network(networks=((network_of, (port,)),))
        for excluded, expected in ((lambda _: False, {"hello"}), (lambda _: True, {"ECONNRESET", "EPIPE", "ENOTCONN"})):
            async with open_network(network, lambda _: None, excluded=excluded) as opened:
                tries = (("stream", "127.5.0.9", port, "hello"),)
                place = tmp_path / str(len(expected))
                place.mkdir()
                (found,) = await anyio.to_thread.run_sync(partial(tried, place, opened, network, *tries))
                assert found in expected


async def test_what_answers_on_this_machine_by_ipv6_alone_is_reached(tmp_path: Path) -> None:
    with ExitStack() as held:
        try:
            port = held.enter_context(echoing("::1"))
        except OSError:
            pytest.skip("this machine has no IPv6")
        async with session(tmp_path, Network(tcp=(("127.0.0.1", port),))) as run:
            assert await run(("stream", "127.0.0.1", port, "hello")) == ["hello"]


async def test_many_places_are_handed_over(tmp_path: Path) -> None:
    with echoing() as port:
        places = tuple((f"10.9.{number // 250}.{number % 250 + 1}", 80) for number in range(500))
        async with open_network(Network(tcp=(*places, ("127.0.0.1", port))), lambda _: None) as opened:
            needs(IsolationLevel.BUBBLEWRAP)
            tries = (("stream", "127.0.0.1", port, "hello"), ("stream", "10.9.1.7", 81, ""))
            network = Network()
            found = await anyio.to_thread.run_sync(lambda: tried(tmp_path, opened, network, *tries))
    assert found == ["hello", "ECONNREFUSED"]
    assert opened.tally.missing == ()


async def test_when_the_session_is_over_nothing_of_it_listens_or_waits(tmp_path: Path) -> None:
    with echoing() as port:
        async with session(tmp_path, Network(tcp=(("127.0.0.1", port),))) as run:
            assert await run(("stream", "127.0.0.1", port, "hello")) == ["hello"]
    for thread in threading.enumerate():
        if thread.name == "forwarder":
            thread.join(PATIENCE_SECONDS)  # it has said that it ends
            assert not thread.is_alive()
