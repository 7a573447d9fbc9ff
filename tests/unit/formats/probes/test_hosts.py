"""Which hosts belong to the estate because an operator's probe asks them, and which do not."""

from __future__ import annotations

import pytest

from claudeops.domain.probes.probe import AnyLook, CommandLook, DnsLook, HttpLook, TcpLook
from claudeops.formats.probes.declaration import read_probes
from claudeops.formats.probes.hosts import probed_by
from support.probes import probe


def declared(text: str) -> tuple[str, ...]:
    return probed_by(read_probes(text, file="probes.toml").probes).hosts


@pytest.mark.parametrize(
    ("probe", "hosts"),
    [
        ('kind = "http"\nurl = "https://Status.Example.NET.:8443/x?y=evil.example"', ("status.example.net",)),
        ('kind = "http"\nurl = "http://[2001:db8::7]:80/"', ("2001:db8::7",)),
        ('kind = "prometheus"\nurl = "http://prom.example.net"\nexpression = "up"\nbelow = 1', ("prom.example.net",)),
        ('kind = "tcp"\nhost = "Mail.example.net"\nport = 25', ("mail.example.net",)),
        ('kind = "tls"\nhost = "198.51.100.9"\nserver_name = "shop.example.net"', ("198.51.100.9",)),
        ('kind = "icmp"\nhost = "router.example.net"', ("router.example.net",)),
        ('kind = "postgres"\nhost = "db.example.net"', ("db.example.net",)),
        ('kind = "dns"\nquery = "shop.example.net"\nserver = "9.9.9.9"', ()),
        ('kind = "command"\ncommand = "curl -s https://evil.example/"', ()),
        ('kind = "kubernetes"\nworkload = "deployment/web"', ()),
        ('kind = "heartbeat"\nevery = "1d"', ()),
    ],
)
def test_a_host_counts_that_a_probe_connects_to(probe: str, hosts: tuple[str, ...]) -> None:
    assert declared(f'[[probe]]\nname = "x"\n{probe}\n') == hosts


@pytest.mark.parametrize(
    "look",
    [
        HttpLook(url="http://169.254.169.254/latest"),
        TcpLook(host="*.example.net", port=80),
        TcpLook(host="metadata.google.internal", port=80),
        TcpLook(host="x" * 5000, port=80),
        DnsLook(query="*"),
        CommandLook(command="ssh evil.example"),
    ],
)
def test_what_is_never_asked_or_is_no_host_is_none_of_them(look: AnyLook) -> None:
    assert probed_by([probe(look=look)]).hosts == ()


def test_each_host_counts_once() -> None:
    assert probed_by(
        [probe("a", look=TcpLook(host="a", port=1)), probe("b", look=TcpLook(host="A.", port=2))]
    ).hosts == ("a",)


def test_the_ports_of_probes_are_kept_by_host() -> None:
    text = """
[[probe]]
name = "a"
kind = "http"
url = "https://Status.example.net/x?y=http://evil.example:9"
[[probe]]
name = "b"
kind = "tcp"
host = "status.example.net"
port = 8443
[[probe]]
name = "c"
kind = "prometheus"
url = "http://[2001:db8::7]:9090"
expression = "up"
below = 1
[[probe]]
name = "d"
kind = "redis"
host = "cache.example.net"
[[probe]]
name = "e"
kind = "icmp"
host = "router.example.net"
"""
    assert probed_by(read_probes(text, file="probes.toml").probes).ports == {
        "status.example.net": (443, 8443),
        "2001:db8::7": (9090,),
        "cache.example.net": (6379,),
    }
