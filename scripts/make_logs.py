"""Writes the table of docs/reference/logs.md from the vocabulary of the log: ``python scripts/make_logs.py``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from claudeops.logs import LogEvent

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "logs.md"
TABLE: Final = re.compile(r"^\| event \| meaning \|\n(\|.*\n)*", re.MULTILINE)
HEAD: Final = """| event | meaning |
| --- | --- |
"""


def page(text: str) -> str:
    """Return the page with its table made anew."""
    rows = "".join(f"| `{event.value}` | {event.meaning} |\n" for event in LogEvent)
    return TABLE.sub(lambda _: f"{HEAD}{rows}", text, count=1)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
