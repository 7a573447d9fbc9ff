"""docs/reference/doctor.md explains the checks that doctor runs."""

from __future__ import annotations

import re

from claudeops.cli.doctor.command import CHECKS
from support.checkout import ROOT

REFERENCE = ROOT / "docs" / "reference" / "doctor.md"


def test_page_explains_every_check_in_the_order_of_the_run() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    table = re.search(r"^\| check \| what it checks \|\n\| --- \| --- \|\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    assert table is not None

    assert re.findall(r"^\| `([a-z ]+)` \| .+ \|$", table[1], flags=re.MULTILINE) == [check.name for check in CHECKS]
