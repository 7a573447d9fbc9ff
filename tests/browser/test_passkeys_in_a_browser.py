"""Passkeys in a real Chromium, with its virtual authenticator: added on a page, and a yes that one signs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, sync_playwright

from support.served_pages import PASSWORD, Served, served_pages

CHROMIUM: Final = shutil.which("chromium") or ""
QUESTION: Final = "/approvals/2"
AUTHENTICATOR: Final = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium on PATH: install chromium (Debian).")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with served_pages(tmp_path) as served:
        served.database.execute("UPDATE approvals SET passkey = true, status = 'pending'")
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Person:
    """A person at a browser, with an authenticator of her own."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.page = context.new_page()
        self.url = url.replace("127.0.0.1", "localhost")
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self._tools = context.new_cdp_session(self.page)
        self._tools.send("WebAuthn.enable")
        made = self._tools.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
        self._authenticator: str = made["authenticatorId"]

    def log_in(self, name: str) -> None:
        self.page.goto(f"{self.url}/login")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        with self.page.expect_navigation():
            self.page.get_by_role("button", name="Log in").click()

    def add(self, name: str) -> None:
        page = self.open("/passkeys")
        page.get_by_label("A name by which you know it").fill(name)
        with page.expect_navigation():
            page.get_by_role("button", name="Add a passkey").click()

    def open(self, path: str) -> Page:
        self.page.goto(self.url + path, wait_until="load")
        return self.page

    def credentials(self) -> list[dict[str, Any]]:
        found = self._tools.send("WebAuthn.getCredentials", {"authenticatorId": self._authenticator})
        listed: list[dict[str, Any]] = found["credentials"]
        return listed

    def take(self, credential: dict[str, Any]) -> None:
        """Put a passkey into this authenticator, whosesoever it is."""
        self._tools.send("WebAuthn.addCredential", {"authenticatorId": self._authenticator, "credential": credential})

    def forget(self) -> None:
        self._tools.send("WebAuthn.clearCredentials", {"authenticatorId": self._authenticator})

    def say_yes(self) -> Response:
        """Press yes, and return what the server has answered to the signature."""
        with self.page.expect_response(lambda one: one.url.endswith(f"{QUESTION}/answer")) as answered:
            self.page.get_by_role("button", name="Yes, run it").first.click()
        return answered.value


@contextmanager
def person(browser: Browser, served: Served) -> Iterator[Person]:
    with browser.new_context() as context:
        yield Person(context, served.url)


def status(served: Served) -> str:
    (row,) = [row for row in served.database.rows("approvals") if row["id"] == 2]
    return str(row["status"])


def test_a_person_adds_a_passkey_and_gives_a_yes_with_it_once(browser: Browser, served: Served) -> None:
    with person(browser, served) as cleo:
        cleo.log_in("cleo")
        cleo.add("this laptop")
        assert "this laptop" in cleo.page.locator("main").inner_text()
        cleo.open(QUESTION)
        with cleo.page.expect_navigation():
            signed = cleo.say_yes()
        assert signed.status == 200
        assert cleo.complaints == []
        assert status(served) == "approved"
        (answer,) = served.database.rows("approval_answers")
        (kept,) = served.database.rows("passkey_assertions")
        assert answer["assertion"] == kept["digest"]

        served.database.execute("UPDATE approvals SET status = 'pending' WHERE id = 2")
        served.database.execute("DELETE FROM approval_answers")
        again = cleo.page.evaluate(
            "async ([path, body]) => (await fetch(path, {method: 'POST', body})).status",
            [f"/api/v1{QUESTION}/answer", signed.request.post_data],
        )
        assert (again, status(served)) == (403, "pending")


def test_without_the_passkey_nothing_is_approved(browser: Browser, served: Served) -> None:
    with person(browser, served) as cleo:
        cleo.log_in("cleo")
        page = cleo.open(QUESTION)
        page.get_by_role("button", name="Yes, run it").click()
        page.get_by_text("add one on the page /passkeys").wait_for()
        cleo.add("this laptop")
        cleo.forget()
        page = cleo.open(QUESTION)
        page.get_by_role("button", name="Yes, run it").click()
        page.get_by_text("The passkey was not used.").wait_for()
        assert status(served) == "pending"
    with browser.new_context(java_script_enabled=False) as context:
        cleo = Person(context, served.url)
        cleo.log_in("cleo")
        page = cleo.open(QUESTION)
        page.get_by_role("button", name="Yes, run it").click()
        assert f"log in to the pages, open {QUESTION}" in page.locator("main").inner_text()
        assert status(served) == "pending"


def test_the_passkey_of_another_person_or_a_signature_under_another_call_approves_nothing(
    browser: Browser, served: Served
) -> None:
    with person(browser, served) as cleo, person(browser, served) as dora:
        for one, name in ((cleo, "cleo"), (dora, "dora")):
            one.log_in(name)
            one.add(f"key of {name}")
        dora.forget()
        (credential,) = cleo.credentials()
        dora.take(credential)
        page = dora.open(QUESTION)
        page.get_by_role("button", name="Yes, run it").click()
        page.get_by_text("The passkey was not used.").wait_for()  # the browser itself finds none of hers
        body = dora.page.evaluate(SIGN, ["/api/v1/approvals/2", credential["credentialId"]])
        assert (body["status"], status(served)) == (403, "pending")
        other = cleo.page.evaluate(SIGN, ["/api/v1/approvals/1", credential["credentialId"]])
        assert (other["status"], status(served)) == (403, "pending")


SIGN: Final = """
async ([path, credential]) => {
  const bytes = (text) => Uint8Array.from(
    atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\\+/g, "-").replace(/\\//g, "_").replace(/=+$/, "");
  const headers = { "content-type": "application/json" };
  const asked = await (await fetch(path + "/challenge", { method: "POST", body: "{}", headers })).json();
  const made = await navigator.credentials.get({ publicKey: {
    challenge: bytes(asked.challenge), rpId: "localhost", userVerification: "required",
    allowCredentials: [{ type: "public-key", id: bytes(credential) }],
  } });
  const passkey = JSON.stringify({ id: made.id, rawId: made.id, type: made.type, response: {
    clientDataJSON: text(made.response.clientDataJSON),
    authenticatorData: text(made.response.authenticatorData),
    signature: text(made.response.signature),
  } });
  const body = JSON.stringify({ answer: "approve", passkey });
  const said = await fetch("/api/v1/approvals/2/answer", { method: "POST", body, headers });
  return { status: said.status, said: await said.json() };
}
"""
"""Signs a challenge with the passkey that it is given, whosesoever it is, and sends that under approval 2."""
