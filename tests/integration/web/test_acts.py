"""What people and programs do by way of pages and API: who may, what is on record then, and how often it happens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import anyio
import anyio.lowlevel
import pytest
import sqlalchemy as sa

from claudeops.domain.access.logins import Role
from claudeops.domain.access.tokens import PERSONS_SCOPES, PREFIX, ScopeKind
from claudeops.domain.commands import Command
from claudeops.domain.gate.approval import proven_yes
from claudeops.domain.retention import KEYS_KEPT
from claudeops.domain.sessions import Status
from claudeops.store.reading import silences
from claudeops.store.tables.web import api_tokens, idempotency_keys
from claudeops.structs import replace
from claudeops.web.acting import ACTS
from claudeops.web.endpoints import Endpoint
from support.checkout import ROOT
from support.listening import Answered, bearer, token_for
from support.lived_in import QUEUED, something_of_everything
from support.paged import KEY, SiteDoor, site_door
from support.store_values import NOW, OTHER_OWNER, OWNER, claimed
from support.waiting import PATIENCE_SECONDS

PARAMS: Final = {"id": "1", "number": "1"}
GOOD: Final = "127.0.0.1:8080"
ACTING: Final = {ScopeKind.TRIGGER, ScopeKind.STOP, ScopeKind.OPERATE, *PERSONS_SCOPES}
PROGRAM: Final = 4
"""The token that may do all that tokens may."""
BY: Final = f"token {PROGRAM} (tool {PROGRAM})"
"""What is on record of who did it."""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.clock.at = NOW
        made.door.tokens.kept[PROGRAM] = token_for(PROGRAM, "read", "trigger", "stop", "operate")
        await something_of_everything(made.store)
        yield made


def acting_rows(site: SiteDoor) -> list[Endpoint]:
    return [row for row in site.door.listener.table.rows if row.scope in ACTING]


async def send(
    site: SiteDoor,
    method: str,
    path: str,
    body: object = None,
    *,
    token: int = PROGRAM,
    key: str = "",
    prefer: str = "",
) -> Answered:
    """Send what a program sends."""
    headers = bearer(token)
    if key:
        headers["idempotency-key"] = key
    if prefer:
        headers["prefer"] = prefer
    text = b"" if body is None else json.dumps(body).encode()
    return await site.door.ask(method, f"/api/v1{path}", text, headers=headers)


async def fill_in(site: SiteDoor, path: str, cookie: Mapping[str, str], **fields: str) -> Answered:
    """Send a form as a browser does."""
    return await site.post(path, cookie, urlencode(fields).encode())


async def as_person(site: SiteDoor, method: str, path: str, body: object, cookie: Mapping[str, str]) -> Answered:
    """Send what a page's script of ours would."""
    headers = {**cookie, "sec-fetch-site": "same-origin"}
    return await site.door.ask(method, f"/api/v1{path}", json.dumps(body).encode(), headers=headers)


async def sessions_of(site: SiteDoor) -> int:
    answer = await send(site, "GET", "/sessions")
    return len(answer.json["items"])  # type: ignore[arg-type]


# --- who may ----------------------------------------------------------------------------------------------


async def test_every_act_is_closed_to_whoever_has_no_proof_a_lesser_one_or_one_that_is_over(site: SiteDoor) -> None:
    late = token_for(3, "read", "trigger", "stop", "operate", expires_at=site.door.clock.now())
    site.door.tokens.kept |= {2: token_for(2, "read", "metrics"), 3: late}
    rows = acting_rows(site)
    assert len(rows) == sum(len(act.api) + bool(act.page) for act in ACTS) + 3  # tokens, and replays by both ways
    for row in rows:
        path = row.path.format_map(PARAMS)
        for headers, expected in (
            ({}, 303 if row.page else 401),
            (bearer(2), 403),
            (bearer(3), 303 if row.page else 401),
        ):
            answer = await site.door.ask(row.method, path, b"", headers=headers)
            assert answer.status == expected, (row.label, headers)


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_do_what_its_scopes_say_and_nothing_else(site: SiteDoor, role: Role) -> None:
    cookie = await site.login(role)
    for row in acting_rows(site):
        path = row.path.format_map(PARAMS)
        headers = {**cookie, "sec-fetch-site": "same-origin"}
        answer = await site.door.ask(row.method, path, b"x=1" if row.page else b"[]", headers=headers)
        if row.scope in role.scopes:
            assert answer.status in ({200} if row.method == "GET" else {422}), row.label
        else:
            assert answer.status == 403, row.label
            assert "is logged in as" in answer.body.decode()


async def test_no_token_answers_an_approval_or_gives_access(site: SiteDoor) -> None:
    site.door.tokens.kept[5] = token_for(5, "read", "trigger", "stop", "operate", "metrics")
    for row in acting_rows(site):
        if row.scope in PERSONS_SCOPES:
            answer = await site.door.ask(row.method, row.path.format_map(PARAMS), b"{}", headers=bearer(5))
            assert answer.status == 403


async def test_no_other_site_and_no_other_name_makes_a_browser_do_something(site: SiteDoor) -> None:
    cookie = await site.login(Role.ADMIN)
    for row in acting_rows(site):
        path = row.path.format_map(PARAMS)
        for headers, host, expected in (
            ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, GOOD, 403),
            ({"sec-fetch-site": "same-site"}, GOOD, 403),
            ({"origin": "http://evil.example.com"}, GOOD, 403),
            ({"sec-fetch-site": "same-origin"}, "evil.example.com", 421),
            ({}, GOOD, 403),  # a browser that says nothing
        ):
            if row.method == "GET" and not headers:
                continue
            answer = await site.door.ask(row.method, path, b"", headers={**cookie, **headers}, host=host)
            assert answer.status == expected, (row.label, headers)


async def test_whoever_can_only_look_sees_no_button(site: SiteDoor) -> None:
    paths = (
        "/",
        "/silences",
        "/memories",
        "/memories/1",
        "/sessions",
        f"/sessions/{QUEUED}",
        "/incidents",
        "/incidents/1",
        "/approvals",
    )
    looking, acting = await site.login(), await site.login(Role.ADMIN, name="root")
    for path in paths:
        seen = (await site.get(path, looking)).body.decode().replace('action="/logout"', "")
        assert 'method="post"' not in seen.replace('<form method="post"  class="who">', ""), path
        assert (await site.get(path, acting)).body.decode().count('method="post"') > 1, path


# --- what is on record then ---------------------------------------------------------------------------------


async def test_a_request_is_queued_and_answered_with_its_row(site: SiteDoor) -> None:
    for path in ("/sessions", "/sessions/trigger"):
        body = {"prompt": "look at the disk", "start_tier": 2, "service": "nas"}
        answer = await send(site, "POST", path, body)
        assert (answer.status, answer.json["status"], answer.json["tier"]) == (201, "queued", 2)
        number = answer.json["id"]
        assert isinstance(number, int)
        assert answer.json == (await send(site, "GET", f"/sessions/{number}")).json
        kept = await site.store.records.session(number)
        assert kept is not None
        assert (kept.prompt_text, kept.services) == ("look at the disk", ("nas",))


async def test_a_request_for_a_site_is_queued_for_it_where_a_daemon_runs_there(site: SiteDoor) -> None:
    before = await sessions_of(site)
    refused = await send(site, "POST", "/sessions", {"prompt": "look", "site": "north"})
    assert (refused.status, refused.json["detail"]) == (
        409,
        "No daemon of site north runs on this database, so nothing was queued.",
    )
    assert await sessions_of(site) == before
    await site.store.recovery.renew_lease(replace(OTHER_OWNER, name="node-9", site="north"), now=NOW)

    answer = await send(site, "POST", "/sessions", {"prompt": "look", "site": "north"})

    assert answer.status == 201
    kept = await site.store.records.session(int(str(answer.json["id"])))
    assert kept is not None
    assert kept.site == "north"


async def test_who_started_a_session_is_on_record_and_on_its_pages(site: SiteDoor) -> None:
    by_program = (await send(site, "POST", "/sessions", {"prompt": "look"})).json
    cookie = await site.login(Role.OPERATOR)
    by_person = await fill_in(site, "/sessions", cookie, prompt="look")
    assert by_person.status == 303
    found = (await send(site, "GET", "/sessions")).json["items"]
    assert isinstance(found, list)
    assert [one["started_by"] for one in found[:2]] == ["ada", BY]
    assert found[2]["started_by"] is None  # the daemon itself
    for path in (f"/sessions/{by_program['id']}", f"/chains/{by_program['id']}", "/sessions"):
        assert BY in (await site.get(path, cookie)).body.decode(), path
    assert "manual by ada" in (await site.get(by_person.headers["location"], cookie)).body.decode()


async def test_what_may_not_start_is_refused_with_the_reason(site: SiteDoor) -> None:
    before = await sessions_of(site)
    answer = await send(site, "POST", "/sessions", {"prompt": "x", "start_tier": 3})
    assert (answer.status, answer.json["type"]) == (409, "urn:claudeops:error:policy")
    busy = await send(site, "POST", "/sessions", {"prompt": "x"}, prefer="respond-if-busy")
    assert (busy.status, busy.json["detail"]) == (409, "Sessions run or wait already.")
    await send(site, "PUT", "/pause", {"reason": "moving house"})
    answer = await send(site, "POST", "/sessions", {"prompt": "x"})
    assert answer.status == 409
    assert "moving house" in str(answer.json["detail"])
    assert await sessions_of(site) == before


async def test_a_session_that_waits_is_stopped_by_the_one_who_says_so(site: SiteDoor) -> None:
    answer = await send(site, "POST", f"/sessions/{QUEUED}/stop")
    assert (answer.status, answer.json["stopped"], answer.json["handled"]) == (200, [QUEUED], True)
    kept = await site.store.records.session(QUEUED)
    assert kept is not None
    assert (kept.status, kept.error) == (Status.ENDED, f"stopped by {BY} before it began")
    again = await send(site, "POST", f"/sessions/{QUEUED}/stop")
    assert (again.status, "has ended" in str(again.json["detail"])) == (409, True)
    assert (await send(site, "POST", "/sessions/99/stop")).status == 404


async def test_a_running_session_is_the_daemons_to_stop_and_its_end_is_not_waited_for(site: SiteDoor) -> None:
    running = await claimed(site.store)
    assert running is not None

    async def take() -> None:
        taken: Sequence[Command] = ()
        with anyio.fail_after(PATIENCE_SECONDS):
            while not taken:
                await anyio.lowlevel.checkpoint()
                taken = await site.store.commands.take(OWNER.name, now=NOW)
        assert [dict(one.arguments) for one in taken] == [{"session_id": running.id}]
        assert taken[0].requested_by == "ada"

    cookie = await site.login(Role.OPERATOR)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        answer = await fill_in(site, f"/sessions/{running.id}/stop", cookie)
    assert (answer.status, answer.headers["location"]) == (303, f"/sessions/{running.id}")


async def test_an_incident_is_taken_and_declared_over_by_a_person(site: SiteDoor) -> None:
    cookie = await site.login(Role.OPERATOR)
    answer = await fill_in(site, "/incidents/1/ack", cookie)
    assert (answer.status, answer.headers["location"]) == (303, "/incidents/1")
    assert (await send(site, "GET", "/incidents/1")).json["acked_by"] == "ada"
    answer = await send(site, "POST", "/incidents/1/resolve")
    assert (answer.status, answer.json["status"], answer.json["handled"]) == (200, "resolved", True)
    assert (await send(site, "POST", "/incidents/1/ack")).status == 409
    assert (await send(site, "POST", "/incidents/99/ack")).status == 404
    text = (await fill_in(site, "/incidents/1/ack", cookie)).body.decode()
    assert "Incident 1 is over already." in text


async def test_a_yes_is_proven_and_bound_to_the_call_that_was_shown(site: SiteDoor) -> None:
    cookie = await site.login(Role.APPROVER)
    page = (await site.get("/approvals", cookie)).body.decode()
    shown = await site.store.approvals.approval(2)
    assert shown is not None
    assert shown.call_hash in page
    wrong = await fill_in(site, "/approvals/2/answer", cookie, answer="approve", call_hash="of another call")
    assert wrong.status == 404
    answer = await fill_in(site, "/approvals/2/answer", cookie, answer="approve", call_hash=shown.call_hash)
    assert (answer.status, answer.headers["location"]) == (303, "/approvals")
    kept = await site.store.approvals.approval(2)
    assert kept is not None
    assert proven_yes(KEY, kept) == ("web:ada",)
    late = await as_person(site, "POST", "/approvals/2/answer", {"answer": "deny"}, cookie)
    assert (late.status, "approved already" in str(late.json["detail"])) == (409, True)


async def test_a_no_is_an_answer_of_the_api_too(site: SiteDoor) -> None:
    cookie = await site.login(Role.APPROVER)
    answer = await as_person(site, "POST", "/approvals/2/answer", {"answer": "deny"}, cookie)
    assert (answer.status, answer.json["status"], answer.json["decided_by"]) == (200, "denied", "web:ada")


async def test_a_call_that_is_not_shown_whole_takes_no_yes_by_the_way(site: SiteDoor) -> None:
    await site.store.database.write(_hide)
    cookie = await site.login(Role.APPROVER)
    answer = await as_person(site, "POST", "/approvals/2/answer", {"answer": "approve"}, cookie)
    assert (answer.status, "not shown whole" in str(answer.json["detail"])) == (409, True)
    assert "unseen" in str(answer.json["hint"])
    assert 'name="unseen"' in (await site.get("/approvals", cookie)).body.decode()
    body = {"answer": "approve", "unseen": True}
    assert (await as_person(site, "POST", "/approvals/2/answer", body, cookie)).status == 200


def _hide(connection: Any) -> None:
    connection.exec_driver_sql("UPDATE approvals SET hidden = 1 WHERE id = 2")


async def test_without_a_key_no_answer_is_taken(tmp_path: Path) -> None:
    async with site_door(tmp_path, key=None) as site:
        site.door.clock.at = NOW
        await something_of_everything(site.store)
        cookie = await site.login(Role.ADMIN)
        answer = await as_person(site, "POST", "/approvals/2/answer", {"answer": "approve"}, cookie)
        kept = await site.store.approvals.approval(2)
    assert answer.status == 503
    assert kept is not None
    assert kept.answers == ()


async def test_a_silence_is_tried_out_begun_and_ended(site: SiteDoor) -> None:
    before = await _silences(site)
    tried = await send(site, "POST", "/silences", {"matchers": ['service="shop"'], "preview": True})
    assert (tried.status, tried.json["handled"]) == (201, False)
    assert await _silences(site) == before
    cookie = await site.login(Role.OPERATOR)
    page = await fill_in(site, "/silences", cookie, matchers='service="shop"', lasts="1h", preview="true")
    assert (page.status, "Nothing is silenced" in page.body.decode()) == (200, True)
    fields = {"matchers": 'service="shop"\r\nseverity="critical"', "lasts": "1h", "comment": "moving"}
    assert (await fill_in(site, "/silences", cookie, **fields)).status == 303
    (kept,) = await _silences(site) - before
    answer = await send(site, "DELETE", f"/silences/{kept}")
    assert (answer.status, answer.json["silence"]["ended_by"]) == (200, BY)  # type: ignore[index]
    assert (await send(site, "DELETE", "/silences/99")).status == 404
    for body in ({"matchers": ["x"]}, {"matchers": ['a="b"'], "lasts": "9999d"}, {"matchers": ['a="b"'], "lasts": "x"}):
        assert (await send(site, "POST", "/silences", body)).status == 422


async def _silences(site: SiteDoor) -> set[int]:
    found = await site.store.database.read(partial(silences.listed, now=NOW, everything=False))
    return {one.id for one in found}


async def test_a_memory_is_stated_edited_forgotten_and_brought_back(site: SiteDoor) -> None:
    stated = await send(site, "POST", "/memories", {"observation": "backups run at 03:00", "category": "schedule"})
    assert (stated.status, stated.json["handled"]) == (201, True)
    number = stated.json["memory_id"]
    edited = await send(site, "PUT", f"/memories/{number}", {"observation": "backups run at 04:00"})
    assert edited.json["memory"]["supersedes"] == number  # type: ignore[index]
    latest = edited.json["memory_id"]
    gone = await send(site, "DELETE", f"/memories/{latest}")
    assert gone.json["memory"]["changed_by"] == BY  # type: ignore[index]
    assert (await send(site, "DELETE", f"/memories/{latest}")).status == 409
    cookie = await site.login(Role.OPERATOR)
    restored = await fill_in(site, f"/memories/{latest}/restore", cookie)
    assert (restored.status, restored.headers["location"]) == (303, f"/memories/{latest}")
    assert (await send(site, "POST", f"/memories/{latest}/confirm")).status == 409
    assert (await send(site, "POST", "/memories", {"observation": "x", "category": "gossip"})).status == 422


async def test_sessions_are_held_and_start_again(site: SiteDoor) -> None:
    cookie = await site.login(Role.OPERATOR)
    assert "Let sessions start again" not in (await site.get("/", cookie)).body.decode()
    assert (await fill_in(site, "/pause", cookie, reason="moving house")).status == 303
    held = (await send(site, "GET", "/pause")).json
    assert (held["paused"], len(held["holds"])) == (True, 1)  # type: ignore[arg-type]
    assert "Let sessions start again" in (await site.get("/", cookie)).body.decode()
    answer = await send(site, "DELETE", "/pause")
    assert (answer.status, answer.json) == (200, {"paused": False, "handled": True, "holds": []})
    assert (await send(site, "GET", "/pause")).json == {"paused": False, "holds": []}


async def test_a_token_is_made_by_an_admin_and_shown_once(site: SiteDoor) -> None:
    cookie = await site.login(Role.ADMIN)
    headers = {**cookie, "sec-fetch-site": "same-origin", "idempotency-key": "first"}
    body = json.dumps({"name": "grafana", "scopes": ["read"], "expires": "never"}).encode()
    made = await site.door.ask("POST", "/api/v1/tokens", body, headers=headers)
    assert (made.status, made.json["scopes"], made.json["expires_at"]) == (201, ["read"], None)
    again = await site.door.ask("POST", "/api/v1/tokens", body, headers=headers)
    assert (again.status, str(made.json["token"]) in again.body.decode()) == (409, False)
    number = made.json["token_id"]
    secret = str(made.json["token"]).removeprefix(f"{PREFIX}{number}_")
    assert len(secret) > 20
    assert secret not in await site.store.database.read(_everything)
    listed = await site.door.ask("GET", "/api/v1/tokens", headers=headers)
    assert number in {one["token_id"] for one in listed.json["items"]}  # type: ignore[attr-defined]
    gone = await site.door.ask("DELETE", f"/api/v1/tokens/{number}", headers=headers)
    assert (gone.status, gone.json["state"], gone.json["revoked_by"]) == (200, "revoked", "ada")
    for wrong in (["approve"], ["admin"], ["everything"], []):
        body = json.dumps({"name": "x", "scopes": wrong}).encode()
        headers["idempotency-key"] = f"key {wrong}".replace(" ", "")
        assert (await site.door.ask("POST", "/api/v1/tokens", body, headers=headers)).status in {409, 422}


def _everything(connection: Any) -> str:
    return repr([list(connection.execute(sa.select(table))) for table in (api_tokens, idempotency_keys)])


# --- how often ----------------------------------------------------------------------------------------------


async def test_a_call_with_a_key_is_made_once_and_answered_as_before(site: SiteDoor) -> None:
    before = await sessions_of(site)
    first = await send(site, "POST", "/sessions", {"prompt": "look"}, key="k-1")
    again = await send(site, "POST", "/sessions", {"prompt": "look"}, key="k-1")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    assert await sessions_of(site) == before + 1
    other = await send(site, "POST", "/sessions", {"prompt": "another"}, key="k-1")
    assert (other.status, await sessions_of(site)) == (422, before + 1)
    site.door.tokens.kept[6] = token_for(6, "trigger")
    site.door.clock.go_on(2)
    assert (await send(site, "POST", "/sessions", {"prompt": "look"}, token=6, key="k-1")).status == 201
    assert await sessions_of(site) == before + 2  # another caller's key is another
    site.door.clock.go_on(KEYS_KEPT.total_seconds() + 1)
    assert (await send(site, "POST", "/sessions", {"prompt": "another"}, key="k-1")).status == 201


async def test_what_was_refused_may_be_sent_again_with_its_key(site: SiteDoor) -> None:
    await send(site, "PUT", "/pause")
    assert (await send(site, "POST", "/sessions", {"prompt": "look"}, key="k-2")).status == 409
    await send(site, "DELETE", "/pause")
    assert (await send(site, "POST", "/sessions", {"prompt": "look"}, key="k-2")).status == 201


async def test_a_call_whose_daemon_died_before_the_answer_is_not_made_a_second_time(site: SiteDoor) -> None:
    before = await sessions_of(site)
    await send(site, "POST", "/sessions", {"prompt": "look"}, key="k-3")
    await site.store.database.write(_lose_the_answer)
    answer = await send(site, "POST", "/sessions", {"prompt": "look"}, key="k-3")
    assert (answer.status, "look before you send it anew" in str(answer.json["detail"])) == (409, True)
    assert await sessions_of(site) == before + 1


def _lose_the_answer(connection: Any) -> None:
    connection.exec_driver_sql("UPDATE idempotency_keys SET status = NULL, answer = NULL")


async def test_a_button_that_is_pressed_twice_starts_one_session(site: SiteDoor) -> None:
    cookie, before = await site.login(Role.OPERATOR), await sessions_of(site)
    fields = {"prompt": "look", "start_tier": "1", "service": "", "once": "a" * 22}
    places = [(await fill_in(site, "/sessions", cookie, **fields)).headers["location"] for _ in range(2)]
    assert places[0] == places[1]
    assert await sessions_of(site) == before + 1
    await fill_in(site, "/sessions", cookie, **{**fields, "once": "b" * 22})
    assert await sessions_of(site) == before + 2


@pytest.mark.parametrize("key", ["x" * 256, "a b", "\u00e9"])
async def test_a_key_that_is_none_is_refused(site: SiteDoor, key: str) -> None:
    assert (await send(site, "POST", "/sessions", {"prompt": "look"}, key=key)).status == 422


async def test_a_key_without_a_character_is_none(site: SiteDoor) -> None:
    headers = {**bearer(PROGRAM), "idempotency-key": ""}
    answer = await site.door.ask("POST", "/api/v1/sessions", b'{"prompt": "look"}', headers=headers)
    assert answer.status == 422


# --- what is sent ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b"{", b"null", b'{"prompt": 1}', b'{"prompt": ""}', b'{"prompt": "x", "tier": 1}', b"\xff"),
        *(b'{"prompt": "x", "start_tier": 0}', b'{"prompt": "x", "start_tier": 1e9}', b"[" * 100_000),
    ],
)
async def test_a_body_that_is_none_is_refused_and_starts_nothing(site: SiteDoor, body: bytes) -> None:
    before = await sessions_of(site)
    answer = await site.door.ask("POST", "/api/v1/sessions", body, headers=bearer(PROGRAM))
    assert (answer.status, answer.headers["content-type"]) == (422, "application/problem+json")
    assert await sessions_of(site) == before


async def test_a_whole_number_is_one_however_it_is_written(site: SiteDoor) -> None:
    answer = await send(site, "POST", "/sessions", {"prompt": "look", "start_tier": 2.0})
    assert (answer.status, answer.json["tier"]) == (201, 2)
    assert (await send(site, "POST", "/sessions", {"prompt": "look", "start_tier": 1.5})).status == 422


@pytest.mark.parametrize(
    "body", [b"", b"prompt=", b"prompt=x&start_tier=y", b"prompt=x&role=admin", b"&".join([b"a=1"] * 200)]
)
async def test_a_form_that_is_none_is_refused_with_a_page(site: SiteDoor, body: bytes) -> None:
    answer = await site.post("/sessions", await site.login(Role.OPERATOR), body)
    assert (answer.status, answer.headers["content-type"]) == (422, "text/html; charset=utf-8")


async def test_the_page_about_the_api_has_every_act_with_its_body(site: SiteDoor) -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for row in acting_rows(site):
        if row.page:
            continue
        names = ", ".join(f"`{name}`" for name in getattr(row.body, "__struct_fields__", ())) or "\u2013"
        assert f"| `{row.method}` | `{row.path}` | `{row.scope}` | {names} | {row.summary} |" in text
