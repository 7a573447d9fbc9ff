"""The network of a session: names become addresses within a time, and lead nowhere that the list does not allow."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import anyio
import pytest

from claudeops.domain.network.destination import Destination, at_ports
from claudeops.engine.cell.own_network import (
    MOST_SOCKETS,
    NameLookup,
    Network,
    hosts_file,
    look_up,
    name_servers,
    resolved,
    resolver_file,
)
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

NO_NAME = socket.gaierror(socket.EAI_NONAME, "unknown")
LATER = socket.gaierror(socket.EAI_AGAIN, "try again")


class Zone:
    """Answers to names, which a test may change; counts the questions."""

    def __init__(self, answers: Mapping[str, tuple[str, ...] | Exception]) -> None:
        self.answers = dict(answers)
        self.asked: Counter[str] = Counter()
        self.now = 0.0

    def __call__(self, name: str) -> tuple[str, ...]:
        self.asked[name] += 1
        answer = self.answers.get(name, NO_NAME)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def names(self) -> NameLookup:
        return NameLookup(self, monotonic=lambda: self.now)


def names(**answers: tuple[str, ...]) -> NameLookup:
    return Zone({name.replace("_", "."): found for name, found in answers.items()}).names()


# --- the machine's own resolver -----------------------------------------------------------------------


async def test_the_machines_resolver_knows_numbers_and_itself_and_nothing_that_is_no_name() -> None:
    assert look_up("127.0.0.1") == ("127.0.0.1",)
    assert set(look_up("localhost")) <= {"127.0.0.1", "::1"}
    found = await NameLookup().addresses(["localhost", "a..b", "x" * 70, "127.0.0.9"])
    assert set(found) == {"localhost", "127.0.0.9"}


async def test_names_become_addresses_with_ports_and_a_line_of_the_hosts_file() -> None:
    several = [
        at_ports("db1.example", [5432]),
        at_ports("db2.example", [5432], usual=True),
        at_ports("10.0.0.5", [8080]),
        at_ports("fd00::5", [8080]),
        at_ports("nothing.example", [80]),
        Destination(host="10.20.0.0/16", tcp=frozenset({443, 22})),
        Destination(host="ns.example", tcp=frozenset({53}), udp=frozenset({53}), named=frozenset({53})),
    ]
    known = names(db1_example=("10.0.0.1", "fd00::1"), db2_example=("10.0.0.1",), ns_example=("10.0.0.53",))
    assert await resolved(several, known) == Network(
        tcp=(
            *(("10.0.0.1", port) for port in (22, 80, 443, 5432)),
            ("10.0.0.5", 8080),
            ("10.0.0.53", 53),
            ("fd00::1", 5432),
            ("fd00::5", 8080),
        ),
        udp=(("10.0.0.53", 53),),
        networks=(("10.20.0.0/16", (22, 443)),),
        names=(
            ("10.0.0.1", ("db1.example", "db2.example")),
            ("fd00::1", ("db1.example",)),
            ("10.0.0.53", ("ns.example",)),
        ),
        unknown=("nothing.example",),
    )


async def test_names_lead_nowhere_that_is_never_asked_or_excluded() -> None:
    known = names(
        a=("169.254.169.254",), b=("fe80::1", "10.0.0.2"), c=("100.100.100.200", "10.66.0.1"), d=("::ffff:169.254.0.1",)
    )
    several = [at_ports(name, [80]) for name in "abcd"]
    found = await resolved(several, known, excluded=lambda address: address.startswith("10.66."))
    assert found == Network(tcp=(("10.0.0.2", 80),), names=(("10.0.0.2", ("b",)),), unknown=("a", "c", "d"))


async def test_a_name_that_leads_to_this_machine_opens_only_ports_that_somebody_names() -> None:
    known = names(web1=("127.0.1.1",), web2=("::1", "10.0.0.2"))
    found = await resolved([at_ports("web1", [8080], usual=True), at_ports("web2", [], usual=True)], known)
    assert found.tcp == (("10.0.0.2", 22), ("10.0.0.2", 80), ("10.0.0.2", 443), ("127.0.1.1", 8080))


async def test_localhost_is_this_machine_and_asks_nobody() -> None:
    zone = Zone({})
    found = await resolved([at_ports("localhost", [9000]), at_ports("::1", [9001])], zone.names())
    assert (found.tcp, found.names, zone.asked) == ((("127.0.0.1", 9000), ("::1", 9001)), (), Counter())


async def test_no_name_has_more_than_eight_addresses() -> None:
    known = names(many=tuple(f"10.0.0.{number}" for number in range(1, 100)))
    assert len((await resolved([at_ports("many", [80])], known)).tcp) == 8


async def test_sockets_are_bounded_and_named_ports_come_first() -> None:
    crowd = [at_ports(f"10.0.{number // 250}.{number % 250}", [], usual=True) for number in range(600)]
    found = await resolved([*crowd, at_ports("10.9.9.9", range(9000, 9010))], names())
    assert len(found.tcp) == MOST_SOCKETS
    assert {port for address, port in found.tcp if address != "10.9.9.9"} == {22}
    assert sum(1 for address, _ in found.tcp if address == "10.9.9.9") == 10
    assert len(found.left_out) == 600
    assert (await resolved(crowd[:170], names())).left_out == ()


# --- time ---------------------------------------------------------------------------------------------


@contextmanager
def hanging(*names: str, answers: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[NameLookup, threading.Event]]:
    """Yield names of which some answer only after the event."""
    free = threading.Event()

    def look(name: str) -> tuple[str, ...]:
        if name in names:
            free.wait()
        return answers[name]

    try:
        yield NameLookup(look, seconds=0.2), free
    finally:
        free.set()


async def test_a_name_that_hangs_is_unknown_and_holds_up_no_other() -> None:
    answers = {f"n{number}": (f"10.0.0.{number}",) for number in range(1, 40)}
    with hanging("n1", "n2", answers=answers) as (known, _):
        found = await known.addresses(answers)
        assert found == {name: addresses for name, addresses in answers.items() if name not in {"n1", "n2"}}


async def test_a_crowd_of_names_that_hang_takes_no_longer_than_one() -> None:
    crowd = {f"n{number}": ("10.0.0.1",) for number in range(20_000)}
    with hanging(*crowd, answers=crowd) as (known, _), anyio.fail_after(PATIENCE_SECONDS):
        assert await known.addresses(crowd) == {}


async def test_an_answer_that_comes_late_serves_the_next_session() -> None:
    with hanging("slow", answers={"slow": ("10.0.0.1",)}) as (known, free):
        assert await known.addresses(["slow"]) == {}
        free.set()
        while await known.addresses(["slow"]) != {"slow": ("10.0.0.1",)}:
            await anyio.lowlevel.checkpoint()


async def test_a_session_that_is_cancelled_waits_for_no_name() -> None:
    with hanging("slow", answers={"slow": ("10.0.0.1",)}) as (known, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(known.addresses, ["slow"])
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def test_a_fresh_answer_is_not_asked_for_again_and_an_old_one_serves_ten_minutes() -> None:
    zone = Zone({"a": ("10.0.0.1",)})
    known = zone.names()
    for _ in range(2):
        assert await known.addresses(["a", "none"]) == {"a": ("10.0.0.1",)}
    assert zone.asked == {"a": 1, "none": 1}
    zone.now, zone.answers["a"] = 61.0, ("10.0.0.2",)
    assert await known.addresses(["a"]) == {"a": ("10.0.0.2",)}
    zone.now, zone.answers["a"] = 661.0, LATER
    assert await known.addresses(["a"]) == {"a": ("10.0.0.2",)}
    zone.now = 661.1
    assert await known.addresses(["a"]) == {}


async def test_a_name_that_is_gone_is_gone_at_once() -> None:
    zone = Zone({"a": ("10.0.0.1",)})
    known = zone.names()
    assert await known.addresses(["a"])
    zone.now, zone.answers["a"] = 61.0, NO_NAME
    assert await known.addresses(["a"]) == {}


# --- the hosts file -----------------------------------------------------------------------------------


def test_the_hosts_file_names_this_machine_the_cell_and_what_is_on_the_list() -> None:
    network = Network(names=(("10.0.0.1", ("db1.example", "db2.example")), ("fd00::1", ("db1.example",))))
    assert hosts_file(network) == (
        "127.0.0.1 localhost\n"
        "::1 ip6-localhost ip6-loopback\n"
        "127.0.1.1 cell\n"
        "10.0.0.1 db1.example db2.example\n"
        "fd00::1 db1.example\n"
    )


def test_the_name_of_the_cell_hides_no_host_of_the_list() -> None:
    assert "127.0.1.1" not in hosts_file(Network(names=(("10.0.0.1", ("web1",)),)), hostname="web1")
    assert hosts_file(Network(), hostname="localhost").count("localhost") == 2


def test_a_session_asks_no_server_for_names_but_those_on_its_list() -> None:
    network = Network(tcp=(("10.0.0.9", 53),), udp=(("10.0.0.53", 53), ("10.0.0.7", 514), ("fd00::53", 53)))
    of_machine = "# by hand\nnameserver 127.0.0.53\n search example lan\noptions edns0\nnameserver 10.9.9.9\n"
    assert resolver_file(name_servers(network), of_machine) == (
        "nameserver 10.0.0.53\nnameserver fd00::53\n search example lan\noptions edns0\n"
    )
    assert resolver_file(name_servers(Network()), "nameserver 127.0.0.53\n") == ""


def test_no_more_servers_are_named_than_a_resolver_reads() -> None:
    network = Network(udp=tuple((f"10.0.0.{number}", 53) for number in range(1, 6)))
    assert name_servers(network) == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
