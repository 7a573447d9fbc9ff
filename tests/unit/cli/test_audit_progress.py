"""How far a verification is stands on a terminal, and nowhere else."""

from __future__ import annotations

import io

from claudeops.cli.audit import printed_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_who_waits_sees_how_far_it_is_a_line_a_second() -> None:
    terminal, page = Terminal(), 0
    say = printed_progress(terminal, monotonic=lambda: page * 0.4)

    for page in range(1, 7):
        say(200 * page, 1000 * page)

    lines = terminal.getvalue().split("\r\x1b[2K")[1:]
    assert lines == ["checked: 600 sessions, 3,000 tool calls …", "checked: 1,200 sessions, 6,000 tool calls …"]


def test_a_file_gets_none_of_it() -> None:
    file = io.StringIO()

    say = printed_progress(file, monotonic=iter((0.0, 100.0, 200.0)).__next__)
    say(200, 1000)

    assert file.getvalue() == ""
