"""Logging in at an identity provider in a real Chromium: the provider is another site, as it would be."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from support.served_pages import Served, served_pages

CHROMIUM: Final = shutil.which("chromium") or ""

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium on PATH: install chromium (Debian).")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with served_pages(tmp_path, "provider") as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def to_the_provider(page: Page, url: str) -> None:
    """Follow the link on the login page; the provider then asks whether it is bea."""
    page.goto(url)
    page.get_by_role("link", name="Log in with 127.0.0.1").click()
    page.get_by_role("link", name="Log in as bea").wait_for()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_person_logs_in_at_another_site_and_comes_back(browser: Browser, served: Served, scripts: bool) -> None:
    url = served.url.replace("127.0.0.1", "localhost")
    with browser.new_context(java_script_enabled=scripts) as context:
        page = context.new_page()
        complaints: list[str] = []
        callbacks: list[dict[str, str]] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "response",
            lambda one: callbacks.append(one.request.all_headers()) if "/login/oidc/callback" in one.url else None,
        )
        to_the_provider(page, f"{url}/events")
        page.get_by_role("link", name="Log in as bea").click()
        page.get_by_role("heading", name="Events").wait_for()
        assert page.url == f"{url}/events"
        assert "bea" in page.locator("header").inner_text()
        assert complaints == []
        (callback,) = callbacks
        assert callback["sec-fetch-site"] == "cross-site"
        assert "claudeops_login=" in callback["cookie"]
        page.goto(f"{url}/approvals")  # the login is kept
        assert page.url == f"{url}/approvals"


def test_what_was_begun_in_one_browser_does_not_end_in_another(browser: Browser, served: Served) -> None:
    url = served.url.replace("127.0.0.1", "localhost")
    with browser.new_context() as mine, browser.new_context() as other:
        page, victim = mine.new_page(), other.new_page()
        to_the_provider(page, f"{url}/login")
        link = page.get_by_role("link", name="Log in as bea").get_attribute("href")
        victim.goto(f"{page.url.partition('/authorize')[0]}{link}")
        assert "was not begun in this browser" in victim.get_by_role("alert").inner_text()
        victim.goto(f"{url}/events")
        assert "/login" in victim.url
