"""Who reads the figures: those with a token for them, and the networks that the operator lists, at no other address."""

from __future__ import annotations

import pytest

from support.listening import Door, bearer, token_for

OTHERS = "/api/v1/heartbeats/backup"


async def status(door: Door, peer: str, path: str = "/metrics", **headers: str) -> int:
    return (await door.ask("GET", path, peer=peer, headers=headers)).status


async def test_no_address_opens_the_figures_unless_the_operator_lists_it() -> None:
    assert await status(Door(), "127.0.0.1") == 401


@pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.1.2.3", "fd00::7"])
async def test_a_listed_network_reads_the_figures_and_nothing_else(peer: str) -> None:
    door = Door(scrapers=["10.1.0.0/16", "fd00::/64"])
    answer = await door.ask("GET", "/metrics", peer=peer)
    assert (answer.status, answer.body) == (200, b"claudeops_paused 0.0\n")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert await status(door, peer, OTHERS) == 401


@pytest.mark.parametrize("peer", ["10.2.0.1", "127.0.0.1", "::1", "::ffff:10.2.0.1", "", "unix:", "10.1.2.3, 10.1.2.4"])
async def test_whoever_is_beside_the_listed_networks_needs_a_token(peer: str) -> None:
    door = Door(scrapers=["10.1.0.0/16"])
    assert await status(door, peer) == 401
    assert await status(door, peer, **{"x-forwarded-for": "10.1.2.3"}) == 401


async def test_a_token_that_opens_nothing_is_refused_from_a_listed_network_too() -> None:
    door = Door(scrapers=["10.1.0.0/16"])
    door.tokens.kept[5] = token_for(5, "metrics")
    assert await status(door, "10.1.2.3", **bearer(99)) == 401
    assert await status(door, "10.1.2.3", **bearer(2)) == 403
    assert await status(door, "192.0.2.1", **bearer(5)) == 200


async def test_every_answer_is_counted_by_the_row_of_the_table_and_never_by_what_was_sent() -> None:
    door = Door()
    await status(door, "127.0.0.1", "/healthz")
    await status(door, "127.0.0.1", OTHERS)
    await status(door, "127.0.0.1", OTHERS, **bearer(1))
    await status(door, "127.0.0.1", "/of-my-own-choice")
    assert [counted[:3] for counted in door.counted] == [
        ("/healthz", "GET", 200),
        ("/api/v1/heartbeats/{name}", "GET", 401),
        ("/api/v1/heartbeats/{name}", "GET", 200),
        ("", "GET", 404),
    ]
