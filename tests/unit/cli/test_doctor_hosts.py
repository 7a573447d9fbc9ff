"""The doctor says where no cell holds a session."""

from __future__ import annotations

from claudeops.cli.doctor.sessions import unheld
from claudeops.domain.estate.estate import Estate, Manifest, Service, StatementSource

SOURCE = StatementSource(path="CLAUDE-OPS.md", line=1)


def on(*hosts: str) -> Estate:
    services = tuple(Service(name=f"s{place}", host=host, source=SOURCE) for place, host in enumerate(hosts))
    return Estate(manifests=(Manifest(repository="r", services=services),))


def test_other_hosts_are_named_with_what_holds_sessions_there() -> None:
    (sentence,) = unheld(on("web1", "", "web2"))
    assert sentence.startswith("On web1, web2 no cell holds a session")
    assert "claudeops remote-commands" in sentence


def test_many_hosts_are_not_listed_and_this_machine_is_none() -> None:
    assert "a, b, c and others" in unheld(on("d", "c", "b", "a"))[0]
    assert unheld(on("", "localhost")) == ()
