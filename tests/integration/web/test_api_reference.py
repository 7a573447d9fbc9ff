"""The page about the API has its table, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from support.checkout import ROOT
from support.paged import site_door

PAGE = ROOT / "docs" / "reference" / "api.md"
ROW = re.compile(r"^\| `(/api[^`]*)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


async def test_every_endpoint_has_its_row_with_its_query(tmp_path: Path) -> None:
    async with site_door(tmp_path) as site:
        rows = [row for row in site.door.listener.table.rows if row.scope == "read" and row.path.startswith("/api/")]
    expected = []
    for row in rows:
        names = getattr(row.query, "__struct_fields__", ())
        expected.append((row.path, ", ".join(f"`{name}`" for name in names) or "\u2013", row.summary))
    assert ROW.findall(PAGE.read_text(encoding="utf-8")) == expected
