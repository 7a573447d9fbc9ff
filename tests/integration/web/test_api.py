"""The API over a real database: it answers with what the commands print, page by page, and once for what is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import anyio.to_thread
import msgspec
import pytest

from claudeops.domain.events import EventLevel, NewEvent
from claudeops.web.api.answers import Items
from claudeops.web.endpoints import Endpoint
from support.commanding import Document, Shell, shell_in
from support.listening import Answered, bearer
from support.lived_in import log_of, something_of_everything, with_log
from support.paged import SiteDoor, site_door
from support.policy_in_force import policy_in
from support.store_values import after, one_session, report

pytest_plugins = ("support.store_fixtures",)

PARAMS: Final = {"id": "1", "number": "1", "root": "1", "name": "web", "a": "1", "b": "2"}
HOSTILE: Final = "<script>\u202e\x1b[2J"

COMMANDS: Final[Mapping[str, tuple[str, str, bool]]] = {
    "/api/v1/sessions": ("list-sessions", "sessions", False),
    "/api/v1/events": ("list-events", "events", False),
    "/api/v1/incidents?all=true": ("list-incidents --all", "incidents", False),
    "/api/v1/silences": ("list-silences", "silences", False),
    "/api/v1/actions": ("list-actions", "actions", False),
    "/api/v1/approvals": ("list-approvals", "approvals", True),
    "/api/v1/memories?all=true": ("memories list --all", "memories", True),
    "/api/v1/sources": ("list-sources", "sources", False),
    "/api/v1/nodes": ("list-nodes", "nodes", False),
    "/api/v1/services/web/checks": ("list-checks web", "checks", False),
}
"""Lists, the command that prints the same, the key of its list, and whether it has the oldest first."""

SAME: Final[Mapping[str, str]] = {
    "/api/v1/chains/1": "chain 1",
    "/api/v1/chains/1/diff/2": "diff-chains 1 2",
    "/api/v1/incidents/1": "incident 1",
    "/api/v1/figures?since=2026-02-01": "stats --since 2026-02-01",
    "/api/v1/spend?since=2026-02-01": "spend --since 2026-02-01",
    "/api/v1/status": "status",
    "/api/v1/sessions/1/audit": "audit verify --session 1",
}

OF_NOW: Final = {"since", "silent_s", "lasted_s", "days", "today_usd", "confidence", "info"}
"""What depends on when it is asked: the commands ask now, and the site at noon.

`status` also counts levels without an event.
"""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        yield made


@pytest.fixture
async def lived_in(site: SiteDoor, tmp_path: Path) -> SiteDoor:
    session = await something_of_everything(site.store)
    await with_log(site.store, session, tmp_path / "session-000001.ndjson", log_of(session))
    site.site.policy = policy_in(tmp_path)
    return site


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], Shell]:
    """Return what opens a shell over a copy of the site's database."""
    return lambda: shell_in(tmp_path / "shell", tmp_path / "claudeops.db", monkeypatch, capsys)


async def ask(site: SiteDoor, path: str, **headers: str) -> Answered:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await site.door.ask("GET", path, headers={**bearer(2), **named})


def rows(site: SiteDoor) -> list[Endpoint]:
    found = [row for row in site.door.listener.table.rows if row.scope == "read" and row.path.startswith("/api/")]
    return [row for row in found if not row.path.endswith("/lines")]  # they are the streams' (test_streams.py)


def lists(site: SiteDoor) -> list[Endpoint]:
    return [row for row in rows(site) if getattr(row.answer, "__origin__", None) is Items]


def without(value: object, names: set[str]) -> object:
    if isinstance(value, dict):
        return {name: without(each, names) for name, each in value.items() if name not in names}
    return [without(each, names) for each in value] if isinstance(value, list) else value


async def test_every_answer_is_as_its_row_says(lived_in: SiteDoor) -> None:
    for row in rows(lived_in):
        answer = await ask(lived_in, row.path.format_map(PARAMS))
        assert answer.status == 200, row.path
        if row.answer is not dict:
            msgspec.json.decode(answer.body, type=row.answer)


async def test_lists_hold_what_the_commands_print(lived_in: SiteDoor, shell: Callable[[], Shell]) -> None:
    answers = {path: (await ask(lived_in, path)).json for path in COMMANDS}
    await lived_in.store.close()
    asked = shell()
    for path, (command, key, is_oldest_first) in COMMANDS.items():
        printed = (await anyio.to_thread.run_sync(partial(asked.ask, *command.split())))[key]
        assert isinstance(printed, list)
        items = answers[path]["items"]
        assert items, path
        assert without(items, OF_NOW) == without(printed[::-1] if is_oldest_first else printed, OF_NOW), path


async def test_single_things_are_what_the_commands_print(lived_in: SiteDoor, shell: Callable[[], Shell]) -> None:
    answers = {path: (await ask(lived_in, path)).json for path in SAME}
    await lived_in.store.close()
    asked = shell()
    for path, command in SAME.items():
        printed: Document = await anyio.to_thread.run_sync(partial(asked.ask, *command.split()))
        shared = answers[path].keys() & printed.keys() - OF_NOW
        assert len(shared) >= 5, path
        for name in shared:
            assert without(answers[path][name], OF_NOW) == without(printed[name], OF_NOW), (path, name)


async def test_the_reasons_are_those_that_the_command_prints(lived_in: SiteDoor, shell: Callable[[], Shell]) -> None:
    lived_in.door.clock.go_on(7200)  # the command asks long after it
    found = (await ask(lived_in, "/api/v1/why?service=web&at=2026-03-01T13:00Z&within=7d")).json
    await lived_in.store.close()
    command = partial(shell().ask, "why", "web", "--at", "2026-03-01T13:00Z", "--within", "7d")
    printed: Document = await anyio.to_thread.run_sync(command)
    assert found["reasons"]
    assert {name: printed[name] for name in found} == found


async def test_every_list_is_walked_to_its_end_without_a_gap_or_a_repetition(lived_in: SiteDoor) -> None:
    walked = {}
    for row in lists(lived_in):
        takes = getattr(row.query, "__struct_fields__", ())
        path, wide = row.path.format_map(PARAMS), {"all": "true"} if "all" in takes else {}
        everything = (await ask(lived_in, f"{path}?{urlencode(wide)}")).json["items"]
        if "before" not in takes:
            continue
        found: list[object] = []
        newest: list[str] = []
        before = ""
        while True:
            page = (await ask(lived_in, f"{path}?{urlencode({**wide, 'limit': '1', 'before': before})}")).json
            items = page["items"]
            assert isinstance(items, list)
            found += items
            newest.append(str(page["newest"]))
            if page["next"] is None:
                break
            before = str(page["next"])
        assert found == everything, path
        walked[path] = len(found)
        later: list[object] = []
        after = newest[-1]
        while page["items"]:
            page = (await ask(lived_in, f"{path}?{urlencode({**wide, 'limit': '1', 'after': after})}")).json
            assert isinstance(page["items"], list)
            later += page["items"]
            after = str(page["newest"])
        assert later == found[-2::-1], path  # from the oldest one on
        assert after == newest[0]
    assert sum(count > 1 for count in walked.values()) >= 5, walked


async def test_one_thing_that_is_known_is_not_sent_again(lived_in: SiteDoor) -> None:
    for row in rows(lived_in):
        assert ("etag" in (await ask(lived_in, row.path.format_map(PARAMS))).headers) == (row not in lists(lived_in))
    path = "/api/v1/chains/1"
    first = await ask(lived_in, path)
    tag = first.headers["etag"]
    assert tag.startswith('"')
    for known in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        again = await ask(lived_in, path, if_none_match=known)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert (await ask(lived_in, path, if_none_match='"x"')).body == first.body
    assert (await ask(lived_in, "/api/v1/chains/2")).headers["etag"] != tag


async def test_an_address_of_its_own_is_no_parameter_of_another(lived_in: SiteDoor) -> None:
    for method, path, allowed in (
        ("GET", "/api/v1/sessions/trigger", "POST"),
        ("DELETE", "/api/v1/passkeys/challenge", "POST"),
        ("POST", "/api/v1/sessions/1", "GET"),
    ):
        answer = await lived_in.door.ask(method, path, headers=bearer(2))
        assert (answer.status, answer.headers["allow"]) == (405, allowed), path


async def test_what_is_not_there_and_what_is_not_known_is_refused_by_a_problem(lived_in: SiteDoor) -> None:
    refused = {
        "/api/v1/sessions/99": 404,
        "/api/v1/sessions/99/calls": 404,
        "/api/v1/sessions/nine": 404,
        "/api/v1/chains/3000000000": 404,
        "/api/v1/incidents/0": 404,
        "/api/v1/events?offset=1": 422,
        "/api/v1/events?limit=201": 422,
        "/api/v1/events?limit=0": 422,
        "/api/v1/events?before=10": 422,
        "/api/v1/events?since=yesterday": 422,
        "/api/v1/events?level=bad&level=bad": 422,
        "/api/v1/events?tier=1;DROP": 422,
        "/api/v1/events?tier=null": 422,
        "/api/v1/spend?by=null": 422,
        "/api/v1/services/nowhere": 404,
        "/api/v1/silences/99": 404,
        "/api/v1/sessions/99/audit": 404,
        "/api/v1/sessions/99/film": 404,
        "/api/v1/policy?command=ls&tier=9": 404,
        "/api/v1/status?x=1": 422,
        "/api/v1/spend?by=colour": 422,
        "/api/v1/spend?since=2000d": 422,
        "/api/v1/figures?token=x": 401,
        "/api/v1/none": 404,
    }
    for path, status in refused.items():
        answer = await ask(lived_in, path)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), path
        assert answer.json["status"] == status
        assert str(answer.json["type"]).startswith("urn:claudeops:error:")


async def test_texts_of_strangers_hide_nothing(site: SiteDoor) -> None:
    said = NewEvent(level=EventLevel.WARNING, message=HOSTILE, service="we\u200bb")
    await one_session(site.store, report(events=(said,)), at=after())
    body = (await ask(site, "/api/v1/events")).body.decode()
    assert "\\\\u202e" in body
    assert not {"\u202e", "\u200b", "\x1b"} & set(body)


async def test_homepage_finds_what_claude_ops_gave_it(lived_in: SiteDoor) -> None:
    found = (await ask(lived_in, "/api/v1/stats")).json
    assert found["next_run"] == "2026-03-01T13:00:00Z"
    assert found["interval_seconds"] == 3600
    assert found["stats"] == {
        "total_runs": 3,
        "escalations": 0,
        "remediations": 0,
        "success_rate": 1.0,
        "total_cost_usd": 0.01,
        "active_memories": 2,
        "critical_events": 2,
        "avg_duration_ms": found["stats"]["avg_duration_ms"],  # type: ignore[index]
    }
    last = found["last_session"]
    assert isinstance(last, dict)
    assert (last["id"], last["status"]) == (4, "running")


async def test_health_is_open_to_everybody(site: SiteDoor) -> None:
    for path in ("/health", "/api/v1/health"):
        answer = await site.door.ask("GET", path)
        assert (answer.status, answer.body) == (200, b'{"status":"ok"}')


async def test_one_sum_alone_is_asked_for(lived_in: SiteDoor) -> None:
    found = (await ask(lived_in, "/api/v1/spend?by=tier")).json
    assert found["tiers"]
    assert (found["days"], found["models"], found["chains"]) == ([], [], [])
