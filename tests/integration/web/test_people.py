"""Who a person is, and how much of a role counts: by password, by the operator's proxy, and over plain HTTP."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest

from claudeops.domain.access.logins import Role
from claudeops.structs import replace
from claudeops.web.connection import ConnectionRules
from claudeops.web.endpoints import Endpoint, EndpointTable, WebCall
from claudeops.web.password_login import TRIES
from claudeops.web.passwords import AT_ONCE, MOST_WAITING, NO_PASSWORD, Passwords, hash_of, is_right
from claudeops.web.problems import RefusedError
from claudeops.web.streams import Streams, stream_endpoints
from support.listening import Answered, bearer, token_for
from support.paged import BROWSER, PROXY_SECRET, SiteDoor, secret_for, site_door
from support.waiting import PATIENCE_SECONDS, until

PASSWORD = "correct horse battery"
ELSEWHERE = "10.0.0.7"
WRONG = "The name or the password is wrong."
LOOK_ONLY = "You can only look"
PROXY = {"x-claudeops-proxy-secret": PROXY_SECRET}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[SiteDoor]:
    async with site_door(tmp_path) as made:
        made.door.listener.table = EndpointTable((*made.door.listener.table.rows, *deeds()))
        yield made


def deeds() -> list[Endpoint]:
    """Return endpoints that change something: one for each scope that a role may bring."""

    async def done(call: WebCall) -> dict[str, str]:
        assert "x-claudeops-proxy-secret" not in call.headers
        return {"by": "" if call.caller is None or call.caller.login is None else call.caller.login.name}

    return [
        Endpoint(method="POST", path=f"/{scope}", scope=scope, answer=dict, handler=done, summary="A deed.", body=bytes)
        for scope in ("operate", "approve", "admin")
    ]


async def try_password(
    site: SiteDoor, name: str, password: str, *, peer: str = "127.0.0.1", follow: str = "/", **headers: str
) -> Answered:
    body = f"name={quote(name)}&password={quote(password)}&next={quote(follow)}"
    return await site.post("/login", {}, body.encode(), peer=peer, **headers)


def cookie_of(answer: Answered) -> dict[str, str]:
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


async def deeds_of(site: SiteDoor, cookie: dict[str, str], *, peer: str = "127.0.0.1") -> list[str]:
    """Return the scopes that a person has here."""
    had = []
    for scope in ("operate", "approve", "admin"):
        answer = await site.post(f"/{scope}", cookie, peer=peer)
        assert answer.status in {200, 403}
        had += [scope] if answer.status == 200 else []
    return had


# --- name and password


async def test_a_password_logs_a_browser_in_without_javascript_and_leads_on(site: SiteDoor) -> None:
    await site.user("Bea", Role.APPROVER, password=PASSWORD)
    page = (await site.get("/login?next=%2Fevents", {})).body.decode()
    assert '<form method="post" action="/login">' in page
    assert 'name="next" value="/events"' in page
    answer = await try_password(site, "bea", PASSWORD, follow="/events")
    assert (answer.status, answer.headers["location"]) == (303, "/events")
    assert await deeds_of(site, cookie_of(answer)) == ["operate", "approve"]


@pytest.mark.parametrize("follow", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:x"])
async def test_no_login_leads_to_another_site(site: SiteDoor, follow: str) -> None:
    await site.user("bea", password=PASSWORD)
    assert (await try_password(site, "bea", PASSWORD, follow=follow)).headers["location"] == "/"
    assert "evil" not in (await try_password(site, "bea", "wrong", follow=follow)).body.decode()


async def test_a_wrong_password_an_unknown_name_and_a_removed_user_get_the_same_answer(site: SiteDoor) -> None:
    for name in ("bea", "gone"):
        await site.user(name, password=PASSWORD)
    await site.user("without")
    await site.store.users.remove("gone", by="ada", now=site.door.clock.now())
    answers = [
        await try_password(site, name, password, peer=f"127.0.1.{number}")
        for number, (name, password) in enumerate(
            (("bea", "wrong"), ("nope", PASSWORD), ("gone", PASSWORD), ("without", PASSWORD), ("bea", ""))
        )
    ]
    bodies = {answer.body.decode().partition("<main")[2].partition('value="/"')[0] for answer in answers}
    assert {answer.status for answer in answers} == {403}
    assert len(bodies) == 1
    assert WRONG in bodies.pop()
    assert all("set-cookie" not in answer.headers for answer in answers)
    assert '"event": "caller_refused"' in site.door.log.getvalue().replace('":"', '": "')


async def test_a_hash_is_looked_at_for_whoever_is_not_there_as_well(site: SiteDoor) -> None:
    looked: list[str] = []

    def check(hashed: str, _password: str) -> bool:
        looked.append(hashed)
        return True

    assert site.site.passwords is not None
    site.site.passwords.passwords = Passwords(check=check)
    await site.user("without")
    for name in ("nope", "without", "x" * 101):
        assert (await try_password(site, name, PASSWORD)).status == 403
    assert looked == [NO_PASSWORD] * 3
    assert not await Passwords(check=check).are_right(None, PASSWORD)
    assert not await Passwords(check=check).are_right("hash", "x" * 1001)


def test_what_stands_for_no_password_takes_as_long_as_a_real_hash() -> None:
    ours, real = NO_PASSWORD.split("$"), hash_of(PASSWORD).split("$")
    assert ours[:4] == real[:4]  # the kind, the version, memory, rounds, lanes
    assert [len(part) for part in ours] == [len(part) for part in real]
    assert not is_right(NO_PASSWORD, "")


def test_a_password_is_right_whichever_way_a_keyboard_writes_its_letters() -> None:
    hashed = hash_of("mot de passe privé")
    assert is_right(hashed, "mot de passe prive\u0301")
    assert not is_right(hashed, "mot de passe prive")
    assert not is_right("no hash at all", PASSWORD)


async def test_guesses_at_a_name_end_after_five_a_minute_wherever_they_come_from(site: SiteDoor) -> None:
    await site.user("bea", password=PASSWORD)
    for number in range(TRIES):
        assert (await try_password(site, "BEA", "wrong", peer=f"127.0.2.{number}")).status == 403
    answer = await try_password(site, "bea", PASSWORD, peer="127.0.2.99")
    assert (answer.status, answer.headers["retry-after"]) == (503, "12")
    site.door.clock.go_on(12)
    assert (await try_password(site, "bea", PASSWORD, peer="127.0.2.99")).status == 303


async def test_a_peer_has_five_tries_a_minute_and_its_others_keep_no_person_out(site: SiteDoor) -> None:
    await site.user("bea", password=PASSWORD)
    for number in range(TRIES):
        assert (await try_password(site, f"name {number}", "wrong", peer="127.0.3.1")).status == 403
    for _ in range(TRIES):
        assert (await try_password(site, "bea", "wrong", peer="127.0.3.1")).status == 503
    assert (await try_password(site, "bea", PASSWORD, peer="127.0.3.2")).status == 303


async def test_the_daemon_goes_on_while_passwords_are_looked_at_and_bounds_them() -> None:
    held, full, at_once = threading.Event(), threading.Event(), 0
    lock, most = threading.Lock(), 0

    def check(_hashed: str, _password: str) -> bool:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
            if at_once == AT_ONCE:  # the refusal may come before the second thread has begun
                full.set()
        held.wait(PATIENCE_SECONDS)
        full.wait(PATIENCE_SECONDS)
        with lock:
            at_once -= 1
        return False

    passwords = Passwords(check=check, seconds=600)
    done: list[str] = []

    async def one() -> None:
        try:
            await passwords.are_right("hash", "password")
        except RefusedError:
            done.append("refused")
            held.set()
        else:
            done.append("looked at")

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(MOST_WAITING + 1):
                tasks.start_soon(one)

    assert sorted(done) == ["looked at"] * MOST_WAITING + ["refused"]
    assert most == AT_ONCE


async def test_a_form_that_cannot_be_read_is_refused(site: SiteDoor) -> None:
    for body in (b"name=%ff&password=x", b"\xff", b"&".join(b"x=1" for _ in range(50))):
        assert (await site.post("/login", {}, body)).status == 422


async def test_another_site_begins_no_login(site: SiteDoor) -> None:
    await site.user("bea", password=PASSWORD)
    assert (await try_password(site, "bea", PASSWORD, sec_fetch_site="cross-site")).status == 403


async def test_a_changed_role_and_a_removed_user_count_within_a_second(site: SiteDoor) -> None:
    await site.user("bea", Role.ADMIN, password=PASSWORD)
    cookie = cookie_of(await try_password(site, "bea", PASSWORD))
    assert await deeds_of(site, cookie) == ["operate", "approve", "admin"]
    at = site.door.clock.now()
    await site.store.users.change("bea", role=Role.OPERATOR, password_hash=None, by="ada", now=at)
    site.door.clock.go_on(1)
    assert await deeds_of(site, cookie) == ["operate"]
    await site.store.users.remove("bea", by="ada", now=at)
    site.door.clock.go_on(1)
    assert (await site.get("/", cookie)).status == 303


async def test_a_stream_ends_with_the_login_that_opened_it(site: SiteDoor) -> None:
    await site.user("bea", Role.ADMIN, password=PASSWORD)
    cookie = cookie_of(await try_password(site, "bea", PASSWORD))
    streams = Streams(live=site.door.hub, logs=site.site.logs, heartbeat_seconds=0.01)
    site.door.listener.table = EndpointTable(stream_endpoints(streams))
    done: list[Answered] = []

    async def read() -> None:
        stays = anyio.Event()  # never set: the reader does not go
        done.append(await site.door.ask("GET", "/stream", headers={**BROWSER, **cookie}, held=stays))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await until(lambda: streams.clients == 1)
        assert done == []
        await site.store.users.remove("bea", by="ada", now=site.door.clock.now())
        site.door.clock.go_on(1)

    assert [answer.status for answer in done] == [200]
    assert streams.clients == 0


# --- over plain HTTP from another machine


async def test_an_admin_only_looks_over_plain_http_from_another_machine(site: SiteDoor) -> None:
    cookie = await site.login(Role.ADMIN)
    for peer in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert await deeds_of(site, cookie, peer=peer) == ["operate", "approve", "admin"]
        assert LOOK_ONLY not in (await site.get("/", cookie, peer=peer)).body.decode()
    for peer in (ELSEWHERE, "fd00::7", "", "unix:"):
        assert await deeds_of(site, cookie, peer=peer) == []
        page = await site.get("/", cookie, peer=peer)
        assert page.status == 200
        assert LOOK_ONLY in page.body.decode()
        assert LOOK_ONLY in (await site.post("/operate", cookie, peer=peer)).body.decode()


async def test_the_host_that_a_client_names_makes_no_plain_connection_a_safe_one(site: SiteDoor) -> None:
    cookie = await site.login(Role.ADMIN)
    headers = {**cookie, "sec-fetch-site": "same-origin", "x-forwarded-proto": "https"}
    answer = await site.door.ask("POST", "/operate", headers=headers, host="ops.example.com", peer=ELSEWHERE)
    assert answer.status == 403


async def test_a_cookie_that_crossed_a_network_in_the_clear_is_no_admins_anywhere(site: SiteDoor) -> None:
    await site.link("ada", Role.ADMIN)
    path = f"/setup/{secret_for('link-ada')}"
    assert LOOK_ONLY in (await site.get(path, {}, peer=ELSEWHERE)).body.decode()
    cookie = cookie_of(await site.post(path, {}, peer=ELSEWHERE))
    assert await deeds_of(site, cookie) == []  # from the machine itself
    page = (await site.get("/", cookie)).body.decode()
    assert "Log out, and log in again" in page


async def test_no_password_is_taken_in_the_clear_from_another_machine(site: SiteDoor) -> None:
    await site.user("bea", password=PASSWORD)
    page = (await site.get("/login", {}, peer=ELSEWHERE)).body.decode()
    assert 'type="password"' not in page
    assert "CLAUDEOPS_DASHBOARD_INSECURE=true" in page
    answer = await try_password(site, "bea", PASSWORD, peer=ELSEWHERE)
    assert answer.status == 403
    assert "CLAUDEOPS_DASHBOARD_INSECURE=true" in answer.body.decode()
    assert "set-cookie" not in answer.headers


async def test_a_network_that_the_operator_trusts_is_as_good_as_tls(site: SiteDoor) -> None:
    site.door.listener.connections = ConnectionRules(is_network_trusted=True)
    await site.user("bea", Role.ADMIN, password=PASSWORD)
    answer = await try_password(site, "bea", PASSWORD, peer=ELSEWHERE)
    assert await deeds_of(site, cookie_of(answer), peer=ELSEWHERE) == ["operate", "approve", "admin"]
    site.door.listener.connections = ConnectionRules()
    assert await deeds_of(site, cookie_of(answer)) == ["operate", "approve", "admin"]


async def test_a_viewer_sees_nothing_of_a_bound_that_takes_nothing_away(site: SiteDoor) -> None:
    cookie = await site.login(Role.VIEWER)
    assert LOOK_ONLY not in (await site.get("/", cookie, peer=ELSEWHERE)).body.decode()


async def test_tokens_of_programs_are_what_they_were(site: SiteDoor) -> None:
    site.door.tokens.kept = {1: token_for(1, "operate")}
    assert (await site.post("/operate", bearer(1), peer=ELSEWHERE)).status == 200


# --- the operator's proxy


async def test_the_proxy_says_who_a_person_is_and_the_role_is_that_on_record(site: SiteDoor) -> None:
    await site.user("Bea", Role.OPERATOR)
    named = {**PROXY, "remote-user": "bea", "remote-groups": "admins"}
    assert (await site.post("/operate", named, peer=ELSEWHERE)).json == {"by": "Bea"}
    assert await deeds_of(site, named, peer=ELSEWHERE) == ["operate"]
    page = (await site.get("/", named, peer=ELSEWHERE)).body.decode()
    assert "Bea" in page
    assert LOOK_ONLY not in page


@pytest.mark.parametrize("kind", ["{}", "203.0.113.1, {}", "{}:4711", "198.51.100.7:99,{}"])
async def test_people_behind_one_proxy_do_not_use_up_each_others_tries(site: SiteDoor, kind: str) -> None:
    await site.user("bea", password=PASSWORD)
    guess = {**PROXY, "x-forwarded-for": kind.format("192.0.2.1")}
    for number in range(TRIES):
        assert (await try_password(site, f"name {number}", "wrong", peer=ELSEWHERE, **guess)).status == 403
    assert (await try_password(site, "name", "wrong", peer=ELSEWHERE, **guess)).status == 503
    other = {**PROXY, "x-forwarded-for": kind.format("192.0.2.2")}
    assert (await try_password(site, "bea", PASSWORD, peer=ELSEWHERE, **other)).status == 303


@pytest.mark.parametrize("named", ["192.0.2.{}", "[2001:db8::1:{}]:443", "192.0.2.{}, 192.0.2.300", ""])
@pytest.mark.parametrize("by", [{}, PROXY], ids=["a client", "the proxy"])
async def test_a_guesser_does_not_get_more_tries_by_naming_other_addresses(
    site: SiteDoor, named: str, by: dict[str, str]
) -> None:
    is_one = not by or "." not in named or "300" in named  # IPv6 is counted by its network
    found = [
        (await try_password(site, f"name {number}", "wrong", **by, **{"x-forwarded-for": named.format(number)})).status
        for number in range(TRIES + 1)
    ]
    assert found == [403] * TRIES + [503 if is_one else 403]


async def test_whoever_the_proxy_names_counts_and_no_cookie_beside_it(site: SiteDoor) -> None:
    await site.user("bea", Role.VIEWER)
    cookie = await site.login(Role.ADMIN)
    assert await deeds_of(site, {**cookie, **PROXY, "remote-user": "bea"}) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"remote-user": "bea"},
        {"remote-groups": "admins"},
        {"remote-user": ""},
        {"remote-user": "bea", "x-claudeops-proxy-secret": "guess"},
        {"remote-user": "bea", "x-claudeops-proxy-secret": ""},
        {"x-claudeops-proxy-secret": "guess"},
    ],
)
@pytest.mark.parametrize("is_set", [True, False])
async def test_what_only_the_proxy_may_say_is_refused_loudly_of_others(
    site: SiteDoor, headers: dict[str, str], is_set: bool
) -> None:
    await site.user("bea", Role.ADMIN)
    rules = site.door.listener.connections
    site.door.listener.connections = rules if is_set else replace(rules, proxy_secret=None)
    for path in ("/", "/login", "/healthz"):
        assert (await site.get(path, headers)).status == 403
    assert "caller_refused" in site.door.log.getvalue()


async def test_a_secret_that_is_not_set_is_no_secret_that_anyone_has(site: SiteDoor) -> None:
    await site.user("bea", Role.ADMIN)
    for unset in (None, ""):
        site.door.listener.connections = ConnectionRules(proxy_secret=unset)
        assert (await site.get("/", {"remote-user": "bea", "x-claudeops-proxy-secret": ""})).status == 403


async def test_two_names_or_two_secrets_are_refused(site: SiteDoor) -> None:
    await site.user("bea", Role.ADMIN)
    for twice in ("remote-user", "x-claudeops-proxy-secret"):
        pairs = [*PROXY.items(), ("remote-user", "bea"), (twice, {**PROXY, "remote-user": "cleo"}[twice])]
        assert (await site.door.ask("GET", "/", headers=pairs)).status == 403


async def test_a_person_whom_the_proxy_names_and_who_is_no_user_is_refused(site: SiteDoor) -> None:
    await site.user("bea", Role.ADMIN)
    named = {**PROXY, "remote-user": "bea"}
    assert (await site.get("/", named)).status == 200
    assert (await site.get("/", {**PROXY, "remote-user": "nope"})).status == 403
    await site.store.users.remove("bea", by="ada", now=site.door.clock.now())
    site.door.clock.go_on(1)
    assert (await site.get("/", named)).status == 403


async def test_what_another_site_makes_a_browser_send_through_the_proxy_changes_nothing(site: SiteDoor) -> None:
    await site.user("bea", Role.ADMIN)
    named = {**PROXY, "remote-user": "bea"}
    assert (await site.post("/operate", named, sec_fetch_site="cross-site")).status == 403
    assert (await site.door.ask("POST", "/operate", headers=named)).status == 403  # by a browser that says nothing
    ours = {**named, "origin": "https://127.0.0.1:8080"}
    assert (await site.door.ask("POST", "/operate", headers=ours)).status == 200


async def test_a_login_of_the_proxy_is_on_no_record_and_logging_out_ends_no_other(site: SiteDoor) -> None:
    await site.user("bea", Role.ADMIN)
    cookie = await site.login(Role.ADMIN)
    named = {**PROXY, "remote-user": "bea"}
    await site.get("/", named)
    before = site.store.logins.changes
    assert (await site.post("/logout", named)).status == 303
    assert site.store.logins.changes == before  # no row was looked for
    site.door.clock.go_on(2)
    assert (await site.get("/", cookie)).status == 200
    assert {login.id for login in (await site.store.logins.active(site.door.clock.now())).values()} == {1}


async def test_through_the_proxy_a_cookie_is_for_tls_and_passwords_are_taken(site: SiteDoor) -> None:
    await site.user("bea", Role.ADMIN, password=PASSWORD)
    answer = await try_password(site, "bea", PASSWORD, peer=ELSEWHERE, **PROXY)
    assert answer.headers["set-cookie"].startswith("__Host-claudeops_session=")
    cookie = cookie_of(answer)
    assert await deeds_of(site, {**cookie, **PROXY}, peer=ELSEWHERE) == ["operate", "approve", "admin"]
    assert await deeds_of(site, cookie, peer=ELSEWHERE) == []
