"""The page about pages has the table of pages, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from support.checkout import ROOT
from support.paged import site_door

PAGE = ROOT / "docs" / "reference" / "pages.md"
ROW = re.compile(r"^\| `(\w+)` \| `(/[^`]*)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


async def test_every_page_has_its_row_and_every_row_its_page(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        rows = [row for row in site.door.listener.table.rows if row.page or row.path.startswith("/static/")]

    assert ROW.findall(PAGE.read_text(encoding="utf-8")) == [
        (row.method, row.path, f"`{row.scope}`" if row.scope else "everybody", row.summary) for row in rows
    ]
