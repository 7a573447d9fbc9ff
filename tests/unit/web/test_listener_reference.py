"""The page about the listener has the table of endpoints, and no other."""

from __future__ import annotations

import re

from claudeops.web.endpoints import Endpoint
from support.checkout import ROOT
from support.listening import Door

PAGE = ROOT / "docs" / "reference" / "listener.md"


def needed(row: Endpoint) -> str:
    if not row.takes_tokens:
        return "its signature"
    return "nothing" if row.scope is None else f"`{row.scope}`{', or its signature' if row.signer else ''}"


def test_every_endpoint_has_its_row_and_every_row_its_endpoint() -> None:
    found = re.findall(
        r"^\| `(\w+)` \| `(/[^`]*)` \| ([^|]+) \| (\d+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )

    assert found == [
        (
            row.method,
            row.path,
            needed(row),
            str(row.status),
            row.summary,
        )
        for row in Door().listener.table.rows
    ]


def test_labels_of_figures_are_a_closed_set() -> None:
    labels = [row.label for row in Door().listener.table.rows]

    assert len(labels) == len(set(labels))
