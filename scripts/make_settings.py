"""Writes what follows from the declaration of the settings: ``make reference``.

That is the table in settings.md, and claudeops.env, an example of a file of variables as Docker and systemd read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from claudeops.settings.model import GENERAL, PER_TIER
from claudeops.settings.variables import Variable

REFERENCE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGE: Final = REFERENCE / "settings.md"
EXAMPLE: Final = REFERENCE / "claudeops.env"

TABLE: Final = re.compile(r"^\| name \|.*?\n\n", re.MULTILINE | re.DOTALL)
HEAD: Final = """| name | default | value | meaning | used |
| --- | --- | --- | --- | --- |
"""
FIRST: Final = """# Every setting of claudeops that is in use, with its default if there is one. Uncomment what changes.
# settings.md explains them. What belongs to a tier is shown for tier 1; a secret may come from a file by <name>_FILE.
"""


def page(text: str) -> str:
    """Return the page with its table made anew."""
    rows = "".join(f"{_row(variable)}\n" for variable in (*GENERAL, *PER_TIER))
    return TABLE.sub(lambda _: f"{HEAD}{rows}\n", text, count=1)


def example() -> str:
    """Return the example of a file of variables."""
    return FIRST + "".join(_entries())


def _row(variable: Variable[object]) -> str:
    default = variable.default_note or ", ".join(f"`{default}`" for default in variable.defaults) or "none"
    bounds = f"{variable.bounds}, or a file by `{variable.name}_FILE`" if variable.secret else variable.bounds
    used = "yes" if variable.used else "not yet"
    return f"| `{variable.name}` | {default} | {bounds} | {variable.meaning} | {used} |"


def _entries() -> Iterator[str]:
    for variable in (*GENERAL, *PER_TIER):
        name = variable.name.replace("{n}", "1")
        if not variable.used or name == "CLAUDEOPS_TIER1_PROMPT":
            continue
        note = f"; by default {variable.default_note}" if variable.default_note else ""
        about = f"{variable.meaning} ({variable.bounds}{note})".replace("`", "")
        yield "\n" + "".join(f"# {line}\n" for line in wrap(about, 118))
        yield f"#{name}={variable.default or ''}\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    EXAMPLE.write_text(example(), encoding="utf-8")
