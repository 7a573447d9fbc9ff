"""Two chains beside each other: the first call in which they part must not be missed, and none may be invented."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.store.reading import chain_diff
from claudeops.store.reading.chain_diff import chain_before
from claudeops.web.pages import chain_diff as pages
from support.hostile import MARK, TEXTS
from support.listening import bearer
from support.paged import SiteDoor, site_door
from support.store_values import NOW, ending, report, started
from support.stores import Database

Made = tuple[str, str, str, int | None]
"""A tool, its input, the verdict, and whether it failed; None: no result was seen."""


def shell(command: str, verdict: str = "allow", error: int | None = 0) -> Made:
    return "Bash", json.dumps({"command": command, "description": "looks"}), verdict, error


HEALTHY = (shell("docker ps"), shell("curl  -sS 'http://web'"), shell("df -h"))
SICK = (
    shell("docker  ps"),
    shell('curl -sS "http://web"', error=1),
    shell("docker restart web", "deny"),
    shell("df -h"),
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        yield made


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'claudeops.db'}")


async def chain(site: SiteDoor, database: Database, *calls: Made) -> int:
    """Run a chain of one session that makes these calls; return its number."""
    session = await started(site.store)
    for place, (tool, given, verdict, error) in enumerate(calls):
        put(database, session.id, place, tool, given, verdict, error)
    await site.store.queue.finish(ending(session, cost_usd=0.01), rules=site.site.rules)
    return session.id


def put(  # noqa: PLR0917 - one row of a table
    database: Database, session: int, place: int, tool: str, given: str, verdict: str, error: int | None
) -> None:
    database.execute(
        "INSERT INTO tool_calls (session_id, tool_use_id, tool_name, input, verdict, reason, requested_at,"
        " decided_at, ended_at, is_error, previous_hash, hash)"
        " VALUES (:session, :use, :tool, :given, :verdict, 'by a rule', :at, :at, :ended, :error, '', '')",
        session=session,
        use=f"toolu_{place}",
        tool=tool,
        given=given.replace("\x00", ""),
        verdict=verdict,
        at="2026-03-01 11:00:00.000000",
        ended=None if error is None or verdict != "allow" else "2026-03-01 11:00:01.000000",
        error=error if verdict == "allow" else None,
    )


async def diff(site: SiteDoor, first: int, second: int) -> dict[str, object]:
    answer = await site.get(f"/api/v1/chains/{first}/diff/{second}", bearer(2))
    assert answer.status == 200
    return answer.json


async def text_of(site: SiteDoor, path: str) -> str:
    answer = await site.get(path, bearer(2))
    assert answer.status == 200
    return html.unescape(answer.body.decode())


def sketch(found: dict[str, object]) -> list[tuple[bool, bool, list[str]]]:
    return [(bool(row["first"]), bool(row["second"]), row["differs"]) for row in found["rows"]]  # type: ignore[attr-defined]


async def test_the_first_call_with_another_result_is_where_they_part(site: SiteDoor, database: Database) -> None:
    first, second = await chain(site, database, *HEALTHY), await chain(site, database, *SICK)
    found = await diff(site, first, second)
    assert sketch(found) == [(True, True, []), (True, True, ["result"]), (False, True, []), (True, True, [])]
    assert (found["divergence"], found["same"], found["different"]) == (1, 2, 1)
    assert (found["only_first"], found["only_second"]) == (0, 1)
    text = await text_of(site, f"/chains/{first}/diff/{second}")
    assert "They part at call 2" in text
    assert text.index("they part here") > text.index("docker ps")
    assert "did not call it" in text
    assert text.index("they part here") < text.index("docker restart web")


async def test_a_chain_beside_one_that_did_the_same_parts_nowhere(site: SiteDoor, database: Database) -> None:
    first, second = await chain(site, database, *SICK), await chain(site, database, *SICK)
    found = await diff(site, first, second)
    assert (found["divergence"], found["same"], found["different"]) == (None, 4, 0)
    assert "do not part" in await text_of(site, f"/chains/{first}/diff/{second}")
    assert (await diff(site, first, first))["divergence"] is None


async def test_another_verdict_is_a_difference_though_nothing_ran(site: SiteDoor, database: Database) -> None:
    first = await chain(site, database, shell("docker restart web", "ask"))
    second = await chain(site, database, shell("docker restart web", "deny"))
    assert sketch(await diff(site, first, second)) == [(True, True, ["verdict"])]


async def test_a_call_that_took_much_longer_is_marked_and_parts_nothing(site: SiteDoor, database: Database) -> None:
    first, second = await chain(site, database, shell("df")), await chain(site, database, shell("df"))
    late = "UPDATE tool_calls SET ended_at = '2026-03-01 11:00:09.000000' WHERE session_id = :second"
    database.execute(late, second=second)
    found = await diff(site, first, second)
    assert sketch(found) == [(True, True, ["duration"])]
    assert found["divergence"] is None


async def test_what_a_person_answered_is_one_call(site: SiteDoor, database: Database) -> None:
    first = await chain(site, database, shell("docker restart web"))
    second = await chain(site, database, shell("docker restart web", "ask"))
    put(database, second, 0, "Bash", shell("docker restart web")[1], "allow", 0)
    assert sketch(await diff(site, first, second)) == [(True, True, [])]


async def test_other_tools_are_the_same_by_their_input_whatever_its_order(site: SiteDoor, database: Database) -> None:
    first = await chain(site, database, ("Read", '{"file_path": "/a", "limit": 1}', "allow", 0))
    second = await chain(site, database, ("Read", '{"limit":1,"file_path":"/a"}', "allow", 0))
    third = await chain(site, database, ("Read", '{"limit":2,"file_path":"/a"}', "allow", 0))
    assert sketch(await diff(site, first, second)) == [(True, True, [])]
    assert sketch(await diff(site, first, third)) == [(True, False, []), (False, True, [])]


async def test_a_chain_of_very_many_calls_says_what_is_left_out(
    site: SiteDoor, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_diff, "MOST", 2)
    first, second = await chain(site, database, *HEALTHY), await chain(site, database, *SICK)
    found = await diff(site, first, second)
    assert (found["first"]["calls"], found["first"]["calls_left_out"]) == (2, 1)  # type: ignore[index]
    assert (found["second"]["calls"], found["second"]["calls_left_out"]) == (2, 2)  # type: ignore[index]
    assert "2 more are on record" in await text_of(site, f"/chains/{first}/diff/{second}")


async def test_what_both_found_and_cost_stands_beside_each_other(site: SiteDoor, database: Database) -> None:
    first = await chain(site, database)
    event = NewEvent(level=EventLevel.CRITICAL, message="web answers 502", service="web")
    session = await started(site.store)
    await site.store.queue.finish(ending(session, report(events=(event,))), rules=site.site.rules)
    found = await diff(site, first, session.id)
    assert found["first"]["cost_usd"] == 0.01  # type: ignore[index]
    assert found["second"]["outcome"] == "success"  # type: ignore[index]
    assert found["second"]["events"][0]["message"] == "web answers 502"  # type: ignore[index]
    text = await text_of(site, f"/chains/{first}/diff/{session.id}")
    assert "Neither of them" in text
    assert "web answers 502" in text


async def test_a_chain_leads_to_the_one_before_it_and_to_any_other(site: SiteDoor, database: Database) -> None:
    first, second = await chain(site, database), await chain(site, database)
    assert f"/chains/{first}/diff/{second}" in await text_of(site, f"/chains/{second}")
    assert "/diff/" not in await text_of(site, f"/chains/{first}")
    answer = await site.get(f"/chains/{second}?other={second}", bearer(2))
    assert (answer.status, answer.headers["location"]) == (303, f"/chains/{second}/diff/{second}")


async def test_the_chain_before_is_one_of_the_same_schedule(site: SiteDoor, database: Database) -> None:
    chains = [await chain(site, database) for _ in range(4)]
    for name, number in zip(("night", "day", "night"), chains, strict=False):
        database.execute(
            "INSERT INTO schedule_fires (schedule, due_at, fired_at, session_id) VALUES (:name, :at, :at, :number)",
            name=name,
            at=f"2026-03-01 0{number}:00:00.000000",
            number=number,
        )

    async def before(number: int) -> int | None:
        return await site.store.database.read(lambda connection: chain_before(connection, number))

    assert [await before(number) for number in chains] == [None, None, chains[0], chains[2]]


@pytest.mark.parametrize("text", TEXTS[::6], ids=range(len(TEXTS[::6])))
async def test_a_hostile_call_is_text_and_breaks_nothing(site: SiteDoor, database: Database, text: str) -> None:
    first, second = await chain(site, database, shell(text)), await chain(site, database, (text[:50], text, "deny", 0))
    for path in (f"/chains/{first}/diff/{second}", f"/api/v1/chains/{first}/diff/{first}"):
        answer = await site.get(path, bearer(2))
        page = answer.body.decode()
        assert answer.status == 200
        assert path.startswith("/api/") or f"<script>window.{MARK}" not in page
        assert not set(page) & {"\x1b", "\u202e", "\u200b"}
    assert "request_crashed" not in site.door.log.getvalue()


async def test_a_chain_that_there_is_not_is_not_found(site: SiteDoor, database: Database) -> None:
    number = await chain(site, database)
    for path in (f"/chains/{number}/diff/99", f"/chains/99/diff/{number}", f"/api/v1/chains/{number}/diff/x"):
        assert (await site.get(path, bearer(2))).status == 404


async def test_commands_that_are_not_read_in_time_are_compared_as_written(
    site: SiteDoor, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await chain(site, database, *HEALTHY), await chain(site, database, *SICK)
    monkeypatch.setattr(pages, "READING_SECONDS", 0.0)
    found = await diff(site, first, second)
    assert (found["as_written"], found["same"], found["only_first"]) == (True, 1, 2)
    assert "compared as written" in await text_of(site, f"/chains/{first}/diff/{second}")
