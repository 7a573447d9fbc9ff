"""Who gets a page: a browser that is logged in and that a page of ours, or a person, has sent here."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from claudeops.domain.access.logins import IDLE, LoginLink, Role
from claudeops.domain.access.tokens import digest_of
from claudeops.errors import DatabaseUnavailableError
from claudeops.store.glance import Glance
from claudeops.web.endpoints import Endpoint
from support.listening import bearer, token_for
from support.paged import SiteDoor, secret_for, site_door

HEALTH = {"GET /health", "GET /api/v1/health", "GET /healthz", "GET /readyz"}
LOGINS = {"GET /login", "POST /login", "GET /login/oidc", "GET /login/oidc/callback"}
OPEN = {*HEALTH, *LOGINS, "GET /static/{name}", "GET /setup/{once}", "POST /setup/{once}"}
PARAMS = {
    "once": secret_for("link-none"),
    "name": "style.css",
    "id": "1",
    "number": "1",
    "root": "1",
    "a": "1",
    "b": "2",
}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        yield made


def pages(site: SiteDoor) -> list[Endpoint]:
    return [row for row in site.door.listener.table.rows if row.page and row.scope == "read"]


async def test_nothing_is_open_to_everybody_but_health_and_the_login(site: SiteDoor) -> None:
    rows = site.door.listener.table.rows
    assert {row.label for row in rows if row.scope is None} == OPEN | {"POST /logout"}


async def test_every_page_leads_whoever_is_not_logged_in_to_the_login(site: SiteDoor) -> None:
    for row in pages(site):
        path = row.path.format_map(PARAMS)
        answer = await site.get(f"{path}?x=1" if row.query is None else path, {})
        assert (answer.status, answer.headers.get("location", "")[:12]) in {(303, "/login?next="), (422, "")}
        assert (await site.get(path, {})).status == 303
        assert (await site.get(path, {"cookie": f"claudeops_session={secret_for('guess')}"})).status == 303


async def test_every_page_is_for_whoever_is_logged_in_or_has_a_token_that_may_read(site: SiteDoor) -> None:
    cookie = await site.login()
    site.door.tokens.kept = {1: token_for(1, "read"), 2: token_for(2, "alerts:prometheus")}
    for row in pages(site):
        path = row.path.format_map(PARAMS)
        assert (await site.get(path, cookie)).status in {200, 404}
        assert (await site.get(path, bearer(1))).status in {200, 404}
        assert (await site.get(path, bearer(2))).status == 403


async def test_no_page_is_shown_to_another_sites_script_but_a_link_there_leads_to_it(site: SiteDoor) -> None:
    cookie = await site.login()
    cross = {"sec_fetch_site": "cross-site"}
    for row in pages(site):
        path = row.path.format_map(PARAMS)
        for mode, dest in (("cors", "empty"), ("no-cors", "image"), ("navigate", "iframe"), ("no-cors", "script")):
            answer = await site.get(path, cookie, **cross, sec_fetch_mode=mode, sec_fetch_dest=dest)
            assert answer.status == 403
        answer = await site.get(path, cookie, **cross, sec_fetch_mode="navigate", sec_fetch_dest="document")
        assert answer.status in {200, 404}
        assert (await site.door.ask("GET", path, headers=cookie, host="evil.example.com")).status == 421


async def test_every_part_of_the_api_asks_who_calls_for_what_by_which_name_and_from_where(site: SiteDoor) -> None:
    cookie = await site.login()
    late = token_for(3, "read", expires_at=site.door.clock.now())
    site.door.tokens.kept = {1: token_for(1, "read"), 2: token_for(2, "alerts:prometheus"), 3: late}
    rows = [row for row in site.door.listener.table.rows if row.scope == "read" and not row.page]
    assert len(rows) > 20
    cross = {**bearer(1), "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    good = "127.0.0.1:8080"
    for row in rows:
        path = row.path.format_map(PARAMS)
        for headers, host, expected in (
            ({}, good, {401}),
            (bearer(1), good, {200, 404}),
            (bearer(2), good, {403}),
            (bearer(3), good, {401}),
            (bearer(1), "evil.example.com", {421}),
            (cross, good, {403}),
            (dict(cookie), good, {200, 404}),
        ):
            answer = await site.door.ask("GET", path, headers=headers, host=host)
            assert answer.status in expected, (path, headers)
            if answer.status >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
        assert (await site.door.ask("PATCH", path, b"{}", headers=bearer(1))).status == 405


async def test_a_login_ends_by_idleness_age_and_by_logging_out(site: SiteDoor) -> None:
    cookie, clock = await site.login(), site.door.clock
    clock.go_on(IDLE.total_seconds() - 1)
    assert (await site.get("/", cookie)).status == 200
    clock.go_on(IDLE.total_seconds())
    assert (await site.get("/", cookie)).status == 303
    cookie = await site.login(name="bob")
    answer = await site.post("/logout", cookie)
    assert answer.status == 303
    assert 'claudeops_session=""' in answer.headers["set-cookie"]
    clock.go_on(2)
    assert (await site.get("/", cookie)).status == 303


async def test_another_site_logs_nobody_out(site: SiteDoor) -> None:
    cookie = await site.login()
    assert (await site.post("/logout", cookie, sec_fetch_site="cross-site")).status == 403
    headers = {**cookie, "accept": "text/html"}
    assert (
        await site.door.ask("POST", "/logout", b"", headers=headers)
    ).status == 303  # by a browser that says nothing
    site.door.clock.go_on(2)
    assert (await site.get("/", cookie)).status == 200


async def test_a_link_logs_in_once_and_only_within_its_minute(site: SiteDoor) -> None:
    await site.login()  # which uses one up
    path = f"/setup/{secret_for('link-ada')}"
    assert (await site.post(path, {})).status == 404
    assert (await site.get(path, {})).status == 200  # looking at a link is no use of it
    assert (await site.post(f"/setup/{secret_for('none')}", {})).status == 404


@pytest.mark.parametrize("first", ["-", "_", "0", "A", "z"])
async def test_a_link_works_whatever_its_secret_begins_with(site: SiteDoor, first: str) -> None:
    at, secret = site.door.clock.now(), f"{first:x<43}"
    link = LoginLink(
        name="ada", role=Role.ADMIN, digest=digest_of(secret), created_at=at, expires_at=at + timedelta(seconds=60)
    )
    await site.store.logins.make_link(link)
    assert (await site.get(f"/setup/{secret}", {})).status == 200
    assert (await site.post(f"/setup/{secret}", {})).status == 303


async def test_the_cookie_is_for_the_listener_alone_and_over_tls_where_that_is_how_it_is_reached(
    site: SiteDoor,
) -> None:
    for host, begins, ends in (
        ("127.0.0.1:8080", "claudeops_session=", "SameSite=lax"),
        ("ops.example.com", "__Host-claudeops_session=", "Secure"),
    ):
        await site.link("ada")
        answer = await site.door.ask("POST", f"/setup/{secret_for('link-ada')}", b"next=%2Fevents", host=host)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(begins)
        assert "HttpOnly" in cookie
        assert "Path=/" in cookie
        assert ends in cookie
        assert answer.headers["location"] == "/events"


async def test_a_page_loads_nothing_from_elsewhere_and_runs_no_script_but_ours(site: SiteDoor) -> None:
    answer = await site.get("/", await site.login())
    policy, text = answer.headers["content-security-policy"], answer.body.decode()
    (nonce,) = re.findall(r"script-src 'nonce-([\w-]{22})' 'strict-dynamic'", policy)
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert set(re.findall(r'nonce="([^"]*)"', text)) == {nonce}
    assert all(address.startswith(("/", "#")) for address in re.findall(r'(?:src|href)="([^"]*)"', text))
    assert nonce not in (await site.get("/", await site.login(name="bob"))).headers["content-security-policy"]


async def test_a_part_of_a_page_is_its_content_alone(site: SiteDoor) -> None:
    answer = await site.get("/", await site.login(), hx_request="true")
    assert "<html" not in answer.body.decode()
    assert "<h1" in answer.body.decode()
    assert "HX-Request" in answer.headers["vary"]


async def test_the_first_page_says_that_the_database_is_away(site: SiteDoor) -> None:
    cookie = await site.login()
    assert (await site.get("/", cookie)).status == 200
    site.door.clock.go_on(2)

    async def away() -> Glance:
        raise DatabaseUnavailableError("the database is locked.", target="x")

    site.site.glance = away
    assert "The database does not answer" in (await site.get("/", cookie)).body.decode()
