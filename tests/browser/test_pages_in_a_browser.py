"""Pages in a real Chromium: at three widths, with and without JavaScript. One browser for all of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, sync_playwright

from claudeops.domain.access.logins import COOKIE
from support.hostile import MARK, TEXTS, fill
from support.paged import secret_for
from support.served_pages import PASSWORD, Served, served_pages

CHROMIUM: Final = shutil.which("chromium") or ""
WIDTHS: Final = (360, 800, 1400)
PATHS: Final = (
    *(
        "/",
        "/incidents",
        "/incidents/1",
        "/sessions",
        "/sessions/1",
        "/sessions/1/film",
        "/chains/1",
        "/services",
        "/services/web",
    ),
    *("/services", "/services/web", "/events", "/actions", "/approvals", "/spend", "/why"),
    *(
        "/memories?all=true",
        "/memories/3",
        "/more",
        "/silences?all=true",
        "/silences/1",
        "/chains/1/diff/2",
        "/schedule",
        "/notifications",
        "/settings",
        "/policy",
        "/approvals/1",
        "/audit",
        "/passkeys",
    ),
)
LOGIN: Final = ("/login", f"/setup/{secret_for('link-eve')}")
MAY_HAVE_BEGUN: Final = "htmx would have begun by now"
SAY_WHEN_IT_MAY_HAVE_BEGUN: Final = f"""
  const looking = setInterval(() => {{
    if (window.htmx) setTimeout(() => console.log("{MAY_HAVE_BEGUN}"), 1);
  }}, 1);
  window.addEventListener("load", () => clearInterval(looking));
"""

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium on PATH: install chromium (Debian).")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_pages(tmp_path_factory.mktemp("pages")) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Visit:
    """One window: what a page complains about, and what it asks for."""

    def __init__(
        self, browser: Browser, served: Served, *, width: int = 1000, scripts: bool = True, touch: bool = False
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800},
            java_script_enabled=scripts,
            has_touch=touch,
            is_mobile=touch,
            color_scheme="dark" if width == WIDTHS[0] else "light",
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self._served = served
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", self._failed)
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._asked)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def log_in(self) -> None:
        """Take the cookie of a login."""
        self.context.add_cookies([{"name": COOKIE, "value": self._served.secret, "url": self._served.url}])

    def open(self, path: str) -> Page:
        """Open a page, and wait until it is all there."""
        self.page.goto(self._served.url + path, wait_until="load")
        return self.page

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # an icon that is not waited for when the next page is opened
            self.complaints.append(f"failed: {request.url}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self._served.url):
            self.complaints.append(f"asks {request.url}")


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_is_whole_and_everybody_can_use_it(
    width: int, scripts: bool, browser: Browser, served: Served
) -> None:
    found: dict[str, list[str]] = {}
    with Visit(browser, served, width=width, scripts=scripts) as visit:
        for path in [*LOGIN, *PATHS]:
            if path == PATHS[0]:
                visit.log_in()
            page = visit.open(path)
            assert page.locator("h1").inner_text()
            if scripts:
                if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                    visit.complaints.append("it is too wide")
                if width != WIDTHS[1]:  # dark on a phone, light on a desk
                    violations = Axe().run(page).response["violations"]
                    visit.complaints += [f"{one['id']}: {one['help']}" for one in violations]
            found[path] = visit.complaints.copy()
            visit.complaints.clear()
    assert {path: complaints for path, complaints in found.items() if complaints} == {}


def test_somebody_logs_in_by_a_link_and_out_again_without_any_script(browser: Browser, served: Served) -> None:
    with Visit(browser, served, scripts=False) as visit:
        page = visit.open("/events")
        assert "/login?next=%2Fevents" in page.url
        page = visit.open(LOGIN[1])
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Incidents").click()
        assert page.locator("h1").inner_text() == "Incidents"
        page.get_by_role("button", name="Log out").click()
        assert page.locator("h1").inner_text() == "Log in"
        assert "/login" in visit.open("/events").url
        assert visit.complaints == []


def press(page: Page, name: str) -> None:
    """Press the first button of a name, and wait for the page that follows."""
    with page.expect_navigation():
        page.get_by_role("button", name=name, exact=True).first.click()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_everything_that_a_person_may_do_is_done_by_buttons(  # noqa: PLR0915 - one step after the other
    scripts: bool, browser: Browser, tmp_path: Path
) -> None:
    with served_pages(tmp_path) as served, Visit(browser, served, width=WIDTHS[0], scripts=scripts) as visit:
        visit.log_in()
        page = visit.open("/incidents/1")
        press(page, "I am on it")
        assert "ada, since" in page.locator("main").inner_text()
        press(page, "It is over")
        assert page.get_by_role("button", name="It is over").count() == 0

        page = visit.open("/silences")
        page.get_by_text("Silence alerts for a while").click()
        page.get_by_label("Alerts that fit all of these").fill('service="shop"')
        press(page, "Only say what it would hold back")
        assert "Nothing is silenced" in page.locator("main").inner_text()
        page.go_back()
        if not page.get_by_label("Alerts that fit all of these").is_visible():
            page.get_by_text("Silence alerts for a while").click()
        page.get_by_label("Alerts that fit all of these").fill('service="shop"')
        press(page, "Silence")
        assert 'service="shop"' in page.locator("main").inner_text()
        before = page.get_by_role("button", name="End it now").count()
        press(page, "End it now")
        assert page.get_by_role("button", name="End it now").count() == before - 1

        page = visit.open("/sessions")
        page.get_by_text("Start a session").click()
        page.get_by_label("What it is to do").fill("look at the disk")
        press(page, "Start")
        assert "look at the disk" in page.locator("main").inner_text()
        press(page, "Stop this session")
        assert "stopped by ada" in page.locator("main").inner_text()

        page = visit.open("/memories")
        page.get_by_text("State a fact").click()
        page.get_by_label("What every session is to know").fill("backups run at 03:00")
        press(page, "State it")
        assert "backups run at 03:00" in page.locator("main").inner_text()
        page.get_by_text("State something else in its place").click()
        page.get_by_label("What every session is to know").fill("backups run at 04:00")
        press(page, "State it")
        press(page, "Forget it")
        press(page, "Bring it back")
        assert page.get_by_role("button", name="Forget it").count() == 1

        page = visit.open("/approvals/2")
        assert page.get_by_role("button", name="No", exact=True).count() == 1
        press(page, "Yes, run it")
        assert page.get_by_role("button", name="Yes, run it").count() == 0

        page = visit.open("/")
        page.get_by_text("Pause: let no session start").click()
        page.get_by_label("Why no session is to start").fill("moving house")
        press(page, "Pause")
        assert "moving house" in page.locator("main").inner_text()
        press(page, "Let sessions start again")
        assert "moving house" not in page.locator("main").inner_text()
        assert visit.complaints == []


def test_a_finger_finds_the_exact_time(browser: Browser, served: Served) -> None:
    with Visit(browser, served, width=WIDTHS[0], touch=True) as visit:
        visit.log_in()
        page = visit.open("/sessions")
        time = page.locator("td time[title]").first
        shown = "element => getComputedStyle(element, '::after').content"
        assert time.evaluate(shown) == "none"
        time.tap()
        assert str(time.get_attribute("title")) in time.evaluate(shown)
    assert visit.complaints == []


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_a_person_logs_in_by_a_password_and_comes_to_the_page_that_was_wanted(
    scripts: bool, browser: Browser, served: Served
) -> None:
    with Visit(browser, served, scripts=scripts) as visit:
        page = visit.open("/events")
        for password, heading in (("wrong", "Log in"), (PASSWORD, "Events")):
            page.get_by_label("Name").fill("bea")
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Log in").click()
            assert page.locator("h1").inner_text() == heading
            assert page.get_by_role("alert").count() == (password == "wrong")
        assert page.url == f"{served.url}/events"
        assert [text for text in visit.complaints if "403" not in text] == []


@pytest.mark.parametrize("part", range(8))
def test_nothing_that_attackers_have_written_runs_or_is_fetched(part: int, browser: Browser, served: Served) -> None:
    fill(served.database, " ".join(TEXTS[part::8]))
    with Visit(browser, served) as visit:
        visit.log_in()
        for path in PATHS:
            page = visit.open(path)
            page.mouse.move(200, 200)
            assert page.evaluate(f"window.{MARK}") is None, path
            assert page.evaluate(f"document.cookie.includes('{MARK}')") is False
            assert page.url == served.url + path
        assert visit.complaints == []


def test_a_film_plays_from_one_file_and_shows_its_lines_in_their_time(
    browser: Browser, served: Served, tmp_path: Path
) -> None:
    file = tmp_path / "film.html"
    with Visit(browser, served) as visit:
        visit.log_in()
        answer = visit.context.request.get(f"{served.url}/sessions/1/film.html")
        file.write_bytes(answer.body())
    with browser.new_context() as context:
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("request", lambda request: complaints.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        lines = page.locator("#film li")
        assert lines.count() == page.locator("#film li:visible").count() > 2
        page.locator("#place").fill("0")
        assert page.evaluate(f"window.{MARK}") is None
        assert page.locator("#film li:visible").count() >= 1
        page.get_by_role("button", name="Play").click()
        page.locator("#film li").last.wait_for(state="visible")
        assert complaints == []


def test_the_browser_recomputes_the_audit_chain_and_names_a_link_that_was_changed(
    browser: Browser, tmp_path: Path
) -> None:
    with served_pages(tmp_path) as served, Visit(browser, served) as visit:
        visit.log_in()
        page = visit.open("/audit")
        page.locator("#computed.good").wait_for()
        assert "hang together" in page.locator("#computed").inner_text()
        page.locator("summary").first.click()
        assert "toolu_1" in page.locator("li pre").first.inner_text()
        served.database.execute('UPDATE tool_calls SET input = \'{"command":"rm -rf /"}\' WHERE id = 1')
        page = visit.open("/audit")
        page.locator("#computed.bad").wait_for()
        assert "no longer says what it said" in page.locator("li").first.inner_text()
        assert visit.complaints == []


def test_a_page_whose_scripts_come_late_has_its_stream_all_the_same(browser: Browser, served: Served) -> None:
    late: list[Route] = []

    def let_come(message: ConsoleMessage) -> None:
        while message.text == MAY_HAVE_BEGUN and late:
            late.pop().continue_()

    with Visit(browser, served) as visit:
        visit.log_in()
        visit.page.add_init_script(SAY_WHEN_IT_MAY_HAVE_BEGUN)
        visit.page.route(re.compile("/static/hx-"), lambda route: late.append(route))  # noqa: PLW0108 - of a method it wants an attribute
        visit.page.on("console", let_come)
        with visit.page.expect_response(lambda answer: "/stream" in answer.url):
            page = visit.open("/sessions/3")
        assert page.evaluate("htmx.config.sse.reconnectMaxDelay") == 10_000  # after a long outage too it is soon back


@pytest.mark.parametrize("refused", [True, False], ids=["no-room", "unreachable"])
@pytest.mark.parametrize("path", ["/sessions/3", "/"])
def test_a_stream_that_cannot_be_opened_at_first_is_opened_later_and_says_nothing_on_the_page(
    path: str, refused: bool, browser: Browser, served: Served
) -> None:
    def first(route: Route) -> None:
        if refused:
            route.fulfill(status=503, content_type="application/problem+json", body='{"title": "no room here"}')
        else:
            route.abort("connectionrefused")

    with Visit(browser, served) as visit:
        visit.log_in()
        visit.page.route(re.compile("/stream"), first, times=1)
        with visit.page.expect_response(lambda answer: "/stream" in answer.url and answer.status == 200):
            page = visit.open(path)
        assert "no room" not in page.locator("body").inner_text()
