"""``claudeops config``: the settings in effect, each with where it comes from; secrets are masked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from claudeops.cli.answer import AnswerShape, CommandAnswer, missing, present
from claudeops.cli.reply import Exit, body_of
from claudeops.cli.text.layout import Column, Layout, Style, TableCell, table
from claudeops.domain.answers import plain
from claudeops.domain.setting import OF_OURS, Setting, chosen
from claudeops.errors import ConfigurationError
from claudeops.settings.shown import effective

_NAME: Final = "config"


def print_config(names: Sequence[str], *, only_set: bool, shape: AnswerShape) -> int:
    """Print the settings whose names hold one of ``names``; return the exit status."""

    def ask(_: datetime) -> CommandAnswer:
        found, fault = effective(os.environ, cwd=Path.cwd())
        shown = chosen(found, names, only_set=only_set)
        if names and not chosen(found, names):
            return missing("setting_not_found", " ".join(names), f"no setting has {' or '.join(names)} in its name")
        body: dict[str, object] = {"settings_count": len(shown), "settings": plain(tuple(shown))}
        if fault is not None:
            body |= body_of(fault, operation=_NAME, target="environment")
        code = Exit.OK if fault is None else Exit.CONFIGURATION
        return CommandAnswer(body=body, draw=partial(_drawn, shown, fault), exit_code=code)

    return present(_NAME, ask, shape)


def _drawn(shown: Sequence[Setting], fault: ConfigurationError | None, looks: Layout) -> Sequence[str]:
    columns = [Column("SETTING"), Column("VALUE", shrinks=True), Column("FROM", shrinks=True)]
    rows = [
        (
            TableCell(setting.name, Style.NAME if setting.used else Style.QUIET),
            setting.value if setting.value is not None else TableCell("-", Style.QUIET),
            TableCell(setting.origin, Style.PLAIN if setting.origin not in OF_OURS else Style.QUIET),
        )
        for setting in shown
    ]
    lines = table(columns, rows, looks) or ["everything is at its default"]
    return [*lines, "", looks.styled(f"wrong: {fault}", Style.BAD)] if fault is not None else lines
