"""An ssh configuration: where ``ssh HOST`` connects to, so that it stands on the network of a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.formats.network.ssh_config import SshConfig, identity_files, known_hosts_files

CONFIG = """
Host web1 web2
  HostName %h.internal.example
  Port 2222
Host db1
  HostName=10.0.0.5
  ProxyJump ops@jump.example:2200,inner
Host inner
  HostName "10.0.0.9"
  ProxyJump none
Host old
  ProxyCommand ssh -W %h:%p gate.example
Host v6
  HostName fd00::5
  ProxyJump ssh://ops@[fd00::1]:2022
Host !secret *.lab.example
  ProxyJump lab.example
Match host far.example,further.example
  Port 2022
Match exec "true"
  Port 4444
Host *
  User ops
"""


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("web1", [("web1.internal.example", 2222)]),
        ("db1", [("10.0.0.5", 22), ("jump.example", 2200), ("10.0.0.9", 22)]),
        ("old", [("old", 22), ("gate.example", 22)]),
        ("v6", [("fd00::5", 22), ("fd00::1", 2022)]),
        ("a.lab.example", [("a.lab.example", 22), ("lab.example", 22)]),
        ("further.example", [("further.example", 2022)]),
        ("other.example", [("other.example", 22)]),
    ],
)
def test_ssh_connects_where_its_configuration_says(host: str, expected: list[tuple[str, int]]) -> None:
    assert list(SshConfig(CONFIG).route(host)) == expected


def test_what_stands_in_front_of_the_first_host_and_what_comes_first_counts() -> None:
    config = SshConfig("Port 2200\nHost a\n  Port 2201\n  HostName b\nHost *\n  Port 2202\n  ProxyJump j:99999\n")
    assert config.route("a") == (("b", 2200), ("j", 2200))


def test_jump_hosts_that_jump_over_each_other_come_to_an_end() -> None:
    config = SshConfig("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\nHost *\n  ProxyJump c\n")
    assert set(config.route("a")) == {("a", 22), ("b", 22)}
    endless = "".join(f"Host h{number}\n  ProxyJump h{number + 1}\n" for number in range(100))
    assert len(SshConfig(endless).route("h0")) == 16


@given(st.text(max_size=200), st.text(alphabet="abc.-*%", max_size=10))
def test_whatever_the_text_is_a_route_is_bounded_and_has_ports(text: str, host: str) -> None:
    config = SshConfig(f"Host *\n{text}\nProxyJump {text}\nHostName {text}")
    assert all(1 <= port <= 65535 for _, port in config.route(host))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("IdentityFile ~/.ssh/a", ".ssh/a"),
        ("\tidentityfile\t~/.ssh/a\t# for web1", ".ssh/a"),
        ('IdentityFile = "%d/keys/b c" # two words', "keys/b c"),
        ("IdentityFile=${HOME}/d", "d"),
        ("IdentityFile ~/keys/%h-%%-${USER}", "keys/*-%-*"),
        ("IdentityFile ~/keys/[1]", "keys/[[]1]"),
        ("IdentityFile ~//etc/c", "etc/c"),
        ("IdentityFile /etc/%u/c", "/etc/*/c"),
    ],
)
def test_files_that_are_named_as_keys_are_found_however_they_are_written(line: str, expected: str) -> None:
    assert identity_files(f"Host web1\n{line}\n{line}\n") == (expected,)


def test_a_key_that_is_named_by_no_place_is_none() -> None:
    assert identity_files("IdentityFile none\nIdentityFile here\n#IdentityFile ~/a\nIdentityFile") == ()


def test_files_of_known_hosts_are_found_however_many_a_line_names() -> None:
    config = (
        'UserKnownHostsFile ~/.ssh/a /etc/b "%d/c"\nUserKnownHostsFile none\nUserKnownHostsFile ~/.ssh/%h ~/.ssh/a\n'
    )
    assert known_hosts_files(config) == (".ssh/a", "/etc/b", "c")


@pytest.mark.parametrize(
    ("value", "expected"), [("none", True), ("~/agent.sock", True), ("SSH_AUTH_SOCK", False), ("$SSH_AUTH_SOCK", False)]
)
def test_another_agent_is_noticed(value: str, *, expected: bool) -> None:
    assert SshConfig(f"Host web1\n IdentityAgent {value}\n").names_other_agent() is expected
    assert not SshConfig("Host web1\n User ops\n").names_other_agent()


def test_words_are_kept_apart_by_tabs_too_and_a_comment_ends_a_line() -> None:
    config = SshConfig(
        "Host\tweb1\n\tHostName\tinner # the new one\n\tPort\t=\t2222\nHost old\n ProxyCommand nc #a %h\n"
    )
    assert (config.route("web1"), config.option("old", "proxycommand")) == ((("inner", 2222),), "nc #a %h")


def test_hosts_with_entries_are_named_without_patterns() -> None:
    assert SshConfig("Host web1 web* !db\nMatch host far,?\nMatch exec true").hosts() == ("web1", "far")
