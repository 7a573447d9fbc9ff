"""Takes the pictures of docs/pictures from the pages of a rehearsal that was played: `make pictures`.

Needs Debian's Chromium. The model is scripted, so it costs nothing and needs no credentials.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

PROJECT = Path(__file__).resolve().parents[1]
PICTURES = PROJECT / "docs" / "pictures"
CLAUDEOPS = PROJECT / ".venv" / "bin" / "claudeops"
SCENARIO = "restart-does-not-help"
LONGEST_SECONDS = 180.0
KEPT = ("HOME", "PATH")
PAGES = {
    "now": "/",
    "incident": "/incidents/1",
    "chain": "/chains/1",
    "session": "/sessions/2",
    "services": "/services",
    "service": "/services/checkout",
    "why": "/why?service=checkout",
    "spend": "/spend",
}
"""The pictures, by their names."""

DESK = {"width": 1100, "height": 720}
PHONE = {"width": 390, "height": 720}


def main() -> int:
    """Play, look, write; return the exit status of the rehearsal."""
    with tempfile.TemporaryDirectory(prefix="claudeops-pictures-") as directory:
        environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"TERM": "dumb"}
        here, there = pty.openpty()
        command = [str(CLAUDEOPS), "rehearse", "--pace", "0", SCENARIO]
        with subprocess.Popen(
            command, cwd=directory, env=environment, stdin=there, stdout=there, stderr=there, start_new_session=True
        ) as process:
            screen = Screen(here)
            link = screen.wait_for(r"http://localhost:\d+/setup/\S+")
            screen.wait_for("stay open; Ctrl-C ends them")
            take(link)
            os.killpg(process.pid, signal.SIGINT)
            return process.wait()


class Screen:
    """What a process writes to its terminal."""

    def __init__(self, descriptor: int) -> None:
        self._text = ""
        self._grown = threading.Condition()
        threading.Thread(target=self._read, args=(descriptor,), daemon=True).start()

    def wait_for(self, pattern: str) -> str:
        """Return the first text that fits a pattern, once it is there."""
        with self._grown:
            if not self._grown.wait_for(lambda: re.search(pattern, self._text), LONGEST_SECONDS):
                raise TimeoutError(f"{pattern} did not come:\n{self._text}")
            found = re.search(pattern, self._text)
        return "" if found is None else found.group(0)

    def _read(self, descriptor: int) -> None:
        while content := os.read(descriptor, 65536):
            with self._grown:
                self._text += content.decode(errors="replace")
                self._grown.notify_all()


def take(link: str) -> None:
    """Log in by the link, and take every picture."""
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        state = logged_in(browser, link)
        url = link.partition("/setup/")[0]
        for viewport, scheme, suffix in ((DESK, "light", ""), (PHONE, "dark", "-phone")):
            context = browser.new_context(viewport=viewport, color_scheme=scheme, storage_state=state)
            page = context.new_page()
            for name, path in PAGES.items():
                if suffix and name != "incident":
                    continue
                page.goto(url + path, wait_until="load")
                page.screenshot(path=PICTURES / f"{name}{suffix}.png")
            context.close()
        browser.close()


def logged_in(browser: Browser, link: str) -> object:
    """Return the cookies of a browser that has used the link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    page.get_by_role("button", name="Log in").click()
    state = context.storage_state()
    context.close()
    return state


if __name__ == "__main__":
    sys.exit(main())
