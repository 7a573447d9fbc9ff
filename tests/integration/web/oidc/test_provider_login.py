"""Logging in at an identity provider on loopback: the good way, and every way to get in without it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import pytest
from sqlalchemy import Connection, select
from starlette.responses import RedirectResponse, Response, StreamingResponse

from claudeops.domain.access.logins import IDLE, LONGEST, Role
from claudeops.formats.oidc import PENDING_TIME
from claudeops.http_server import listen
from claudeops.store.access.users import Users
from claudeops.store.tables.events import events
from claudeops.web.oidc.login import MOST_AT_ONCE, MOST_PENDING, OidcLogin
from claudeops.web.oidc.provider import AGAIN_SECONDS, FRESH_SECONDS, KEYS_AGAIN_SECONDS, MOST_BYTES
from claudeops.web.password_login import TRIES
from support.identity_provider import (
    ACCESS_TOKEN,
    CLIENT_ID,
    CLIENT_SECRET,
    Claims,
    IdentityProvider,
    by_secret,
    ec_key,
    listening,
    login_at,
    rsa_key,
    signed,
    unsigned,
)
from support.listening import HOST, Answered
from support.loopback_http import ask
from support.paged import PROXY_SECRET, SiteDoor, secret_for, site_door

ELSEWHERE: Final = "10.0.0.7"
FROM_THERE: Final = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
NOT_BEGUN: Final = "This login was not begun in this browser"
HELD: Final = "the token does not hold: "


@dataclass
class Browser:
    """A browser without scripts, which keeps its cookies, in front of our pages and the provider."""

    site: SiteDoor
    provider: IdentityProvider
    peer: str = "127.0.0.1"
    host: str = HOST
    more: dict[str, str] = field(default_factory=dict)  # headers that a proxy adds
    cookies: dict[str, str] = field(default_factory=dict)

    async def open(self, path: str, **headers: str) -> Answered:
        sent = {"sec-fetch-site": "same-origin", "accept": "text/html", **self.more}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        answer = await self.site.door.ask("GET", path, headers=sent, host=self.host, peer=self.peer)
        if kept := answer.headers.get("set-cookie"):
            name, _, value = kept.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def begin(self, follow: str = "/") -> str:
        """Follow the link on the login page; return the address at the provider."""
        answer = await self.open(f"/login/oidc?{urlencode({'next': follow})}")
        assert answer.status == 303, answer.body.decode()
        return answer.headers["location"]

    async def come_back(self, address: str) -> Answered:
        """Follow the provider back."""
        parts = urlsplit(address)
        return await self.open(f"{parts.path}?{parts.query}", **FROM_THERE)

    async def log_in(self, follow: str = "/") -> Answered:
        return await self.come_back(self.provider.consent(await self.begin(follow)))

    async def role(self) -> str:
        """Return what the browser may do now: nothing, look, or operate."""
        self.site.door.clock.go_on(0.2)  # a login that was not there a moment ago is looked for again
        page = await self.open("/")
        if page.status != 200:
            return ""
        return "looks" if "You can only look" in page.body.decode() else "logged in"


@dataclass
class World:
    """Pages, a provider, and what stands between them."""

    site: SiteDoor
    provider: IdentityProvider
    login: OidcLogin

    def browser(self, **about: Any) -> Browser:
        return Browser(self.site, self.provider, **about)

    @property
    def log(self) -> str:
        return self.site.door.log.getvalue()

    def failures(self) -> list[str]:
        lines = [json.loads(line) for line in self.log.splitlines()]
        return [line["error"] for line in lines if line["event"] == "provider_login_failed"]

    def hurry_after(self, path: str) -> None:
        """Give the provider next to no time once it was asked for this; empty: from now on."""

        def notice(seen: str) -> None:
            if seen == path:
                self.login.provider.seconds = 0.05  # an exchange that has begun keeps its time

        notice("")
        self.provider.notice = notice

    def use(self, **about: Any) -> None:
        """Configure another client: nothing is known of the provider yet."""
        self.login = login_at(self.site, self.provider, **about)
        self.site.site.provider = self.login


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with site_door(tmp_path) as site, listening(IdentityProvider()) as provider:
        provider.now = site.door.clock.now
        await site.user("Bea", Role.OPERATOR)
        made = World(site, provider, login_at(site, provider))
        site.site.provider = made.login
        yield made


def says(answer: Answered) -> str:
    """Return what a login page says is wrong."""
    text = answer.body.decode()
    assert "set-cookie" not in answer.headers
    return text.partition('role="alert">')[2].partition("</p>")[0].replace("&#39;", "'")


def answering(status: int = 200, body: bytes = b"", **headers: str) -> Response:
    return Response(body, status_code=status, headers=headers)


# --- the good way


async def test_a_person_logs_in_over_real_connections_and_has_the_role_on_record(world: World) -> None:
    closing = anyio.Event()
    async with listen(world.site.door.listener, host="127.0.0.1", port=0, closing=closing) as url:
        world.use(public_url=url)
        page = await ask(f"{url}/login?next=%2Fevents", method="GET")
        assert b'href="/login/oidc?next=%2Fevents"' in page.body
        begun = await ask(f"{url}/login/oidc?next=%2Fevents", method="GET")
        kept = begun.headers["set-cookie"].partition(";")[0]
        consent = await ask(begun.headers["location"].replace("/authorize", "/consent"), method="GET")
        ended = await ask(consent.headers["location"], method="GET", headers={"cookie": kept, **_dashed(FROM_THERE)})
        assert (ended.status, ended.headers["location"]) == (303, "/events")
        cookie = ended.headers["set-cookie"].partition(";")[0]
        world.site.door.clock.go_on(0.2)
        events_page = await ask(f"{url}/events", method="GET", headers={"cookie": cookie, **_dashed(FROM_THERE)})
        assert events_page.status == 200
        assert b"Bea" in events_page.body
    assert world.provider.paths() == ["/.well-known/openid-configuration", "/consent", "/token", "/keys"]


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def test_the_login_is_one_like_others_and_says_who_has_vouched(world: World) -> None:
    browser = world.browser()
    assert (await browser.log_in()).status == 303
    assert await browser.role() == "logged in"
    (login,) = (await world.site.store.logins.active(world.site.door.clock.now())).values()
    assert (login.name, login.role, login.look_only) == ("Bea", Role.OPERATOR, False)
    assert login.expires_at - login.created_at == LONGEST
    deeds = await world.site.store.database.read(_titles)
    assert f"Bea has logged in as operator by {urlsplit(world.provider.issuer).netloc}" in deeds
    await world.site.store.users.remove("bea", by="ada", now=world.site.door.clock.now())
    world.site.door.clock.go_on(1)
    assert await browser.role() == ""


def _titles(connection: Connection) -> str:
    return " ".join(str(value) for row in connection.execute(select(events)) for value in row)


async def test_a_login_that_idles_is_over(world: World) -> None:
    browser = world.browser()
    await browser.log_in()
    world.site.door.clock.go_on(IDLE.total_seconds())
    assert await browser.role() == ""


async def test_the_cookies_are_for_this_host_and_no_script(world: World) -> None:
    for host, begins, mark in (
        (HOST, "claudeops_login=", "lax"),
        ("ops.example.com", "__Host-claudeops_login=", "Secure"),
    ):
        answer = await world.browser(host=host).open("/login/oidc")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(begins)
        assert {"HttpOnly", "Path=/", "Max-Age=600", "SameSite=lax"} <= set(cookie.split("; "))
        assert mark in cookie
        public = f"{'https' if mark == 'Secure' else 'http'}://{host}"
        (callback,) = parse_qs(urlsplit(answer.headers["location"]).query)["redirect_uri"]
        assert callback == f"{public}/login/oidc/callback"


async def test_by_a_name_that_is_not_public_the_link_leads_to_one_that_is(world: World) -> None:
    page = (await world.browser(host="localhost:9999").open("/login?next=%2Fwhy")).body.decode()
    assert 'href="http://127.0.0.1:8080/login/oidc?next=%2Fwhy"' in page


async def test_the_provider_sees_the_secret_the_verifier_and_no_person_of_ours(world: World) -> None:
    await world.browser().log_in()
    (token,) = [one for one in world.provider.seen if one.path == "/token"]
    assert token.form["client_id"] == CLIENT_ID
    assert "client_secret" not in token.form
    assert len(world.provider.verifiers[0]) == 43


async def test_a_provider_that_wants_the_secret_in_the_form_gets_it_there(world: World) -> None:
    world.provider.configuration = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    browser = world.browser()
    await browser.log_in()
    assert await browser.role() == "logged in"


async def test_a_browser_that_says_nothing_of_itself_logs_in(world: World) -> None:
    browser = world.browser()
    address = world.provider.consent(await browser.begin())
    cookie = {"cookie": f"claudeops_login={browser.cookies['claudeops_login']}"}
    parts = urlsplit(address)
    answer = await world.site.door.ask("GET", f"{parts.path}?{parts.query}", headers=cookie)
    assert answer.status == 303


async def test_many_logins_fetch_configuration_and_keys_once(world: World) -> None:
    for number in range(3):
        await world.browser(peer=f"127.0.1.{number}").log_in()
    assert world.provider.paths().count("/.well-known/openid-configuration") == 1
    assert world.provider.paths().count("/keys") == 1
    world.site.door.clock.go_on(FRESH_SECONDS)
    await world.browser(peer="127.0.1.9").log_in()
    assert world.provider.paths().count("/.well-known/openid-configuration") == 2
    assert world.provider.paths().count("/keys") == 2


async def test_without_a_provider_there_is_no_way_to_one(world: World) -> None:
    world.site.site.provider = None
    assert (await world.browser().open("/login/oidc")).status == 404
    assert (await world.browser().open("/login/oidc/callback?code=a&state=b")).status == 404
    assert "Log in with" not in (await world.browser().open("/login")).body.decode()


# --- whose login it is


@pytest.mark.parametrize("state", ["", "guess", "s" * 43, "s" * 5000])
async def test_a_state_that_was_not_drawn_here_logs_no_person_in(world: World, state: str) -> None:
    browser = world.browser()
    good = world.provider.consent(await browser.begin())
    answer = await browser.come_back(good.replace(_state(good), state))
    assert (answer.status, NOT_BEGUN in says(answer)) == (403, True)
    assert "/token" not in world.provider.paths()
    assert (await browser.come_back(good)).status == 303  # the real one was not used up by that


def _state(address: str) -> str:
    return parse_qs(urlsplit(address).query)["state"][0]


@pytest.mark.parametrize("cookie", [None, "", "guess", secret_for("of-another")])
async def test_no_person_is_logged_in_as_another_person_by_a_link(world: World, cookie: str | None) -> None:
    attacker, victim = world.browser(), world.browser(peer="127.0.0.2")
    address = world.provider.consent(await attacker.begin())
    if cookie is not None:
        victim.cookies["claudeops_login"] = cookie
    answer = await victim.come_back(address)
    assert (answer.status, NOT_BEGUN in says(answer)) == (403, True)
    await victim.begin()  # one of his own does not help either
    assert (await victim.come_back(address)).status == 403
    assert "/token" not in world.provider.paths()
    assert await victim.role() == ""


async def test_over_tls_the_cookie_of_another_name_counts_for_nothing(world: World) -> None:
    browser = world.browser(host="ops.example.com")
    address = world.provider.consent(await browser.begin())
    browser.cookies = {"claudeops_login": browser.cookies["__Host-claudeops_login"]}  # as a neighbour could set it
    assert (await browser.come_back(address)).status == 403


async def test_what_was_begun_ends_once(world: World) -> None:
    browser = world.browser()
    address = world.provider.consent(await browser.begin())
    assert (await browser.come_back(address)).status == 303
    again = await browser.come_back(address)
    assert (again.status, NOT_BEGUN in says(again)) == (403, True)
    assert world.provider.paths().count("/token") == 1


async def test_two_answers_at_once_are_one_login(world: World) -> None:
    browser = world.browser()
    address = world.provider.consent(await browser.begin())
    found: list[int] = []

    async def end() -> None:
        found.append((await browser.come_back(address)).status)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(end)
    assert sorted(found) == [303, 403, 403, 403, 403]


async def test_what_was_begun_is_over_after_ten_minutes(world: World) -> None:
    browser = world.browser()
    address = world.provider.consent(await browser.begin())
    world.site.door.clock.go_on(PENDING_TIME.total_seconds())
    answer = await browser.come_back(address)
    assert (answer.status, NOT_BEGUN in says(answer)) == (403, True)


async def test_what_was_begun_and_never_ended_does_not_pile_up(world: World) -> None:
    first = world.browser()
    address = world.provider.consent(await first.begin())
    for number in range(MOST_PENDING):
        await world.browser(peer=f"10.{number // 250}.{number % 250}.1").begin()
    assert len(world.login._pending) == MOST_PENDING
    assert (await first.come_back(address)).status == 403
    world.site.door.clock.go_on(PENDING_TIME.total_seconds())
    await world.browser().begin()
    assert len(world.login._pending) == 1


async def test_another_site_begins_no_login_in_a_browser(world: World) -> None:
    for site in ("cross-site", "same-site"):
        headers = {**FROM_THERE, "sec_fetch_site": site}
        answer = await world.browser().open("/login/oidc?next=%2Fevents", **headers)
        assert (answer.status, answer.headers["location"]) == (303, "/login?next=%2Fevents")
        assert "set-cookie" not in answer.headers
    script = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "image"}
    for path in ("/login/oidc", "/login/oidc/callback?code=a&state=b"):
        assert (await world.browser().open(path, **script)).status == 403


@pytest.mark.parametrize("follow", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:x", ""])
async def test_no_login_leads_to_another_site(world: World, follow: str) -> None:
    answer = await world.browser().log_in(follow)
    assert (answer.status, answer.headers["location"]) == (303, "/")


async def test_what_a_link_adds_to_the_callback_leads_nowhere(world: World) -> None:
    browser = world.browser()
    address = world.provider.consent(await browser.begin("/events"))
    answer = await browser.come_back(f"{address}&next=https%3A%2F%2Fevil.example%2F&redirect_uri=x")
    assert answer.headers["location"] == "/events"


async def test_a_parameter_that_comes_twice_is_refused(world: World) -> None:
    browser = world.browser()
    address = world.provider.consent(await browser.begin())
    assert (await browser.come_back(f"{address}&code=other")).status == 422


async def test_an_address_has_five_tries_a_minute_and_others_have_theirs(world: World) -> None:
    browser = world.browser()
    for _ in range(TRIES):
        await browser.begin()
    refused = await browser.open("/login/oidc")
    assert (refused.status, "Retry-After" in {name.title() for name in refused.headers}) == (503, True)
    await world.browser(peer="127.0.0.2").begin()
    world.site.door.clock.go_on(60 / TRIES)
    await browser.begin()


# --- plain HTTP


async def test_over_plain_http_from_another_machine_a_login_only_looks_ever(world: World) -> None:
    browser = world.browser(peer=ELSEWHERE)
    assert "You can only look" in (await browser.open("/login")).body.decode()
    assert (await browser.log_in()).status == 303
    assert await browser.role() == "looks"
    (login,) = (await world.site.store.logins.active(world.site.door.clock.now())).values()
    assert login.look_only
    browser.peer = "127.0.0.1"
    assert "this login began over a connection that is not encrypted" in (await browser.open("/")).body.decode()


async def test_through_the_proxy_it_is_encrypted(world: World) -> None:
    proxy = {"x-claudeops-proxy-secret": PROXY_SECRET}
    browser = world.browser(peer=ELSEWHERE, host="ops.example.com", more=proxy)
    assert "You can only look" not in (await browser.open("/login")).body.decode()
    answer = await browser.log_in()
    assert answer.headers["set-cookie"].startswith("__Host-claudeops_session=")
    assert await browser.role() == "logged in"


# --- what the provider says


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "n" * 43}, "it is for another login"),
        ({"nonce": None}, "it is for another login"),
        ({"aud": "another"}, "it is for another client"),
        ({"aud": [CLIENT_ID, "another"], "azp": "another"}, "it is for another client"),
        ({"iss": "https://evil.example.com"}, "it is from another issuer"),
        ({"exp": 1_000_000_000}, "it has expired"),
        ({"iat": 4_000_000_000}, "it is from the future"),
        ({"nbf": 4_000_000_000}, "it is from the future"),
        ({"exp": None}, "a claim is missing"),
    ],
)
async def test_a_token_that_does_not_hold_logs_no_person_in(world: World, claims: dict[str, Any], why: str) -> None:
    world.provider.claims = claims
    browser = world.browser()
    answer = await browser.log_in()
    assert answer.status == 403
    assert HELD + why in says(answer)
    assert HELD + why in world.failures()[0]
    assert await browser.role() == ""


async def test_a_token_that_anybody_could_have_made_logs_no_person_in(world: World) -> None:
    public = rsa_key().as_pem(private=False)
    tokens: tuple[tuple[Callable[[Claims], str], str], ...] = (
        (unsigned, "it is signed in a way that is not taken"),
        (partial(unsigned, kid="rsa"), "it is signed in a way that is not taken"),
        (lambda claims: by_secret(claims, public, kid="rsa"), "it is signed in a way that is not taken"),
        (lambda claims: by_secret(claims, CLIENT_SECRET.encode()), "it is signed in a way that is not taken"),
        (lambda claims: signed(claims, ec_key("stranger")), "it is signed by none of the provider's keys"),
        (lambda claims: signed(claims, rsa_key("stranger"), kid="rsa"), "its signature is wrong"),
        (lambda _: "no token at all", "it is no signed token"),
    )
    for number, (made, why) in enumerate(tokens):
        world.provider.token_of = made
        answer = await world.browser(peer=f"127.0.1.{number}").log_in()
        assert answer.status == 403
        assert HELD + why in says(answer)


async def test_a_key_that_was_exchanged_is_found_and_an_unknown_one_is_looked_for_seldom(world: World) -> None:
    await world.browser().log_in()
    world.provider.signing = ec_key("next")
    world.provider.published = [rsa_key(), ec_key("next")]
    world.site.door.clock.go_on(KEYS_AGAIN_SECONDS)
    browser = world.browser(peer="127.0.0.2")
    await browser.log_in()
    assert await browser.role() == "logged in"
    assert world.provider.paths().count("/keys") == 2
    world.provider.signing = ec_key("never-published")
    for number in range(4):
        assert (await world.browser(peer=f"127.0.1.{number}").log_in()).status == 403
    assert world.provider.paths().count("/keys") == 2


@pytest.mark.parametrize("error", ["access_denied", "login_required", "<script>alert(1)</script>", "x" * 3000])
async def test_an_error_of_the_provider_is_said_in_known_words(world: World, error: str) -> None:
    browser = world.browser()
    state = _state(await browser.begin())
    query = urlencode({"error": error, "error_description": "<b>text</b>", "state": state})
    answer = await browser.open(f"/login/oidc/callback?{query}", **FROM_THERE)
    assert answer.status == 403
    assert ("access_denied" if error == "access_denied" else "has not logged you in") in says(answer)
    assert "<script>" not in answer.body.decode()
    assert "text" not in says(answer)
    assert "script" not in world.log
    assert NOT_BEGUN in says(await browser.open(f"/login/oidc/callback?{query}", **FROM_THERE))


@pytest.mark.parametrize("query", [{}, {"code": ""}, {"code": "a b"}, {"code": "c" * 5000}])
async def test_without_a_code_the_provider_is_not_called(world: World, query: dict[str, str]) -> None:
    browser = world.browser()
    state = _state(await browser.begin())
    answer = await browser.open(f"/login/oidc/callback?{urlencode({**query, 'state': state})}", **FROM_THERE)
    assert answer.status == 403
    assert "/token" not in world.provider.paths()


async def test_an_answer_of_another_issuer_is_refused(world: World) -> None:
    browser = world.browser()
    address = world.provider.consent(await browser.begin())
    query = {name: texts[0] for name, texts in parse_qs(urlsplit(address).query).items()}
    mixed = urlencode({**query, "iss": "https://evil.example.com"})
    answer = await browser.open(f"/login/oidc/callback?{mixed}", **FROM_THERE)
    assert "from another issuer" in says(answer)
    assert "/token" not in world.provider.paths()


async def test_a_code_that_the_provider_refuses_logs_no_person_in(world: World) -> None:
    browser = world.browser()
    address = world.provider.consent(await browser.begin())
    world.provider.codes.clear()
    answer = await browser.come_back(address)
    assert (answer.status, "does not do its part" in says(answer)) == (503, True)
    assert world.failures() == ["it refuses the code with status 400 and the error invalid_grant"]


async def test_a_code_for_another_login_is_refused_by_its_verifier(world: World) -> None:
    thief, victim = world.browser(), world.browser(peer="127.0.0.2")
    stolen = parse_qs(urlsplit(world.provider.consent(await victim.begin())).query)["code"][0]
    own = world.provider.consent(await thief.begin())
    code = parse_qs(urlsplit(own).query)["code"][0]
    assert (await thief.come_back(own.replace(code, stolen))).status == 503
    assert await thief.role() == ""


# --- a provider that is away, broken or hostile


def hostile() -> dict[str, tuple[Any, str]]:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536
            await anyio.lowlevel.checkpoint()  # uvicorn does not wait once nobody reads

    return {
        "hangs": (lambda _: None, "no answer within"),
        "redirects": (lambda _: RedirectResponse("http://127.0.0.1:1/"), "with status 307"),
        "fails": (lambda _: answering(500), "with status 500"),
        "says-nothing": (lambda _: answering(200), ""),
        "html": (lambda _: answering(200, b"<html>"), ""),
        "deep": (lambda _: answering(200, b"[" * 100_000), ""),
        "large": (lambda _: answering(200, b" " * (5 * 1024 * 1024)), f"more than {MOST_BYTES} bytes"),
        "endless": (lambda _: StreamingResponse(endless()), f"more than {MOST_BYTES} bytes"),
    }


CONFIGURATION: Final = "/.well-known/openid-configuration"
BEFORE: Final = {CONFIGURATION: "", "/token": CONFIGURATION, "/keys": "/token"}
"""What the provider is asked for before, at a first login."""


@pytest.mark.parametrize("path", list(BEFORE))
@pytest.mark.parametrize("kind", list(hostile()))
async def test_a_broken_provider_is_one_sentence_and_other_ways_stay(world: World, path: str, kind: str) -> None:
    answer, why = hostile()[kind]
    world.provider.answers[path] = answer
    browser = world.browser()
    if kind == "hangs":
        world.hurry_after(BEFORE[path])
    if path.startswith("/."):
        found = await browser.open("/login/oidc")
    else:
        found = await browser.log_in()
    assert (found.status, "does not do its part now" in says(found)) == (503, True)
    assert "claudeops login-link" in found.body.decode()
    assert 'type="password"' in found.body.decode()
    (failure,) = world.failures()
    assert why in failure
    if kind != "hangs":  # which may be given up before it has come
        assert world.provider.seen[-1].path == path  # nothing was followed


async def test_a_provider_that_is_not_there_is_one_sentence(world: World) -> None:
    world.provider.issuer = "http://127.0.0.1:1"
    world.use()
    answer = await world.browser().open("/login/oidc")
    assert (answer.status, "does not do its part now" in says(answer)) == (503, True)
    assert "cannot be reached" in world.failures()[0]


async def test_what_failed_is_not_called_again_at_once_nor_logged_each_time(world: World) -> None:
    world.provider.answers["/.well-known/openid-configuration"] = lambda _: answering(500)
    for number in range(4):
        assert (await world.browser(peer=f"127.0.1.{number}").open("/login/oidc")).status == 503
    assert len(world.provider.seen) == len(world.failures()) == 1
    del world.provider.answers["/.well-known/openid-configuration"]
    world.site.door.clock.go_on(AGAIN_SECONDS)
    assert (await world.browser().open("/login/oidc")).status == 303


async def test_a_provider_that_calls_itself_otherwise_is_not_used(world: World) -> None:
    world.provider.configuration = {"issuer": "https://evil.example.com"}
    assert (await world.browser().open("/login/oidc")).status == 503
    assert "another issuer" in world.failures()[0]
    assert "evil" not in world.log


async def test_an_endpoint_that_others_can_read_is_not_used(world: World) -> None:
    world.provider.configuration = {"token_endpoint": "http://10.0.0.1/token"}
    assert (await world.browser().open("/login/oidc")).status == 503


async def test_a_provider_that_hangs_keeps_out_no_more_than_a_few(world: World) -> None:
    browsers = [world.browser(peer=f"127.0.1.{number}") for number in range(MOST_AT_ONCE + 1)]
    addresses = [world.provider.consent(await one.begin()) for one in browsers]
    world.provider.answers["/token"] = lambda _: None
    async with anyio.create_task_group() as tasks:
        for browser, address in zip(browsers[:-1], addresses[:-1], strict=True):
            tasks.start_soon(browser.come_back, address)
        while world.provider.paths().count("/token") < MOST_AT_ONCE:
            await anyio.lowlevel.checkpoint()
        refused = await browsers[-1].come_back(addresses[-1])
        assert (refused.status, "Too many people" in refused.body.decode()) == (503, True)
        assert (await world.site.get("/login", {})).status == 200
        tasks.cancel_scope.cancel()


# --- who the person is here


async def test_a_person_who_is_no_user_learns_by_which_name(world: World) -> None:
    world.provider.person = {"preferred_username": "nope", "sub": "1"}
    browser = world.browser()
    answer = await browser.log_in()
    assert answer.status == 403
    assert "calls you nope, and there is no such user here" in says(answer)
    assert await browser.role() == ""
    assert "nope" not in world.log


async def test_a_user_who_was_removed_is_none(world: World) -> None:
    await world.site.store.users.remove("bea", by="ada", now=world.site.door.clock.now())
    answer = await world.browser().log_in()
    assert (answer.status, "no such user" in says(answer)) == (403, True)


async def test_a_user_who_is_removed_while_the_provider_is_called_is_none(world: World) -> None:
    async def removed(name: str) -> Any:
        user = await named(name)
        await world.site.store.users.remove("bea", by="ada", now=world.site.door.clock.now())
        return user

    named = world.site.store.users.named
    world.login.users = RemovedMeanwhile(removed)
    answer = await world.browser().log_in()
    assert (answer.status, "no such user" in says(answer)) == (403, True)


@dataclass
class RemovedMeanwhile(Users):
    """Users one of whom goes while he logs in."""

    named: Any

    async def active(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("person", "claim", "why"),
    [
        ({}, "preferred_username", "has no claim preferred_username"),
        ({"preferred_username": ["bea"]}, "preferred_username", "is no text"),
        ({"preferred_username": "\u212aim"}, "preferred_username", "is no name of a user"),
        ({"email": "bea"}, "email", "has not verified"),
        ({"email": "bea", "email_verified": "true"}, "email", "has not verified"),
    ],
)
async def test_a_claim_that_names_no_user_logs_no_person_in(
    world: World, person: dict[str, Any], claim: str, why: str
) -> None:
    await world.site.user("kim", Role.ADMIN)
    world.use(claim=claim)
    world.provider.person = {"sub": "1", **person}
    answer = await world.browser().log_in()
    assert (answer.status, why in says(answer)) == (403, True)
    assert why in world.failures()[0]


async def test_a_verified_address_of_mail_names_a_user(world: World) -> None:
    await world.site.user("bea@example.com", Role.VIEWER)
    world.use(claim="email")
    world.provider.person = {"sub": "1", "email": "Bea@Example.com", "email_verified": True}
    browser = world.browser()
    await browser.log_in()
    assert await browser.role() == "logged in"


# --- secrets


async def test_no_secret_reaches_the_log_the_database_or_a_page(world: World, tmp_path: Path) -> None:
    pages = [await world.browser().open("/login")]
    good = world.browser()
    addresses = [await good.begin()]
    addresses.append(world.provider.consent(addresses[0]))
    pages.append(await good.come_back(addresses[1]))
    pages.append(await good.come_back(addresses[1]))
    for number, claims in enumerate(({"nonce": "m" * 43}, {"aud": "x"}, {"preferred_username": "nope"})):
        world.provider.claims = claims
        bad = world.browser(peer=f"127.0.1.{number}")
        addresses.append(world.provider.consent(await bad.begin()))
        pages.append(await bad.come_back(addresses[-1]))
    world.provider.answers["/token"] = lambda _: None
    world.hurry_after("")
    broken = world.browser(peer="127.0.2.1")
    addresses.append(world.provider.consent(await broken.begin()))
    pages.append(await broken.come_back(addresses[-1]))
    drawn = [
        text for address in addresses for name, (text,) in _query(address).items() if name in {"state", "code", "nonce"}
    ]
    secrets = [*drawn, *world.provider.verifiers, *world.provider.tokens, ACCESS_TOKEN, CLIENT_SECRET]
    secrets += [value for name, value in good.cookies.items() if name == "claudeops_login"]
    assert len(set(secrets)) > 20
    await world.site.store.database.read(lambda connection: connection.exec_driver_sql("PRAGMA wal_checkpoint(FULL)"))
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("claudeops.db*")).decode(errors="replace")
    shown = "".join(page.body.decode() for page in pages)
    for secret in secrets:
        assert secret not in world.log
        assert secret not in kept
        assert secret not in shown
        assert secret not in repr(world.login)


def _query(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).query)
