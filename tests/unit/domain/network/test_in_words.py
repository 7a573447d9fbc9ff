"""What a session is told of its network: short, whatever an estate holds."""

from __future__ import annotations

from claudeops.domain.network.destination import Destination, in_words


def test_hosts_with_ports_and_names_without_an_address_are_told_apart() -> None:
    listed = [
        Destination(host="db1", tcp=frozenset({5432, 22})),
        Destination(host="dns1", tcp=frozenset({53}), udp=frozenset({53})),
        Destination(host="gone", tcp=frozenset({22})),
    ]
    text = in_words(listed, ["gone"])
    assert "these ports alone: db1 (22, 5432), dns1 (53, 53/udp). No address is known for gone. Any other" in text


def test_without_a_list_it_says_so() -> None:
    assert "these ports alone: none. Any other" in in_words([])


def test_a_thousand_hosts_are_no_flood() -> None:
    listed = [Destination(host=f"host{number}.example", tcp=frozenset({22, 80, 443})) for number in range(1000)]
    text = in_words(listed, [f"gone{number}.example" for number in range(1000)])
    assert "and 940 more hosts" in text
    assert len(text) < 4000
