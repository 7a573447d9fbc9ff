"""Files that pages load are ours, or the released ones."""

from __future__ import annotations

import gzip
import re
from hashlib import sha384
from pathlib import Path

from support.checkout import ROOT
from support.paged import site_door

WEB = ROOT / "src" / "claudeops" / "web"


def test_vendored_files_are_as_released() -> None:
    lines = (WEB / "static" / "vendored.txt").read_text(encoding="utf-8").splitlines()
    digests = {name: digest for digest, name in (line.split() for line in lines if not line.startswith("#"))}
    assert digests
    for name, digest in digests.items():
        assert sha384((WEB / "static" / name).read_bytes()).hexdigest() == digest
    assert {file.name for file in (WEB / "static").glob("*.js")} == {
        *digests,
        "page.js",
        "film.js",
        "audit.js",
        "passkey.js",
    }


def test_no_template_marks_a_text_as_markup_or_holds_a_script_or_a_style() -> None:
    files = set((WEB / "templates").glob("*.html")) - {WEB / "templates" / "film_file.html"}  # has our own files in it
    assert len(files) > 20
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe|autoescape|Markup", text), file.name
        assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", text), file.name
        assert all('src="{{ file(' in tag for tag in re.findall(r"<script[^>]*>", text)), file.name


async def test_a_file_is_served_at_its_own_address_for_ever_and_packed(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        address = site.site.pages.files.address("style.css")
        plain = await site.door.ask("GET", address)
        packed = await site.door.ask("GET", address, headers={"accept-encoding": "gzip"})
        assert plain.status == packed.status == 200
        assert gzip.decompress(packed.body) == plain.body == (WEB / "static" / "style.css").read_bytes()
        assert "immutable" in plain.headers["cache-control"]
        for name in ("style.css", "vendored.txt", "..%2f..%2ferrors.py", "page.000000000000.js"):
            assert (await site.door.ask("GET", f"/static/{name}")).status == 404


async def test_all_that_a_first_page_loads_is_at_most_sixty_kilobytes(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        cookie = await site.login()
        first = await site.get("/", cookie, accept_encoding="gzip")
        page = gzip.decompress(first.body).decode()
        sent = len(first.body)
        for address in set(re.findall(r'(?:src|href)="(/static/[^"]*)"', page)):
            sent += len((await site.get(address, {}, accept_encoding="gzip")).body)
        assert sent <= 60 * 1024
        assert len(first.body) <= 15 * 1024
